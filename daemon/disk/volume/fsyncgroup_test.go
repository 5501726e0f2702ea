package volume

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Who comes while an fsync is under way shares the next one: 1 + 1 for any number of callers. None
// returns after one that began before it came, and an error reaches all that shared it.
func TestFsyncGroup(t *testing.T) {
	const callers = 20
	first, calls := make(chan struct{}), atomic.Int32{}
	g := fsyncGroup{next: map[fsyncKey]*turn{}}
	g.sync = func(int) error {
		if calls.Add(1) == 1 {
			<-first
			return nil
		}
		return unix.EIO
	}
	key := fsyncKey{mounts.Identity{Inode: 1}, "volumes"}
	var wait sync.WaitGroup
	errs := make([]error, callers)
	wait.Go(func() { errs[0] = g.do(key, 1) })
	for calls.Load() == 0 {
		runtime.Gosched()
	}
	for i := 1; i < callers; i++ {
		wait.Go(func() { errs[i] = g.do(key, 1) })
	}
	for waiting(&g, key) < callers-1 {
		runtime.Gosched()
	}
	if err := g.do(fsyncKey{mounts.Identity{Inode: 2}, "volumes"}, 2); !errors.Is(err, unix.EIO) || calls.Load() != 2 {
		t.Errorf("another pool's directory waited: %v", err)
	}
	close(first)
	wait.Wait()
	for i, err := range errs {
		if (i == 0) != (err == nil) {
			t.Errorf("caller %d: %v", i, err)
		}
	}
	if calls.Load() != 3 || len(g.next) != 0 || g.turns.Users(fmt.Sprint(key)) != 0 {
		t.Errorf("%d fsyncs, want 3; %d groups left", calls.Load(), len(g.next))
	}
}

// waiting counts the callers of a key that share the next fsync.
func waiting(g *fsyncGroup, key fsyncKey) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.next[key]; t != nil {
		return t.users
	}
	return 0
}
