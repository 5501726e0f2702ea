package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// place is a directory tree that can be reached whatever is mounted where: through a descriptor of
// the bare directory, or of a mount of the filesystem that stands in no namespace.
type place struct {
	name string
	fd   int
}

// path is a path in the place.
func (p place) path(elem ...string) string {
	return filepath.Join(append([]string{fmt.Sprintf("/proc/self/fd/%d", p.fd)}, elem...)...)
}

// fixture is a pool's mount point with everything that can come to lie there.
type fixture struct {
	mount string // the pool's path and mount point
	real  device // the pool's own filesystem
	other device // another one
	plain string // a directory that gets bound over the pool

	bare, own, otherTree, bound place
}

// device is a loop device with an ext4 filesystem.
type device struct{ node string }

// newFixture makes two filesystems and mounts the right one. Nothing in it is immutable: a write in
// the wrong place would succeed.
func newFixture(p *harness.Program) *fixture {
	dir := hosttest.Dir(p)
	s := &fixture{mount: filepath.Join(dir, "pool"), plain: filepath.Join(dir, "plain")}
	for _, d := range []string{s.mount, s.plain} {
		p.Must(os.Mkdir(d, 0o700), "making "+d)
	}
	s.bare = place{"the bare mount point", open(p, s.mount)}
	s.bound = place{"the directory bound over it", open(p, s.plain)}
	s.real, s.other = attach(p, hosttest.Mkfs(p, "ext4", 192)), attach(p, hosttest.Mkfs(p, "ext4", 64))
	s.own = place{"the pool's filesystem", detached(p, s.real)}
	s.otherTree = place{"the other filesystem", detached(p, s.other)}
	for _, at := range []place{s.own, s.otherTree} {
		p.Must(os.Chmod(at.path("."), 0o700), "chmod of "+at.name)
	}
	p.Must(s.mountReal(), "mounting the pool")
	return s
}

// attach gives an image a loop device that is gone when this process is.
func attach(p *harness.Program, image hosttest.Image) device {
	out, err := exec.Command("losetup", "--find", "--show", image.File).CombinedOutput()
	node := strings.TrimSpace(string(out))
	p.Must(err, "losetup: "+node)
	// Held open and cleared by itself: the kernel does that with the last close or unmount
	// (loop(4)).
	fd, err := unix.Open(node, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	p.Must(err, "opening "+node)
	info, err := unix.IoctlLoopGetStatus64(fd)
	p.Must(err, "asking "+node)
	info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	p.Must(unix.IoctlLoopSetStatus64(fd, info), "setting autoclear on "+node)
	return device{node}
}

// detached mounts a device nowhere. The mount keeps the filesystem alive, and nothing that is done
// to the pool's mount reaches it: it has no peers.
func detached(p *harness.Program, d device) int {
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	p.Must(err, "fsopen")
	defer unix.Close(fs)
	p.Must(unix.FsconfigSetString(fs, "source", d.node), "fsconfig")
	p.Must(unix.FsconfigCreate(fs), "mounting "+d.node)
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	p.Must(err, "fsmount")
	return fd
}

func open(p *harness.Program, dir string) int {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	p.Must(err, "opening "+dir)
	return fd
}

// mimic makes the wrong places look like the pool from inside, so that a daemon that got there
// could write: the bare directory even with the pool's own marker, as if it had been copied.
func (s *fixture) mimic(p *harness.Program) {
	marker, err := os.ReadFile(s.own.path(hostcheck.MarkerPath))
	p.Must(err, "reading the marker")
	m, err := hostcheck.DecodeMarker(marker)
	p.Must(err, "reading the marker")
	another := bytes.ReplaceAll(marker, []byte(m.ID), []byte(strings.Repeat("X", len(m.ID))))
	for _, b := range []struct {
		place
		marker []byte
	}{{s.bare, marker}, {s.otherTree, another}, {s.bound, another}} {
		p.Must(os.Mkdir(b.path(hostcheck.PrivateDir), 0o700), "making the daemon's directories")
		for _, d := range pool.Directories {
			p.Must(os.Mkdir(b.path(hostcheck.PrivateDir, d), 0o700), "making the daemon's directories")
		}
		p.Must(os.WriteFile(b.path(hostcheck.MarkerPath), b.marker, 0o600), "making the daemon's directories")
	}
}

// wrong are the places where nothing may ever appear.
func (s *fixture) wrong() []place { return []place{s.bare, s.otherTree, s.bound} }

func (s *fixture) mountReal() error  { return unix.Mount(s.real.node, s.mount, "ext4", 0, "") }
func (s *fixture) mountOther() error { return unix.Mount(s.other.node, s.mount, "ext4", 0, "") }
func (s *fixture) bindPlain() error  { return unix.Mount(s.plain, s.mount, "", unix.MS_BIND, "") }
func (s *fixture) bindItself() error { return unix.Mount(s.mount, s.mount, "", unix.MS_BIND, "") }
func (s *fixture) unmount() error    { return unix.Unmount(s.mount, 0) }
func (s *fixture) detach() error     { return unix.Unmount(s.mount, unix.MNT_DETACH) }

// remount changes the flags of the mount alone (MS_BIND) or of the filesystem.
func (s *fixture) remount(flags uintptr) error {
	return unix.Mount("", s.mount, "", unix.MS_REMOUNT|flags, "")
}

// restore leaves the pool's own filesystem mounted there once and writable, whatever was there.
func (s *fixture) restore() error {
	for s.detach() == nil {
	}
	if err := s.mountReal(); err != nil {
		return err
	}
	return s.remount(0)
}

// tree is everything in a place that is not of mimic or of mkfs (pool.Tree).
func (p place) tree() ([]string, error) { return pool.Tree(p.path()) }
