package mounts

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Errors of Under, wrapped.
var (
	// ErrNotPermitted: looking under a mount needs CAP_SYS_ADMIN over the mount namespace, and
	// open_tree(2) in a service's SystemCallFilter (@mount).
	ErrNotPermitted = errors.New("not permitted to look under a mount point")
	// ErrTableChanged: the mount point's directory no longer belongs to the mount that the table
	// named.
	ErrTableChanged = errors.New("the mount table changed meanwhile")
)

// Permitted reports whether this thread has CAP_SYS_ADMIN, which Under needs (may_mount in
// fs/namespace.c). Under may be refused all the same: by a filter of system calls, or because the
// capability is a user namespace's.
func Permitted() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	return err == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// Under opens, with O_PATH, the bare directory that lies under a mount point, without unmounting
// anything: m is the lowest mount at that point and parent the mount it stands on (At finds both).
// The caller closes the descriptor soon.
//
// open_tree(2) clones the one mount on which the mount point's *parent directory* lies, without
// those that are mounted on it: beneath the clone the mount point is the bare directory. The clone
// is attached nowhere, and changes neither the mount table nor its poll mark (TestUnderIsQuiet).
// What may go wrong between the table and the look, and what refuses it:
//
//	a link in the path               RESOLVE_NO_SYMLINKS: ELOOP                       TestOpenRefuses
//	a mount on the parent directory  the mount's number, compared after opening       TestUnderRefuses, TestUnderInAStorm
//	a mount that appears in a clone  RESOLVE_NO_XDEV: EXDEV, which is ErrTableChanged  TestUnderInAStorm
func Under(m, parent Mount) (int, error) {
	dir, name := path.Split(m.Point)
	if name == "" || m.Parent != parent.ID {
		return -1, fmt.Errorf("under %q: mount %d does not stand on mount %d", m.Point, m.ID, parent.ID)
	}
	tree, err := cloneAt(dir, parent.ID)
	if err != nil {
		return -1, fmt.Errorf("under %q: %w", m.Point, err)
	}
	defer unix.Close(tree)
	fd, err := OpenBeneath(tree, name, unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.EXDEV) {
		// A filesystem was mounted there just now, and the clone is a peer of its shared original.
		err = ErrTableChanged
	}
	if err != nil {
		return -1, fmt.Errorf("under %q: %w", m.Point, err)
	}
	return fd, nil
}

// cloneAt clones the mount with this number, from the directory dir on.
func cloneAt(dir string, id int) (int, error) {
	up, err := Open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer unix.Close(up)
	got, err := IDOf(up)
	if err != nil {
		return -1, err
	}
	if got != id {
		return -1, fmt.Errorf("%q is on mount %d, not %d: %w", dir, got, id, ErrTableChanged)
	}
	tree, err := retry(func() (int, error) {
		return unix.OpenTree(up, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	})
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSYS):
		return -1, fmt.Errorf("%w: open_tree: %w", ErrNotPermitted, err)
	case err != nil:
		return -1, fmt.Errorf("open_tree of %q: %w", dir, err)
	}
	return tree, nil
}

// Open opens an absolute path in which no component may be a symbolic link (ELOOP;
// TestOpenRefuses).
func Open(path string, flags uint64) (int, error) {
	return openat2(unix.AT_FDCWD, path, flags, unix.RESOLVE_NO_SYMLINKS)
}

// OpenBeneath opens a path relative to dir that leaves neither dir (EXDEV) nor its mount (EXDEV)
// and goes through no symbolic link (ELOOP; TestOpenRefuses).
func OpenBeneath(dir int, path string, flags uint64) (int, error) {
	return openat2(dir, path, flags, openat.Beneath)
}

func openat2(dir int, path string, flags, resolve uint64) (int, error) {
	fd, err := openat.Open(dir, path, int(flags), 0, resolve)
	if err != nil {
		return -1, fmt.Errorf("opening %q: %w", path, err)
	}
	return fd, nil
}
