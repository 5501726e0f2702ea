package daemon

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// optionsIn are of a daemon with all its files in one directory, and this configuration.
func optionsIn(t *testing.T, dir, text string) Options {
	t.Helper()
	o := Options{
		Config: filepath.Join(dir, "config.toml"), StateDir: filepath.Join(dir, "state"), RuntimeDir: filepath.Join(dir, "run"),
		Version: "v1", Log: slog.New(slog.DiscardHandler),
	}
	if err := os.WriteFile(o.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

// socket listens as systemd does: the daemon gets the file, and a client's request, once sent,
// waits until it is accepted.
func socket(t *testing.T) (file *os.File, send func(path, host string) (receive func() (*http.Response, string))) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if file, err = l.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, func(path, host string) func() (*http.Response, string) {
		t.Helper()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return func() (*http.Response, string) { return received(t, conn) }
	}
}

// received reads the whole response.
func received(t *testing.T, conn net.Conn) (*http.Response, string) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// A scrape that waits on systemd's socket gets the reason, and the daemon ends with the same one.
func TestScrapeOfABadConfiguration(t *testing.T) {
	o := optionsIn(t, hosttest.Dir(t), "node = 'n'\n[pool.p]\npath = 'srv/p'\n")
	file, send := socket(t)
	o.MetricsSocket = file
	receive := send("/metrics", "localhost") // before the daemon is there: it waits 200 ms for a first request, and no longer
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() {
		err := Run(ctx, o)
		file.Close() // a request that waits still is refused, and not waited for
		ended <- err
	}()
	const want = `config.toml:3: pool.p.path: "srv/p" is not an absolute path`
	if r, body := receive(); r.StatusCode != http.StatusServiceUnavailable || !strings.HasPrefix(body, "the configuration has errors:\n") || !strings.Contains(body, want) {
		t.Errorf("%s: %s", r.Status, body)
	}
	end()
	if err := <-ended; !errors.As(err, new(config.Errors)) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("ended with %v", err)
	}
}

// Beside a daemon that runs, a second one changes nothing: not even what the first one tells of
// itself.
func TestSecondDaemon(t *testing.T) {
	o := optionsIn(t, hosttest.Dir(t), "node = 'n'\n[pool.p]\npath = '/srv/p'\n")
	for _, dir := range []string{o.StateDir, o.RuntimeDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	release, err := state.Lock(o.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	first := Status{PID: os.Getpid(), Sentence: "of the first"}
	if err := first.write(o.RuntimeDir); err != nil {
		t.Fatal(err)
	}
	var held *state.HeldError
	if err := Run(t.Context(), o); !errors.As(err, &held) {
		t.Errorf("ended with %v, want that the state directory is held", err)
	}
	if s, err := ReadStatus(o.RuntimeDir); err != nil || s.Sentence != "of the first" {
		t.Errorf("the first daemon's status: %+v, %v", s, err)
	}
}

// A directory that cannot be made ends the start, and its path is told.
func TestNoPlaceForState(t *testing.T) {
	dir := hosttest.Dir(t)
	o := optionsIn(t, dir, "node = 'n'\n[pool.p]\npath = '/srv/p'\n")
	o.StateDir = filepath.Join(o.Config, "state")
	if err := Run(t.Context(), o); text(err) != "mkdir "+o.Config+": not a directory" {
		t.Errorf("ended with %v", err)
	}
}

// A daemon that cannot confine itself works, tells why in its log and status, and can take every
// configuration.
func TestNotConfined(t *testing.T) {
	dir := hosttest.Dir(t)
	o := optionsIn(t, dir, "")
	o.StateDir = filepath.Join(o.Config, "state")
	log, lines := logged()
	o.Log = log
	d := &daemon{Options: o}
	d.confine(config.Config{Confine: true})
	if d.confined.Failed != "mkdir "+o.Config+": not a directory" || !strings.Contains(lines.String(), "level=ERROR") || !strings.Contains(lines.String(), d.confined.Failed) {
		t.Errorf("%+v, logged %s", d.confined, lines)
	}
	if err := Fits(o, d.confined, config.Config{}); err != nil {
		t.Errorf("another configuration: %v", err)
	}
	if why := d.outside("/data", "/data"); why != "" {
		t.Errorf("another start would not help, and is asked for: %s", why)
	}
}

// The socket goes on listening between two configurations, and the names of this host are those of
// the request's Host.
func TestMetricsOnASocket(t *testing.T) {
	file, send := socket(t)
	d, g := newDaemon(t)
	d.MetricsSocket = file
	d.now.Store(g)
	for range 2 {
		stop := d.serveMetrics(t.Context(), config.Config{Node: "node-a", Metrics: "Storage.Example:9812"})
		for host, want := range map[string]int{"node-a": http.StatusOK, "storage.example:9812": http.StatusOK, "127.0.0.1": http.StatusOK, "evil.example": http.StatusMisdirectedRequest} {
			if r, body := send("/metrics", host)(); r.StatusCode != want || want == http.StatusOK && !strings.Contains(body, "\nhostpath_provisioner_ready 0\n") {
				t.Errorf("Host %s: %s, %s", host, r.Status, body)
			}
		}
		if r, body := send("/healthz", "localhost")(); r.StatusCode != http.StatusServiceUnavailable || !strings.HasPrefix(body, "not ready: reading the API; ") {
			t.Errorf("%s: %s", r.Status, body)
		}
		stop()
	}
}

// The watchdog is told that the daemon is alive, and nothing without a watchdog.
func TestWatchdog(t *testing.T) {
	messages := told(t)
	d, g := newDaemon(t)
	d.now.Store(g)
	ctx, end := context.WithCancel(t.Context())
	end() // one round
	d.feedWatchdog(ctx)
	t.Setenv("WATCHDOG_USEC", "60000000")
	d.feedWatchdog(ctx)
	d.systemd.Stopping("")
	if got := messages(); len(got) != 1 || got[0] != "WATCHDOG=1" {
		t.Errorf("told %q", got)
	}
}
