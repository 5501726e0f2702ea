package inline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// parties are a node service and the daemons that it may have.
type parties struct {
	*testing.T
	socket  string
	service *Service
}

func newParties(t *testing.T) *parties {
	p := &parties{T: t, socket: filepath.Join(hosttest.Dir(t), SocketName), service: &Service{}}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: p.socket, Net: "unixgram"})
	p.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.service.Serve(ctx, conn) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			p.must(err)
		case <-time.After(time.Minute):
			t.Error("the service does not end")
		}
	})
	return p
}

func (p *parties) must(errs ...error) {
	p.Helper()
	if err := errors.Join(errs...); err != nil {
		p.Fatal(err)
	}
}

// daemon runs one. stop ends it.
func (p *parties) daemon(do func(context.Context, Request) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { Daemon{Socket: p.socket, Do: do}.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	p.Cleanup(stop)
	return stop
}

func (p *parties) ask(r Request) error {
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	return p.service.Ask(ctx, r)
}

// A request reaches the daemon with all that it says, and the daemon's reply comes back; another
// daemon takes the place of one that ended.
func TestAsk(t *testing.T) {
	p := newParties(t)
	want := Request{Act: Make, Driver: "d", Handle: "h", Pool: "fast", Size: "1Gi", Namespace: "ns", Pod: "p", UID: "u"}
	stop := p.daemon(func(_ context.Context, r Request) error {
		if r != want {
			return fmt.Errorf("got %+v", r)
		}
		return nil
	})
	for range 3 * lines {
		p.must(p.ask(want))
	}
	if err := p.ask(Request{Act: End}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), `got {Act:end`) {
		t.Error(err)
	}
	stop()
	p.daemon(func(context.Context, Request) error { return errors.New("another one") })
	if err := p.ask(want); !errors.Is(err, ErrRefused) || err.Error() != "inline volume: another one" {
		t.Error(err)
	}
}

// Several requests are worked on at once, and none gets the reply to another one.
func TestAskAtOnce(t *testing.T) {
	p := newParties(t)
	p.daemon(func(_ context.Context, r Request) error { return errors.New(r.Handle) })
	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			if err := p.ask(Request{Handle: fmt.Sprint(n)}); err == nil || err.Error() != "inline volume: "+fmt.Sprint(n) {
				t.Errorf("%d: %v", n, err)
			}
		})
	}
	all.Wait()
}

// A daemon that is away is waited for by who asks, and not by who tells. One that takes too long is
// not waited for, and its late reply is no other request's.
func TestAway(t *testing.T) {
	p := newParties(t)
	if err := p.service.Tell(p.Context(), Request{}); !errors.Is(err, ErrAway) {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(p.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.service.Ask(short, Request{}); !errors.Is(err, ErrAway) {
		t.Error(err)
	}
	asked := make(chan error, 1)
	go func() { asked <- p.ask(Request{Handle: "early"}) }()
	entered, goOn := make(chan struct{}, 1), make(chan struct{})
	p.daemon(func(ctx context.Context, r Request) error {
		if r.Handle != "slow" {
			return nil
		}
		entered <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return errors.New("late")
	})
	select {
	case err := <-asked:
		p.must(err)
	case <-time.After(time.Minute):
		t.Fatal("the request that came before the daemon is not done")
	}
	ctx, cancel := context.WithCancel(p.Context())
	go func() { asked <- p.service.Ask(ctx, Request{Handle: "slow"}) }()
	select {
	case <-entered:
	case <-time.After(time.Minute):
		t.Fatal("the request did not reach the daemon")
	}
	cancel()
	select {
	case err := <-asked:
		if !errors.Is(err, ErrAway) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a daemon that takes too long is waited for")
	}
	close(goOn)
	for range 2 * lines {
		p.must(p.ask(Request{}))
	}
}

// A tenant writes the size. A request that is too long for a message is refused, and takes no end
// from other pods.
func TestLongRequest(t *testing.T) {
	p := newParties(t)
	p.daemon(func(_ context.Context, r Request) error { return errors.New("it came") })
	long := Request{Act: Make, Size: strings.Repeat("1", largest)}
	if err := p.ask(long); !errors.Is(err, ErrRefused) || errors.Is(err, ErrAway) || !strings.Contains(err.Error(), "at most 32768") {
		t.Error(err)
	}
	long.Size = long.Size[:largest-100]
	if err := p.ask(long); err == nil || err.Error() != "inline volume: it came" {
		t.Error(err)
	}
}

// What is no end of a pair is closed, and so is an end too many.
func TestGarbage(t *testing.T) {
	p := newParties(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	p.must(err)
	for _, fd := range fds {
		defer unix.Close(fd)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: p.socket, Net: "unixgram"})
	p.must(err)
	defer conn.Close()
	raw, err := conn.SyscallConn()
	p.must(err)
	for range 20 {
		p.must(raw.Write(func(fd uintptr) bool {
			err = unix.Sendmsg(int(fd), []byte("x"), unix.UnixRights(fds[0]), nil, unix.MSG_DONTWAIT)
			return !errors.Is(err, unix.EAGAIN)
		}), err)
	}
	var ends []*os.File
	for range 2 * kept {
		end, err := ipc.Connect(p.socket, "", time.Now().Add(time.Minute))
		p.must(err)
		defer end.Close()
		ends = append(ends, end)
	}
	p.must(ends[0].SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := ends[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first of %d ends is open: %v", len(ends), err)
	}
	for _, end := range ends {
		end.Close()
	}
	p.daemon(func(context.Context, Request) error { return nil })
	p.must(p.ask(Request{}))
}

// A directory is mounted when it, or a part of it, is, by the mount table alone.
func TestMounted(t *testing.T) {
	dir := hosttest.Dir(t)
	pool, a, b, pod := filepath.Join(dir, "pool"), filepath.Join(dir, "pool/a"), filepath.Join(dir, "pool/ab"), filepath.Join(dir, "pod")
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(pool, 0o700), os.Mkdir(pod, 0o700))
	hosttest.Mount(t, "-t", "tmpfs", "pool", pool)
	must(os.MkdirAll(filepath.Join(a, "sub"), 0o700), os.Mkdir(b, 0o700))
	mounted := func(want bool, what string) {
		t.Helper()
		if got, err := (Host{}).Mounted(a); err != nil || got != want {
			t.Errorf("%s: %t, %v", what, got, err)
		}
	}
	mounted(false, "at first")
	for _, source := range []string{a, filepath.Join(a, "sub"), b, pool} {
		must(unix.Mount(source, pod, "", unix.MS_BIND, ""))
		mounted(strings.HasPrefix(source, a+"/") || source == a, source)
		must(unix.Unmount(pod, unix.MNT_DETACH))
	}
	mounted(false, "in the end")
}

// A pod is gone when kubelet's directory of it is, and not when that cannot be told.
func TestPod(t *testing.T) {
	dir := hosttest.Dir(t)
	h := Host{Kubelet: filepath.Join(dir, "kubelet")}
	there := func(uid string, want, wrong bool) {
		t.Helper()
		if got, err := h.Pod(uid); got != want || (err != nil) != wrong {
			t.Errorf("pod %q: %t, %v", uid, got, err)
		}
	}
	there("u", true, true) // no directory of kubelet's
	if err := os.MkdirAll(filepath.Join(dir, "kubelet/pods/u"), 0o700); err != nil {
		t.Fatal(err)
	}
	there("u", true, false)
	there("v", false, false)
	for _, uid := range []string{"", ".", "..", "../x", "u/x", "u\x00"} {
		there(uid, true, true)
	}
}

// The socket is beside the driver's own, where root alone may make one.
func TestSocketPath(t *testing.T) {
	if at := SocketPath("/var/lib/kubelet", "d"); at != "/var/lib/kubelet/plugins/d/inline.sock" {
		t.Error(at)
	}
}

// A node service that is started again gets new ends: systemd keeps the socket.
func TestServiceRestarts(t *testing.T) {
	p := newParties(t)
	p.daemon(func(context.Context, Request) error { return errors.New("done") })
	for range 3 {
		if err := p.ask(Request{}); !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
		for range lines { // as the kernel does when the process ends
			select {
			case end := <-p.service.ends():
				end.Close()
			default:
			}
		}
	}
}

// What is no request ends the pair, and the daemon goes on with another one.
func TestMalformedRequest(t *testing.T) {
	p := newParties(t)
	p.daemon(func(context.Context, Request) error { return nil })
	p.must(p.ask(Request{}))
	var end *ipc.End
	select {
	case end = <-p.service.ends():
	case <-time.After(time.Minute):
		t.Fatal("no end was kept")
	}
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	p.must(end.Send([]byte("{")))
	if _, err := end.Receive(ctx, make([]byte, largest)); !errors.Is(err, io.EOF) {
		t.Errorf("a reply to what is no request: %v", err)
	}
	end.Close()
	p.must(p.ask(Request{}))
}

// A daemon that was taken over has its ends block, and neither reads nor responds: kubelet is not
// kept waiting.
func TestAskOneThatBlocks(t *testing.T) {
	p := newParties(t)
	conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	p.must(err)
	defer unix.Close(conn)
	for _, full := range []bool{true, false} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		p.must(err)
		defer unix.Close(pair[0])
		defer unix.Close(pair[1])
		for full && ipc.Send(pair[1], []byte("x")) == nil {
		}
		p.must(unix.Sendmsg(conn, []byte("x"), unix.UnixRights(pair[1]), &unix.SockaddrUnix{Name: p.socket}, 0))
		end := <-p.service.ends()
		p.must(unix.SetNonblock(pair[1], false))
		p.service.ends() <- end
		ctx, cancel := context.WithTimeout(p.Context(), 100*time.Millisecond)
		asked := make(chan error, 1)
		go func() { asked <- p.service.Ask(ctx, Request{Act: Make}) }()
		select {
		case err := <-asked:
			if !errors.Is(err, ErrAway) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("full %t: the request waits", full)
		}
		cancel()
	}
}
