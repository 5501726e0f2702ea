package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	testpool "github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// report is of a pool whose directory has this inode; its free space is the same number, to tell
// reports apart.
func report(inode uint64, findings ...hostcheck.Finding) hostcheck.Report {
	return hostcheck.Report{Pool: "fast", Identity: mounts.Identity{Inode: inode}, Size: 1 << 40, Available: 1 << 40, Free: inode, Findings: findings}
}

var (
	broken = hostcheck.Finding{Reason: "NotMounted", Severity: hostcheck.Close, Message: "it is not mounted"}
	full   = hostcheck.Finding{Reason: "LowSpace", Severity: hostcheck.Full, Message: "it is full"}
)

// pool is an open pool on a storage.
func pool(s Storage) (*Pool, *gate.Gate) {
	g := gate.New("fast")
	g.Set(report(1), time.Now())
	return poolAt(g, s), g
}

func poolAt(g Gate, s Storage) *Pool {
	return New(Options{Name: "fast", Gate: g, Storage: s, Look: func() {}, Slow: time.Hour})
}

func open(t *testing.T, p *Pool) Handle {
	t.Helper()
	h, ok := p.Open(t.Context())
	if !ok {
		t.Fatal("the pool is not open")
	}
	return h
}

// seen is a storage that notes the inode that each call was given.
type seen struct {
	Storage
	inodes []uint64
}

func (s *seen) Trash(_ context.Context, id mounts.Identity, _ string) error {
	s.inodes = append(s.inodes, id.Inode)
	return nil
}

func (s *seen) Create(_ context.Context, id mounts.Identity, _ volume.Spec) (string, error) {
	s.inodes = append(s.inodes, id.Inode)
	return "", nil
}

func (s *seen) List(context.Context, mounts.Identity) (volume.Inventory, error) {
	return volume.Inventory{}, nil
}

// What was decided for one directory is done in that one or refused, whatever the gate learnt
// since. This is what volume.Pool compares (TestReplacedDirectory).
func TestHandleKeepsItsIdentity(t *testing.T) {
	s := &seen{}
	p, g := pool(s)
	h := open(t, p)
	g.Set(report(2), time.Now()) // other storage, found in order
	if err := h.Trash("pvc-1"); err != nil || h.State.Report.Free != 1 || len(s.inodes) != 1 || s.inodes[0] != 1 {
		t.Errorf("decided by the report of %d, done in %v: %v", h.State.Report.Free, s.inodes, err)
	}
}

// flipping is a gate that has another report each time that it is asked.
type flipping struct{ asked uint64 }

func (f *flipping) State(string) gate.State {
	f.asked++
	return gate.State{Checked: true, Report: report(f.asked)}
}

// The state that facts are made of and the identity that acts are given are of one report, however
// often the gate changes meanwhile.
func TestStateAndIdentityAreOfOneMoment(t *testing.T) {
	s, g := &seen{}, &flipping{}
	p := poolAt(g, s)
	for i := range uint64(3) {
		h := open(t, p)
		if err := h.Trash("pvc-1"); err != nil || h.State.Report.Free != i+1 || s.inodes[i] != i+1 || g.asked != i+1 {
			t.Errorf("decided by the report of %d, done in %d, after %d questions: %v", h.State.Report.Free, s.inodes[i], g.asked, err)
		}
	}
}

// A pool that closed has ended its handles, also when it is open again, and nothing reaches the
// storage.
func TestClosedPoolEndsItsHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seen{}
		p, g := pool(s)
		before := open(t, p)
		g.Set(report(1, broken), time.Now())
		p.Close()
		closed, ok := p.Open(t.Context())
		if reason, _ := closed.State.Closed(); ok || reason != "NotMounted" {
			t.Errorf("opened: %t, closed because of %q", ok, reason)
		}
		g.Set(report(1), time.Now())
		for name, h := range map[string]Handle{"opened before": before, "opened while it was closed": closed, "the zero handle": {}} {
			trashed, created := h.Trash("pvc-1"), h.Create(volume.Spec{})
			synctest.Wait()
			if !errors.Is(trashed, volume.ErrDirectoryReplaced) || !errors.Is(created, volume.ErrDirectoryReplaced) || len(s.inodes) > 0 {
				t.Errorf("%s: got %v and %v, want ErrDirectoryReplaced, which is tried again; done in %v", name, trashed, created, s.inodes)
			}
		}
		if err := open(t, p).Trash("pvc-1"); err != nil || len(s.inodes) != 1 {
			t.Errorf("opened again: %v, calls in %v", err, s.inodes)
		}
	})
}

// A full pool is open for what removes; a pool that is being opened is, for what has to be read
// before.
func TestOpenFor(t *testing.T) {
	p, g := pool(&seen{})
	g.Set(report(1, full), time.Now())
	if h := open(t, p); h.State.Open() || h.Trash("pvc-1") != nil {
		t.Error("nothing can be removed from a full pool")
	}
	g.Set(report(1, broken), time.Now())
	if h, ok := p.Opening(t.Context(), report(2)); !ok || h.Trash("pvc-1") != nil {
		t.Error("nothing can be done in a pool that was found in order")
	}
	if h, ok := p.Opening(t.Context(), report(2, broken)); ok || !errors.Is(h.Trash("pvc-1"), volume.ErrDirectoryReplaced) {
		t.Error("work is done in a pool that was not found in order")
	}
}

// A real pool whose directory is replaced between the decision and the call is refused, and nothing
// is made in what stands there.
func TestReplacedDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	id := testpool.Identity(t, path)
	p, g := pool(volume.New(volume.Options{Name: "fast", Path: path}))
	g.Set(hostcheck.Report{Pool: "fast", Identity: id}, time.Now())
	h := open(t, p)
	if err := errors.Join(os.Rename(path, path+".old"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	err := h.Create(volume.Spec{Record: record.Record{PV: "pvc-1", Directory: "pvc-1"}, Mode: 0o700})
	if entries, _ := os.ReadDir(path); !errors.Is(err, volume.ErrDirectoryReplaced) || len(entries) > 0 {
		t.Errorf("got %v, want ErrDirectoryReplaced; %v", err, entries)
	}
}

// stuck is a storage whose Create hangs until it is freed.
type stuck struct {
	Storage
	entered chan struct{}
	free    chan struct{}
}

func (s stuck) Create(context.Context, mounts.Identity, volume.Spec) (string, error) {
	s.entered <- struct{}{}
	<-s.free
	return "", nil
}

func (s stuck) List(context.Context, mounts.Identity) (volume.Inventory, error) {
	return volume.Inventory{}, nil
}

// A worker does not wait for a call that hangs longer than the pool is open.
func TestHungCallReturnsWhenThePoolCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{entered: make(chan struct{}, 1), free: make(chan struct{})}
		defer close(s.free)
		p, _ := pool(s)
		returned := make(chan error, 1)
		h := open(t, p)
		go func() { returned <- h.Create(volume.Spec{}) }()
		synctest.Wait()
		if len(s.entered) != 1 || len(returned) > 0 {
			t.Fatal("it returned while the pool was open")
		}
		p.Close()
		synctest.Wait()
		if len(returned) == 0 {
			t.Fatal("the pool is closed, and the worker waits for the call")
		}
		if err := <-returned; !errors.Is(err, volume.ErrDirectoryReplaced) {
			t.Errorf("got %v, want ErrDirectoryReplaced, which is tried again", err)
		}
	})
}

// A call that hangs for ever keeps no other claim of the pool waiting once that closed and opened
// again; nor does one that waits for it stay when the pool closes.
func TestHungCallGivesItsSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{entered: make(chan struct{}, 2), free: make(chan struct{})}
		defer close(s.free)
		p, _ := pool(s)
		p.slots = make(chan struct{}, 1)
		returned := make(chan error, 2)
		for range 2 { // and once more when the pool has opened again
			h := open(t, p)
			for range 2 {
				go func() { returned <- h.Create(volume.Spec{}) }()
			}
			synctest.Wait()
			if n := len(s.entered); n != 1 {
				t.Fatalf("%d volumes are made at once, with one slot", n)
			}
			<-s.entered
			p.Close()
			for range 2 {
				if err := <-returned; !errors.Is(err, volume.ErrDirectoryReplaced) {
					t.Errorf("got %v, want ErrDirectoryReplaced, which is tried again", err)
				}
			}
		}
	})
}

// A call that was left behind makes the pool be looked at when it ends: it may be what kept it
// closed.
func TestCallLeftBehindLooksWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{entered: make(chan struct{}, 1), free: make(chan struct{})}
		p, _ := pool(s)
		looks := make(chan struct{}, 1)
		p.Look = func() { looks <- struct{}{} }
		h := open(t, p)
		go h.Create(volume.Spec{})
		synctest.Wait()
		p.Close()
		synctest.Wait()
		if len(looks) > 0 {
			t.Error("the pool was looked at while the call hung")
		}
		close(s.free)
		synctest.Wait()
		if len(looks) != 1 {
			t.Errorf("%d looks, want one", len(looks))
		}
	})
}
