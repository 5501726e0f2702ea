package mountpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

// send sends a datagram with descriptors.
func (env *environment) send(text string, fds ...int) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: env.client.Socket, Net: "unixgram"})
	must(env.t, err)
	defer conn.Close()
	must(env.t, conn.SetWriteDeadline(time.Now().Add(wait)))
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	raw, err := conn.SyscallConn()
	must(env.t, err)
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		failed = unix.Sendmsg(int(fd), []byte(text), control, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
	})
	return errors.Join(err, failed)
}

func (env *environment) descriptors() int {
	env.t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", env.server.Process.Pid))
	must(env.t, err)
	return len(all)
}

// text is what the kernel tells of the service in /proc/PID/status.
func (env *environment) text(of string) string {
	env.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", env.server.Process.Pid))
	must(env.t, err)
	_, rest, _ := strings.Cut(string(text), of+":")
	return strings.Fields(rest)[0]
}

// stopped reports whether all threads are.
func (env *environment) stopped() bool {
	env.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", env.server.Process.Pid))
	must(env.t, err)
	for _, file := range threads {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "\nState:\tT") {
			return false
		}
	}
	return true
}

func (env *environment) number(of string) int {
	env.t.Helper()
	n, err := strconv.Atoi(env.text(of))
	must(env.t, err)
	return n
}

// settles waits until the service has no more descriptors than this: it closes some aside.
func (env *environment) settles(most int, after string) {
	env.t.Helper()
	for end := time.Now().Add(time.Minute); env.descriptors() > most; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			env.t.Fatalf("after %s: %d descriptors, then %d", after, most, env.descriptors())
		}
	}
}

func pair(t *testing.T, kind int) (ours, theirs int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func newSocket(t *testing.T, family, kind int) int {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// named is a connection to a socket that has an address, as another service's could be.
func named(t *testing.T) (connection, listener int) {
	t.Helper()
	at := &unix.SockaddrUnix{Name: filepath.Join(hosttest.Dir(t), "listener")}
	listener, connection = newSocket(t, unix.AF_UNIX, unix.SOCK_SEQPACKET), newSocket(t, unix.AF_UNIX, unix.SOCK_SEQPACKET)
	must(t, unix.Bind(listener, at))
	must(t, unix.Listen(listener, 1))
	must(t, unix.Connect(connection, at))
	return connection, listener
}

// What is no request is dropped, leaves no descriptor, and the same process responds to the next
// request.
func TestGarbage(t *testing.T) {
	pool := bare(t, true)
	env := newEnvironment(t, pool)
	env.sees(pool, true, "at first")
	_, end := pair(t, unix.SOCK_SEQPACKET)
	_, second := pair(t, unix.SOCK_SEQPACKET)
	_, stream := pair(t, unix.SOCK_STREAM)
	_, datagram := pair(t, unix.SOCK_DGRAM)
	connection, listener := named(t)
	file, err := os.Create(filepath.Join(hosttest.Dir(t), "file"))
	must(t, err)
	defer file.Close()
	directory, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(directory)
	before := env.descriptors()
	for what, one := range map[string]struct {
		text string
		fds  []int
	}{
		"nothing": {"", nil}, "a path alone": {pool, nil}, "an end alone": {"", []int{end}}, "two ends": {pool, []int{end, second}},
		"many": {pool, []int{end, second, stream, end, end, end, end, end}}, "a file": {pool, []int{int(file.Fd())}}, "a directory": {pool, []int{directory}},
		"a stream": {pool, []int{stream}}, "datagrams": {pool, []int{datagram}}, "a network socket": {pool, []int{newSocket(t, unix.AF_INET, unix.SOCK_STREAM)}},
		"an end of nothing": {pool, []int{newSocket(t, unix.AF_UNIX, unix.SOCK_SEQPACKET)}}, "a connection to an address": {pool, []int{connection}},
		"a listener": {pool, []int{listener}}, "too long": {pool + strings.Repeat("/", longest), []int{end}}, "long": {strings.Repeat("x", 100<<10), []int{end}},
	} {
		for range 50 {
			must(t, env.send(one.text, one.fds...))
		}
		env.sees(pool, true, "after "+what)
		env.settles(before, what)
	}
	for _, fd := range []int{end, second, connection, stream, datagram} {
		if n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_PEEK); err == nil && n > 0 {
			t.Errorf("descriptor %d got a response", fd)
		}
	}
	if peer, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK); err == nil {
		if n, err := unix.Read(peer, make([]byte, 1)); n > 0 {
			t.Errorf("another service got a message: %v", err)
		}
		unix.Close(peer)
	} else {
		t.Error(err)
	}
}

// An end that is full, or closed, or whose client does not read, keeps no other request waiting.
func TestEndsThatAreNotRead(t *testing.T) {
	pool := bare(t, true)
	env := newEnvironment(t, pool)
	env.sees(pool, true, "at first")
	before := env.descriptors()
	_, full := pair(t, unix.SOCK_SEQPACKET)
	for unix.Sendto(full, make([]byte, 1000), unix.MSG_DONTWAIT, nil) == nil {
	}
	gone, closed := pair(t, unix.SOCK_SEQPACKET)
	unix.Shutdown(gone, unix.SHUT_RDWR)
	_, unread := pair(t, unix.SOCK_SEQPACKET)
	for range 200 {
		for _, fd := range []int{full, closed, unread} {
			must(t, env.send(pool, fd))
			must(t, env.send("/no/pool", fd))
		}
	}
	env.sees(pool, true, "after ends that are not read")
	env.settles(before, "ends that are not read")
}

// A flood of requests makes the service no larger, and it responds to the next one.
func TestFlood(t *testing.T) {
	pool := bare(t, true)
	env := newEnvironment(t, pool)
	env.sees(pool, true, "at first")
	var flood sync.WaitGroup
	for i := range 8 {
		_, end := pair(t, unix.SOCK_SEQPACKET)
		flood.Go(func() {
			for n := range 4000 {
				env.send([]string{pool, "/no/pool/" + strconv.Itoa(n), strings.Repeat("x", 4000)}[(i+n)%3], end)
			}
		})
	}
	env.sees(pool, true, "in a flood")
	flood.Wait()
	env.sees(pool, true, "after a flood")
	if threads, kib := env.number("Threads"), env.number("VmRSS"); threads > 30 || kib > 64<<10 {
		t.Errorf("%d threads, %d KiB", threads, kib)
	}
}

// hung is a mount point on a filesystem that stops responding.
func hung(t *testing.T) (fs *hungfs.FS, point string) {
	t.Helper()
	dir := filepath.Join(hosttest.Dir(t), "parent")
	must(t, os.Mkdir(dir, 0o700))
	fs = hungfs.Mount(t, dir)
	point = filepath.Join(dir, "pool")
	must(t, os.Mkdir(point, 0o700))
	tmpfs(t, point)
	return fs, point
}

// A mount point on a filesystem that hangs costs one look, however many ask; it responds to others
// meanwhile; and when the filesystem responds again, so does the service, also when it was killed
// in the middle of it.
func TestHungParent(t *testing.T) {
	fs, point := hung(t)
	pool := bare(t, true)
	env := newEnvironment(t, pool, point)
	if b := env.under(point); b.Trouble != hostcheck.CannotTell {
		t.Fatalf("FUSE knows no immutable flag: %+v", b)
	}
	fs.Silence()
	threads := 0
	for i := range 100 {
		if b := env.client.Under(point, 10*time.Millisecond); b.Trouble != hostcheck.NoResponse {
			t.Fatalf("request %d: %+v", i, b)
		}
		if i == 20 {
			threads = env.number("Threads")
		}
		env.sees(pool, true, "another pool")
	}
	if now := env.number("Threads"); now > threads+5 {
		t.Errorf("%d threads after 20 requests, %d after 100", threads, now)
	}
	if n := env.descriptors(); n > 50 {
		t.Errorf("%d descriptors", n)
	}
	patient := make(chan hostcheck.Bare, 1)
	go func() { patient <- env.client.Under(point, wait) }()
	env.stop(env.server)
	env.start()
	env.sees(pool, true, "another pool, after the service was killed")
	fs.Resume()
	if b := <-patient; b.Trouble != hostcheck.CannotTell {
		t.Errorf("asked while it hung: %+v", b)
	}
}

// To a request that comes during a look the next one responds: the look may have begun before the
// client read its mount table.
func TestLooksAfterTheRequest(t *testing.T) {
	env := &environment{t: t, dir: hosttest.Dir(t)}
	env.listen()
	looks, goOn := make(chan int), make(chan struct{})
	n := 0
	look := func(string) hostcheck.Bare {
		n++
		looks <- n
		<-goOn
		return hostcheck.Bare{Under: hostcheck.Under{Error: strconv.Itoa(n)}}
	}
	socket, err := socketOf(env.held)
	must(t, err)
	s := Server{Look: look, Idle: time.Hour, Log: slog.New(slog.DiscardHandler), Points: func() ([]string, error) { return []string{"/p"}, nil }}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, socket) }()
	said := make(chan string)
	ask := func() { said <- env.client.Under("/p", wait).Error }
	go ask()
	<-looks
	for range 3 {
		go ask()
	}
	for waits := 0; waits < 3; time.Sleep(time.Millisecond) { // they are taken before the look ends
		s.mu.Lock()
		waits = len(s.places["/p"].next)
		s.mu.Unlock()
	}
	close(goOn)
	go func() { <-looks }()
	responses := map[string]int{}
	for range 4 {
		responses[<-said]++
	}
	if responses["1"] != 1 || responses["2"] != 3 {
		t.Errorf("responses by look: %v, want those of requests during the first from the second", responses)
	}
	stop()
	must(t, <-ended)
}
