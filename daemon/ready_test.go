package daemon

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/metrics"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

const kubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
	"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
	"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "u"}]}`

// newDaemon is one that has not been started, with a generation that knows nothing of its cluster
// yet.
func newDaemon(t *testing.T) (*daemon, *generation) {
	t.Helper()
	dir := hosttest.Dir(t)
	d := &daemon{Options: Options{RuntimeDir: dir, Log: slog.New(slog.DiscardHandler)}, changed: make(chan struct{}, 1), store: map[storeKey]*volume.Pool{}, promises: capacity.NewBook()}
	d.metrics = metrics.New("test", metrics.Sources{
		Volumes: d.countVolumes, States: d.countStates, Health: d.health, Rooms: d.rooms,
		Work: d.working,
	})
	cfg := config.Config{Node: "node-a", Kubeconfig: filepath.Join(dir, "kubeconfig")}
	if err := os.WriteFile(cfg.Kubeconfig, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := d.newGeneration(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d, g
}

// told is what systemd was told until it is told that the daemon stops.
func told(t *testing.T) (messages func() []string) {
	t.Helper()
	address := filepath.Join(hosttest.Dir(t), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", address)
	all := make(chan []string, 1)
	go func() {
		var got []string
		for buffer := make([]byte, 4096); ; {
			n, err := conn.Read(buffer)
			if err != nil || strings.HasPrefix(string(buffer[:n]), "STOPPING=1") {
				all <- got
				return
			}
			got = append(got, string(buffer[:n]))
		}
	}()
	t.Cleanup(func() { conn.Close() })
	return func() []string { return <-all }
}

// A request for more time after READY=1 would put the watchdog of a daemon off that hangs by then.
// Tried many times, with news at every moment. It fails when the request is sent outside the lock.
func TestNoMoreTimeAfterReady(t *testing.T) {
	for range 200 {
		messages := told(t)
		d, g := newDaemon(t)
		d.now.Store(g)
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 4 { // more than there are, to meet sooner
			all.Go(func() { d.tell(ctx) })
		}
		all.Go(func() {
			for ctx.Err() == nil {
				signal(d.changed)
			}
		})
		for range 20 { // until news are told, one after the other
			d.keep(g, func(Status) {})
		}
		g.sayReady()
		d.keep(g, func(Status) {}) // what was begun before it has ended
		end()
		all.Wait()
		d.systemd.Stopping("")
		ready := false
		for _, m := range messages() {
			ready = ready || strings.HasPrefix(m, "READY=1")
			if ready && strings.HasPrefix(m, "EXTEND_TIMEOUT_USEC=") {
				t.Fatal("more time was asked for after READY=1")
			}
		}
		if !ready {
			t.Fatal("READY=1 was not sent")
		}
	}
}

// A bad configuration that is reloaded while the daemon starts does not end its start; afterwards
// systemd is told that the reload has ended.
func TestBadReload(t *testing.T) {
	for _, ready := range []bool{false, true} {
		messages := told(t)
		d, g := newDaemon(t)
		d.Config = filepath.Join(hosttest.Dir(t), "missing.toml")
		g.started.Store(ready)
		if d.reload(g) != nil {
			t.Fatal("a configuration that is not there was taken")
		}
		d.systemd.Stopping("")
		got := messages()
		if len(got) == 0 || !strings.HasPrefix(got[0], "RELOADING=1") || strings.HasPrefix(got[len(got)-1], "READY=1") != ready {
			t.Errorf("ready %v: %q", ready, got)
		}
	}
}
