package prepare

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// without prepares on a thread that lacks a capability.
func (h *host) without(capability uint) (said string) {
	h.t.Helper()
	hosttest.Without(h.t, func() { said = h.run(false) }, capability)
	return said
}

// Under a mount only CAP_SYS_ADMIN can look. A pool that requires the flag is not prepared without
// the look.
func TestNotPermittedToLookUnder(t *testing.T) {
	for immutable, want := range map[string]string{
		config.ImmutableWarn: "changed the mode of /pool from 0755 to 0700\nwrote marker ID on the filesystem of /pool\nremembered marker ID (of TODAY) for pool fast\n" +
			"note: the directory under the mount at /pool was not inspected: it takes CAP_SYS_ADMIN",
		config.ImmutableRequire: "error: under \"/pool\": not permitted to look under a mount point: open_tree: operation not permitted",
	} {
		t.Run(immutable, func(t *testing.T) {
			h := newHost(t)
			h.pool.Immutable = immutable
			h.must(os.Mkdir(h.pool.Path, 0o755))
			hosttest.Mkfs(t, "ext4", 16).Mount(t, h.pool.Path)
			h.want(h.without(unix.CAP_SYS_ADMIN), want)
		})
	}
}

// What the kernel refuses is an error whatever the pool asks for: only a filesystem that has no
// flags is a note.
func TestNotPermittedToSetTheFlag(t *testing.T) {
	h := newHost(t)
	h.pool.Immutable = config.ImmutableWarn
	h.want(h.without(unix.CAP_LINUX_IMMUTABLE), "made /pool with mode 0700", "error: the immutable flag of /pool: operation not permitted")
}

func TestMkdirRefused(t *testing.T) {
	h := newHost(t)
	h.must(os.Mkdir(h.base+"/up", 0o700))
	h.pool.Path, h.pool.MountPoint = h.base+"/up/pool", h.base+"/up/pool"
	hosttest.SetImmutable(t, h.base+"/up", true)
	h.want(h.run(false), "error: mkdir /up/pool: operation not permitted")
	hosttest.SetImmutable(t, h.base+"/up", false)
	hosttest.Mount(t, "-o", "ro", "-t", "tmpfs", "none", h.base+"/up")
	h.want(h.run(false), "error: mkdir /up/pool: read-only file system")
}

// What was mounted over the pool since it was checked gets no marker.
func TestMovedSinceTheCheck(t *testing.T) {
	h := newHost(t)
	h.pool.RequireMount = false
	h.must(os.Mkdir(h.pool.Path, 0o700))
	o := h.options()
	check := o.Check
	o.Check = func(ctx context.Context) hostcheck.Report {
		report := check(ctx)
		report.Identity = mounts.Identity{}
		return report
	}
	before := h.snapshot()
	h.want(h.said(Run(t.Context(), o)), `error: pool "fast": /pool: the mounts changed meanwhile`)
	h.compare(before)
}

// marking fails where it is told to, and is the pool's own otherwise.
type marking struct {
	Marking
	init, remark error
}

func (m marking) InitMarker(ctx context.Context, id mounts.Identity, text []byte) error {
	if m.init != nil {
		return m.init
	}
	return m.Marking.InitMarker(ctx, id, text)
}

func (m marking) Remark(ctx context.Context, id mounts.Identity, marker hostcheck.Marker) error {
	if m.remark != nil {
		return m.remark
	}
	return m.Marking.Remark(ctx, id, marker)
}

// A marker that was not written is not remembered: the next call would take the pool for another
// filesystem.
func TestMarkerNotWritten(t *testing.T) {
	full := errors.New("no space left on device")
	t.Run("the first", func(t *testing.T) {
		h := newHost(t)
		h.pool.RequireMount = false
		o := h.options()
		o.Marking = marking{o.Marking, full, nil}
		h.want(h.said(Run(t.Context(), o)), "made /pool with mode 0700", "error: no space left on device")
		h.compare("drwx------ /pool\n")
		h.want(h.run(false), "wrote marker ID on the filesystem of /pool", "remembered marker ID (of TODAY) for pool fast")
	})
	t.Run("of another owner", func(t *testing.T) {
		h := ofNode(t, "node-b")
		h.owner.From = "node-b"
		remembered, err := os.ReadFile(h.state + "/pools/fast.json")
		h.must(err)
		o := h.options()
		o.Marking = marking{o.Marking, nil, full}
		h.want(h.said(Run(t.Context(), o)), "error: no space left on device")
		if now, err := os.ReadFile(h.state + "/pools/fast.json"); err != nil || string(now) != string(remembered) {
			t.Errorf("the host remembers %s, %v", now, err)
		}
	})
}

// Where the memory cannot be read, another filesystem may be the right one: no marker is written.
func TestMemoryUnreadable(t *testing.T) {
	h := newHost(t)
	h.pool.RequireMount = false
	h.must(os.WriteFile(h.state, nil, 0o600))
	h.want(h.run(false), "made /pool with mode 0700", "error: open /state: not a directory")
	h.compare("drwx------ /pool\n-rw------- /state\n")
}

// What was done is told beside what cannot be remembered, and the next call remembers it.
func TestNotRemembered(t *testing.T) {
	h := newHost(t)
	h.pool.RequireMount = false
	h.must(os.Mkdir(h.state, 0o700))
	hosttest.SetImmutable(t, h.state, true)
	h.want(h.run(false), "made /pool with mode 0700", "wrote marker ID on the filesystem of /pool", "error: mkdir /state/pools: operation not permitted")
	hosttest.SetImmutable(t, h.state, false)
	h.want(h.run(false), "remembered marker ID (of TODAY) for pool fast")
}
