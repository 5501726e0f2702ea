package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// gateTimes is how long it took to close the gate after one act, in the order of the rounds.
type gateTimes struct {
	act   string
	since []time.Duration // from before the call that changed the mount
	after []time.Duration // from its return; negative: the gate was closed before the call returned
}

// measureGate closes and opens the pool again and again while nothing else goes on. The moment of
// the closing is the product's own: "since" in its status file, which is read off the clock on the
// way into gate.Set, in nanoseconds and by the same clock as here. The notify socket tells when to
// read it.
func (e *environment) measureGate(ctx context.Context, a act, rounds int) gateTimes {
	t := gateTimes{act: a.name}
	for range rounds {
		e.waitStatus(ctx, "1 of 1 pool open")
		before, after := e.timed(a)
		e.waitStatus(ctx, "0 of 1 pool open")
		closed := e.closedAt()
		t.since, t.after = append(t.since, closed.Sub(before)), append(t.after, closed.Sub(after))
		e.Must(a.undo(e.fixture), "undoing: "+a.name)
	}
	e.waitStatus(ctx, "1 of 1 pool open")
	return t
}

func (e *environment) timed(a act) (before, after time.Time) {
	for end := time.Now().Add(harness.Timeout); ; {
		before = time.Now()
		err := a.do(e.fixture)
		after = time.Now()
		if !errors.Is(err, unix.EBUSY) || before.After(end) {
			e.Must(err, a.name)
			return before, after
		}
		time.Sleep(time.Millisecond)
	}
}

// closedAt reads when the pool was closed.
func (e *environment) closedAt() time.Time {
	var status struct {
		Pools []struct {
			Open  bool
			Since time.Time
		}
	}
	data, err := os.ReadFile(e.Daemon.Path("run", "status.json"))
	e.Must(err, "reading the status file")
	e.Must(json.Unmarshal(data, &status), "reading the status file")
	if len(status.Pools) != 1 || status.Pools[0].Open {
		e.Fatalf("the status file disagrees with STATUS: %s", data)
	}
	return status.Pools[0].Since
}

// percentile is the smallest value that so many percent of all are not above.
func percentile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

func (t gateTimes) line() string {
	show := func(all []time.Duration) string {
		return fmt.Sprintf("%7s %7s %7s", ms(percentile(all, 50)), ms(percentile(all, 99)), ms(percentile(all, 100)))
	}
	return fmt.Sprintf("  %-34s %6d  %s  %s", t.act, len(t.since), show(t.since), show(t.after))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }
