package crash

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A copy of this program takes the daemon's place: it puts the filter over itself, hands the listener
// over, and becomes the daemon.
const (
	socketEnv  = "HOSTPATH_CRASH_SOCKET"
	programEnv = "HOSTPATH_CRASH_PROGRAM"
)

// watched are the system calls that the filter stops. All that change something on a disk or reach
// the API are among them; reads are, because an answer that arrived is a moment of its own.
// Go's os, syscall and unix packages use the *at forms only.
var watched = []uint32{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_LINKAT, unix.SYS_SYMLINKAT,
	unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_SYNC_FILE_RANGE, unix.SYS_SYNCFS, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_FCHMOD,
	unix.SYS_FCHMODAT, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_IOCTL, unix.SYS_WRITE,
	unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_READ, unix.SYS_FSETXATTR,
}

// become is the copy's whole life. It returns only with an error.
func become(args []string) error {
	socket, program := os.Getenv(socketEnv), os.Getenv(programEnv)
	os.Unsetenv(socketEnv)
	os.Unsetenv(programEnv)
	if len(args) > 1 && args[1] == "run" {
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

// installFilter asks the supervisor about each watched call. WAIT_KILLABLE_RECV (Linux 5.19): the
// runtime's preemption signals do not make a call that is being asked about start again.
func installFilter() (listener int, err error) {
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // seccomp_data.nr
	for _, nr := range watched {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&filter)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// notification and answer are struct seccomp_notif and seccomp_notif_resp, linux/seccomp.h.
type notification struct {
	id     uint64
	thread uint32
	flags  uint32
	nr     int32
	arch   uint32
	ip     uint64
	args   [6]uint64
}

type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}
