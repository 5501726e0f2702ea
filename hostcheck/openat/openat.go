// Package openat opens files with openat2(2), and repeats system calls that were interrupted. It is
// the one place for both: what is repeated, how often, and why.
//
//	EINTR   Repeated until the call is done. The Go runtime sends itself signals (preemption), and calls on FUSE and NFS
//	        return EINTR whatever SA_RESTART says (signal(7)).
//	EAGAIN  Repeated only for openat2 with RESOLVE_BENEATH, which returns it when a rename or a mount anywhere on the
//	        machine got in the way of ".." in the path (openat2(2)), and not for ever: it is also the error of a file
//	        opened with O_NONBLOCK while another process holds a lease on it (F_SETLEASE): Leases waits.
//
// The package will not decide what a path may be: that is in the flags that a caller gives.
package openat

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Beneath is the resolution of a name below a descriptor: without leaving it (EXDEV), without
// symbolic links (ELOOP), without entering another mount (EXDEV).
const Beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV

// tries is how often openat2 is called while it returns EAGAIN, microseconds each. Renames that
// never pause do not exhaust them (TestRenamesInTheWay).
const tries = 1000

// Open returns a descriptor of path, relative to dir, which is closed on exec. resolve is RESOLVE_*
// of openat2(2).
func Open(dir int, path string, flags int, mode uint32, resolve uint64) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode), Resolve: resolve}
	for try := 1; ; try++ {
		err = Retry(func() error { fd, err = openat2(dir, path, &how); return err })
		if resolve&unix.RESOLVE_BENEATH == 0 || try == tries || !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// openat2 is replaced by tests.
var openat2 = unix.Openat2

// Retry repeats a system call for as long as a signal interrupts it.
func Retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Ioctl makes a request (ioctl(2)) of an open file, with what the argument points to.
func Ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	return Retry(func() error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// Leases waits for leases (F_SETLEASE), which file servers have on what their clients work with.
// The zero value is ready.
type Leases struct{ waited time.Duration }

const (
	// mostWait is how long one Leases waits in all. The kernel takes a lease after
	// lease-break-time, 45 s by default.
	mostWait = 2 * time.Minute
	// leaseLook is how long it waits before it tries again.
	leaseLook = 5 * time.Millisecond
)

// Open repeats open, which opens a file with O_NONBLOCK, until no lease is in its way: the first
// try has the kernel ask the holder to give it up. step is called before each further try, and its
// error ends it.
func (l *Leases) Open(step func() error, open func() (int, error)) (fd int, err error) {
	for {
		if fd, err = open(); !errors.Is(err, unix.EAGAIN) || l.waited >= mostWait {
			return fd, err
		}
		time.Sleep(leaseLook)
		l.waited += leaseLook
		if err := step(); err != nil {
			return -1, err
		}
	}
}
