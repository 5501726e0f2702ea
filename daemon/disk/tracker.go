package disk

import (
	"sync"
	"time"
)

// tracker knows the calls that are under way in a pool, and tells them that the pool was closed.
// All calls share one timer: one for each would wake a thread each time.
type tracker struct {
	look func()
	slow time.Duration // how long a call may take before the pool is looked at, again and again

	mu     sync.Mutex
	closed chan struct{}
	calls  map[*byte]time.Time // when each that is under way began
	armed  bool                // overdue will be called
}

// whenClosed returns a channel that is closed when the pool closes next.
func (t *tracker) whenClosed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.closed = make(chan struct{})
	}
	return t.closed
}

func (t *tracker) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		close(t.closed)
		t.closed = nil
	}
}

// begin notes a call for as long as its caller waits for it, that is until end.
func (t *tracker) begin() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = map[*byte]time.Time{}
	}
	call := new(byte)
	t.calls[call] = time.Now()
	if !t.armed {
		t.armed = true
		t.arm()
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.calls, call)
	}
}

func (t *tracker) arm() { time.AfterFunc(max(t.slow, time.Millisecond), t.overdue) }

// overdue has the pool looked at if a call takes long.
func (t *tracker) overdue() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.armed = len(t.calls) > 0; !t.armed {
		return
	}
	t.arm()
	if t.isLate() {
		t.look()
	}
}

// late reports whether a call takes long.
func (t *tracker) late() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isLate()
}

func (t *tracker) isLate() bool {
	for _, began := range t.calls {
		if time.Since(began) >= t.slow {
			return true
		}
	}
	return false
}
