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
			{"about another object", "b", "closed", 0, true},
			{"another message", "a", "full, 3 GiB are missing", 0, true},
			{"the same with another number", "a", "full, 4 GiB are missing", 0, false},
			{"just before events expire", "a", "full, 5 GiB are missing", Repeat - time.Second, false},
			{"a message that lasts, after a while", "a", "full, 5 GiB are missing", 2 * time.Second, true},
		} {
			time.Sleep(step.after) // of the bubble's clock
			if got := d.New(step.key, step.text); got != step.want {
				t.Errorf("step %d, %s: %t, want %t", i, step.name, got, step.want)
			}
		}
	})
}

// An object whose state changes to and fro has each message once, and the one that lasts is the
// last one written.
func TestDedupHoldsWhatChangesToAndFro(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Dedup
		written := []string{}
		step := func(text string) {
			if d.New("a", text) {
				written = append(written, text)
			}
			time.Sleep(time.Second)
		}
		for range 300 {
			step("closed")
			step("hangs")
		}
		if fmt.Sprint(written) != "[closed hangs]" {
			t.Errorf("in ten minutes %q were written, want each once", written)
		}
		if held := d.Held("a"); held != 0 {
			t.Errorf("held for %s, and the present message is the last one written", held)
		}
		step("closed")
		held := d.Held("a")
		if held <= 0 || held > Settle {
			t.Fatalf("held for %s, want up to %s: it is not the last one written", held, Settle)
		}
		time.Sleep(held)
		step("closed")
		if fmt.Sprint(written) != "[closed hangs closed]" {
			t.Errorf("%q were written: the last one is not the one that lasts", written)
		}
		for i := range 3 * history { // an object has many different messages: each is written
			step(fmt.Sprint("reason ", string(rune('a'+i))))
		}
		if len(written) != 3+3*history || len(d.objects["a"].written) > history {
			t.Errorf("%d were written, %d are remembered", len(written), len(d.objects["a"].written))
		}
	})
}

// That something is over is written once for each time that it was written that it is not.
func TestDedupRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Dedup
		if d.Recovered("a", "there") {
			t.Error("nothing was written before")
		}
		d.New("a", "missing")
		if !d.Recovered("a", "there") || d.Recovered("a", "there") {
			t.Error("it is over once")
		}
		time.Sleep(2 * Repeat) // of the bubble's clock
		if d.Recovered("a", "there") || d.Held("a") != 0 {
			t.Error("it is over once, however long it lasts")
		}
		for range 60 {
			d.New("a", "missing")
			time.Sleep(time.Second)
			d.Recovered("a", "there")
			time.Sleep(time.Second)
		}
		time.Sleep(Settle)
		d.Recovered("a", "there")
		if last := d.objects["a"].written[1].text; len(d.objects["a"].written) != 2 || last != "there" {
			t.Errorf("the last one of %d messages is %q", len(d.objects["a"].written), last)
		}
	})
}

func TestDedupResolve(t *testing.T) {
	var d Dedup
	if d.Resolve("a") || d.Written("a") || d.Held("a") != 0 {
		t.Error("nothing was written about a, and it was resolved")
	}
	d.New("a", "closed")
	if !d.Written("a") || !d.Resolve("a") || d.Resolve("a") || d.Written("a") {
		t.Error("a message is resolved once")
	}
	if !d.New("a", "closed") {
		t.Error("what comes again after it was resolved is to be written")
	}
	if d.Retract("a"); d.Written("a") || !d.New("a", "closed") {
		t.Error("what was not written after all is to be written")
	}
	d.Forget("a")
	if len(d.objects) != 0 {
		t.Errorf("%d entries are left for objects that are gone", len(d.objects))
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
