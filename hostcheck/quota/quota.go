// Package quota makes the kernel's calls for project quotas, the same for xfs and ext4: a project
// is a number that files have, and by which the filesystem counts and limits their bytes and inodes
// (quotactl(2), the Q_X* commands of linux/dqblk_xfs.h). It also gives directories their project
// (FS_IOC_FSSETXATTR of linux/fs.h).
//
// It needs quotactl_fd(2), which Linux has since 5.14, executes nothing, and does not read or write
// /etc/projects. It will not choose a project, remember one, or decide about a limit. It imports no
// package of the daemon.
package quota

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Commands of quotactl(2) for projects, as they are passed: QCMD(Q_X..., PRJQUOTA) of
// linux/quota.h. State takes no privilege. The others take CAP_SYS_ADMIN in the initial user
// namespace (check_quotactl_permission in fs/quota/quota.c).
const (
	CommandGet   = 0x5803<<8 | projects // Q_XGETQUOTA
	CommandSet   = 0x5804<<8 | projects // Q_XSETQLIM
	CommandState = 0x5808<<8 | projects // Q_XGETQSTATV
	CommandNext  = 0x5809<<8 | projects // Q_XGETNEXTQUOTA

	projects = 2 // PRJQUOTA
)

// MostID is the highest project that is used here: other programs read projects as signed numbers
// of 32 bits.
const MostID = 1<<31 - 1

// Limit is what the files of a project may take; 0 is no limit.
type Limit struct {
	Bytes  uint64 `json:"bytes,omitempty"` // rounded down to a multiple of 512 by the kernel's interface
	Inodes uint64 `json:"inodes,omitempty"`
}

// Usage is what the files of a project take, and may take.
type Usage struct {
	ID     uint32 `json:"id"`
	Bytes  uint64 `json:"bytes,omitempty"`
	Inodes uint64 `json:"inodes,omitempty"`
	Limit  Limit  `json:"limit,omitzero"`
}

// Free reports whether nothing has the project: neither a file nor a limit.
func (u Usage) Free() bool { return u == Usage{ID: u.ID} }

// State is whether a filesystem counts what projects take, and keeps them to their limits.
type State struct {
	Counted  bool `json:"counted,omitempty"`
	Enforced bool `json:"enforced,omitempty"`
}

// ErrNoCall is of a kernel without quotactl_fd(2).
var ErrNoCall = errors.New("this kernel has no quotactl_fd(2), which Linux has since 5.14")

// diskQuota is struct fs_disk_quota (linux/dqblk_xfs.h). Blocks have 512 bytes.
type diskQuota struct {
	version                                        int8
	flags                                          int8
	fields                                         uint16
	id                                             uint32
	blocksHard, blocksSoft, inodesHard, inodesSoft uint64
	blocks, inodes                                 uint64
	_, _                                           int32
	_, _                                           uint16
	_                                              [4]int8
	_, _, _                                        uint64
	_                                              int32
	_                                              uint16
	_                                              int16
	_                                              [8]byte
}

// stateV is struct fs_quota_statv (linux/dqblk_xfs.h).
type stateV struct {
	version int8
	_       uint8
	flags   uint16
	_       uint32
	_       [3][24]byte // struct fs_qfilestatv
	_       [3]int32
	_       [4]uint16
	_       [64]byte
}

const (
	blockSize   = 512
	fsDiskQuota = 1      // FS_DQUOT_VERSION
	ofProject   = 2      // FS_PROJ_QUOTA
	hardLimits  = 2 | 8  // FS_DQ_IHARD, FS_DQ_BHARD
	softLimits  = 1 | 4  // FS_DQ_ISOFT, FS_DQ_BSOFT
	counted     = 1 << 4 // FS_QUOTA_PDQ_ACCT
	enforced    = 1 << 5 // FS_QUOTA_PDQ_ENFD
)

// StateOf returns whether the filesystem of a descriptor counts and enforces; ErrNoCall on an older
// kernel. A filesystem without project quotas does neither.
func StateOf(fd int) (State, error) {
	s := stateV{version: 1} // FS_QSTATV_VERSION1
	err := call(fd, CommandState, 0, unsafe.Pointer(&s))
	switch {
	case errors.Is(err, unix.ENOSYS) && errors.Is(Probe(), ErrNoCall):
		return State{}, ErrNoCall
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ESRCH):
		return State{}, nil
	}
	return State{Counted: s.flags&counted != 0, Enforced: s.flags&enforced != 0}, err
}

// Probe returns nil where the kernel has the call, ErrNoCall where it lacks it, and another error
// where this process may not ask. A kernel that has it looks at the descriptor first.
func Probe() error {
	err := call(-1, CommandState, 0, nil)
	switch {
	case errors.Is(err, unix.EBADF):
		return nil
	case errors.Is(err, unix.ENOSYS):
		return ErrNoCall
	}
	return err
}

// Get returns what a project takes and may take.
func Get(fd int, id uint32) (Usage, error) {
	var d diskQuota
	err := call(fd, CommandGet, id, unsafe.Pointer(&d))
	if errors.Is(err, unix.ENOENT) { // xfs has nothing about it
		return Usage{ID: id}, nil
	}
	d.id = id
	return d.usage(), err
}

// From returns at most n projects of which the filesystem knows something, in their order, from an
// id on. Fewer than n are the last.
func From(fd int, id uint32, n int) ([]Usage, error) {
	return from(id, n, func(id uint32, d *diskQuota) error { return call(fd, CommandNext, id, unsafe.Pointer(d)) })
}

// from is From with the call that finds the first project that is not before id.
func from(id uint32, n int, next func(id uint32, d *diskQuota) error) ([]Usage, error) {
	var all []Usage
	for len(all) < n {
		var d diskQuota
		err := next(id, &d)
		if errors.Is(err, unix.ENOENT) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if u := d.usage(); !u.Free() {
			all = append(all, u)
		}
		if id = d.id + 1; id == 0 {
			return all, nil
		}
	}
	return all, nil
}

func (d diskQuota) usage() Usage {
	return Usage{ID: d.id, Bytes: d.blocks * blockSize, Inodes: d.inodes, Limit: Limit{Bytes: d.blocksHard * blockSize, Inodes: d.inodesHard}}
}

// Set gives a project its limits, in place of those that it had.
func Set(fd int, id uint32, l Limit) error {
	d := l.diskQuota(id)
	return call(fd, CommandSet, id, unsafe.Pointer(&d))
}

// diskQuota is what sets the limits, and takes the soft ones away.
func (l Limit) diskQuota(id uint32) diskQuota {
	return diskQuota{version: fsDiskQuota, flags: ofProject, id: id, fields: hardLimits | softLimits, blocksHard: l.Bytes / blockSize, inodesHard: l.Inodes}
}

func call(fd int, command uint32, id uint32, data unsafe.Pointer) error {
	return openat.Retry(func() error {
		_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), uintptr(command), uintptr(id), uintptr(data), 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}
