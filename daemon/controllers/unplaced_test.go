package controllers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// board is an API server that has the events of all nodes and what they publish, and counts what it
// is asked.
type board struct {
	*api
	mu      sync.Mutex
	nodes   int
	events  map[types.UID][]string
	last    map[types.UID]time.Time
	offers  plan.Offers
	off     bool // nothing is compared
	fails   bool
	refused string // what is published
	reads   int    // of what is published
	lookups int    // of events
}

func (b *board) Compared(string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.off {
		return 0
	}
	return b.nodes
}

func (b *board) RefusedFor(string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

func (b *board) Offers(context.Context) (map[string]*plan.Offers, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	if b.fails {
		return nil, errAway
	}
	offers := b.offers
	return map[string]*plan.Offers{"c": &offers}, nil
}

func (b *board) EventLastWritten(_ context.Context, ref corev1.ObjectReference, _, _, _ string) (time.Time, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookups++
	message := ""
	if all := b.events[ref.UID]; len(all) > 0 {
		_, message, _ = strings.Cut(all[len(all)-1], ": ")
	}
	return b.last[ref.UID], message, nil
}

func (b *board) Event(ref corev1.ObjectReference, _, reason, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events[ref.UID] = append(b.events[ref.UID], reason+": "+message)
	b.last[ref.UID] = time.Now()
}

// change lets the nodes publish something else.
func (b *board) change(f func(*board)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

func (b *board) said(uid types.UID) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events[uid]
}

// explaining runs what explains claims on so many nodes, whose pools are closed, while play goes
// on.
func explaining(t *testing.T, nodes, claims int, play func(*board)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(nodes)
		defer b.start(t, claims)()
		play(b)
	})
}

func newBoard(nodes int) *board {
	return &board{api: &api{}, nodes: nodes, events: map[types.UID][]string{}, last: map[types.UID]time.Time{}}
}

// start starts what explains claims on all nodes, and returns what ends it.
func (b *board) start(t *testing.T, claims int) (end func()) {
	all := many{}
	for i := range claims {
		claim := waitingClaim(i, "c")
		claim.Annotations = nil
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		all["ns/"+claim.Name] = claim
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	b.change(func(b *board) { b.offers = plan.Offers{} })
	for i := range b.nodes {
		o := flappingOptions(&mount{}, &audience{}, nil, "c", storagev1.VolumeBindingWaitForFirstConsumer, all)
		o.Node, o.API, o.Events, o.Published = fmt.Sprint("node-", i), b, b, b
		c := New(o)
		c.Gate.Set(hostcheck.Report{Pool: "fast", Findings: []hostcheck.Finding{{Reason: hostcheck.ReasonNotMounted, Severity: hostcheck.Close}}}, time.Now())
		b.change(func(b *board) { b.offers.Add(o.Node, hostcheck.ReasonNotMounted, 0) })
		running.Go(func() {
			c.explain(ctx)
			c.Run(ctx, make(chan struct{}), nil) // ends its queues
		})
	}
	return func() { cancel(); running.Wait() }
}

// One of the nodes tells each claim, once; again when something else is true, and nothing when it
// fits.
func TestOneNodeExplains(t *testing.T) {
	for _, nodes := range []int{1, 3, 100} {
		explaining(t, nodes, 3, func(b *board) {
			time.Sleep(time.Second)
			if len(b.said("0")) != 0 {
				t.Error("told at once: the scheduler may still choose a node")
			}
			time.Sleep(5 * time.Minute)
			for _, uid := range []types.UID{"0", "1", "2"} {
				if got := b.said(uid); len(got) != 1 || !strings.HasPrefix(got[0], "NoNodeFits: no node is known to have room for the claim") {
					t.Errorf("%d nodes: claim %s: %q", nodes, uid, got)
				}
			}
			b.change(func(b *board) { b.offers.Add("node-x", "", 1) })
			time.Sleep(2 * time.Minute)
			if got := b.said("0"); len(got) != 2 || !strings.Contains(got[1], "1 B, on node-x") {
				t.Errorf("%d nodes: after a change: %q", nodes, got)
			}
			b.change(func(b *board) { b.offers.Largest = 1 << 40 })
			time.Sleep(time.Hour)
			if got := b.said("0"); len(got) != 2 {
				t.Errorf("%d nodes: told although it fits: %q", nodes, got)
			}
		})
	}
}

// What changed while daemons were restarted is told soon, although the claim was told something
// just before, and told once.
func TestChangedReasonAfterARestart(t *testing.T) {
	for _, nodes := range []int{1, 3, 100} {
		synctest.Test(t, func(t *testing.T) {
			b := newBoard(nodes)
			for i, want := range []string{"", "", "1 B, on node-x", "1 B, on node-y"} {
				end := b.start(t, 3)
				if name, changed := strings.CutPrefix(want, "1 B, on "); changed {
					b.change(func(b *board) { b.offers.Add(name, "", 1) })
				}
				time.Sleep(3 * time.Minute)
				for _, uid := range []types.UID{"0", "1", "2"} {
					if got := b.said(uid); len(got) != max(1, i) || !strings.Contains(got[len(got)-1], want) {
						t.Errorf("%d nodes, start %d: claim %s was told %q, want %q at last", nodes, i, uid, got, want)
					}
				}
				end()
			}
		})
	}
}

// Claims of a class that nothing may be published for are told so, once, though they fit.
func TestClassThatIsNotListed(t *testing.T) {
	explaining(t, 3, 1, func(b *board) {
		b.change(func(b *board) { b.refused = "no such class"; b.offers.Add("large", "", 1<<40) })
		time.Sleep(5 * time.Minute)
		got := b.said("0")
		if len(got) != 1 || !strings.HasPrefix(got[0], "APIRefused: the scheduler finds no room") || !strings.HasSuffix(got[0], "no such class") {
			t.Errorf("told %q", got)
		}
	})
}

// Nothing is told, and next to nothing asked, where a claim may fit on another node, where nothing
// is compared, and where that is not known.
func TestNotExplained(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*board)
		reads  int // at most, in an hour
	}{
		"it fits elsewhere":    {func(b *board) { b.offers.Add("large", "", 1<<40) }, 70},
		"nothing is compared":  {func(b *board) { b.off = true }, 0},
		"the API server fails": {func(b *board) { b.fails = true }, 130},
	} {
		explaining(t, 1, 3, func(b *board) {
			b.change(c.change)
			time.Sleep(time.Hour)
			if got := b.said("0"); len(got) != 0 || b.reads > c.reads {
				t.Errorf("%s: told %q, %d reads", name, got, b.reads)
			}
		})
	}
}

// A pool that was closed for a moment is no reason to tell a claim that waits for its pod.
func TestExplainedIfItLasts(t *testing.T) {
	explaining(t, 1, 1, func(b *board) {
		for range 100 {
			b.change(func(b *board) { b.offers.Largest = 1 << 40 })
			time.Sleep(7100 * time.Millisecond) // so that a look a minute meets each part of it
			b.change(func(b *board) { b.offers.Largest = 0 })
			time.Sleep(3 * time.Second)
		}
		if got := b.said("0"); len(got) != 0 {
			t.Errorf("told: %q", got)
		}
	})
}

// A tenant with very many claims that fit on no node gets a bounded number of events, and each node
// asks a bounded number of times. How many claims are held is package claimfilter's.
func TestExplanationsAreBounded(t *testing.T) {
	const claims = 2000
	explaining(t, 2, claims, func(b *board) {
		time.Sleep(3 * time.Minute)
		told := 0
		for i := range claims {
			told += len(b.said(types.UID(fmt.Sprint(i))))
		}
		if most := 2 * (1000 + 180); told == 0 || told > most { // report.Limiter: 1,000 at once, and one a second
			t.Errorf("%d events, want %d at most", told, most)
		}
		if most := 2 * 180 * explainLooks * int(time.Second/explainPause); b.lookups > most ||
			b.reads > 2*180/3 {
			t.Errorf("%d events were looked up, want %d at most; %d reads", b.lookups, most, b.reads)
		}
	})
}
