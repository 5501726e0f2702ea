// Package rig runs the real daemon binary the way systemd would: with a state directory, a runtime
// directory and a notify socket. Tests, the demonstration and the benchmarks stand on it.
//
// It does not build the binary, it knows no cluster, and it asserts nothing.
package rig

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// Options say which daemon to run.
type Options struct {
	Binary string // empty: that of Binary
	Dir    string // its configuration, state, runtime directory and log go here
	Config string // the whole config.toml
	Env    []string
	// Wrap is a command that runs the binary in its turn, for instance in another mount namespace.
	// It must become the binary (execve), not start it.
	Wrap []string
}

// Daemon is one daemon process at a time, with what it told its notify socket.
type Daemon struct {
	opt    Options
	child  *process.Child
	socket *net.UnixConn

	mu     sync.Mutex
	status string // the last STATUS
	ready  int    // how often READY was told
	beats  int    // how often WATCHDOG was told
	beat   time.Time
	pause  time.Duration // the longest between two of them since Start
	news   chan struct{}
}

// Root is the repository's root directory.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	if filepath.IsAbs(file) {
		return filepath.Dir(filepath.Dir(filepath.Dir(file)))
	}
	// Built with -trimpath: tests run in their package's directory, programs where they are called.
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
	}
	return "."
}

// Binary is the daemon's binary: $HOSTPATH_PROVISIONER, else .build/hostpath-provisioner in the
// repository.
func Binary() string {
	if b := os.Getenv("HOSTPATH_PROVISIONER"); b != "" {
		return b
	}
	return filepath.Join(Root(), ".build", "hostpath-provisioner")
}

// Raced reports whether the binary has the race detector, whose shadow memory grows with all that was
// ever touched.
func (d *Daemon) Raced() bool {
	info, err := buildinfo.ReadFile(d.opt.Binary)
	return err == nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// New prepares the directories and the configuration; nothing runs yet.
func New(o Options) (*Daemon, error) {
	if o.Binary == "" {
		o.Binary = Binary()
	}
	if _, err := os.Stat(o.Binary); err != nil {
		return nil, fmt.Errorf("%w (build it with: make .build/hostpath-provisioner)", err)
	}
	d := &Daemon{opt: o, news: make(chan struct{})}
	for _, sub := range []string{"etc", "state", "run"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	if err := d.Configure(o.Config); err != nil {
		return nil, err
	}
	return d, nil
}

// Path is a path below the daemon's directory.
func (d *Daemon) Path(elem ...string) string {
	return filepath.Join(append([]string{d.opt.Dir}, elem...)...)
}

// Configure writes config.toml anew. A running daemon reads it on Signal(SIGHUP).
func (d *Daemon) Configure(config string) error {
	return os.WriteFile(d.Path("etc", "config.toml"), []byte(config), 0o600)
}

// Command is a call of the binary with this daemon's configuration and directories.
func (d *Daemon) Command(args ...string) *exec.Cmd {
	words := append(slices.Clone(d.opt.Wrap), d.opt.Binary)
	words = append(append(words, args...), "--config", d.Path("etc", "config.toml"))
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+d.Path("state"), "RUNTIME_DIRECTORY="+d.Path("run"))
	cmd.Env = append(cmd.Env, d.opt.Env...)
	return cmd
}

// Call runs a subcommand and returns what it printed and its exit code.
func (d *Daemon) Call(args ...string) (output string, code int) {
	cmd := d.Command(args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err.Error(), -1
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// Start runs the daemon without waiting for READY. The log is appended to Path("log").
func (d *Daemon) Start() error {
	name := d.Path("notify")
	os.Remove(name)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	cmd := d.Command("run")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+name, fmt.Sprintf("WATCHDOG_USEC=%d", WatchdogInterval.Microseconds()))
	d.mu.Lock()
	d.ready, d.status, d.socket = 0, "", socket
	d.mu.Unlock()
	if d.child, err = process.StartLogged(cmd, d.Path("log")); err != nil {
		return err
	}
	go d.ended(d.child, socket)
	go d.listen(socket)
	return nil
}

// ended closes the notify socket when the process has ended, and wakes what waits for the daemon.
func (d *Daemon) ended(child *process.Child, socket *net.UnixConn) {
	<-child.Exited()
	socket.Close()
	d.tell()
}

// Run is Start and the wait for READY.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.Start(); err != nil {
		return err
	}
	return d.WaitReady(ctx, 1)
}

func (d *Daemon) listen(socket *net.UnixConn) {
	buffer := make([]byte, 8192)
	for {
		n, err := socket.Read(buffer)
		if err != nil {
			return
		}
		d.mu.Lock()
		for line := range strings.SplitSeq(string(buffer[:n]), "\n") {
			key, value, _ := strings.Cut(line, "=")
			switch key {
			case "READY":
				if d.ready++; d.ready == 1 { // from then on the watchdog is active (systemd.service(5))
					d.beat, d.pause = time.Now(), 0
				}
			case "WATCHDOG":
				d.beats++
				d.pause, d.beat = max(d.pause, time.Since(d.beat)), time.Now()
			case "STATUS":
				d.status = value
			}
		}
		d.mu.Unlock()
		d.tell()
	}
}

func (d *Daemon) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.news)
	d.news = make(chan struct{})
}

// WaitReady waits until READY was told n times since Start, once at start and once more for each
// reload, and until the API was read, which READY does not wait for.
func (d *Daemon) WaitReady(ctx context.Context, n int) error {
	return d.wait(ctx, fmt.Sprintf("READY number %d, and the API read", n), func() bool {
		return d.ready >= n && !strings.Contains(d.status, "reading the API") && !strings.Contains(d.status, "waiting for the API")
	})
}

// WaitStarted waits until READY was told n times since Start.
func (d *Daemon) WaitStarted(ctx context.Context, n int) error {
	return d.wait(ctx, fmt.Sprintf("READY number %d", n), func() bool { return d.ready >= n })
}

// WaitStatus waits until the STATUS contains text.
func (d *Daemon) WaitStatus(ctx context.Context, text string) error {
	return d.wait(ctx, fmt.Sprintf("a STATUS with %q", text), func() bool { return strings.Contains(d.status, text) })
}

// Beats is how often the watchdog was fed since New.
func (d *Daemon) Beats() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.beats
}

// WatchdogInterval is what the daemon is told: fed less often, systemd would kill it.
const WatchdogInterval = 10 * time.Second

// LongestPause is the longest time since the first READY in which the watchdog was not fed.
func (d *Daemon) LongestPause() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(d.pause, time.Since(d.beat))
}

func (d *Daemon) wait(ctx context.Context, what string, is func() bool) error {
	for {
		d.mu.Lock()
		ok, news, status := is(), d.news, d.status
		d.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-d.child.Exited():
			return fmt.Errorf("the daemon ended while waiting for %s; its log:\n%s", what, d.Log())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; the last STATUS was %q; its log:\n%s", what, ctx.Err(), status, d.Log())
		case <-news:
		}
	}
}

// Status is the last STATUS told.
func (d *Daemon) Status() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// PID is the running daemon's process id.
func (d *Daemon) PID() int { return d.child.PID() }

// Signal sends a signal to the daemon.
func (d *Daemon) Signal(s os.Signal) error { return d.child.Signal(s) }

// Exited is closed when the process has ended. It is nil before the first Start.
func (d *Daemon) Exited() <-chan struct{} {
	if d.child == nil {
		return nil
	}
	return d.child.Exited()
}

// Running reports whether the daemon was started and has not ended.
func (d *Daemon) Running() bool { return d.child != nil && d.child.Running() }

// Kill ends the daemon as a crash would and waits until it is gone.
func (d *Daemon) Kill() {
	_ = d.child.Kill()
}

// Stop asks the daemon to end and returns how long that took and its exit code.
func (d *Daemon) Stop(ctx context.Context) (time.Duration, int, error) {
	begin := time.Now()
	if err := d.Signal(syscall.SIGTERM); err != nil {
		return 0, 0, err
	}
	select {
	case <-d.child.Exited():
		return time.Since(begin), d.child.State().ExitCode(), nil
	case <-ctx.Done():
		return time.Since(begin), 0, fmt.Errorf("the daemon does not end: %w; its log:\n%s", ctx.Err(), d.Log())
	}
}

// Log is everything the daemon wrote since New.
func (d *Daemon) Log() string {
	data, err := os.ReadFile(d.Path("log"))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Pause is how long to wait before the next check of a condition that is awaited since then: a tenth
// of that time, from 5 ms to 500 ms, so that a long wait leaves the processors to others.
func Pause(since time.Time) time.Duration {
	return min(max(time.Since(since)/10, 5*time.Millisecond), 500*time.Millisecond)
}
