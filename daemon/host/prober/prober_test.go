package prober

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// hungPool is a prober of a pool that can hang, with nothing immutable below.
func hungPool(t *testing.T, locks *ownership.Locks) (*Prober, *hungfs.FS, mounts.Identity) {
	t.Helper()
	dir := filepath.Join(hosttest.Dir(t), "pool")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fs := hungfs.Mount(t, dir)
	store := volume.New(volume.Options{Name: "fast", Path: dir})
	p := New(Options{
		Pool:     config.Pool{Name: "fast", Path: dir, MountPoint: dir, RequireMount: true, Immutable: "off"},
		StateDir: hosttest.Dir(t), Locks: locks, Deadline: 400 * time.Millisecond, Store: store,
	})
	id := p.look(t).Identity
	marker, err := hostcheck.EncodeMarker(hostcheck.NewMarker("fast", time.Now()))
	if err == nil {
		err = store.InitMarker(t.Context(), id, marker)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := p.look(t); !r.Open() {
		t.Fatalf("%+v", r)
	}
	return p, fs, id
}

func (p *Prober) look(t *testing.T) hostcheck.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return p.Probe(ctx)
}

func newLocks(t *testing.T) *ownership.Locks {
	return ownership.NewLocks(filepath.Join(hosttest.Dir(t), "locks"), "/var/lib/"+t.Name())
}

// A filesystem that responds to every call of the check and not to a mkdir is closed while the
// mkdir waits, reports which volume it is about, and opens when it returned.
func TestPoolClosesWhileACallWaits(t *testing.T) {
	p, fs, id := hungPool(t, newLocks(t))
	fs.Hold(hungfs.Mkdir)
	done := make(chan error, 1)
	go func() {
		_, err := p.Store.(*volume.Pool).Create(t.Context(), id, volume.Spec{Record: record.Record{PV: "pvc-1", Directory: "pvc-1", ClaimUID: "1"}, Mode: 0o700})
		done <- err
	}()
	fs.AwaitHeld()
	for p.waiting().For == 0 {
		time.Sleep(time.Millisecond)
	}
	// A look at a pool in which a call waits is a short one, which a busy machine may not give its
	// time.
	const waits = "volume pvc-1: no response for more than 300ms"
	var r hostcheck.Report
	var why hostcheck.Finding
	for end := time.Now().Add(time.Minute); (r.Size == 0 || why.Message != waits) && time.Now().Before(end); why, _ = r.Closed() {
		if r = p.look(t); r.Removable() {
			t.Fatalf("%+v", r)
		}
	}
	if why.Reason != hostcheck.ReasonNotAnswering || why.Message != waits || r.Size == 0 {
		t.Errorf("%+v", r)
	}
	fs.Resume()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if r := p.look(t); !r.Open() {
		t.Errorf("after the response: %+v", r)
	}
}

// A look that waits ends as soon as a call is known to wait, and one at a pool whose last look
// waits still is a glance.
func TestLooksEndEarly(t *testing.T) {
	p, fs, id := hungPool(t, newLocks(t))
	fs.Hold(hungfs.Lookup)
	go p.Store.(*volume.Pool).Exists(context.Background(), id, "anything")
	fs.AwaitHeld()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		if r := p.Probe(ctx); r.Open() || r.Findings[0].Reason != hostcheck.ReasonNotAnswering || ctx.Err() != nil {
			t.Errorf("%+v, %v", r, ctx.Err())
		}
	}
	fs.Resume()
}

// A call that waits on a mount that is not the pool's any more does not keep the pool closed.
func TestCallOnAnOldMountDoesNotCount(t *testing.T) {
	p, _, _ := hungPool(t, newLocks(t))
	r := p.look(t)
	w := volume.Waiting{About: "volume pvc-1", Where: mounts.Identity{Inode: 1}, For: time.Hour}
	if p.counts(w, r) {
		t.Error("it counts")
	}
	w.Where = r.Identity
	if !p.counts(w, r) {
		t.Error("one on the pool's own mount does not count")
	}
}

// Two daemons with a pool of one marker: the second one's is closed, until the first gives it up.
func TestPoolIsOneDaemons(t *testing.T) {
	dir := filepath.Join(hosttest.Dir(t), "locks")
	first, second := ownership.NewLocks(dir, "/var/lib/first"), ownership.NewLocks(dir, "/var/lib/second")
	p, _, _ := hungPool(t, first)
	p.Locks = second
	r := p.look(t)
	f, _ := r.Closed()
	if want := fmt.Sprintf("another daemon (pid %d, state directory /var/lib/first) uses this pool", os.Getpid()); r.Removable() || f.Reason != "PoolInUse" || f.Message != want {
		t.Errorf("%+v, want %s", r, want)
	}
	first.Keep(map[ownership.Place]bool{{Name: "fast", Path: p.Pool.Path}: true})
	if p.look(t).Open() {
		t.Error("open, and the first daemon still has the pool")
	}
	first.Keep(map[ownership.Place]bool{{Name: "fast", Path: "/elsewhere"}: true})
	if r := p.look(t); !r.Open() {
		t.Errorf("the first daemon gave the pool up: %+v", r)
	}
	second.Keep(nil)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f, _ := p.look(t).Closed(); f.Reason != "StateUnwritable" || !strings.Contains(f.Message, "cannot be locked") {
		t.Errorf("without a place for locks: %+v", f)
	}
}

// A pool that another start of this process could read is closed and tells why; one whose storage
// is refused for another reason is not, and nothing is asked about it.
func TestReach(t *testing.T) {
	refused := hostcheck.Finding{Reason: hostcheck.ReasonUnreadable, Severity: hostcheck.Close, Message: "reading /data/x: permission denied"}
	failing := hostcheck.Finding{Reason: hostcheck.ReasonUnreadable, Severity: hostcheck.Close, Message: "reading /data/x: input/output error"}
	const later = "/data came after the daemon confined itself: it has to be restarted"
	for _, c := range []struct {
		name  string
		saw   hostcheck.Finding
		why   string
		want  string
		asked int
	}{
		{"out of reach", refused, later, plan.ReasonRestartNeeded, 1},
		{"refused by another", refused, "", hostcheck.ReasonUnreadable, 1},
		{"failing", failing, later, hostcheck.ReasonUnreadable, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := 0
			p := New(Options{Outside: func() string { asked++; return c.why }})
			r := hostcheck.Report{Findings: []hostcheck.Finding{c.saw}}
			p.reach(&r)
			if f, closed := r.Closed(); !closed || f.Reason != c.want || asked != c.asked || c.want == plan.ReasonRestartNeeded && f.Message != later {
				t.Errorf("%+v, asked %d times, want %s", f, asked, c.want)
			}
		})
	}
}
