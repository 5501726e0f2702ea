package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// logged is a log whose lines are read back, without their times.
func logged() (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), &b
}

// The kubeconfig of the command line comes before that of the file, and the file's warnings are
// logged.
func TestOptionsLoad(t *testing.T) {
	file := filepath.Join(hosttest.Dir(t), "config.toml")
	text := "node = 'n'\nkubeconfig = '/nonexistent/of-the-file'\n[pool.p]\npath = '/srv/p'\nrequire_mount = false\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"": "/nonexistent/of-the-file", "/nonexistent/given": "/nonexistent/given"} {
		log, lines := logged()
		cfg, err := Options{Config: file, Kubeconfig: given, Log: log}.load()
		if err != nil || cfg.Kubeconfig != want {
			t.Errorf("given %q: %q, %v", given, cfg.Kubeconfig, err)
		}
		if got := lines.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "config.toml:5: pool.p.require_mount: false: /srv/p may be a plain directory") {
			t.Errorf("given %q: logged %s", given, got)
		}
	}
}

// A daemon with a configuration that has errors returns them all, and makes neither of its
// directories.
func TestRunRefusesABadConfiguration(t *testing.T) {
	dir := hosttest.Dir(t)
	o := Options{Config: filepath.Join(dir, "config.toml"), StateDir: filepath.Join(dir, "state"), RuntimeDir: filepath.Join(dir, "run"), Log: slog.New(slog.DiscardHandler)}
	if err := os.WriteFile(o.Config, []byte("node = 'N'\n[pool.p]\npath = '"+o.StateDir+"/pool'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all config.Errors
	if err := Run(t.Context(), o); !errors.As(err, &all) || len(all) != 2 {
		t.Fatalf("got %v, want the node's name and the pool in the state directory", err)
	}
	for _, made := range []string{o.StateDir, o.RuntimeDir} {
		if _, err := os.Stat(made); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", made, err)
		}
	}
}

// The sentence begins with what is wrong with the configuration on disk, and tells an error from a
// change that needs a restart.
func TestSentenceOfABadReload(t *testing.T) {
	for _, c := range []struct {
		why, want string
		old       bool
	}{
		{"", "reading the API; ", false},
		{whyDiffers, "the configuration file was changed and an older one is in force: it was not reloaded; reading the API; ", true},
		{"errors", "the configuration file has errors and an older one is in force; reading the API; ", true},
		{"restart", "the configuration file was changed and an older one is in force: for this change it has to be restarted; reading the API; ", true},
	} {
		_, g := newDaemon(t)
		if c.why != "" {
			g.differs.Store(&difference{why: c.why, message: "x"})
		}
		if s := g.status(); !strings.HasPrefix(s.Sentence, c.want) || s.OldConfig != c.old {
			t.Errorf("%q: %q, previous configuration %v", c.why, s.Sentence, s.OldConfig)
		}
	}
}

// An outage of the API is told in the status while it lasts, is not what a restart would mend, and
// its time counts from its first error.
func TestTroubleIsToldUntilItEnds(t *testing.T) {
	d, g := newDaemon(t)
	d.now.Store(g)
	g.ready.Store(true)
	if !g.apiUp() {
		t.Error("the API is down before any error")
	}
	g.onTrouble(errors.New("connection refused\nsecond line"))
	began := g.troubleSince.Load()
	g.onTrouble(errors.New("no route to host"))
	if s := g.status(); g.apiUp() || s.API != "no route to host" || began == 0 || g.troubleSince.Load() != began {
		t.Errorf("up %v, %q, since %d, %d", g.apiUp(), s.API, began, g.troubleSince.Load())
	}
	g.onTrouble(errors.New("connection refused\nsecond line"))
	if s := g.status(); strings.Contains(s.API, "\n") {
		t.Errorf("two lines in systemd's STATUS: %q", s.API)
	}
	g.onTrouble(nil)
	if s := g.status(); !g.apiUp() || s.API != "" || g.troubleSince.Load() != 0 {
		t.Errorf("it ended: up %v, %q, since %d", g.apiUp(), s.API, g.troubleSince.Load())
	}
}

// Before every pool was checked the daemon is neither healthy nor usable, and the response to a
// probe tells why.
func TestUnhealthyBeforeTheFirstCheck(t *testing.T) {
	d, g := newDaemon(t)
	d.now.Store(g)
	for name, probe := range map[string]func() error{"healthy": d.healthy, "usable": d.usable} {
		if err := probe(); !strings.HasPrefix(text(err), "not ready: reading the API; ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	g.started.Store(true)
	g.controller.Ping()
	if err := d.usable(); !strings.HasPrefix(text(err), "not ready: ") {
		t.Errorf("usable before the API was read: %v", err)
	}
}

// An address for metrics that cannot be had is logged, and keeps no claim waiting.
func TestMetricsAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for address, want := range map[string]string{"": "", taken.Addr().String(): "level=ERROR msg=\"metrics are not served: listen tcp " + taken.Addr().String() + ": bind: address already in use\"\n"} {
		d, _ := newDaemon(t)
		log, lines := logged()
		d.Log = log
		d.serveMetrics(t.Context(), config.Config{Metrics: address})()
		if lines.String() != want {
			t.Errorf("%q: logged %q, want %q", address, lines, want)
		}
	}
}

// Waiting ends with the last of what is waited for, or with the context, of which it tells.
func TestAwait(t *testing.T) {
	done, never := make(chan struct{}), make(chan struct{})
	close(done)
	if !await(t.Context(), done, done) {
		t.Error("all are done, and it was not told")
	}
	ctx, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	if await(ctx, done, never) {
		t.Error("one is not done, and all were told to be")
	}
}
