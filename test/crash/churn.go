package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

const (
	span       = 250 // a daemon lives for so many points at most; its start has about a quarter of them
	checkEvery = 50  // kills, and then the world is compared
	liveMax    = 20  // claims at once
	volumesMax = 60  // objects at once: a daemon that dies all the time falls behind
)

// churn is claims that come and go while the daemon is killed again and again, so that several
// operations are cut at once, and recoveries in their turn. One thread does all of it.
type churn struct {
	*world
	r      *row
	random *rand.Rand
	live   []*trial // claims that exist
	kept   []*trial // those that are, or will be, archived
	gone   []*trial // those that are deleted, which a kill may have left whole in the trash
	died   <-chan string
	points map[string]bool // at which the daemon died
}

// killAtRandom is the churn.
func (w *world) killAtRandom() *row {
	w.say("killing at random, seed %d", w.opt.seed)
	before := w.serial
	c := &churn{world: w, points: map[string]bool{}, random: rand.New(rand.NewPCG(w.opt.seed, 0)), r: &row{name: fmt.Sprintf("%d random kills under churn", w.opt.kills)}}
	for c.r.kills < w.opt.kills && w.ctx.Err() == nil && c.r.broken < faultsMax {
		c.round(min(checkEvery, w.opt.kills-c.r.kills))
	}
	c.r.points = len(c.points)
	w.say("%s; %d claims came and went", c.r, w.serial-before)
	return c.r
}

// round is some kills, and then the comparison.
func (c *churn) round(kills int) {
	c.load()
	last := time.Now()
	for left := kills; left > 0 && c.ctx.Err() == nil; {
		c.step()
		select {
		case point := <-c.died:
			c.points[point] = true
			<-c.daemon.Exited()
			left, last = left-1, time.Now()
			c.r.kills++
			c.load()
			c.must(c.daemon.Start(), "starting the daemon")
		default:
			if time.Since(last) > c.opt.settle {
				c.Fatalf("the daemon does nothing any more, while claims come and go; its log:\n%s", c.daemon.Log())
			}
		}
	}
	c.killer.arm("", 0)
	c.must(c.daemon.WaitReady(c.soon(), 1), "starting the daemon")
	c.check()
}

// load makes the daemon die soon.
func (c *churn) load() { c.died = c.killer.arm("", 1+c.random.IntN(span)) }

// step lets every claim's pod write, and makes or deletes one claim.
func (c *churn) step() {
	s := c.look()
	for _, t := range c.live {
		if s.claims[t.claim].phase == "Bound" && t.data == "" {
			c.write(t)
		}
	}
	if len(c.live) < 5 || len(c.live) < liveMax && len(s.objects) < volumesMax && c.random.IntN(5) < 3 {
		class := []string{deleted, consumer, archiving}[c.random.IntN(3)]
		t := c.newTrial(operation{class: class, fate: bound})
		t.ask()
		c.live = append(c.live, t)
		return
	}
	i := c.random.IntN(len(c.live))
	t := c.live[i]
	if t.op.class == archiving && t.data == "" {
		return // what becomes of it depends on who is first
	}
	c.live = slices.Delete(c.live, i, i+1)
	c.end(t)
}

// end deletes a claim.
func (c *churn) end(t *trial) {
	t.drop()
	t.fate = gone
	if t.op.class == archiving {
		t.fate = archived
		c.kept = append(c.kept, t)
		return
	}
	t.killed = true
	c.gone = append(c.gone, t)
}

func (c *churn) write(t *trial) {
	if _, err := os.Lstat(t.volume); err != nil {
		c.blame([]fault{{loss, fmt.Sprintf("claim %s is bound and its directory is not there: %v", t.claim, err)}})
		t.data = "lost"
		return
	}
	t.write()
}

// check compares the world twice: with the claims that are left, and without.
func (c *churn) check() {
	if c.settled() {
		for _, t := range c.live {
			c.end(t)
		}
		c.live = nil
		if c.settled() && c.dropped() {
			for _, t := range c.kept {
				t.rid("archive")
			}
			c.kept = nil
			return
		}
	}
	c.live, c.kept, c.gone = nil, nil, nil
	c.scrub()
}

// dropped removes what kills left in the trash; then nothing is left of what was deleted.
func (c *churn) dropped() bool {
	var wishes []wish
	for _, t := range c.gone {
		wishes = append(wishes, t.wish)
	}
	c.dropKept(wishes...)
	c.gone = nil
	return c.settled()
}

func (c *churn) settled() bool {
	var wishes []wish
	for _, t := range slices.Concat(c.live, c.kept, c.gone) {
		wishes = append(wishes, t.wish)
	}
	faults := c.settle(calm, wishes...)
	c.blame(faults)
	return len(faults) == 0
}

func (c *churn) blame(faults []fault) {
	c.r.blame(fmt.Sprintf("after %d random kills, seed %d", c.r.kills, c.opt.seed), faults)
}
