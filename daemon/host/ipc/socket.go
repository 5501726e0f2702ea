// Package ipc takes requests from processes that may have been taken over. A request is a datagram
// with one end of a pair of connected sockets, by SCM_RIGHTS, on which the response goes.
//
// Nothing that a client holds is waited for. It has the end's open file description, too, and can
// take O_NONBLOCK from it at any time: each call says MSG_DONTWAIT. Closing what a client sent may
// wait: a file's close(2) for its filesystem, a TCP socket's for SO_LINGER, and an end's for what
// is in its queue. It is done aside, by few at a time.
//
// The package knows no request, and judges none.
package ipc

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Socket is a service's socket. One goroutine receives.
type Socket struct {
	Conn *net.UnixConn
	// Stuck ends a service that does nothing else, when descriptors cannot be closed within
	// Timeout: the kernel closes those of a process that ended. nil: no request is taken meanwhile.
	Stuck func()

	aside chan struct{} // held by each descriptor that is being closed
}

// Bounds.
const (
	// MostAside descriptors are being closed at a time.
	MostAside = 8
	// Timeout is how long Stuck is not called.
	Timeout = time.Second
)

// New makes the socket of a connection.
func New(conn *net.UnixConn, stuck func()) *Socket {
	return &Socket{Conn: conn, Stuck: stuck, aside: make(chan struct{}, MostAside)}
}

// Receive reads a request, of at most a byte less than the buffer, and returns the end that came
// with it, -1 if it is malformed: what came with it is closed then. The connection's deadline
// counts.
func (s *Socket) Receive(buffer []byte) (request []byte, end int, err error) {
	s.room()
	control := make([]byte, unix.CmsgSpace(4))
	n, c, flags, err := s.receive(buffer, control)
	if err != nil {
		return nil, -1, err
	}
	fds := descriptors(control[:c])
	whole := n < len(buffer) && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == 0
	if !whole || len(fds) != 1 || !isPairEnd(fds[0]) {
		s.Discard(fds...)
		return buffer[:n], -1, nil
	}
	return buffer[:n], fds[0], nil
}

// room waits until a descriptor could be closed aside: what waits for that is bounded by what was
// received.
func (s *Socket) room() {
	if s.Stuck == nil {
		s.aside <- struct{}{}
		<-s.aside
	}
}

// receive reads a datagram. recvmsg(2) does not return before the kernel has closed what came for
// which there is no room, or which a security module refuses (scm_detach_fds in net/core/scm.c),
// and that may wait.
func (s *Socket) receive(buffer, control []byte) (n, c, flags int, err error) {
	raw, err := s.Conn.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		if s.Stuck != nil {
			defer time.AfterFunc(Timeout, s.Stuck).Stop()
		}
		failed = openat.Retry(func() (err error) {
			n, c, flags, _, err = unix.Recvmsg(int(fd), buffer, control, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			return err
		})
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err == nil {
		err = failed
	}
	return n, c, flags, err
}

// Discard closes descriptors aside. It waits for a place there.
func (s *Socket) Discard(fds ...int) {
	for _, fd := range fds {
		if !s.place() {
			return
		}
		go func() {
			defer func() { <-s.aside }()
			unix.Close(fd)
		}()
	}
}

// place waits for a place among those that are being closed.
func (s *Socket) place() bool {
	if s.Stuck == nil {
		s.aside <- struct{}{}
		return true
	}
	select {
	case s.aside <- struct{}{}:
		return true
	case <-time.After(Timeout):
		s.Stuck()
		return false
	}
}

// Send sends one message to an end. One that is full or closed gets none, and that is an error.
func Send(end int, message []byte) error {
	return openat.Retry(func() error {
		_, err := unix.SendmsgN(end, message, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return err
	})
}

// descriptors are those that came with a request. There is room for two in what holds one
// (CMSG_SPACE(3)); the kernel closes those for which there is none.
func descriptors(control []byte) (all []int) {
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

// isPairEnd reports whether a descriptor is an end of a pair of sockets as a client makes it. A
// connection that was made to an address would let a client send a message to others in this
// service's name.
func isPairEnd(fd int) bool {
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

// unnamed reports whether a socket's address is no more than its family (unix(7)). unix.Getsockname
// does not tell that from an abstract address.
func unnamed(call uintptr, fd int) bool {
	var address unix.RawSockaddrUnix
	length := uint32(unix.SizeofSockaddrUnix)
	_, _, errno := unix.Syscall(call, uintptr(fd),
		uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&length)))
	return errno == 0 && uintptr(length) == unsafe.Offsetof(address.Path)
}

// End is an end that is used for more than one response.
type End struct {
	file  *os.File
	aside chan struct{}
}

// End takes an end that was received. Every end that is taken is closed by Close.
func (s *Socket) End(fd int) *End {
	_ = unix.SetNonblock(fd, true) // for NewFile: without it Receive returns an error
	return &End{file: os.NewFile(uintptr(fd), "end"), aside: s.aside}
}

// Send sends one message, and does not wait.
func (e *End) Send(message []byte) error {
	return e.with(func(fd uintptr) (bool, error) { return true, Send(int(fd), message) }, false)
}

// Receive waits for one message until ctx ends; of a closed end it is io.EOF. After an error
// nothing is received any more, and the buffer may still be written to: what comes with a message
// is closed by recvmsg(2), and that may wait.
func (e *End) Receive(ctx context.Context, buffer []byte) (int, error) {
	n, received := 0, make(chan error, 1)
	go func() {
		received <- e.with(func(fd uintptr) (bool, error) {
			err := openat.Retry(func() (err error) {
				n, _, err = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
				return err
			})
			return !errors.Is(err, unix.EAGAIN), err
		}, true)
	}()
	select {
	case err := <-received:
		if err == nil && n == 0 {
			err = io.EOF
		}
		return n, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (e *End) with(call func(fd uintptr) (done bool, err error), reads bool) error {
	raw, err := e.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	do := raw.Write
	if reads {
		do = raw.Read
	}
	err = do(func(fd uintptr) (done bool) {
		done, failed = call(fd)
		return done
	})
	if err != nil {
		return err
	}
	return failed
}

// Close closes the end aside, and does not wait.
func (e *End) Close() {
	go func() {
		e.aside <- struct{}{}
		defer func() { <-e.aside }()
		e.file.Close()
	}()
}
