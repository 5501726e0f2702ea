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
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
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

// scene is a pool's mount point with everything that can come to lie there.
type scene struct {
	mount string // the pool's path and mount point
	real  device // the pool's own filesystem
	other device // another one
	plain string // a directory that gets bound over the pool

	bare, truth, intruder, bound place
}

// device is a loop device with an ext4 filesystem.
type device struct{ node string }

// newScene makes two filesystems and mounts the right one. Nothing in it is immutable: a write in the
// wrong place would succeed.
func newScene(w *world) *scene {
	dir := hosttest.Dir(w)
	s := &scene{mount: filepath.Join(dir, "pool"), plain: filepath.Join(dir, "plain")}
	for _, d := range []string{s.mount, s.plain} {
		w.must(os.Mkdir(d, 0o700), "making "+d)
	}
	s.bare = place{"the bare mount point", w.open(s.mount)}
	s.bound = place{"the directory bound over it", w.open(s.plain)}
	s.real, s.other = w.attach(hosttest.Mkfs(w, "ext4", 192)), w.attach(hosttest.Mkfs(w, "ext4", 64))
	s.truth = place{"the pool's filesystem", w.detached(s.real)}
	s.intruder = place{"the intruding filesystem", w.detached(s.other)}
	for _, p := range []place{s.truth, s.intruder} {
		w.must(os.Chmod(p.path("."), 0o700), "chmod of "+p.name)
	}
	w.must(s.mountReal(), "mounting the pool")
	return s
}

// attach gives an image a loop device that is gone when this process is.
func (w *world) attach(image hosttest.Image) device {
	out, err := exec.Command("losetup", "--find", "--show", image.File).CombinedOutput()
	node := strings.TrimSpace(string(out))
	w.must(err, "losetup: "+node)
	// Held open and cleared by itself: the kernel does that with the last close or unmount (loop(4)).
	fd, err := unix.Open(node, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	w.must(err, "opening "+node)
	info, err := unix.IoctlLoopGetStatus64(fd)
	w.must(err, "asking "+node)
	info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	w.must(unix.IoctlLoopSetStatus64(fd, info), "setting autoclear on "+node)
	return device{node}
}

// detached mounts a device nowhere. The mount keeps the filesystem alive, and nothing that is done to
// the pool's mount reaches it: it is nobody's peer.
func (w *world) detached(d device) int {
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	w.must(err, "fsopen")
	defer unix.Close(fs)
	w.must(unix.FsconfigSetString(fs, "source", d.node), "fsconfig")
	w.must(unix.FsconfigCreate(fs), "mounting "+d.node)
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	w.must(err, "fsmount")
	return fd
}

func (w *world) open(dir string) int {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	w.must(err, "opening "+dir)
	return fd
}

// ours are the daemon's own directories in a pool.
var ours = []string{"staging", "trash", "volumes", "archive"}

// bait makes the wrong places look like the pool from inside, so that a daemon that got there could
// write: the bare directory even with the pool's own marker, as if it had been copied.
func (s *scene) bait(w *world) {
	marker, err := os.ReadFile(s.truth.path(hostcheck.MarkerPath))
	w.must(err, "reading the marker")
	m, err := hostcheck.DecodeMarker(marker)
	w.must(err, "reading the marker")
	another := bytes.ReplaceAll(marker, []byte(m.ID), []byte(strings.Repeat("X", len(m.ID))))
	for _, b := range []struct {
		place
		marker []byte
	}{{s.bare, marker}, {s.intruder, another}, {s.bound, another}} {
		w.must(os.Mkdir(b.path(hostcheck.PrivateDir), 0o700), "baiting")
		for _, d := range ours {
			w.must(os.Mkdir(b.path(hostcheck.PrivateDir, d), 0o700), "baiting")
		}
		w.must(os.WriteFile(b.path(hostcheck.MarkerPath), b.marker, 0o600), "baiting")
	}
}

// wrong are the places where nothing may ever appear.
func (s *scene) wrong() []place { return []place{s.bare, s.intruder, s.bound} }

func (s *scene) mountReal() error  { return unix.Mount(s.real.node, s.mount, "ext4", 0, "") }
func (s *scene) mountOther() error { return unix.Mount(s.other.node, s.mount, "ext4", 0, "") }
func (s *scene) bindPlain() error  { return unix.Mount(s.plain, s.mount, "", unix.MS_BIND, "") }
func (s *scene) bindItself() error { return unix.Mount(s.mount, s.mount, "", unix.MS_BIND, "") }
func (s *scene) unmount() error    { return unix.Unmount(s.mount, 0) }
func (s *scene) detach() error     { return unix.Unmount(s.mount, unix.MNT_DETACH) }

// remount changes the flags of the mount alone (MS_BIND) or of the filesystem.
func (s *scene) remount(flags uintptr) error {
	return unix.Mount("", s.mount, "", unix.MS_REMOUNT|flags, "")
}

// calm leaves the pool's own filesystem mounted there once and writable, whatever was there.
func (s *scene) calm() error {
	for s.detach() == nil {
	}
	if err := s.mountReal(); err != nil {
		return err
	}
	return s.remount(0)
}

// tree is everything in a place that is not part of the bait or of mkfs: names in its root, and
// "ours/DIR/..." for those in the daemon's directories.
func (p place) tree() ([]string, error) {
	var all []string
	for prefix, dir := range directories() {
		entries, err := os.ReadDir(p.path(dir))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Name() != "lost+found" && e.Name() != hostcheck.PrivateDir {
				all = append(all, prefix+e.Name())
			}
		}
	}
	return all, nil
}

// directories are the watched directories of a place, by how their entries are named.
func directories() map[string]string {
	all := map[string]string{"": "."}
	for _, d := range ours {
		all["ours/"+d+"/"] = filepath.Join(hostcheck.PrivateDir, d)
	}
	return all
}
