package confine

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/subvolume"
)

// filterCalls installs a seccomp filter on all threads. A denied call returns EPERM. The unit's
// SystemCallFilter= denies system calls; this filter also checks arguments, which systemd's cannot.
// It reports whether the kernel has filters at all.
func filterCalls(r Rules) (bool, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, err
	}
	program := filter(r)
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	const all = unix.SECCOMP_FILTER_FLAG_TSYNC
	thread, errno := seccomp(unix.SECCOMP_SET_MODE_FILTER, all, unsafe.Pointer(&fprog))
	switch {
	case errno == 0 && thread != 0: // and no thread has the filter (seccomp(2))
		return false, fmt.Errorf("thread %d has another filter", thread)
	case errno == 0:
		return true, nil
	case !available():
		return false, nil
	}
	return false, errno
}

// available reports whether the kernel has filters of system calls: SECCOMP_SET_MODE_FILTER alone
// does not tell that from a filter that is malformed.
func available() bool {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, errno := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, 0, unsafe.Pointer(&action))
	return errno == 0
}

func seccomp(operation, flags uintptr, argument unsafe.Pointer) (uintptr, unix.Errno) {
	n, _, errno := unix.Syscall(unix.SYS_SECCOMP, operation, flags, uintptr(argument))
	return n, errno
}

// Offsets in struct seccomp_data (seccomp(2)). Arguments have 64 bits, little-endian; of an int the
// kernel uses the lower half.
const (
	ofNumber = 0
	ofArch   = 4
)

func ofArgument(n uint32) uint32 { return 16 + 8*n }

// ioctls that the daemon and the Go library use. All others are denied: among them are FIFREEZE,
// which blocks every writer of a filesystem, and those that shut a filesystem down or resize it.
var ioctls = []uint32{
	unix.FS_IOC_GETFLAGS, unix.FS_IOC_SETFLAGS,
	0x80111500,             // FS_IOC_GETFSUUID
	0x801c581f, 0x401c5820, // FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR: projects
	0x8400941f, 0xd000941e, // BTRFS_IOC_FS_INFO, BTRFS_IOC_DEV_INFO
	subvolume.RequestGetFlags, subvolume.RequestSetFlags, // a tenant's, which are removed with its volume
	unix.TCGETS, unix.TIOCGWINSZ, unix.TIOCINQ, 0x5421, // FIONBIO
}

// refused are system calls that the daemon does not need. io_uring would bypass the filter. Of the
// calls that change mode, owner, attributes and size those on a path are denied, because Landlock
// does not check them (truncate(2) before ABI 3); those on a file descriptor stay. An access list
// is a mode: setxattr(2) of system.posix_acl_access is chmod(2).
var refused = append([]uint32{
	unix.SYS_LSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR,
	unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTRAT,
	unix.SYS_FILE_SETATTR, unix.SYS_TRUNCATE,
	unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET, unix.SYS_EXECVEAT, // programs that are no file
	unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWNAT,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_SETNS, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_QUOTACTL,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_ACCT, unix.SYS_SYSLOG,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_CLOCK_SETTIME, unix.SYS_SETTIMEOFDAY, unix.SYS_FANOTIFY_INIT,
}, refusedHere...)

// quotaCommands are the commands of quotactl_fd(2) that are allowed: whether a filesystem enforces
// project quotas, which takes no capability, and for the process that has CAP_SYS_ADMIN those that
// read and set limits. To switch quotas off or on is denied.
func quotaCommands(r Rules) []uint32 {
	if !r.LookUnder {
		return []uint32{quota.CommandState}
	}
	return []uint32{quota.CommandState, quota.CommandGet, quota.CommandNext, quota.CommandSet}
}

// newest is the last system call that was looked at. What a later kernel has is denied as by this
// one: ENOSYS, also for the numbers of x32.
const newest = unix.SYS_FILE_SETATTR

// numbers are the calls that are denied whatever their arguments are.
func numbers(r Rules) []uint32 {
	all := slices.Clone(refused)
	for number, needed := range map[uint32]bool{
		unix.SYS_OPEN_TREE: r.LookUnder,
		unix.SYS_EXECVE:    len(r.Execute) > 0,
		unix.SYS_SETXATTR:  r.Label,
	} {
		if !needed {
			all = append(all, number)
		}
	}
	return all
}

type program []unix.SockFilter

func filter(r Rules) program {
	bits := uint32(unix.S_ISUID | unix.S_ISGID)
	if r.SetGroupID {
		bits = unix.S_ISUID
	}
	p := program{load(ofArch), jump(unix.BPF_JEQ, arch[runtime.GOARCH], 1, 0), refuse()}
	p = append(p, load(ofNumber), jump(unix.BPF_JGT, newest, 0, 1),
		with(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	for _, number := range numbers(r) {
		p = append(p, load(ofNumber), jump(unix.BPF_JEQ, number, 0, 1), refuse())
	}
	p = p.when(unix.SYS_FCHMOD, anyOf(1, bits)...)
	p = p.creating(unix.SYS_OPENAT, 2, bits).older(bits)
	p = p.when(unix.SYS_SOCKET, load(ofArgument(0)), jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 4),
		load(ofArgument(1)), with(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xf),
		jump(unix.BPF_JEQ, unix.SOCK_DGRAM, 1, 0), refuse())
	allowed, nodes := ioctls, []unix.SockFilter{refuse()}
	if len(r.Copy) > 0 {
		allowed = append(slices.Clone(ioctls), unix.FICLONE, subvolume.RequestCreate, subvolume.RequestSnapshot, subvolume.RequestNested)
		nodes = []unix.SockFilter{load(ofArgument(2)), with(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, unix.S_IFMT), jump(unix.BPF_JEQ, unix.S_IFIFO, 1, 0), refuse()}
	}
	p = p.when(unix.SYS_MKNODAT, nodes...)
	if len(r.Copy) == 0 { // a link's times have to be set by its path
		p = p.when(unix.SYS_UTIMENSAT, load(ofArgument(1)), jump(unix.BPF_JEQ, 0, 0, 2),
			load(ofArgument(1)+4), jump(unix.BPF_JEQ, 0, 1, 0), refuse())
	}
	p = p.when(unix.SYS_IOCTL, allBut(1, allowed)...)
	p = p.when(unix.SYS_QUOTACTL_FD, allBut(1, quotaCommands(r))...)
	return append(p, with(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW))
}

// when appends instructions for one system call; all others jump over them.
func (p program) when(number uint32, do ...unix.SockFilter) program {
	p = append(p, load(ofNumber), jump(unix.BPF_JEQ, number, 0, uint8(len(do))))
	return append(p, do...)
}

// creating denies the creation of a file with one of these mode bits, by a system call whose mode
// follows its flags. openat2(2) has its arguments in memory and cannot be filtered: a file that it
// creates belongs to this process's user.
func (p program) creating(number, flags, bits uint32) program {
	return p.when(number, append([]unix.SockFilter{load(ofArgument(flags)), jump(unix.BPF_JSET, unix.O_CREAT, 0, 3)}, anyOf(flags+1, bits)...)...)
}

// anyOf denies an argument with one of these bits.
func anyOf(argument, bits uint32) []unix.SockFilter {
	return []unix.SockFilter{load(ofArgument(argument)), jump(unix.BPF_JSET, bits, 0, 1), refuse()}
}

// allBut denies every value of an argument except these.
func allBut(argument uint32, values []uint32) []unix.SockFilter {
	do := []unix.SockFilter{load(ofArgument(argument))}
	for i, v := range values {
		do = append(do, jump(unix.BPF_JEQ, v, uint8(len(values)-i), 0))
	}
	return append(do, refuse())
}

func load(offset uint32) unix.SockFilter {
	return with(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset)
}

func refuse() unix.SockFilter {
	return with(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM))
}

func with(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }

func jump(kind uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | kind | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

var arch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}
