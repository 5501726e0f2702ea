package mountpoint

import (
	"context"
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
func (w *world) send(text string, fds ...int) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: w.asker.Socket, Net: "unixgram"})
	must(w.t, err)
	defer conn.Close()
	must(w.t, conn.SetWriteDeadline(time.Now().Add(wait)))
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	return write(conn, []byte(text), control)
}

func (w *world) descriptors() int {
	w.t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.server.Process.Pid))
	must(w.t, err)
	return len(all)
}

// text is what the kernel tells of the service in /proc/PID/status.
func (w *world) text(of string) string {
	w.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.server.Process.Pid))
	must(w.t, err)
	_, rest, _ := strings.Cut(string(text), of+":")
	return strings.Fields(rest)[0]
}

// stopped reports whether all threads are.
func (w *world) stopped() bool {
	w.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", w.server.Process.Pid))
	must(w.t, err)
	for _, file := range threads {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "\nState:\tT") {
			return false
		}
	}
	return true
}

func (w *world) number(of string) int {
	w.t.Helper()
	n, err := strconv.Atoi(w.text(of))
	must(w.t, err)
	return n
}

// settles waits until the service has no more descriptors than this: it closes some aside.
func (w *world) settles(most int, after string) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); w.descriptors() > most; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("after %s: %d descriptors, then %d", after, most, w.descriptors())
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

// What is no question is dropped, leaves no descriptor, and the next question is answered by the same process.
func TestGarbage(t *testing.T) {
	pool := bare(t, true)
	w := newWorld(t, pool)
	w.sees(pool, true, "at first")
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
	before := w.descriptors()
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
			must(t, w.send(one.text, one.fds...))
		}
		w.sees(pool, true, "after "+what)
		w.settles(before, what)
	}
	for _, fd := range []int{end, second, connection, stream, datagram} {
		if n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT|unix.MSG_PEEK); err == nil && n > 0 {
			t.Errorf("descriptor %d was answered", fd)
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

// An end that is full, or closed, or whose asker does not read, keeps no other request waiting.
func TestEndsThatAreNotRead(t *testing.T) {
	pool := bare(t, true)
	w := newWorld(t, pool)
	w.sees(pool, true, "at first")
	before := w.descriptors()
	_, full := pair(t, unix.SOCK_SEQPACKET)
	for unix.Sendto(full, make([]byte, 1000), unix.MSG_DONTWAIT, nil) == nil {
	}
	gone, closed := pair(t, unix.SOCK_SEQPACKET)
	unix.Shutdown(gone, unix.SHUT_RDWR)
	_, unread := pair(t, unix.SOCK_SEQPACKET)
	for range 200 {
		for _, fd := range []int{full, closed, unread} {
			must(t, w.send(pool, fd))
			must(t, w.send("/no/pool", fd))
		}
	}
	w.sees(pool, true, "after ends that are not read")
	w.settles(before, "ends that are not read")
}

// A flood of questions makes the service no larger, and the next one is answered.
func TestFlood(t *testing.T) {
	pool := bare(t, true)
	w := newWorld(t, pool)
	w.sees(pool, true, "at first")
	var flood sync.WaitGroup
	for i := range 8 {
		_, end := pair(t, unix.SOCK_SEQPACKET)
		flood.Go(func() {
			for n := range 4000 {
				w.send([]string{pool, "/no/pool/" + strconv.Itoa(n), strings.Repeat("x", 4000)}[(i+n)%3], end)
			}
		})
	}
	w.sees(pool, true, "in a flood")
	flood.Wait()
	w.sees(pool, true, "after a flood")
	if threads, kib := w.number("Threads"), w.number("VmRSS"); threads > 30 || kib > 64<<10 {
		t.Errorf("%d threads, %d KiB", threads, kib)
	}
}

// hung is a mount point on a filesystem that stops answering.
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

// A mount point on a filesystem that hangs costs one look, however many ask; others are answered meanwhile; and when
// it answers again, so does the service, also when it was killed in the middle of it.
func TestHungParent(t *testing.T) {
	fs, point := hung(t)
	pool := bare(t, true)
	w := newWorld(t, pool, point)
	if b := w.under(point); b.Trouble != hostcheck.CannotTell {
		t.Fatalf("FUSE knows no immutable flag: %+v", b)
	}
	fs.Silence()
	threads := 0
	for i := range 100 {
		if b := w.asker.Under(point, 10*time.Millisecond); b.Trouble != hostcheck.NoAnswer {
			t.Fatalf("question %d: %+v", i, b)
		}
		if i == 20 {
			threads = w.number("Threads")
		}
		w.sees(pool, true, "another pool")
	}
	if now := w.number("Threads"); now > threads+5 {
		t.Errorf("%d threads after 20 questions, %d after 100", threads, now)
	}
	if n := w.descriptors(); n > 50 {
		t.Errorf("%d descriptors", n)
	}
	patient := make(chan hostcheck.Bare, 1)
	go func() { patient <- w.asker.Under(point, wait) }()
	w.stop(w.server)
	w.start()
	w.sees(pool, true, "another pool, after the service was killed")
	fs.Resume()
	if b := <-patient; b.Trouble != hostcheck.CannotTell {
		t.Errorf("asked while it hung: %+v", b)
	}
}

// A question that comes during a look is answered by the next one: the look may have begun before the asker read its
// mount table.
func TestLooksAfterTheQuestion(t *testing.T) {
	w := &world{t: t, dir: hosttest.Dir(t)}
	w.listen()
	looks, goOn := make(chan int), make(chan struct{})
	n := 0
	look := func(string) hostcheck.Bare {
		n++
		looks <- n
		<-goOn
		return hostcheck.Bare{Under: hostcheck.Under{Error: strconv.Itoa(n)}}
	}
	socket, err := socketOf(w.held)
	must(t, err)
	s := Server{Look: look, Idle: time.Hour, Log: slog.New(slog.DiscardHandler), Points: func() ([]string, error) { return []string{"/p"}, nil }}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, socket) }()
	said := make(chan string)
	ask := func() { said <- w.asker.Under("/p", wait).Error }
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
	answers := map[string]int{}
	for range 4 {
		answers[<-said]++
	}
	if answers["1"] != 1 || answers["2"] != 3 {
		t.Errorf("answers by look: %v, want those of questions during the first from the second", answers)
	}
	stop()
	must(t, <-ended)
}
