package volume

import (
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// fsyncGroup makes callers share the fsyncs of one directory: who arrives while one is under way
// waits for the next, which one of those who wait does for all of them, on its own descriptor. It
// keeps nothing when the last caller left.
type fsyncGroup struct {
	mu   sync.Mutex
	dirs map[fsyncKey]*shared
	sync func(fd int) error
}

// fsyncKey: descriptors of the same directory of the same mount may stand in for each other. A pool
// that was unmounted and mounted meanwhile has another identity.
type fsyncKey struct {
	pool mounts.Identity
	dir  string
}

type shared struct{ next *turn } // next is nil while no caller waits

type turn struct {
	start, done chan struct{}
	users       int
	err         error
}

// do returns after an fsync that began after it was called.
func (g *fsyncGroup) do(key fsyncKey, fd int) error {
	g.mu.Lock()
	s, busy := g.dirs[key]
	switch {
	case !busy:
		g.dirs[key] = &shared{}
		g.mu.Unlock()
		err := g.sync(fd)
		g.pass(key)
		return err
	case s.next != nil:
		t := s.next
		t.users++
		g.mu.Unlock()
		<-t.done
		return t.err
	default:
		t := &turn{start: make(chan struct{}), done: make(chan struct{}), users: 1}
		s.next = t
		g.mu.Unlock()
		<-t.start
		t.err = g.sync(fd)
		close(t.done)
		g.pass(key)
		return t.err
	}
}

// pass begins the next turn. From here on callers wait for the one after it.
func (g *fsyncGroup) pass(key fsyncKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.dirs[key]
	if s.next == nil {
		delete(g.dirs, key)
		return
	}
	close(s.next.start)
	s.next = nil
}
