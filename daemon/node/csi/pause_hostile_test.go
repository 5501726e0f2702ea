package csi

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pause is over in time, whatever its client does with the end that it sent: it has it block, and
// reads no reply.
func TestPauseOfOneThatDoesNotRead(t *testing.T) {
	p := newPaused(t)
	p.pod("u-1", "sleep infinity")
	p.limit(time.Second)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	p.must(err)
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	for full := false; !full; { // without what is tried
		full = unix.Sendmsg(pair[1], []byte("x"), nil, nil, unix.MSG_DONTWAIT) != nil
	}
	conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	p.must(err)
	defer unix.Close(conn)
	to, request := &unix.SockaddrUnix{Name: p.client.Socket}, []byte(`{"pool":"fast","volume":"pvc-1"}`)
	p.must(unix.Sendmsg(conn, request, unix.UnixRights(pair[1]), to, 0))
	for end := time.Now().Add(time.Minute); !p.frozen("u-1"); {
		p.must(unix.SetNonblock(pair[1], false))
		if time.Now().After(end) {
			p.Fatal("nothing was paused")
		}
	}
	p.must(unix.SetNonblock(pair[1], false))
	p.goesOn("u-1")
	unpublished := make(chan error, 1)
	go func() { unpublished <- p.unpublish() }()
	p.must(receive(t, unpublished))
}
