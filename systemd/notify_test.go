package systemd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		os.Exit(m.Run()) // of TestPassed, which is in its namespace already
	}
	os.Exit(hosttest.Main(m))
}

// listen is the manager's end: a datagram socket, as systemd makes it.
func listen(t *testing.T, address string) (receive func() string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 1<<16)
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
}

// Every message, byte for byte, on both kinds of socket that systemd uses: a path, and the abstract
// ones that begin with @.
func TestMessages(t *testing.T) {
	for _, address := range []string{filepath.Join(hosttest.Dir(t), "notify"), fmt.Sprintf("@hostpath-test-%d", os.Getpid())} {
		receive := listen(t, address)
		t.Setenv("NOTIFY_SOCKET", address)
		var n Notifier
		for _, c := range []struct {
			send func() error
			want string
		}{
			{func() error { return n.Ready("3 pools open") }, "READY=1\nSTATUS=3 pools open\nWATCHDOG=1"},
			{func() error { return n.Status("pool fast: not mounted") }, "STATUS=pool fast: not mounted"},
			{func() error { return n.Status("one\nREADY=1\n two ") }, "STATUS=one READY=1 two"},
			{func() error { return n.Stopping("stopping") }, "STOPPING=1\nSTATUS=stopping"},
			{n.Alive, "WATCHDOG=1"},
			{func() error { return n.Extend(90 * time.Second) }, "EXTEND_TIMEOUT_USEC=90000000"},
		} {
			if err := c.send(); err != nil {
				t.Fatal(err)
			}
			if got := receive(); got != c.want {
				t.Errorf("on %s: %q, want %q", address, got, c.want)
			}
		}
	}
}

// The time in RELOADING is of CLOCK_MONOTONIC and lies between before and after: systemd compares
// it with the moment of its own signal.
func TestReloading(t *testing.T) {
	address := filepath.Join(hosttest.Dir(t), "notify")
	receive := listen(t, address)
	t.Setenv("NOTIFY_SOCKET", address)
	before := monotonic(t)
	if err := (Notifier{}).Reloading(); err != nil {
		t.Fatal(err)
	}
	got := receive()
	var usec int64
	if _, err := fmt.Sscanf(got, "RELOADING=1\nMONOTONIC_USEC=%d", &usec); err != nil || !regexp.MustCompile(`\d$`).MatchString(got) {
		t.Fatalf("%q: %v", got, err)
	}
	if after := monotonic(t); usec < before || usec > after {
		t.Errorf("%d is not between %d and %d", usec, before, after)
	}
}

func monotonic(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / 1000
}

func TestNobodyListens(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := (Notifier{}).Ready("here"); err != nil {
		t.Errorf("outside a service: %v", err)
	}
	t.Setenv("NOTIFY_SOCKET", "/nonexistent/notify")
	err := Notifier{}.Ready("here")
	if err == nil || !strings.HasPrefix(err.Error(), "telling systemd READY=1: ") {
		t.Errorf("a socket that is not there: %v", err)
	}
}

func TestWatchdogInterval(t *testing.T) {
	me := fmt.Sprint(os.Getpid())
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
		bad       bool
	}{
		{"", "", 0, false},
		{"30000000", me, 30 * time.Second, false},
		{"30000000", "", 30 * time.Second, false},
		{"30000000", "1", 0, false}, // another process's, inherited
		{"soon", me, 0, true},
		{"-5", me, 0, true},
	} {
		t.Setenv("WATCHDOG_USEC", c.usec)
		t.Setenv("WATCHDOG_PID", c.pid)
		if got, err := WatchdogInterval(); got != c.want || (err != nil) != c.bad {
			t.Errorf("%q for %q: %v, %v; want %v", c.usec, c.pid, got, err, c.want)
		}
	}
}
