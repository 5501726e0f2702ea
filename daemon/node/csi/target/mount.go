package target

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Options say how a volume is mounted.
type Options struct {
	ReadOnly bool
	Alone    bool // for no second pod
}

// Publish mounts an open directory on the target, which it makes. It changes nothing where that is
// mounted in the same way.
//
// What is mounted is a clone of the directory alone, without what is mounted below it, and private:
// nothing that is mounted in one of the two appears in the other. A crash before move_mount leaves
// an empty directory, which kubelet's next call uses, or Unpublish removes.
func (t *Target) Publish(dir int, o Options) error {
	table, err := mounts.Read()
	if err != nil {
		return err
	}
	source, err := locate(table, dir)
	if err != nil {
		return err
	}
	if other := t.others(table, source); o.Alone && other != "" {
		return fmt.Errorf("%w, on %s", ErrInUse, other)
	}
	if m, mounted := on(table, t.at); mounted {
		return same(m, source, o)
	}
	return t.mount(dir, o)
}

// locate is where an open directory lies: the mount table has the same of what is mounted from it.
func locate(table []mounts.Mount, dir int) (mounts.Location, error) {
	at, err := pathOf(dir)
	if err != nil {
		return mounts.Location{}, err
	}
	id, err := mounts.IDOf(dir)
	if err != nil {
		return mounts.Location{}, err
	}
	m, known := mounts.Covering(table, at)
	if !known || m.ID != id {
		return mounts.Location{}, fmt.Errorf("%q: %w", at, ErrChanged)
	}
	return m.Locate(at), nil
}

// same: what is mounted already is the volume, in the way that is asked for.
func same(m mounts.Mount, source mounts.Location, o Options) error {
	m.SuperOptions = "" // that the whole filesystem is read-only is not this mount's way
	switch {
	case m.Locate(m.Point) != source:
		return fmt.Errorf("%w: %s of a filesystem of type %s", ErrOccupied, m.Root, m.FSType)
	case m.ReadOnly() != o.ReadOnly:
		return fmt.Errorf("%w: the volume itself, read-only %t", ErrOccupied, m.ReadOnly())
	}
	return nil
}

func (t *Target) mount(dir int, o Options) (err error) {
	if err = t.mkdir(); errors.Is(err, unix.EEXIST) { // left by a crash, or with files
		if err = t.rmdir(); err == nil {
			err = t.mkdir()
		}
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = t.rmdir()
		}
	}()
	point, err := openat.Open(t.parent, t.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, openat.Beneath)
	if err != nil {
		return fmt.Errorf("opening %s: %w", t.at, err)
	}
	defer unix.Close(point)
	tree, err := clone(dir, o.ReadOnly)
	if err != nil {
		return changed(dir, err)
	}
	defer unix.Close(tree)
	err = openat.Retry(func() error {
		return unix.MoveMount(tree, "", point, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	})
	if err != nil {
		return fmt.Errorf("mounting on %s: %w", t.at, err)
	}
	return nil
}

// changed is why a directory could not be cloned: one whose mount has left the table meanwhile
// cannot (check_mnt in the kernel's fs/namespace.c: EINVAL).
func changed(dir int, err error) error {
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	table, wrong := mounts.Read()
	if wrong != nil {
		return err
	}
	if _, wrong = locate(table, dir); errors.Is(wrong, ErrChanged) {
		return wrong
	}
	return err
}

// clone is a mount of a directory that is attached nowhere yet.
func clone(dir int, readOnly bool) (tree int, err error) {
	err = openat.Retry(func() error {
		tree, err = unix.OpenTree(dir, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open_tree of the volume: %w", err)
	}
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if readOnly {
		attr.Attr_set = unix.MOUNT_ATTR_RDONLY
	}
	if err := openat.Retry(func() error { return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr) }); err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("mount_setattr: %w", err)
	}
	return tree, nil
}

// most is how many mounts on one target are taken away: kubelet has one made.
const most = 16

// Unpublish unmounts what is mounted on the target, and removes the target's directory. Neither
// has to be there. With ErrContent nothing is mounted any more, and the directory is still there.
// The mount leaves the table at once; a process that has a file open in it keeps the filesystem.
func (t *Target) Unpublish() error {
	for range most {
		m, mounted, err := t.Mounted()
		if err != nil {
			return err
		}
		if !mounted {
			return t.rmdir()
		}
		through := path.Join(fmt.Sprintf("/proc/thread-self/fd/%d", t.parent), t.name)
		err = openat.Retry(func() error { return unix.Unmount(through, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
		if err != nil {
			return fmt.Errorf("unmounting %s: %w", m.Point, err)
		}
	}
	return fmt.Errorf("%s: more than %d mounts", t.at, most)
}

func (t *Target) mkdir() error {
	err := openat.Retry(func() error { return unix.Mkdirat(t.parent, t.name, 0o750) })
	if err != nil {
		return fmt.Errorf("making %s: %w", t.at, err)
	}
	return nil
}

func (t *Target) rmdir() error {
	err := openat.Retry(func() error { return unix.Unlinkat(t.parent, t.name, unix.AT_REMOVEDIR) })
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) { // either, rmdir(2)
		return fmt.Errorf("%s: %w (%w)", t.at, ErrContent, err)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing %s: %w", t.at, err)
	}
	return nil
}

// OpenMounted opens what is mounted on the target (O_PATH). It waits for a filesystem that hangs.
func (t *Target) OpenMounted() (int, error) {
	fd, err := openat.Open(t.parent, t.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return -1, fmt.Errorf("opening %s: %w", t.at, err)
	}
	return fd, nil
}
