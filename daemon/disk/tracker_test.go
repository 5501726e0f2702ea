package disk

import (
	"testing"
	"testing/synctest"
	"time"
)

// A call that takes long makes the pool be looked at, again and again; those that do not, however
// many they are, do not.
func TestSlowCallMakesThePoolBeLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := make(chan time.Time, 10)
		tr := &tracker{look: func() { looks <- time.Now() }, slow: time.Second}
		for range 100 {
			end := tr.begin()
			time.Sleep(300 * time.Millisecond) // of the bubble's clock
			end()
		}
		if len(looks) > 0 {
			t.Error("short calls made the pool be looked at")
		}
		began := time.Now()
		end := tr.begin()
		for i := range 3 {
			at := (<-looks).Sub(began)
			if late := at - time.Duration(i+1)*time.Second; late < 0 || late >= time.Second {
				t.Errorf("look %d after %s, want one for each second", i+1, at)
			}
		}
		end()
		time.Sleep(time.Minute)
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if len(looks) > 0 || tr.armed {
			t.Error("it goes on without a call")
		}
	})
}

// A pool that closed and opened again lets the next calls wait.
func TestTrackerOpensAgain(t *testing.T) {
	tr := &tracker{}
	first := tr.whenClosed()
	tr.close()
	<-first
	select {
	case <-tr.whenClosed():
		t.Error("a call that came after the pool closed returns at once")
	default:
	}
}
