package report

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestDedupWritesAMessageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Dedup
		for i, step := range []struct {
			name, key, text string
			after           time.Duration
			want            bool
		}{
			{"the first message", "a", "closed", 0, true},
			{"the same again", "a", "closed", time.Second, false},
			{"the same with other numbers", "a", "closed", time.Second, false},
			{"about another object", "b", "closed", 0, true},
			{"another message", "a", "full, 3 GiB are missing", 0, true},
			{"the same with another number", "a", "full, 4 GiB are missing", 0, false},
			{"the first message again", "a", "closed", 0, true},
			{"just before events expire", "a", "closed", Repeat - time.Second, false},
			{"a message that lasts, after a while", "a", "closed", 2 * time.Second, true},
		} {
			time.Sleep(step.after) // of the bubble's clock
			if got := d.New(step.key, step.text); got != step.want {
				t.Errorf("step %d, %s: %t, want %t", i, step.name, got, step.want)
			}
		}
	})
}

func TestDedupResolve(t *testing.T) {
	var d Dedup
	if d.Resolve("a") || d.Written("a") {
		t.Error("nothing was written about a, and it was resolved")
	}
	d.New("a", "closed")
	if !d.Written("a") || !d.Resolve("a") || d.Resolve("a") || d.Written("a") {
		t.Error("a message is resolved once")
	}
	if !d.New("a", "closed") {
		t.Error("what comes again after it was resolved is to be written")
	}
	d.Forget("a")
	if len(d.last) != 0 {
		t.Errorf("%d entries are left for objects that are gone", len(d.last))
	}
}

// Of the workers that have the same message about an object, one writes it.
func TestDedupIsForManyWorkers(t *testing.T) {
	var d Dedup
	var all sync.WaitGroup
	written := make(chan string, 1000)
	for range 16 {
		all.Go(func() {
			for i := range 50 {
				if key := fmt.Sprint(i); d.New(key, "closed") {
					written <- key
				}
			}
		})
	}
	all.Wait()
	if len(written) != 50 {
		t.Errorf("%d messages about 50 objects", len(written))
	}
}
