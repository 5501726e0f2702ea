package disk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	testpool "github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

var errFault = errors.New("i/o error")

// faulty is a real pool's storage of which some calls fail, before their work or after it.
type faulty struct {
	*volume.Pool
	mu            sync.Mutex
	before, after func() error
	away          func() error // of what is asked of a volume that there is
	lists         int
}

func (f *faulty) fault(of *func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *of == nil {
		return nil
	}
	return (*of)()
}

func (f *faulty) Create(ctx context.Context, id mounts.Identity, spec volume.Spec) (string, error) {
	if err := f.fault(&f.before); err != nil {
		return "", err
	}
	dir, err := f.Pool.Create(ctx, id, spec)
	return dir, errors.Join(err, f.fault(&f.after))
}

func (f *faulty) ResizeFrom(
	ctx context.Context, id mounts.Identity, pv string, was, bytes int64,
) (bool, error) {
	if err := f.fault(&f.away); err != nil {
		return false, err
	}
	return f.Pool.ResizeFrom(ctx, id, pv, was, bytes)
}

func (f *faulty) Lookup(
	ctx context.Context, id mounts.Identity, pv string,
) (record.Record, error) {
	if err := f.fault(&f.away); err != nil {
		return record.Record{}, err
	}
	return f.Pool.Lookup(ctx, id, pv)
}

func (f *faulty) List(ctx context.Context, id mounts.Identity) (volume.Inventory, error) {
	f.mu.Lock()
	f.lists++
	f.mu.Unlock()
	return f.Pool.List(ctx, id)
}

// ledger is an open pool of 1,000 bytes in a directory of the test, whose volumes are promised
// bytes.
type ledger struct {
	*testing.T
	*Pool
	*faulty
	path string
	gate *gate.Gate
	id   mounts.Identity
}

func newLedger(t *testing.T) *ledger {
	path := filepath.Join(t.TempDir(), "pool")
	store := &faulty{Pool: volume.New(volume.Options{Name: "fast", Path: path})}
	l := &ledger{T: t, path: path, faulty: store, gate: gate.New("fast")}
	l.must(os.Mkdir(path, 0o700))
	l.id = testpool.Identity(t, path)
	l.must(store.InitMarker(t.Context(), l.id, []byte("{}\n")))
	l.gate.Set(hostcheck.Report{Pool: "fast", Identity: l.id, Size: 1000, Available: 1000}, time.Now())
	l.Pool = poolAt(l.gate, store)
	return l
}

func (l *ledger) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func sized(pv string, bytes int64) volume.Spec {
	return volume.Spec{Record: record.Record{PV: pv, Directory: pv, ClaimUID: "u-" + pv, Requested: bytes}, Mode: 0o700, UID: os.Getuid(), GID: os.Getgid()}
}

// promised compares the account with the records.
func (l *ledger) promised(want uint64, when string) {
	l.Helper()
	inventory, err := l.faulty.Pool.List(l.Context(), l.id)
	l.must(err)
	var sum uint64
	for _, p := range promises(inventory) {
		sum += p.Volume + p.Archived
	}
	if got, known := l.Account.Promised(); got != want || sum != want || !known {
		l.Errorf("%s: the account has %d, the records %d, want %d", when, got, sum, want)
	}
}

// A volume counts from its creation until its files are purged, in whichever place it is meanwhile.
func TestPromiseLastsUntilThePurge(t *testing.T) {
	l := newLedger(t)
	h := open(t, l.Pool)
	for pv, bytes := range map[string]int64{"deleted": 1, "undone": 10, "archived": 100, "retained": 200} {
		l.must(h.Create(sized(pv, bytes)))
	}
	l.promised(311, "made")
	l.must(h.Trash("deleted"))
	l.must(h.PutBack("deleted", "u-deleted"))
	l.must(h.Trash("deleted"))
	l.must(h.Discard("deleted"))
	l.must(h.Retain("retained"))
	l.must(h.Archive("archived"))
	l.must(h.Purge("archived"))
	l.promised(311, "in the trash, retained and archived")
	l.must(h.Purge("deleted"))
	l.promised(310, "purged")
	l.must(h.Undo("undone"))
	l.promised(300, "undone")
	l.must(h.PutBack("archived", "u-archived"))
	l.promised(300, "put back from the archive")
	l.must(os.Remove(filepath.Join(l.path, "retained")))
	_, err := h.Records()
	l.must(err)
	l.promised(100, "its directory was removed by hand")
}

// The first creation after a start has the records counted, and so has the first in another
// directory.
func TestRecordsAreCountedFirst(t *testing.T) {
	l := newLedger(t)
	l.must(open(t, l.Pool).Create(sized("earlier", 700)))
	l.Pool = poolAt(l.gate, l.faulty) // another process
	lists := l.lists
	err := open(t, l.Pool).Create(sized("later", 400))
	if full := new(capacity.FullError); !errors.As(err, &full) || full.Promised != 700 || full.Free != 300 {
		t.Errorf("after a start: %v", err)
	}
	if room := open(t, l.Pool).RoomFor("other"); room.Free != 300 {
		t.Errorf("room: %+v", room)
	}
	if room := open(t, l.Pool).RoomFor("earlier"); room.Free != 700 {
		t.Errorf("room for what is there: %+v", room)
	}
	l.must(open(t, l.Pool).Create(sized("earlier", 700)))
	if l.lists != lists+1 {
		t.Errorf("the records were read %d times", l.lists-lists)
	}
	l.promised(700, "refused")
}

// What a failed creation took is free again, unless it left a record or that cannot be told.
func TestFailedCreation(t *testing.T) {
	l := newLedger(t)
	h := open(t, l.Pool)
	fail := func() error { return errFault }
	l.before = fail
	if err := h.Create(sized("a", 600)); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	l.promised(0, "nothing was made")
	l.before, l.after = nil, fail
	if err := h.Create(sized("a", 600)); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	l.promised(600, "it was made")
	if err := h.Create(sized("b", 600)); !errors.As(err, new(*capacity.FullError)) {
		t.Errorf("another one: %v", err)
	}
	l.after = nil
	l.must(h.Create(sized("a", 600)))
	l.promised(600, "made again")
}

// A volume that grows is promised the difference, one that cannot is not changed, and one that
// shrinks is charged less once its record says so.
func TestPromiseFollowsTheSize(t *testing.T) {
	l := newLedger(t)
	h := open(t, l.Pool)
	l.must(h.Create(sized("a", 400)))
	l.must(h.Create(sized("b", 400)))
	l.must(h.Resize("a", 600))
	l.promised(1000, "grown")
	if err := h.Resize("b", 401); !errors.As(err, new(*capacity.FullError)) {
		t.Errorf("grown beyond what there is: %v", err)
	}
	l.promised(1000, "refused")
	if err := h.ResizeFrom("b", 400, 450); !errors.As(err, new(*capacity.FullError)) {
		t.Errorf("its object says more than there is: %v", err)
	}
	l.must(h.Resize("a", 450))
	l.promised(850, "smaller")
	l.must(h.ResizeFrom("b", 400, 450))
	l.promised(900, "its object had the size already")
	l.must(h.ResizeFrom("b", 400, 420))
	l.promised(900, "expanded since the object was read")
	l.must(h.ResizeFrom("b", 450, 400))
	l.promised(850, "its object has the size before")
	if err := h.Resize("missing", 50); err == nil {
		t.Error("what is not there was resized")
	}
	l.promised(850, "nothing to resize")
}

// Where it cannot be told whether a volume became smaller, as the pool is away, the larger size
// counts until the records are read.
func TestUncertainSize(t *testing.T) {
	for _, c := range []struct{ was, bytes, want int64 }{{600, 400, 600}, {400, 600, 600}} {
		l := newLedger(t)
		h := open(t, l.Pool)
		l.must(h.Create(sized("a", c.was)))
		l.away = func() error { return errFault }
		if err := h.ResizeFrom("a", c.was, c.bytes); !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		if got, _ := l.Account.Promised(); got != uint64(c.want) {
			t.Errorf("from %d to %d: %d are promised, want %d", c.was, c.bytes, got, c.want)
		}
	}
}

// A call that is left behind in a hung pool gives back what it took when it ends.
func TestCallLeftBehindKeepsTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{entered: make(chan struct{}, 1), free: make(chan struct{})}
		p, g := pool(failing{s})
		g.Set(hostcheck.Report{Pool: "fast", Identity: mounts.Identity{Inode: 1}, Size: 1000, Available: 1000}, time.Now())
		h := open(t, p)
		returned := make(chan error)
		go func() { returned <- h.Create(sized("a", 600)) }()
		<-s.entered
		p.Close()
		<-returned
		if room := open(t, p).RoomFor("b"); room.Free != 400 {
			t.Errorf("while the call hangs: %+v", room)
		}
		close(s.free)
		synctest.Wait()
		if room := open(t, p).RoomFor("b"); room.Free != 1000 {
			t.Errorf("when it has ended: %+v", room)
		}
	})
}

// failing hangs first, and then makes nothing.
type failing struct{ stuck }

func (f failing) Create(ctx context.Context, id mounts.Identity, spec volume.Spec) (string, error) {
	_, _ = f.stuck.Create(ctx, id, spec)
	return "", errFault
}

func (failing) Lookup(context.Context, mounts.Identity, string) (record.Record, error) {
	return record.Record{}, volume.ErrNotRecorded
}

// Many workers make, fail, remove and count at the same time; the pool is never promised twice, and
// in the end the account is what the disk has. The process ends in the middle now and then, and
// another one begins.
func TestManyWorkersKeepTheAccount(t *testing.T) {
	l := newLedger(t)
	rng := rand.New(rand.NewPCG(1, 2))
	l.before = func() error { return map[bool]error{true: errFault}[rng.IntN(10) == 0] }
	l.after = func() error { return map[bool]error{true: errFault}[rng.IntN(10) == 0] }
	for round := range 4 {
		l.Pool = poolAt(l.gate, l.faulty)
		var all sync.WaitGroup
		for worker := range 16 {
			all.Go(func() {
				l.work(fmt.Sprintf("%d-%d", round, worker), rand.New(rand.NewPCG(uint64(round), uint64(worker))))
			})
		}
		all.Go(func() {
			for range 20 {
				if _, err := open(t, l.Pool).Records(); err != nil {
					t.Error(err)
				}
			}
		})
		all.Wait()
		sum, _ := l.Account.Promised()
		l.promised(sum, "all ended")
		if sum > 1000 {
			t.Errorf("%d of 1000 bytes are promised", sum)
		}
	}
}

// work makes volumes, and removes most of them again.
func (l *ledger) work(name string, rng *rand.Rand) {
	for i := range 12 {
		h, pv := open(l.T, l.Pool), fmt.Sprintf("pvc-%s-%d", name, i)
		err := h.Create(sized(pv, rng.Int64N(90)))
		if err != nil && !errors.Is(err, errFault) && !errors.As(err, new(*capacity.FullError)) {
			l.Error(err)
		}
		switch rng.IntN(3) {
		case 0:
			err = h.Undo(pv)
		case 1:
			err = errors.Join(h.Trash(pv), h.Discard(pv), h.Purge(pv))
		default:
			err = nil
		}
		if err != nil {
			l.Error(err)
		}
	}
}

// What another process has made in the pool, and announced, is promised before anything more is; it
// is counted once.
func TestAnnouncedIsPromised(t *testing.T) {
	l := newLedger(t)
	h := open(t, l.Pool)
	l.must(h.Create(sized("a", 300)))
	other := volume.New(volume.Options{Name: "fast", Path: l.path})
	_, err := other.Create(t.Context(), l.id, sized("b", 600))
	l.must(errors.Join(err, other.Announce(t.Context(), l.id)))
	full := new(*capacity.FullError)
	if _, err := h.Reserve("c", 200); !errors.As(err, full) {
		t.Errorf("reserved: %v", err)
	}
	l.must(errors.Join(other.Undo(t.Context(), l.id, "b"), other.Announce(t.Context(), l.id)))
	l.must(h.Create(sized("c", 200)))
	_, err = other.Create(t.Context(), l.id, sized("b", 450))
	l.must(errors.Join(err, other.Announce(t.Context(), l.id)))
	if err := h.Create(sized("d", 100)); !errors.As(err, full) {
		t.Errorf("made: %v", err)
	}
	lists := l.lists
	l.must(h.Create(sized("e", 50)))
	if l.promised(1000, "in the end"); l.lists != lists {
		t.Errorf("%d times counted again", l.lists-lists)
	}
}
