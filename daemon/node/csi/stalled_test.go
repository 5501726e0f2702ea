package csi

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Calls that hang are waited for in time, and at most mostStuck of them are left behind; when they
// return, what they return is given back and there is room again. Other storage is none of theirs.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newStalledCalls(time.Second)
		release, late := make(chan struct{}), make(chan int, mostStuck)
		hang := func(context.Context) (int, error) { <-release; return 7, nil }
		for range mostStuck {
			begin := time.Now()
			if _, err := await(t.Context(), &p, "a", hang, func(n int) { late <- n }); !errors.Is(err, ErrHangs) || time.Since(begin) != time.Second {
				t.Errorf("%v after %s", err, time.Since(begin))
			}
		}
		begin := time.Now()
		if _, err := await(t.Context(), &p, "a", hang, nil); !errors.Is(err, ErrHangs) || time.Since(begin) != 0 {
			t.Errorf("one more: %v after %s", err, time.Since(begin))
		}
		if n, err := await(t.Context(), &p, "b", func(context.Context) (int, error) { return 3, nil }, nil); n != 3 || err != nil {
			t.Errorf("other storage: %d, %v", n, err)
		}
		close(release)
		synctest.Wait()
		if len(late) != mostStuck || <-late != 7 || len(p.stuck) != 0 {
			t.Errorf("%d late results, %v", len(late), p.stuck)
		}
		if n, err := await(t.Context(), &p, "a", hang, nil); n != 7 || err != nil {
			t.Errorf("afterwards: %d, %v", n, err)
		}
	})
}

// Calls that come at once are no more than mostStuck in the kernel: the others wait for a turn, and
// get none while the storage hangs.
func TestPatienceOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newStalledCalls(time.Second)
		var in, most atomic.Int32
		release := make(chan struct{})
		work := func(context.Context) (int, error) {
			now := in.Add(1)
			for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
			}
			<-release
			in.Add(-1)
			return 7, nil
		}
		begin, answers := time.Now(), make(chan error)
		for range 5 * mostStuck {
			go func() { _, err := await(t.Context(), &p, "a", work, nil); answers <- err }()
		}
		for range 5 * mostStuck {
			if err := <-answers; !errors.Is(err, ErrHangs) || time.Since(begin) != time.Second {
				t.Errorf("%v after %s", err, time.Since(begin))
			}
		}
		if most.Load() != mostStuck {
			t.Errorf("%d calls at once, want %d", most.Load(), mostStuck)
		}
		for range 5 * mostStuck {
			go func() { _, err := await(t.Context(), &p, "b", work, nil); answers <- err }()
		}
		synctest.Wait()
		close(release)
		for range 5 * mostStuck {
			if err := <-answers; err != nil {
				t.Errorf("of storage that responds: %v", err)
			}
		}
	})
}

// The driver and kubelet's directory are in the sockets' paths; other sockets are not served.
func TestOnSockets(t *testing.T) {
	dir := hosttest.Dir(t)
	listen := func(name string) net.Listener {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	if err := mkdirs(filepath.Join(dir, "plugins/p"), filepath.Join(dir, "plugins_registry")); err != nil {
		t.Fatal(err)
	}
	csi, reg, other := listen("plugins/p/csi.sock"), listen("plugins_registry/p-reg.sock"), listen("plugins_registry/q-reg.sock")
	if all, err := OnSockets([]net.Listener{csi, reg}); err != nil || len(all) != 1 || all[0].Driver != "p" || string(all[0].Root) != dir {
		t.Errorf("%+v, %v", all, err)
	}
	for _, wrong := range [][]net.Listener{nil, {csi}, {reg, csi}, {csi, other}, {csi, reg, other}, {csi, csi}} {
		if _, err := OnSockets(wrong); err == nil || !strings.Contains(err.Error(), "socket") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
