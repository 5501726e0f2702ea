package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// TestServerDies is one story on a control plane of its own: killed, started again, killed, its
// data restored to the earlier day, asked for what it has forgotten.
func TestServerDies(t *testing.T) {
	t.Parallel()
	ctx, ns, d := t.Context(), "default", &changeLog{}
	dir := t.TempDir()
	private, err := cluster.Start(ctx, cluster.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = private.Kill() })
	var told healthLog
	c, w := newClient(t, Options{Kubeconfig: private.Kubeconfig(), OnHealth: told.add})
	newClaim(t, private, ns, "old", "1")
	s := running(t, c.Claims(in(ns), d.told))
	running(t, c.Volumes("node-a", nil))

	t.Run("killed", func(t *testing.T) {
		eventually(t, "a watch", s.Watched)
		if err := private.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end of the watch", func() bool { return !s.Watched() })
		eventually(t, "the failure", func() bool { return len(told.read()) > 0 })
		earlierDay(t, dir)
		if err := private.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its end", func() bool { return slices.Contains(told.read(), "well") })
		if got := told.read(); len(got) != 2 || !strings.Contains(got[0], "connection re") /* refused, or reset while the server dies */ {
			t.Errorf("health: %q, want one and its end", got)
		}
		if got := names(s); got != "old" {
			t.Errorf("kept: %q, want old", got)
		}
		newClaim(t, private, ns, "new", "1")
		deleteClaim(t, private, ns, "old")
		d.expect(t, "+old 1", "+new 1", "-old 1")
		busyDay(t, private)
	})
	t.Run("restored to an earlier day", func(t *testing.T) {
		if err := private.Kill(); err != nil {
			t.Fatal(err)
		}
		restore(t, dir)
		if err := private.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		d.expect(t, "+old 1", "+new 1", "-old 1", "+old 1", "-new 1")
		eventually(t, "another watch", s.Watched)
	})
	t.Run("asked for what it has forgotten", func(t *testing.T) { expiry(t, c, w, private) })
}

// expiry: the 410 is the real server's.
func expiry(t *testing.T, c *Client, w *wire, in *cluster.Cluster) {
	d := &changeLog{}
	var told healthLog
	c.health = newHealth(told.add)
	var mu sync.Mutex
	expired := 0
	w.intercept(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if isWatch(r) && strings.HasSuffix(r.URL.Path, "claims") && expired < 2 {
			expired++
			q := r.URL.Query()
			q.Set("resourceVersion", "1")
			r.URL.RawQuery = q.Encode()
		}
		return nil, nil
	})
	w.forget()
	s := c.Claims(func(*corev1.PersistentVolumeClaim) bool { return true }, d.told)
	s.noWatchList = true // a watch-list does not begin at a version
	running(t, s)
	newClaim(t, in, "default", "another", "1")
	d.expect(t, "+old 1", "+another 1") // each is told once, though old was listed three times
	eventually(t, "its end", func() bool { return slices.Contains(told.read(), "well") })
	if lists := w.count("persistentvolumeclaims limit"); lists != 3 {
		t.Errorf("%d lists, want 3: %q", lists, w.requests())
	}
	if got := told.read(); len(got) != 2 || !strings.Contains(got[0], "too old resource version: 1") || got[1] != "well" {
		t.Errorf("health: %q, want the second expiry and its end", got)
	}
}

func earlierDay(t *testing.T, dir string) {
	t.Helper()
	copyTree(t, filepath.Join(dir, "etcd"), filepath.Join(dir, "etcd-earlier"))
}

// busyDay makes more versions than the components write when they start, so that the restored
// server does not overtake what was seen before the informer is back: that is what a restore looks
// like.
func busyDay(t *testing.T, in *cluster.Cluster) {
	t.Helper()
	maps := in.Client().CoreV1().ConfigMaps("default")
	made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "busy-"}}, metav1.CreateOptions{})
	for i := 0; i < 1000 && err == nil; i++ {
		patch := fmt.Appendf(nil, `{"data":{"i":"%d"}}`, i)
		_, err = maps.Patch(t.Context(), made.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func restore(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	copyTree(t, filepath.Join(dir, "etcd-earlier"), filepath.Join(dir, "etcd"))
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%s: %s", err, out)
	}
}

// A server that is away at the start, comes, and goes: reported once each, and not asked too often.
func TestServerAway(t *testing.T) {
	t.Parallel()
	ns, d := namespace(t), &changeLog{}
	newClaim(t, plane, ns, "a", "1")
	g := newGate(t)
	var told healthLog
	c, w := newClient(t, Options{Kubeconfig: g.kubeconfig(t), OnHealth: told.add})
	s := c.Claims(in(ns), d.told)
	done := make(chan struct{})
	go func() {
		defer close(done)
		running(t, s)
		running(t, c.Volumes("node-a", nil))
		running(t, c.OwnNode(nil))
	}()
	eventually(t, "three tries", func() bool { return w.count("limit") >= 3 })
	g.open()
	<-done
	d.expect(t, "+a 1")
	eventually(t, "the end of it", func() bool { return slices.Contains(told.read(), "well") })
	if got := told.read(); len(got) != 2 || !strings.Contains(got[0], "persistentvolumeclaims: list: ") {
		t.Errorf("health: %q, want one and its end", got)
	}

	g.shut() // all connections break, new ones are not taken
	w.forget()
	newClaim(t, plane, ns, "b", "1")
	eventually(t, "the second failure", func() bool { return len(told.read()) == 3 })
	g.open()
	d.expect(t, "+a 1", "+b 1")
	eventually(t, "the end of it", func() bool { return len(told.read()) == 4 })
	if n := w.count("persistentvolumeclaims"); n > 8 {
		t.Errorf("%d requests for claims in a short absence: %q", n, w.requests())
	}
}

// gate is a TCP proxy in front of the shared API server. It begins shut. While it is shut its port
// refuses connections; a socket that is bound to it, and does not listen, keeps it from all other
// programs.
type gate struct {
	address string
	mu      sync.Mutex
	lis     net.Listener
	conns   []net.Conn
}

func newGate(t *testing.T) *gate {
	t.Helper()
	reserved, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	must(t, unix.SetsockoptInt(reserved, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	must(t, unix.Bind(reserved, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(reserved)
	must(t, err)
	g := &gate{address: fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)}
	t.Cleanup(func() { g.shut(); _ = unix.Close(reserved) })
	return g
}

// reserved lets a listener have the port of newGate's socket.
var reserved = net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(failed, err)
}}

func (g *gate) kubeconfig(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server, c.TLSServerName = "https://"+g.address, "127.0.0.1"
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func (g *gate) open() {
	lis, err := reserved.Listen(context.Background(), "tcp", g.address)
	if err != nil {
		panic(err)
	}
	g.mu.Lock()
	g.lis = lis
	g.mu.Unlock()
	server := strings.TrimPrefix(plane.Config().Host, "https://")
	go func() {
		for {
			client, err := lis.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, client, upstream)
			g.mu.Unlock()
			go func() { _, _ = io.Copy(upstream, client); _ = upstream.Close() }()
			go func() { _, _ = io.Copy(client, upstream); _ = client.Close() }()
		}
	}()
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lis != nil {
		_ = g.lis.Close()
	}
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.lis, g.conns = nil, nil
}

func TestBackoff(t *testing.T) {
	var b backoff
	for i, full := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		if got := b.next(nil); got < full/2 || got > full {
			t.Errorf("delay %d is %s, want between %s and %s", i, got, full/2, full)
		}
	}
	for range 1000 {
		if got := b.next(nil); got < longestDelay/2 || got > longestDelay {
			t.Fatalf("after long: %s", got)
		}
	}
	b.reset()
	if got := b.next(nil); got > firstDelay {
		t.Errorf("after a reset: %s", got)
	}
}
