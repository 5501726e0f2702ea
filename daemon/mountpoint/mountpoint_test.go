package mountpoint

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// The service is a process of its own in a mount namespace of its own, as systemd makes it: this program with the
// name of a case. So is a process that probes without CAP_SYS_ADMIN.
const caseEnv = "MOUNTPOINT_CASE"

var cases = map[string]func(args []string) error{"serve": serve, "probe": probe}

func TestMain(m *testing.M) {
	if name := os.Getenv(caseEnv); name != "" {
		os.Unsetenv(caseEnv)
		go func() { // ends with the test, however that ends
			io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		if err := cases[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(hosttest.Main(m))
}

// serve is the service with the socket at descriptor 3 and the mount points in a file, a line each.
func serve(args []string) error {
	socket, err := socketOf(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	fmt.Println("serving")
	s := Server{Look: hostcheck.LookUnder, Idle: time.Hour, Log: slog.New(slog.DiscardHandler), Points: func() ([]string, error) {
		text, err := os.ReadFile(args[0])
		return strings.Fields(string(text)), err
	}}
	return s.Serve(context.Background(), socket)
}

func socketOf(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	conn, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// wait is how long an answer may take on a busy machine.
const wait = 20 * time.Second

// world is a socket, the file of the mount points, and who serves.
type world struct {
	t      *testing.T
	dir    string
	held   *os.File // the socket, which systemd would hold
	server *exec.Cmd
	asker  Asker
}

func newWorld(t *testing.T, points ...string) *world {
	t.Helper()
	w := &world{t: t, dir: hosttest.Dir(t)}
	w.listen()
	w.points(points...)
	w.start()
	return w
}

func (w *world) listen() {
	w.t.Helper()
	path := filepath.Join(w.dir, "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(w.t, err)
	w.held, err = conn.File()
	must(w.t, err)
	conn.Close() // closes the one descriptor, and leaves the file
	w.t.Cleanup(func() { w.held.Close() })
	w.asker = Asker{Socket: path, Grace: 10 * time.Second}
}

func (w *world) points(points ...string) {
	w.t.Helper()
	must(w.t, os.WriteFile(filepath.Join(w.dir, "points"), []byte(strings.Join(points, "\n")), 0o600))
}

// start starts the service in a mount namespace that gets the mounts of this one (mount_namespaces(7)).
func (w *world) start() {
	w.t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", "slave", "/proc/self/exe")
	self, err := os.Executable()
	must(w.t, err)
	cmd.Args[len(cmd.Args)-1] = self
	cmd.Args = append(cmd.Args, filepath.Join(w.dir, "points"))
	cmd.Env = append(os.Environ(), caseEnv+"=serve")
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{w.held}
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	_, err = cmd.StdinPipe()
	must(w.t, err)
	must(w.t, cmd.Start())
	w.server = cmd
	w.t.Cleanup(func() { w.stop(cmd) })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "serving\n" {
		w.t.Fatalf("%q, %v", line, err)
	}
}

func (w *world) stop(cmd *exec.Cmd) { cmd.Process.Kill(); cmd.Wait() }

// under asks for a mount point.
func (w *world) under(point string) hostcheck.Bare {
	w.t.Helper()
	return w.asker.Under(point, wait)
}

// sees wants an answer without trouble.
func (w *world) sees(point string, immutable bool, when string) {
	w.t.Helper()
	if b := w.under(point); b.Immutable != immutable || b.Trouble != "" || !b.Looked {
		w.t.Fatalf("%s: %+v, want immutable %t", when, b, immutable)
	}
}

// refuses wants no answer but this.
func (w *world) refuses(point, say string) {
	w.t.Helper()
	if b := w.under(point); b.Trouble != hostcheck.NotPermitted || !strings.Contains(b.Error, say) || b.Immutable || b.Identity.Inode != 0 {
		w.t.Fatalf("%q: %+v, want %q", point, b, say)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bare makes a directory for a mount point.
func bare(t *testing.T, immutable bool) string {
	t.Helper()
	dir := filepath.Join(hosttest.Dir(t), "pool")
	must(t, os.Mkdir(dir, 0o700))
	hosttest.SetImmutable(t, dir, immutable)
	return dir
}

func tmpfs(t *testing.T, dir string) { t.Helper(); hosttest.Mount(t, "-t", "tmpfs", "pool", dir) }

// The service sees what lies under a mount point that was mounted before it started or later, and where nothing is
// mounted the directory itself; it holds no mount.
func TestUnder(t *testing.T) {
	before, later, open := bare(t, true), bare(t, true), bare(t, false)
	tmpfs(t, before)
	w := newWorld(t, before, later, open)
	tmpfs(t, open)
	w.sees(before, true, "mounted before")
	w.sees(later, true, "not mounted")
	tmpfs(t, later)
	w.sees(later, true, "mounted later")
	w.sees(open, false, "not immutable")
	var st unix.Stat_t
	hosttest.Unmount(t, later)
	must(t, unix.Stat(later, &st))
	if b := w.under(later); b.Identity.Inode != st.Ino || b.On.Major != unix.Major(st.Dev) || b.On.Minor != unix.Minor(st.Dev) {
		t.Errorf("%+v is not inode %d of device %d", b, st.Ino, st.Dev)
	}
	hosttest.Unmount(t, before)
	hosttest.SetImmutable(t, before, false)
	w.sees(before, false, "after chattr -i")
}

// Only mount points of the configuration are answered for, as they are written there. What was one since the start
// still is: the daemon may go on with an earlier configuration.
func TestConfiguredPointsOnly(t *testing.T) {
	pool, other := bare(t, true), bare(t, true)
	link := filepath.Join(hosttest.Dir(t), "link")
	must(t, os.Symlink(pool, link))
	w := newWorld(t, pool)
	w.sees(pool, true, "configured")
	for _, path := range []string{
		other, link, pool + "/", pool + "/.", pool + "/../pool", filepath.Dir(pool), "/", "/etc", "pool", ".", strings.TrimPrefix(pool, "/"),
		pool + "\x00", pool + "\n", "//" + pool[1:], "/etc/shadow", strings.Repeat("/x", 2000),
	} {
		w.refuses(path, "has no configured pool with mount point")
	}
	w.points(other)
	w.sees(other, true, "configured by now")
	w.sees(pool, true, "configured before")
	must(t, os.Remove(filepath.Join(w.dir, "points")))
	w.refuses("/etc", "cannot read the configuration")
	w.sees(pool, true, "without a configuration that can be read")
	w.points(link)
	if b := w.under(link); b.Trouble != hostcheck.LookFailed || b.Immutable {
		t.Errorf("a configured symbolic link: %+v", b)
	}
}

// Without the service there is no answer; with it, there is one. The sentence names what to start.
func TestNobodyServes(t *testing.T) {
	pool := bare(t, true)
	w := newWorld(t, pool)
	w.sees(pool, true, "at first")
	w.stop(w.server)
	began := time.Now()
	late := make(chan hostcheck.Bare, 1)
	go func() { late <- w.asker.Under(pool, wait) }()
	w.start() // the question waited in the socket, or was sent again
	if b := <-late; !b.Immutable || b.Trouble != "" {
		t.Errorf("asked without the service: %+v", b)
	}
	w.stop(w.server)
	w.held.Close()
	w.asker.Grace = 50 * time.Millisecond
	w.refuses(pool, SocketUnit+" does not listen")
	must(t, os.Remove(w.asker.Socket))
	w.refuses(pool, SocketUnit+" does not listen")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	w.asker.Grace = time.Minute
	go func() { late <- w.asker.Under(pool, wait) }()
	w.listen()
	w.start()
	if b := <-late; !b.Immutable || b.Trouble != "" {
		t.Errorf("asked while there was no socket: %+v", b)
	}
	w.asker.Socket, w.asker.Grace = "/etc/passwd", time.Millisecond
	if b := w.under(pool); b.Trouble != hostcheck.NotPermitted {
		t.Errorf("of a file: %+v", b)
	}
}

// What is queued in a socket that is closed is dropped; the asker learns that, and asks again.
func TestDroppedQuestion(t *testing.T) {
	pool := bare(t, true)
	w := &world{t: t, dir: hosttest.Dir(t)}
	w.listen()
	w.points(pool)
	said := make(chan hostcheck.Bare, 1)
	go func() { said <- w.asker.Under(pool, wait) }()
	fds := []unix.PollFd{{Fd: int32(w.held.Fd()), Events: unix.POLLIN}}
	for n, err := 0, error(unix.EINTR); n == 0; {
		if n, err = unix.Poll(fds, 60_000); err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
	must(t, os.Remove(w.asker.Socket))
	w.held.Close()
	w.listen()
	w.start()
	if b := <-said; !b.Immutable || b.Trouble != "" {
		t.Errorf("a question that was dropped: %+v", b)
	}
}

// A minute without a question ends the service; what was asked meanwhile waits in the socket.
func TestIdle(t *testing.T) {
	pool := bare(t, true)
	w := &world{t: t, dir: hosttest.Dir(t)}
	w.listen()
	s := Server{Look: hostcheck.LookUnder, Idle: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Points: func() ([]string, error) { return []string{pool}, nil }}
	for i := range 3 {
		held, err := unix.Dup(int(w.held.Fd()))
		must(t, err)
		socket, err := socketOf(os.NewFile(uintptr(held), "socket"))
		must(t, err)
		said := make(chan hostcheck.Bare, 1)
		go func() { said <- w.asker.Under(pool, wait) }()
		var b hostcheck.Bare
		for answered := false; !answered; {
			must(t, s.Serve(t.Context(), socket))
			select {
			case b = <-said:
				answered = true
			default:
			}
		}
		if !b.Immutable {
			t.Errorf("start %d: %+v", i, b)
		}
		socket.Close()
	}
}

// A request that is dropped after it waited longer than Grace is sent again: a service that ends while a look hangs is
// started again.
func TestDroppedAfterLongWait(t *testing.T) {
	path := filepath.Join(hosttest.Dir(t), "socket")
	service, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	defer service.Close()
	go func() {
		question, control := make([]byte, longest), make([]byte, unix.CmsgSpace(4))
		for n := 0; ; n++ {
			_, c, _, _, err := service.ReadMsgUnix(question, control)
			if err != nil {
				return
			}
			end := descriptors(control[:c])[0]
			if n == 0 {
				time.Sleep(300 * time.Millisecond)
			} else {
				message, _ := json.Marshal(reply{Bare: hostcheck.Bare{Under: hostcheck.Under{Looked: true, Immutable: true}}})
				unix.SendmsgN(end, message, nil, nil, 0)
			}
			unix.Close(end)
		}
	}()
	if b := (Asker{Socket: path, Grace: 100 * time.Millisecond}).Under("/srv/fast", wait); b.Trouble != "" || !b.Immutable {
		t.Errorf("%+v", b)
	}
}
