// Package killer stops a process before each of its system calls with which it changes something or
// talks to the API, to kill it there, or to have it wait. The program that uses it becomes the
// process in a copy of itself (Asked, Become).
//
// It does not decide at which of them, and it knows nothing of what the process does.
package killer

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These variables make a copy of this program a wrapper: it puts the filter over itself, hands the
// listener over, and becomes the daemon.
const (
	socketEnv  = "HOSTPATH_CRASH_SOCKET"
	programEnv = "HOSTPATH_CRASH_PROGRAM"
)

// Asked reports whether this process is such a copy, which has to call Become at once.
func Asked() bool { return os.Getenv(socketEnv) != "" }

// harmless are the system calls that are not stopped: none of them changes what is on a disk or
// talks to the API. Every other one is, whether this program knows it or not, so that a call which
// a new version of the daemon or of Go begins to make is not missed: see calls in point.go.
var harmless = append([]uint32{
	// memory, threads, time
	unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_FUTEX, unix.SYS_CLONE,
	unix.SYS_CLONE3, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_GETTID, unix.SYS_GETPID, unix.SYS_TGKILL, unix.SYS_SCHED_YIELD,
	unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK,
	unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_EXECVE, unix.SYS_PRCTL,
	unix.SYS_PRLIMIT64, unix.SYS_RESTART_SYSCALL, unix.SYS_MINCORE, unix.SYS_GETRUSAGE, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME,
	unix.SYS_TIMER_DELETE, unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME,
	// confining itself, and Go's look whether pidfds work (os, checkPidfd)
	unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF, unix.SYS_SECCOMP,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_WAITID,
	// asking
	unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETPPID, unix.SYS_UNAME, unix.SYS_SYSINFO,
	unix.SYS_GETRANDOM, unix.SYS_GETCWD, unix.SYS_FSTAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_FSTATFS,
	unix.SYS_READLINKAT, unix.SYS_GETDENTS64, unix.SYS_LSEEK, unix.SYS_PREAD64, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2,
	unix.SYS_FGETXATTR, unix.SYS_GETXATTR, unix.SYS_LISTXATTR, unix.SYS_FLISTXATTR, unix.SYS_OPEN_TREE, unix.SYS_CAPGET,
	// descriptors; what a socket sends is written
	unix.SYS_CLOSE, unix.SYS_FCNTL, unix.SYS_DUP3, unix.SYS_PIPE2, unix.SYS_FLOCK, unix.SYS_EVENTFD2, unix.SYS_EPOLL_CREATE1,
	unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH,
	unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_PPOLL, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT4, unix.SYS_GETSOCKNAME,
	unix.SYS_GETPEERNAME, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKOPT, unix.SYS_RECVFROM, unix.SYS_RECVMSG,
	unix.SYS_SENDMSG, // hands the listener over, before the killer responds; Go sends nothing to a server with it
}, harmlessHere...)

// watched are the subcommands that are stopped, and no others: the daemon, the service that mounts
// volumes for kubelet, and the calls that give volumes another object, or another node.
var watched = []string{"run", "csi-node", "adopt", "import", "forget-node"}

// Become is the copy's whole life. It returns only with an error.
func Become(args []string) error {
	socket, program := os.Getenv(socketEnv), os.Getenv(programEnv)
	os.Unsetenv(socketEnv)
	os.Unsetenv(programEnv)
	if len(args) > 1 && slices.Contains(watched, args[1]) {
		runtime.LockOSThread() // the filter is this thread's, and exec leaves this thread alone
		if err := handOver(socket); err != nil {
			return err
		}
	}
	return syscall.Exec(program, append([]string{program}, args[1:]...), os.Environ())
}

func handOver(socket string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return err
	}
	listener, err := installFilter()
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return unix.Sendmsg(fd, []byte{0}, unix.UnixRights(listener), nil, 0)
}

// installFilter asks the killer about each call that is not harmless. WAIT_KILLABLE_RECV (Linux 5.19): the
// runtime's preemption signals do not make a call that is being asked about start again.
func installFilter() (listener int, err error) {
	const number, fourth = 0, 16 + 3*8 // offsets in struct seccomp_data, linux/seccomp.h: of nr, of args[3]
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		// A file that is mapped to be shared could change without a call.
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_MMAP, Jf: 4},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: fourth},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.MAP_SHARED, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	for _, nr := range harmless {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&filter)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// notification and verdict are struct seccomp_notif and seccomp_notif_resp, linux/seccomp.h.
type notification struct {
	id     uint64
	thread uint32
	flags  uint32
	nr     int32
	arch   uint32
	ip     uint64
	args   [6]uint64
}

type verdict struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}
