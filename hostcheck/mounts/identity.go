package mounts

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrCannotTell says that a filesystem or kernel does not know what was asked.
var ErrCannotTell = errors.New("the filesystem cannot tell")

// Identity says which directory of which mount an open descriptor is. Two equal identities are the
// same directory seen through the same mount; it is comparable with ==, and the zero value is none.
type Identity struct {
	MountID  uint64 `json:"mountID"`
	Unique   bool   `json:"unique"` // MountID is never used again before a reboot (Linux 6.8)
	DevMajor uint32 `json:"devMajor"`
	DevMinor uint32 `json:"devMinor"`
	Inode    uint64 `json:"inode"`
}

// IdentityOf reads the identity of an open descriptor, O_PATH too, with statx(2). Before Linux 6.8
// the mount's number may come back after an unmount; device and inode then tell filesystems apart.
func IdentityOf(fd int) (Identity, error) {
	st, err := statx(fd, unix.STATX_INO|unix.STATX_MNT_ID|unix.STATX_MNT_ID_UNIQUE)
	if err != nil {
		return Identity{}, err
	}
	return identityOf(st)
}

func identityOf(st unix.Statx_t) (Identity, error) {
	unique := st.Mask&unix.STATX_MNT_ID_UNIQUE != 0
	if !unique && st.Mask&unix.STATX_MNT_ID == 0 {
		return Identity{}, fmt.Errorf("mount of a descriptor: %w", ErrCannotTell)
	}
	return Identity{
		MountID: st.Mnt_id, Unique: unique,
		DevMajor: st.Dev_major, DevMinor: st.Dev_minor, Inode: st.Ino,
	}, nil
}

// IDOf reads the number that the mount of an open descriptor has in the mount table (Mount.ID).
func IDOf(fd int) (int, error) {
	st, err := statx(fd, unix.STATX_MNT_ID)
	if err != nil {
		return 0, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return 0, fmt.Errorf("mount of a descriptor: %w", ErrCannotTell)
	}
	return int(st.Mnt_id), nil
}

// Immutable reports whether an open file or directory is immutable (chattr +i). A filesystem that
// does not know the flag (NFS, FUSE, tmpfs before Linux 6.1) returns ErrCannotTell.
func Immutable(fd int) (bool, error) {
	st, err := statx(fd, unix.STATX_TYPE)
	if err != nil {
		return false, err
	}
	if st.Attributes_mask&unix.STATX_ATTR_IMMUTABLE == 0 {
		return false, fmt.Errorf("immutable flag: %w", ErrCannotTell)
	}
	return st.Attributes&unix.STATX_ATTR_IMMUTABLE != 0, nil
}

func statx(fd, mask int) (st unix.Statx_t, err error) {
	_, err = retry(func() (int, error) {
		return 0, unix.Statx(fd, "", unix.AT_EMPTY_PATH, mask, &st)
	})
	if err != nil {
		return st, fmt.Errorf("statx: %w", err)
	}
	return st, nil
}
