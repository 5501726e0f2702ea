package mountpoint

import (
	"errors"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Descriptors are those that came with a request. There is room for two in what holds one (CMSG_SPACE(3)); the
// kernel closes those for which there is none.
func Descriptors(control []byte) (all []int) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}

// IsPairEnd reports whether a descriptor is an end of a pair of sockets as a client makes it. A connection that
// was made to an address would let a client send a message to others in this service's name.
func IsPairEnd(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return false
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return false
	}
	return unnamed(unix.SYS_GETSOCKNAME, fd) && unnamed(unix.SYS_GETPEERNAME, fd)
}

// unnamed reports whether a socket's address is no more than its family (unix(7)). unix.Getsockname does not tell that
// from an abstract address.
func unnamed(call uintptr, fd int) bool {
	var address unix.RawSockaddrUnix
	length := uint32(unix.SizeofSockaddrUnix)
	_, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&length)))
	return errno == 0 && uintptr(length) == unsafe.Offsetof(address.Path)
}

// receive reads a datagram. recvmsg(2) does not return before the kernel has closed what came for which there is no
// room, or which a security module refuses (scm_detach_fds in net/core/scm.c), and that may wait as in discard.
func (s *Server) receive(socket *net.UnixConn, request, control []byte) (n, c, flags int, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		defer time.AfterFunc(timeout, s.stuck).Stop()
		failed = unix.EINTR
		for errors.Is(failed, unix.EINTR) {
			n, c, flags, _, failed = unix.Recvmsg(int(fd), request, control, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		}
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err == nil {
		err = failed
	}
	return n, c, flags, err
}

// discard closes what came with a request. That may wait: a file's close(2) for its filesystem, a TCP socket's for
// SO_LINGER, and an end's for what a client has put into its queue. So it is done aside, and where too many wait, the
// service ends.
func (s *Server) discard(fds []int) {
	for _, fd := range fds {
		select {
		case s.aside <- struct{}{}:
			go func() {
				unix.Close(fd)
				<-s.aside
			}()
		case <-time.After(timeout):
			s.stuck()
			return
		}
	}
}
