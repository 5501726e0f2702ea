package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// indexed is an API server with a policy that labels kept volumes, or not.
type indexed struct {
	*api
	mu       sync.Mutex
	identity string // of the policy, "" for none
	applied  bool   // it is
	missed   []*corev1.PersistentVolume
	kept     []*corev1.PersistentVolume
	during   func() // is called while volumes are read
	did      strings.Builder
}

func (s *indexed) VolumeIndex(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(&s.did, " look")
	return s.identity, s.err()
}

func (s *indexed) EachKept(_ context.Context, claims []string, visit func(*corev1.PersistentVolume)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.did, " kept%q", slices.Sorted(slices.Values(claims)))
	for _, v := range s.kept {
		if slices.Contains(claims, v.Spec.ClaimRef.Name) {
			visit(v)
		}
	}
	if s.during != nil {
		s.during()
	}
	return s.err()
}

func (s *indexed) EachMissed(_ context.Context, visit func(*corev1.PersistentVolume)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(&s.did, " all")
	for _, v := range s.missed {
		visit(v)
	}
	return s.err()
}

func (s *indexed) TryVolumeIndex(context.Context, *corev1.PersistentVolume) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(&s.did, " try")
	return s.applied, s.err()
}

func (s *indexed) FewVolumes(ctx context.Context, limit int64, visit func(*corev1.PersistentVolume)) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(&s.did, " few")
	return s.api.FewVolumes(ctx, limit, visit)
}

// indexStep is a step of a test: what changes, how long passes, and what the daemon requests
// meanwhile and knows then. may is whether a claim may be provisioned after that, and by what
// requests; "" for no claim.
type indexStep struct {
	change   func(*indexed)
	wait     time.Duration
	did      string
	identity string
	before   int
	claim    string
	may      bool
	by       string
}

// own has one volume of this node.
type own struct{ none[*corev1.PersistentVolume] }

func (own) List() []*corev1.PersistentVolume { return []*corev1.PersistentVolume{{}} }

// The index of kept volumes is used when it was seen to be whole, and no longer than until it is
// changed or removed, however short before a look that is.
func TestKeptIndex(t *testing.T) {
	const byLabel = `kept["c"] look`
	keep := func(s *indexed) { s.identity, s.applied = "one", true }
	for name, c := range map[string]struct {
		known KeptIndex
		begin func(*indexed)
		steps []indexStep
	}{
		"no policy": {KeptIndex{}, func(*indexed) {}, []indexStep{
			{did: "look", claim: "c", may: true, by: "few"}, {wait: indexLook, did: "look", claim: "c", may: true, by: "few"}}},
		"a new policy": {KeptIndex{}, keep, []indexStep{
			{did: "look", claim: "c", may: true, by: "few"}, {wait: indexSettle - 1, claim: "c", may: true, by: "few"},
			{wait: 1, did: "look try all", identity: "one", claim: "c", may: true, by: byLabel}}},
		"known from before a restart":   {KeptIndex{Identity: "one"}, keep, []indexStep{{did: "look", identity: "one", claim: "c", may: true, by: byLabel}}},
		"another than before a restart": {KeptIndex{Identity: "zero"}, keep, []indexStep{{did: "look", claim: "c", may: true, by: "few"}}},
		"read again": {KeptIndex{Identity: "one"}, keep, []indexStep{
			{did: "look", identity: "one"}, {change: func(s *indexed) { s.missed = []*corev1.PersistentVolume{keptFor("c")} }, wait: indexAgain, did: "..."},
			{wait: 0, identity: "one", before: 1, claim: "c", by: byLabel}}},
		"kept, by its label": {KeptIndex{Identity: "one"}, keep, []indexStep{
			{did: "look", identity: "one"}, {change: func(s *indexed) { s.kept = append(s.kept, keptFor("c")) }, identity: "one", claim: "c", by: byLabel}}},
		"kept from before the policy": {KeptIndex{Identity: "one", Before: []corev1.ObjectReference{{Namespace: "ns", Name: "c"}}}, keep, []indexStep{
			{did: "look", identity: "one", before: 1, claim: "c", by: byLabel}}},
		"found from before the policy": {KeptIndex{}, func(s *indexed) { keep(s); s.missed = []*corev1.PersistentVolume{keptFor("c")} }, []indexStep{
			{did: "look"}, {wait: indexSettle, did: "look try all", identity: "one", before: 1, claim: "c", by: byLabel}}},
		"too many from before": {KeptIndex{}, func(s *indexed) {
			keep(s)
			for range beforeAtMost + 1 {
				s.missed = append(s.missed, keptFor("c"))
			}
		}, []indexStep{{did: "look"}, {wait: indexSettle, did: "look try all", claim: "c", may: true, by: "few"}, {wait: indexLook, did: "look"}}},
		"not applied": {KeptIndex{}, func(s *indexed) { s.identity = "one" }, []indexStep{
			{did: "look"}, {wait: indexSettle, did: "look try", claim: "c", may: true, by: "few"}, {wait: indexLook, did: "look try"}}},
		"removed before a look, and something is kept": {KeptIndex{Identity: "one"}, keep, []indexStep{
			{did: "look", identity: "one"},
			{change: func(s *indexed) { s.identity, s.volume = "", keptFor("c") }, identity: "one", claim: "c", by: `kept["c"] look few look`}}},
		"removed during a look, and something is kept": {KeptIndex{Identity: "one"}, keep, []indexStep{
			{did: "look", identity: "one"},
			{change: func(s *indexed) { s.during = func() { s.identity, s.volume = "", keptFor("c") } }, identity: "one", claim: "c", by: `kept["c"] look few look`}}},
		"replaced, and found again": {KeptIndex{Identity: "one"}, keep, []indexStep{
			{did: "look", identity: "one"},
			{change: func(s *indexed) { s.identity = "two" }, identity: "one", claim: "c", may: true, by: `kept["c"] look few look`},
			{wait: indexSettle, did: "look try all", identity: "two", claim: "c", may: true, by: byLabel}}},
		"no response to a look": {KeptIndex{Identity: "one"}, keep, []indexStep{
			{did: "look", identity: "one"}, {change: func(s *indexed) { s.away = true }, identity: "one", claim: "c", by: `kept["c"]`},
			{change: func(s *indexed) { s.away = false }, identity: "one", claim: "c", may: true, by: byLabel}}},
		"many volumes, and an index": {KeptIndex{}, func(s *indexed) { keep(s); s.many = true }, []indexStep{
			{did: "look", claim: "c", by: "few"}, {wait: indexSettle, did: "look try all", identity: "one", claim: "c", may: true, by: byLabel},
			{change: func(s *indexed) { s.identity = "" }, identity: "one", claim: "c", by: `kept["c"] look look`}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &indexed{api: &api{}}
				c.begin(s)
				ctl := New(Options{Self: plan.Self{Node: "node-a"}, API: s, Log: slog.New(slog.DiscardHandler), Listers: Listers{Volumes: own{}}})
				defer ctl.End()
				go ctl.FollowKept(t.Context(), c.known, func(KeptIndex) {})
				wake.Signal(ctl.kept.index.changed)
				for i, step := range c.steps {
					if step.change != nil {
						s.mu.Lock()
						step.change(s)
						s.mu.Unlock()
					}
					s.play(t, ctl, i, step)
				}
			})
		})
	}
}

func (s *indexed) play(t *testing.T, ctl *Controller, i int, step indexStep) {
	t.Helper()
	time.Sleep(step.wait)
	did := func() string {
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		defer s.did.Reset()
		return wordsOf(s.did.String())
	}
	now, known := did(), ctl.kept.index.known.Load()
	if step.did != "..." && (now != wordsOf(step.did) || known.Identity != step.identity || len(known.Before) != step.before) {
		t.Fatalf("step %d: requests %q, known %+v; want %+v", i, now, known, step)
	}
	if step.claim == "" {
		return
	}
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name = "ns", step.claim
	kept, err := ctl.kept.mayBe(t.Context(), ctl.API, claim)
	if by := did(); (!kept && err == nil) != step.may || by != wordsOf(step.by) {
		t.Fatalf("step %d: kept %t, %v, by %q; want %+v", i, kept, err, by, step)
	}
}

// wordsOf are those of a text in alphabetical order: two goroutines send requests.
func wordsOf(text string) string {
	return strings.Join(slices.Sorted(slices.Values(strings.Fields(text))), " ")
}
