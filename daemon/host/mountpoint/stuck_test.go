package mountpoint

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
)

// lingering makes TCP sockets whose last close(2) waits for an hour, for SO_LINGER.
func lingering(t *testing.T) func() *os.File {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	return func() *os.File {
		conn, err := net.Dial("tcp", listener.Addr().String())
		must(t, err)
		defer conn.Close()
		peer, err := listener.Accept()
		must(t, err)
		t.Cleanup(func() { peer.Close() })
		f, err := conn.(*net.TCPConn).File()
		must(t, err)
		fd := int(f.Fd())
		must(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}))
		must(t, unix.SetNonblock(fd, true)) // Fd undid that
		for {
			if _, err := unix.Write(fd, make([]byte, 64<<10)); err != nil {
				return f // full: its end waits for the peer to read
			}
		}
	}
}

// meanwhile has f send and close while the service is stopped: then the last descriptors are the
// service's.
func (env *environment) meanwhile(f func()) {
	env.t.Helper()
	must(env.t, env.server.Process.Signal(unix.SIGSTOP))
	for !env.stopped() {
		time.Sleep(time.Millisecond)
	}
	f()
	must(env.t, env.server.Process.Signal(unix.SIGCONT))
}

// ends waits for the service to end with an error.
func (env *environment) ends() {
	env.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- env.server.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			env.t.Error("the service ended without an error")
		}
	case <-time.After(wait):
		env.t.Fatal("the service goes on")
	}
}

// A descriptor whose close(2) waits, here for SO_LINGER, is closed aside; too many of them end the
// service.
func TestStuckDescriptors(t *testing.T) {
	linger := lingering(t)
	pool := bare(t, true)
	env := newEnvironment(t, pool)
	stuck := func(n int) { // a signal ends the waiting of those before
		env.meanwhile(func() {
			for range n {
				f := linger()
				must(t, env.send(pool, int(f.Fd())))
				f.Close()
			}
		})
	}
	stuck(ipc.MostAside)
	env.sees(pool, true, "beside descriptors that are stuck")
	stuck(ipc.MostAside + 1)
	env.ends()
	env.start()
	env.sees(pool, true, "of the next process")
}

// An end is closed with what the client has put into its queue, whether it is refused or gets a
// response.
func TestStuckEnds(t *testing.T) {
	linger := lingering(t)
	pool := bare(t, true)
	env := newEnvironment(t, pool)
	env.sees(pool, true, "at first")
	for _, request := range []string{"/no/pool", pool} {
		env.meanwhile(func() {
			ours, end := pair(t, unix.SOCK_SEQPACKET)
			f := linger()
			must(t, unix.Sendmsg(ours, nil, unix.UnixRights(int(f.Fd())), nil, 0))
			must(t, f.Close())
			must(t, env.send(request, end))
			must(t, unix.Dup3(ours, end, unix.O_CLOEXEC)) // closes it, and keeps its number from another's use
		})
		env.sees(pool, true, "beside an end that is stuck, of a request for "+request)
	}
}

// What comes beyond the room for descriptors is closed by the kernel within recvmsg(2).
func TestStuckInTheKernel(t *testing.T) {
	linger := lingering(t)
	pool := bare(t, true)
	env := newEnvironment(t, pool)
	env.sees(pool, true, "at first")
	_, end := pair(t, unix.SOCK_SEQPACKET)
	env.meanwhile(func() {
		f := linger()
		must(t, env.send(pool, end, end, int(f.Fd())))
		must(t, f.Close())
	})
	env.ends()
	env.start()
	env.sees(pool, true, "of the next process")
}
