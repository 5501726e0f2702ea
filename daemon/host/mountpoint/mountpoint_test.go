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

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// The service is a process of its own in a mount namespace of its own, as systemd makes it: this
// program with the name of a case. So is a process that probes without CAP_SYS_ADMIN.
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
	}, QuotaPools: func() (all []QuotaPool, err error) {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(args[0]), "quotas"))
		if err != nil {
			kept, _ := os.ReadFile(filepath.Join(filepath.Dir(args[0]), "kept"))
			_ = json.Unmarshal(kept, &all)
			return all, err
		}
		return all, json.Unmarshal(text, &all)
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

// wait is how long a response may take on a busy machine.
const wait = 20 * time.Second

// environment is a socket, the file of the mount points, and the service.
type environment struct {
	t      testing.TB
	dir    string
	held   *os.File // the socket, which systemd would hold
	server *exec.Cmd
	client Client
}

func newEnvironment(t testing.TB, points ...string) *environment {
	t.Helper()
	env := &environment{t: t, dir: hosttest.Dir(t)}
	env.listen()
	env.points(points...)
	env.start()
	return env
}

func (env *environment) listen() {
	env.t.Helper()
	path := filepath.Join(env.dir, "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(env.t, err)
	env.held, err = conn.File()
	must(env.t, err)
	conn.Close() // closes the one descriptor, and leaves the file
	env.t.Cleanup(func() { env.held.Close() })
	env.client = Client{Socket: path, Grace: 10 * time.Second}
}

func (env *environment) points(points ...string) {
	env.t.Helper()
	must(env.t, os.WriteFile(filepath.Join(env.dir, "points"), []byte(strings.Join(points, "\n")), 0o600))
}

// start starts the service in a mount namespace that gets the mounts of this one
// (mount_namespaces(7)).
func (env *environment) start() {
	env.t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", "slave", "/proc/self/exe")
	self, err := os.Executable()
	must(env.t, err)
	cmd.Args[len(cmd.Args)-1] = self
	cmd.Args = append(cmd.Args, filepath.Join(env.dir, "points"))
	cmd.Env = append(os.Environ(), caseEnv+"=serve")
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{env.held}
	out, err := cmd.StdoutPipe()
	must(env.t, err)
	_, err = cmd.StdinPipe()
	must(env.t, err)
	must(env.t, cmd.Start())
	env.server = cmd
	env.t.Cleanup(func() { env.stop(cmd) })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "serving\n" {
		env.t.Fatalf("%q, %v", line, err)
	}
}

func (env *environment) stop(cmd *exec.Cmd) { cmd.Process.Kill(); cmd.Wait() }

// under asks for a mount point.
func (env *environment) under(point string) hostcheck.Bare {
	env.t.Helper()
	return env.client.Under(point, wait)
}

// sees expects a response without trouble.
func (env *environment) sees(point string, immutable bool, when string) {
	env.t.Helper()
	if b := env.under(point); b.Immutable != immutable || b.Trouble != "" || !b.Looked {
		env.t.Fatalf("%s: %+v, want immutable %t", when, b, immutable)
	}
}

// refuses expects this response and no other.
func (env *environment) refuses(point, say string) {
	env.t.Helper()
	if b := env.under(point); b.Trouble != hostcheck.NotPermitted || !strings.Contains(b.Error, say) || b.Immutable || b.Identity.Inode != 0 {
		env.t.Fatalf("%q: %+v, want %q", point, b, say)
	}
}

func must(t testing.TB, err error) {
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

// The service sees what lies under a mount point that was mounted before it started or later, and
// where nothing is mounted the directory itself; it holds no mount.
func TestUnder(t *testing.T) {
	before, later, open := bare(t, true), bare(t, true), bare(t, false)
	tmpfs(t, before)
	env := newEnvironment(t, before, later, open)
	tmpfs(t, open)
	env.sees(before, true, "mounted before")
	env.sees(later, true, "not mounted")
	tmpfs(t, later)
	env.sees(later, true, "mounted later")
	env.sees(open, false, "not immutable")
	var st unix.Stat_t
	hosttest.Unmount(t, later)
	must(t, unix.Stat(later, &st))
	if b := env.under(later); b.Identity.Inode != st.Ino || b.On.Major != unix.Major(st.Dev) || b.On.Minor != unix.Minor(st.Dev) {
		t.Errorf("%+v is not inode %d of device %d", b, st.Ino, st.Dev)
	}
	hosttest.Unmount(t, before)
	hosttest.SetImmutable(t, before, false)
	env.sees(before, false, "after chattr -i")
}

// The service looks under mount points of the configuration alone, as they are written there. What
// was one since the start still is: the daemon may go on with an earlier configuration.
func TestConfiguredPointsOnly(t *testing.T) {
	pool, other := bare(t, true), bare(t, true)
	link := filepath.Join(hosttest.Dir(t), "link")
	must(t, os.Symlink(pool, link))
	env := newEnvironment(t, pool)
	env.sees(pool, true, "configured")
	for _, path := range []string{
		other, link, pool + "/", pool + "/.", pool + "/../pool", filepath.Dir(pool), "/", "/etc", "pool", ".", strings.TrimPrefix(pool, "/"),
		pool + "\x00", pool + "\n", "//" + pool[1:], "/etc/shadow", strings.Repeat("/x", 2000),
	} {
		env.refuses(path, "has no configured pool with mount point")
	}
	env.points(other)
	env.sees(other, true, "configured by now")
	env.sees(pool, true, "configured before")
	must(t, os.Remove(filepath.Join(env.dir, "points")))
	env.refuses("/etc", "cannot read the configuration")
	env.sees(pool, true, "without a configuration that can be read")
	env.points(link)
	if b := env.under(link); b.Trouble != hostcheck.LookFailed || b.Immutable {
		t.Errorf("a configured symbolic link: %+v", b)
	}
}

// Without the service there is no response; with it, there is one. The sentence names what to
// start.
func TestNobodyServes(t *testing.T) {
	pool := bare(t, true)
	env := newEnvironment(t, pool)
	env.sees(pool, true, "at first")
	env.stop(env.server)
	began := time.Now()
	late := make(chan hostcheck.Bare, 1)
	go func() { late <- env.client.Under(pool, wait) }()
	env.start() // the request waited in the socket, or was sent again
	if b := <-late; !b.Immutable || b.Trouble != "" {
		t.Errorf("asked without the service: %+v", b)
	}
	env.stop(env.server)
	env.held.Close()
	env.client.Grace = 50 * time.Millisecond
	env.refuses(pool, SocketUnit+" does not listen")
	must(t, os.Remove(env.client.Socket))
	env.refuses(pool, SocketUnit+" does not listen")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	env.client.Grace = time.Minute
	client := env.client
	go func() { late <- client.Under(pool, wait) }()
	env.listen()
	env.start()
	if b := <-late; !b.Immutable || b.Trouble != "" {
		t.Errorf("asked while there was no socket: %+v", b)
	}
	env.client.Socket, env.client.Grace = "/etc/passwd", time.Millisecond
	if b := env.under(pool); b.Trouble != hostcheck.NotPermitted {
		t.Errorf("of a file: %+v", b)
	}
}

// What is queued in a socket that is closed is dropped; the client learns that, and asks again.
func TestDroppedRequest(t *testing.T) {
	pool := bare(t, true)
	env := &environment{t: t, dir: hosttest.Dir(t)}
	env.listen()
	env.points(pool)
	said, client := make(chan hostcheck.Bare, 1), env.client
	go func() { said <- client.Under(pool, wait) }()
	fds := []unix.PollFd{{Fd: int32(env.held.Fd()), Events: unix.POLLIN}}
	for n, err := 0, error(unix.EINTR); n == 0; {
		if n, err = unix.Poll(fds, 60_000); err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
	must(t, os.Remove(env.client.Socket))
	env.held.Close()
	env.listen()
	env.start()
	if b := <-said; !b.Immutable || b.Trouble != "" {
		t.Errorf("a request that was dropped: %+v", b)
	}
}

// A minute without a request ends the service; what was asked meanwhile waits in the socket.
func TestIdle(t *testing.T) {
	pool := bare(t, true)
	env := &environment{t: t, dir: hosttest.Dir(t)}
	env.listen()
	s := Server{Look: hostcheck.LookUnder, Idle: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Points: func() ([]string, error) { return []string{pool}, nil }}
	for i := range 3 {
		held, err := unix.Dup(int(env.held.Fd()))
		must(t, err)
		socket, err := socketOf(os.NewFile(uintptr(held), "socket"))
		must(t, err)
		said := make(chan hostcheck.Bare, 1)
		go func() { said <- env.client.Under(pool, wait) }()
		var b hostcheck.Bare
		for responded := false; !responded; {
			must(t, s.Serve(t.Context(), socket))
			select {
			case b = <-said:
				responded = true
			default:
			}
		}
		if !b.Immutable {
			t.Errorf("start %d: %+v", i, b)
		}
		socket.Close()
	}
}

// A request that is dropped after it waited longer than Grace is sent again: a service that ends
// while a look hangs is started again.
func TestDroppedAfterLongWait(t *testing.T) {
	path := filepath.Join(hosttest.Dir(t), "socket")
	service, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	defer service.Close()
	go func() {
		from := ipc.New(service, nil)
		for n := 0; ; n++ {
			_, end, err := from.Receive(make([]byte, longest+1))
			if err != nil {
				return
			}
			if n == 0 {
				time.Sleep(300 * time.Millisecond)
			} else {
				message, _ := json.Marshal(reply{Bare: hostcheck.Bare{Under: hostcheck.Under{Looked: true, Immutable: true}}})
				unix.SendmsgN(end, message, nil, nil, 0)
			}
			unix.Close(end)
		}
	}()
	if b := (Client{Socket: path, Grace: 100 * time.Millisecond}).Under("/srv/fast", wait); b.Trouble != "" || !b.Immutable {
		t.Errorf("%+v", b)
	}
}
