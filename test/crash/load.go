package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

const (
	span       = 250 // a daemon lives for so many points at most; its start has about a quarter of them
	checkEvery = 50  // kills, and then the state is compared
	liveMax    = 20  // claims at once
	volumesMax = 60  // objects at once: a daemon that dies all the time falls behind
	mibMax     = 3   // that a claim requests: all of them fit in the pool
)

// load is claims that come and go while the daemon is killed again and again, so that several
// operations are cut at once, and recoveries in their turn. One thread does all of it.
type load struct {
	*environment
	r      *row
	random *rand.Rand
	live   []*testCase // claims that exist
	kept   []*testCase // those that are, or will be, archived
	gone   []*testCase // those that are deleted, which a kill may have left whole in the trash
	died   <-chan string
	points map[string]bool // at which the daemon died
}

// killAtRandom kills the daemon under the load.
func (e *environment) killAtRandom() *row {
	e.Say("killing at random, seed %d", e.opt.seed)
	before := e.serial
	l := &load{environment: e, points: map[string]bool{}, random: rand.New(rand.NewPCG(e.opt.seed, 0)), r: &row{name: fmt.Sprintf("%d random kills under load", e.opt.kills)}}
	for l.r.kills < e.opt.kills && e.ctx.Err() == nil && l.r.broken < faultsMax {
		l.round(min(checkEvery, e.opt.kills-l.r.kills))
	}
	l.r.points = len(l.points)
	e.Say("%s; %d claims came and went", l.r, e.serial-before)
	return l.r
}

// round is some kills, and then the comparison.
func (l *load) round(kills int) {
	l.aim()
	last := time.Now()
	for left := kills; left > 0 && l.ctx.Err() == nil; {
		l.step()
		select {
		case point := <-l.died:
			l.points[point] = true
			<-l.Daemon.Exited()
			left, last = left-1, time.Now()
			l.r.kills++
			l.aim()
			l.Must(l.Daemon.Start(), "starting the daemon")
		default:
			if time.Since(last) > harness.Timeout {
				l.Fatalf("the daemon does nothing any more, while claims come and go; its log:\n%s", l.Daemon.Log())
			}
		}
	}
	l.killer.Arm("", 0)
	l.Must(l.Daemon.WaitReady(l.Soon(), 1), "starting the daemon")
	l.check()
}

// aim makes the daemon die soon.
func (l *load) aim() { l.died = l.killer.Arm("", 1+l.random.IntN(span)) }

// step lets every claim's pod write, and makes or deletes one claim.
func (l *load) step() {
	s := l.look()
	for _, t := range l.live {
		if s.claims[t.claim].phase == "Bound" && t.data == "" {
			l.write(t)
		}
	}
	if len(l.live) < 5 || len(l.live) < liveMax && len(s.objects) < volumesMax && l.random.IntN(5) < 3 {
		class := []string{deleted, consumer, archiving}[l.random.IntN(3)]
		t := l.newCase(operation{class: class, outcome: bound})
		t.ask()
		l.live = append(l.live, t)
		return
	}
	i := l.random.IntN(len(l.live))
	t := l.live[i]
	if s.claims[t.claim].phase == "Bound" && t.size() < mibMax && l.random.IntN(2) == 0 {
		t.grow()
		return
	}
	if t.op.class == archiving && t.data == "" {
		return // what becomes of it depends on who is first
	}
	l.live = slices.Delete(l.live, i, i+1)
	l.end(t)
}

// end deletes a claim.
func (l *load) end(t *testCase) {
	t.drop()
	t.outcome, t.growing = gone, true
	if t.op.class == archiving {
		t.outcome = archived
		l.kept = append(l.kept, t)
		return
	}
	t.killed = true
	l.gone = append(l.gone, t)
}

func (l *load) write(t *testCase) {
	if _, err := os.Lstat(t.volume); err != nil {
		l.blame([]fault{{loss, fmt.Sprintf("claim %s is bound and its directory is not there: %v", t.claim, err)}})
		t.data = "lost"
		return
	}
	t.write()
}

// check compares the state twice: with the claims that are left, and without.
func (l *load) check() {
	if l.settled() {
		for _, t := range l.live {
			l.end(t)
		}
		l.live = nil
		if l.settled() && l.dropped() {
			for _, t := range l.kept {
				t.rid("archive")
			}
			l.kept = nil
			return
		}
	}
	l.live, l.kept, l.gone = nil, nil, nil
	l.scrub()
}

// dropped removes what kills left in the trash; then nothing is left of what was deleted.
func (l *load) dropped() bool {
	var expectations []expectation
	for _, t := range l.gone {
		expectations = append(expectations, t.expectation)
	}
	l.dropKept(expectations...)
	l.gone = nil
	return l.settled()
}

func (l *load) settled() bool {
	var expectations []expectation
	for _, t := range slices.Concat(l.live, l.kept, l.gone) {
		expectations = append(expectations, t.expectation)
	}
	faults := l.settle(calm, expectations...)
	l.blame(faults)
	return len(faults) == 0
}

func (l *load) blame(faults []fault) {
	l.r.blame(fmt.Sprintf("after %d random kills, seed %d", l.r.kills, l.opt.seed), faults)
}
