package claimindex

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// server is the API server of these tests.
type server struct {
	mu     sync.Mutex
	policy bool  // it has one, or had
	down   error // of its responses
	hangs  bool  // it does not respond
	seen   func(string)
	whole  bool // what an audit finds
	missed int
	nodes  int
	during func() // is called in an audit
	did    journal
}

// journal is what was done. It can be written concurrently.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(&j.text, " "+format, args...)
}

// take returns what was done since it was called last.
func (j *journal) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	return strings.TrimSpace(j.text.String())
}

// change changes the server while it is asked.
func (s *server) change(do func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(s)
}

func (s *server) HasClaimPolicy(ctx context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.did.note("look")
	if s.hangs {
		<-ctx.Done()
	}
	return s.policy && s.down == nil, s.down
}

func (s *server) WatchClaimIndex(ctx context.Context, seen func(string)) {
	s.mu.Lock()
	s.seen = seen
	s.mu.Unlock()
	seen("one")
	<-ctx.Done()
}

func (s *server) AuditClaims(context.Context, Selection) (bool, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.did.note("audit")
	if s.during != nil {
		s.during()
	}
	return s.whole, s.missed, s.down
}

func (s *server) TryClaimPolicy(context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.did.note("try")
	return s.whole, s.down
}

func (s *server) NodeCount(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes, nil
}

// following runs a Follower, and returns what it did since it was asked last.
func following(t *testing.T, s *server, whole string) (did func() string) {
	f := Follower{API: s, Self: plan.Self{Provisioner: "ours", Node: "node-a"}, Whole: whole}
	f.Seen = func() {}
	f.Keep = func(identity string) { s.did.note("keep(%s)", identity) }
	f.Use = func(index bool) { s.did.note("use(%t)", index) }
	f.Told = func(bool, int, error) {}
	go f.Run(t.Context())
	return func() string {
		synctest.Wait()
		return s.did.take()
	}
}

// What a Follower does, in the order of time: each step changes the cluster, or lets time pass.
func TestFollower(t *testing.T) {
	for _, c := range []struct {
		name  string
		whole string // known from an earlier start
		start *server
		steps []step
	}{
		{"no policy", "", &server{}, []step{{nil, 0, "look use(false)"}, {nil, lookAgain, "look"}}},
		{"a server that does not respond", "one", &server{hangs: true}, []step{{nil, startLimit - 1, "look"}, {nil, 1, "use(false)"}, {nil, lookAgain, ""}}},
		{"an unreachable server", "one", &server{down: errors.New("down"), policy: true, whole: true}, []step{
			{nil, 0, "look use(false)"}, {func(s *server) { s.down = nil }, retryAfter, "look use(true)"}}},
		{"a new index", "", &server{policy: true, whole: true}, []step{
			{nil, 0, "look use(false)"}, {nil, settle - 1, ""}, {nil, 1, "audit keep(one) use(true)"}, {nil, auditAgain / 2, ""}, {nil, auditAgain / 2, "audit"}}},
		{"an index that was whole", "one", &server{policy: true, whole: true}, []step{
			{nil, 0, "look use(true)"}, {nil, auditSoon, "audit"}}},
		{"another index than was whole", "zero", &server{policy: true, whole: true}, []step{
			{nil, 0, "look use(false)"}, {nil, settle, "audit keep(one) use(true)"}}},
		{"removed and made again", "one", &server{policy: true, whole: true}, []step{
			{nil, 0, "look use(true)"},
			{func(s *server) { s.seen("") }, 0, "use(false)"}, {nil, auditAgain, ""},
			{func(s *server) { s.seen("two") }, settle, "audit keep(two) use(true)"}}},
		{"replaced", "one", &server{policy: true, whole: true}, []step{
			{nil, 0, "look use(true)"}, {func(s *server) { s.seen("two") }, 0, "use(false)"}}},
		{"not in force", "one", &server{policy: true}, []step{
			{nil, 0, "look use(true)"}, {nil, auditSoon, "audit keep() use(false)"}, {nil, auditFailed, "audit keep()"}}},
		{"claims were missed", "one", &server{policy: true, whole: true, missed: 1}, []step{
			{nil, 0, "look use(true)"}, {nil, auditSoon, "audit keep() use(false)"},
			{func(s *server) { s.missed = 0 }, auditFailed, "audit keep(one) use(true)"}}},
		{"claims were missed, and cannot be labelled", "one", &server{policy: true, whole: true}, []step{
			{nil, 0, "look use(true)"}, {func(s *server) { s.missed, s.down = 1, errors.New("refused") }, auditSoon, "audit keep() use(false)"}}},
		{"claims from before", "", &server{policy: true, whole: true, missed: 1}, []step{
			{nil, 0, "look use(false)"}, {nil, settle, "audit keep(one) use(true)"}}},
		{"an audit that fails", "", &server{policy: true, whole: true}, []step{
			{nil, 0, "look use(false)"}, {func(s *server) { s.down = errors.New("down") }, settle, "audit"},
			{func(s *server) { s.down = nil }, retryAfter, "audit keep(one) use(true)"}}},
		{"500 nodes", "one", &server{policy: true, whole: true, nodes: 500}, []step{
			{nil, 0, "look use(true)"}, {nil, auditSoon, "try"}, {nil, 4 * auditSoon, "audit"}}},
		{"500 nodes, not in force", "one", &server{policy: true, nodes: 500}, []step{
			{nil, 0, "look use(true)"}, {nil, auditSoon, "try keep() use(false)"}, {nil, auditFailed, "audit keep()"}}},
		{"500 nodes, a new index", "", &server{policy: true, whole: true, nodes: 500}, []step{
			{nil, 0, "look use(false)"}, {nil, 50*auditSpan + settle, "audit keep(one) use(true)"}}},
		{"removed during an audit", "", &server{policy: true, whole: true}, []step{
			{nil, 0, "look use(false)"}, {func(s *server) { s.during = func() { s.during = nil; s.seen("") } }, settle, "audit"}, {nil, auditAgain, ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				did := following(t, c.start, c.whole)
				for i, step := range c.steps {
					if step.change != nil {
						c.start.change(step.change)
					}
					time.Sleep(step.wait)
					if got := did(); got != step.want {
						t.Fatalf("step %d: %q, want %q", i, got, step.want)
					}
				}
			})
		})
	}
}

type step struct {
	change func(*server)
	wait   time.Duration // of the test's own clock
	want   string
}

// The daemons of a cluster do not all read its claims at once, and in a large one each does so less
// often.
func TestFirstAuditsAreSpread(t *testing.T) {
	const span = 5 * auditSpan // 500 nodes are five times nodesOfPace
	early := 0
	for i := range 500 {
		f := Follower{API: &server{nodes: 500}, Self: plan.Self{Node: fmt.Sprint("node-", i)}}
		switch wait := f.firstAudit(t.Context(), "one"); {
		case wait < settle || wait > settle+10*span:
			t.Fatalf("node %d waits %s", i, wait)
		case wait < settle+span:
			early++
		}
	}
	if early < 1 || early > 20 {
		t.Errorf("%d of 500 in the first %s", early, span)
	}
}
