package hostcheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// automounted is a good pool that an automounter mounts when its mount point is opened.
func automounted(t *testing.T) (*pool, *hosttest.Automounter) {
	t.Helper()
	p := newPool(t)
	hosttest.Unmount(t, p.dir)
	return p, hosttest.Automount(t, p.dir, "-o", "loop", p.image.File, p.dir)
}

// No process but the one that looks opens the pool, and that mounts it: at first, and after the
// automounter took it away because no process used it.
func TestProbeMountsAnAutomount(t *testing.T) {
	p, _ := automounted(t)
	for round := range 3 {
		r := p.sees(t, "armed")
		if r.Marker != p.expect.Remembered || r.Size == 0 {
			t.Fatalf("round %d: %+v", round, r)
		}
		p.sees(t, "mounted")
		hosttest.Unmount(t, p.dir)
	}
	hosttest.UnmountLazy(t, p.dir) // the automounter's own, which it keeps open
	p.sees(t, "without the automounter", ReasonNotMounted)
}

// The directory that has to be immutable is the one under the automounter's.
func TestProbeLooksUnderAnAutomount(t *testing.T) {
	p, a := automounted(t)
	bare := openDoor(t, p.dir)
	hosttest.SetImmutable(t, bare, false)
	p.sees(t, "mounted", ReasonNotImmutable)
	hosttest.Unmount(t, p.dir)
	a.Fails()
	p.sees(t, "not mounted", ReasonNotAutomounted, ReasonNotImmutable)
	hosttest.SetImmutable(t, bare, true)
	p.sees(t, "not mounted, and immutable", ReasonNotAutomounted)
}

// A pool below the mount point, and one that needs no mount, are reached through the automount as
// well.
func TestProbeBelowAnAutomount(t *testing.T) {
	p, _ := automounted(t)
	p.sees(t, "mounted")
	must(t, os.Mkdir(filepath.Join(p.dir, "sub"), 0o700))
	prepare(t, filepath.Join(p.dir, "sub"), "fast")
	for _, mount := range []bool{true, false} {
		hosttest.Unmount(t, p.dir)
		e := p.expect
		e.Path, e.RequireMount, e.Remembered = filepath.Join(p.dir, "sub"), mount, ""
		if r := NewProber(e).Probe(t.Context()); !r.Open() || r.Marker == "" {
			t.Errorf("require_mount %v: %+v", mount, r)
		}
	}
}

// An automounter that fails is said to fail, and that is no missing marker. Once it works, so does
// the pool.
func TestProbeFailingAutomount(t *testing.T) {
	p, a := automounted(t)
	a.Fails()
	for _, mount := range []bool{true, false} {
		e := p.expect
		e.RequireMount = mount
		r := NewProber(e).Probe(t.Context())
		if r.Open() || r.Findings[0].Reason != ReasonNotAutomounted || r.Size != 0 || r.Identity.Inode != 0 {
			t.Errorf("require_mount %v: %+v", mount, r)
		}
	}
	p.sees(t, "failing", ReasonNotAutomounted)
	a.Mounts("-o", "loop", p.image.File, p.dir)
	p.sees(t, "mending", nil...)
}

// systemd gives up an automount that is opened more often than it may start the mount.
func TestProbeSparesTheAutomounter(t *testing.T) {
	p, a := automounted(t)
	start := time.Now()
	now := start
	p.look.now = func() time.Time { return now }
	a.Fails()
	for range triggerBurst {
		p.sees(t, "failing", ReasonNotAutomounted)
	}
	a.Mounts("-o", "loop", p.image.File, p.dir)
	r := p.sees(t, "held back", ReasonNotAutomounted)
	if len(r.Findings) == 0 || !strings.HasSuffix(r.Findings[0].Message, unix.ENOENT.Error()) {
		t.Errorf("the reason of the last attempt is lost: %+v", r.Findings)
	}
	now = start.Add(triggerWindow)
	p.sees(t, "later")
}

// An automounter that never responds does not hang the look, costs one thread, and is not waited
// for by others. When it responds, the pool opens.
func TestProbeHungAutomount(t *testing.T) {
	p, a := automounted(t)
	a.Holds()
	healthy := newPool(t)
	for range 20 {
		r := p.probeFor(t, 10*deadline) // a busy machine takes its time for the mount table alone
		if r.Open() || r.Findings[0].Reason != ReasonNotAnswering || !strings.HasPrefix(r.Findings[0].Message, "waiting for the automount of "+p.dir) {
			t.Fatalf("%+v", r)
		}
		healthy.sees(t, "beside it")
	}
	a.Mounts("-o", "loop", p.image.File, p.dir)
	if r := p.probeFor(t, slack); !r.Open() {
		t.Fatalf("after it responded: %+v", r)
	}
}

// Below an indirect map not even the mount point exists before it is looked for, and its directory
// belongs to the automounter, which has no flags for it.
func TestProbeIndirectAutomount(t *testing.T) {
	image := hosttest.Mkfs(t, "ext4", 16)
	base := filepath.Join(hosttest.Dir(t), "auto")
	must(t, os.Mkdir(base, 0o700))
	point := filepath.Join(base, "fast")
	hosttest.Automount(t, base, "-o", "loop", image.File, point)
	e := expectPool(point)
	p := &pool{Prober: NewProber(e)}
	p.sees(t, "armed", ReasonImmutableUnknown, ReasonNotPrepared, ReasonModeTooOpen)
	prepare(t, point, "fast")
	must(t, os.Chmod(point, 0o700))
	e.Immutable = ImmutableWarn
	p = &pool{Prober: NewProber(e)}
	for range 2 {
		if r := p.sees(t, "prepared", ReasonImmutableUnknown); !r.Open() {
			t.Errorf("%+v", r)
		}
		hosttest.Unmount(t, point)
	}
}
