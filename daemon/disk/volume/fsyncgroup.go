package volume

import (
	"context"
	"fmt"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/keylock"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// fsyncGroup makes callers share the fsyncs of one directory: who arrives while one is under way
// waits for the next, which one of those who wait does for all of them, on its own descriptor. It
// keeps nothing when the last caller left.
type fsyncGroup struct {
	sync  func(fd int) error
	turns keylock.Locks // one fsync of a directory at a time

	mu   sync.Mutex
	next map[fsyncKey]*turn // that have not begun
}

// fsyncKey: descriptors of the same directory of the same mount may stand in for each other. A pool
// that was unmounted and mounted meanwhile has another identity.
type fsyncKey struct {
	pool mounts.Identity
	dir  string
}

type turn struct {
	once  sync.Once
	users int
	err   error
}

// do returns after an fsync that began after it was called.
func (g *fsyncGroup) do(key fsyncKey, fd int) error {
	g.mu.Lock()
	t := g.next[key]
	if t == nil {
		t = &turn{}
		g.next[key] = t
	}
	t.users++
	g.mu.Unlock()
	t.once.Do(func() {
		done, err := g.turns.Take(context.Background(), fmt.Sprint(key))
		if t.err = err; err != nil {
			return
		}
		defer done()
		g.mu.Lock()
		delete(g.next, key) // from here on callers wait for the one after it
		g.mu.Unlock()
		t.err = g.sync(fd)
	})
	return t.err
}
