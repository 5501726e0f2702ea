package ipc

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

const wait = time.Minute

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// socket is a service's, and a client's that is connected to it.
func socket(t *testing.T) (*Socket, int) {
	path := filepath.Join(hosttest.Dir(t), "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	client, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(t, err, unix.Connect(client, &unix.SockaddrUnix{Name: path}))
	t.Cleanup(func() { unix.Close(client) })
	return New(conn, nil), client
}

// hostile is a pair whose client keeps the service's end too, which blocks and has no more room.
func hostile(t *testing.T, s *Socket) (ours int, theirs *End) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
	kept, err := unix.Dup(pair[1])
	must(t, err)
	theirs = s.End(kept)
	for Send(pair[1], []byte("x")) == nil {
	}
	must(t, unix.SetNonblock(pair[1], false))
	return pair[0], theirs
}

// in fails where something does not return.
func in(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(wait):
		t.Fatalf("%s waits", what)
	}
}

// An end whose client has it block, and reads nothing, is not waited for.
func TestEndThatBlocks(t *testing.T) {
	s, _ := socket(t)
	_, end := hostile(t, s)
	in(t, "sending", func() {
		if err := end.Send([]byte("x")); !errors.Is(err, unix.EAGAIN) {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	in(t, "receiving", func() {
		if _, err := end.Receive(ctx, make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	in(t, "closing", end.Close)
}

// A client that is gone is seen, though its end blocks.
func TestEndThatIsGone(t *testing.T) {
	s, _ := socket(t)
	ours, end := hostile(t, s)
	must(t, unix.Shutdown(ours, unix.SHUT_RDWR))
	in(t, "receiving", func() {
		if _, err := end.Receive(t.Context(), make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}

// lingering sends and closes TCP sockets whose last close(2) waits, for SO_LINGER, until let go.
func lingering(t *testing.T) (send func(to int, message string), letGo func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	var peers []net.Conn
	send = func(to int, message string) {
		conn, err := net.Dial("tcp", listener.Addr().String())
		must(t, err)
		peer, err := listener.Accept()
		must(t, err)
		peers = append(peers, peer)
		f, err := conn.(*net.TCPConn).File()
		must(t, err, conn.Close())
		fd := int(f.Fd())
		linger := &unix.Linger{Onoff: 1, Linger: 3600}
		must(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, linger))
		must(t, unix.SetNonblock(fd, true))
		for {
			if _, err := unix.Write(fd, make([]byte, 64<<10)); err != nil {
				break // full: its end waits for the peer to read
			}
		}
		must(t, unix.Sendmsg(to, []byte(message), unix.UnixRights(fd), nil, 0))
		must(t, f.Close())
	}
	letGo = func() {
		for _, peer := range peers {
			_ = peer.(*net.TCPConn).SetLinger(0)
			peer.Close()
		}
	}
	t.Cleanup(letGo)
	return send, letGo
}

// Of descriptors that cannot be closed few are held: what comes after them stays in the socket.
func TestStuckDescriptors(t *testing.T) {
	s, client := socket(t)
	send, letGo := lingering(t)
	for range MostAside {
		send(client, "x") // before anything is received: the last close is the service's
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err, unix.Sendmsg(client, []byte("x"), unix.UnixRights(pair[1]), nil, 0))
	received := make(chan int, 1)
	go func() {
		for {
			_, end, err := s.Receive(make([]byte, 8))
			if err != nil {
				return
			}
			received <- end
		}
	}()
	for range MostAside {
		if end := <-received; end >= 0 {
			t.Error("a TCP socket is no end")
		}
	}
	select {
	case <-received:
		t.Error("a request was taken beside all that cannot be closed")
	case <-time.After(100 * time.Millisecond): // it would have come meanwhile
	}
	letGo()
	in(t, "the next request", func() {
		if end := <-received; end < 0 {
			t.Error("the end was refused")
		}
	})
}
