package keylock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// One call at a time works on a name, others on other names; one that gives up leaves nothing.
func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Locks
		done, err := all.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := all.Take(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := all.Take(impatient, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, free := all.Try("a"); free {
			t.Error("it is free while a call works on it")
		}
		next := make(chan func())
		go func() { d, _ := all.Take(t.Context(), "a"); next <- d }()
		synctest.Wait()
		select {
		case <-next:
			t.Error("two calls work on one name")
		default:
		}
		if n := all.Users("a"); n != 2 {
			t.Errorf("%d users, want the one that works and the one that waits", n)
		}
		done()
		(<-next)()
		done, free := all.Try("a")
		if !free {
			t.Fatal("it is not free after the calls")
		}
		done()
		if len(all.all) != 0 {
			t.Errorf("left: %v", all.all)
		}
	})
}

// As many calls as may work at a time.
func TestMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := Locks{Most: 2}
		for range 2 {
			if _, err := all.Take(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := all.Take(impatient, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
