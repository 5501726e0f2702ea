package ipc

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Connect sends a request to the service that listens at a path, and returns the client's end of
// the pair on which the service responds.
func Connect(socket, request string, until time.Time) (*os.File, error) {
	const kind = unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	pair, err := unix.Socketpair(unix.AF_UNIX, kind, 0)
	if err != nil {
		return nil, err
	}
	ours := os.NewFile(uintptr(pair[0]), "reply")
	err = send(socket, request, pair[1], until)
	unix.Close(pair[1]) // the service has it now: only its end counts
	if err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

func send(socket, request string, end int, until time.Time) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(until); err != nil {
		return err
	}
	return write(conn, []byte(request), unix.UnixRights(end))
}

// write sends a datagram and waits for room in the socket until the deadline. The net package has
// no such call for a socket that is connected.
func write(conn *net.UnixConn, message, control []byte) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		failed = unix.Sendmsg(int(fd), message, control, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
	})
	if err != nil {
		return err
	}
	return failed
}
