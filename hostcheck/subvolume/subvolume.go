// Package subvolume makes btrfs's calls for subvolumes: the trees of one filesystem of which a
// snapshot can be made at once (linux/btrfs.h). It works on descriptors. A name is one path element
// beneath a descriptor.
//
// It needs no more than rights over the directories: CAP_DAC_OVERRIDE to write in them, CAP_FOWNER
// for a snapshot of a subvolume that another user owns (btrfs_ioctl_snap_create_v2,
// __btrfs_ioctl_snap_create in fs/btrfs/ioctl.c). It will not remove a subvolume, which takes
// CAP_SYS_ADMIN or a mount option: rmdir(2) removes an empty one since Linux 4.18. It imports no
// package of the daemon.
package subvolume

import (
	"errors"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Requests of ioctl(2), as they are passed.
const (
	RequestCreate   = 0x50009418 // BTRFS_IOC_SUBVOL_CREATE_V2: struct btrfs_ioctl_vol_args_v2
	RequestSnapshot = 0x50009417 // BTRFS_IOC_SNAP_CREATE_V2: the same
	RequestNested   = 0xd000943d // BTRFS_IOC_GET_SUBVOL_ROOTREF: struct btrfs_ioctl_get_subvol_rootref_args
	RequestGetFlags = 0x80089419 // BTRFS_IOC_SUBVOL_GETFLAGS: a number of 64 bits
	RequestSetFlags = 0x4008941a // BTRFS_IOC_SUBVOL_SETFLAGS: the same
)

// ErrNone: a directory is no subvolume, of which alone there are snapshots.
var ErrNone = errors.New("it is a plain directory and no subvolume")

const (
	top      = 256    // BTRFS_FIRST_FREE_OBJECTID: the inode of each subvolume's own directory
	nameMax  = 4039   // BTRFS_SUBVOL_NAME_MAX
	readOnly = 1 << 1 // BTRFS_SUBVOL_RDONLY
	listed   = 255    // BTRFS_MAX_ROOTREF_BUFFER_NUM
)

// arguments is struct btrfs_ioctl_vol_args_v2.
type arguments struct {
	fd      int64
	transid uint64
	flags   uint64
	_       [4]uint64
	name    [nameMax + 1]byte
}

// nested is struct btrfs_ioctl_get_subvol_rootref_args.
type nested struct {
	from uint64
	refs [listed]struct{ tree, directory uint64 }
	n    uint8
	_    [7]byte
}

// Is reports whether an open directory is the top of a subvolume.
func Is(fd int) (bool, error) {
	var filesystem unix.Statfs_t
	if err := openat.Retry(func() error { return unix.Fstatfs(fd, &filesystem) }); err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	return filesystem.Type == unix.BTRFS_SUPER_MAGIC && st.Ino == top && st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// Create makes an empty subvolume in an open directory, with the mode 0777 that the umask cuts.
// EEXIST: the name is taken. ENOTTY: the filesystem has no subvolumes.
func Create(dir int, name string) error { return create(dir, RequestCreate, name, 0) }

// Snapshot makes a subvolume in an open directory that has everything of another subvolume, which
// is open, too, as it is at one moment; it may be changed. What was written before is on stable
// storage then. Subvolumes inside the other one are empty directories in it. EEXIST: the name is
// taken. EXDEV: it is of another filesystem.
func Snapshot(dir int, name string, of int) error {
	// Older kernels make one of the whole subvolume that the directory lies in, newer ones return
	// EINVAL.
	if is, err := Is(of); err != nil || !is {
		return errors.Join(err, ErrNone)
	}
	return create(dir, RequestSnapshot, name, int64(of))
}

func create(dir int, request uintptr, name string, of int64) error {
	switch {
	case len(name) > nameMax:
		return unix.ENAMETOOLONG
	case strings.IndexByte(name, 0) >= 0: // the kernel would take what is before it
		return unix.EINVAL
	}
	a := arguments{fd: of}
	copy(a.name[:], name)
	return openat.Ioctl(dir, request, unsafe.Pointer(&a))
}

// Nested returns how many subvolumes lie in an open one, and in no other one inside it; 255 are as
// many as more.
func Nested(fd int) (int, error) {
	var list nested
	err := openat.Ioctl(fd, RequestNested, unsafe.Pointer(&list))
	if errors.Is(err, unix.EOVERFLOW) {
		return listed, nil
	}
	return int(list.n), err
}

// MakeWritable clears the flag by which a subvolume is read-only, and reports whether it was there.
// What is open is the top of a subvolume; nothing is done to other directories.
func MakeWritable(fd int) (cleared bool) {
	var flags uint64
	if err := openat.Ioctl(fd, RequestGetFlags, unsafe.Pointer(&flags)); err != nil || flags&readOnly == 0 {
		return false
	}
	flags &^= readOnly
	return openat.Ioctl(fd, RequestSetFlags, unsafe.Pointer(&flags)) == nil
}
