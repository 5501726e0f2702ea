package everynode

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// host is a node: a mount namespace, a filesystem in it at the pool's path, and a daemon.
type host struct {
	*rig.Daemon
	w         *environment
	node      string
	path      string // of the pool, in the namespace
	mount     func() // mounts the pool's filesystem
	namespace *hosttest.Namespace

	kubeconfig string // the daemon's
}

// setting changes a host before it is prepared.
type setting struct {
	path  string // of the pool, in place of the environment's
	tmpfs bool   // a filesystem that costs nothing
	extra string // TOML at the end of the pool's table
	raw   string // a whole configuration as an operator writes it, in place of the test's
	pool  string // the pool's name in it
}

// host makes the Node object and a prepared pool. The daemon does not run yet.
func (w *environment) host(name string, settings ...setting) *host {
	w.Helper()
	w.Must(w.AddHost(w.Ctx, w.Namespace+"-"+name, map[string]string{nodeLabel: w.Namespace}))
	return w.machine(name, settings...)
}

// machine is host without the Node object.
func (w *environment) machine(name string, settings ...setting) *host {
	w.Helper()
	s := append(settings, setting{})[0]
	if s.path == "" {
		s.path = w.pool
	}
	h := &host{w: w, node: w.Namespace + "-" + name, path: s.path, namespace: hosttest.NewNamespace(w, "")}
	h.mount = func() { h.inside("mount", "-t", "tmpfs", "-o", "mode=0700,size=16m", "pool", h.path) }
	if !s.tmpfs {
		image := hosttest.Mkfs(w, "ext4", 48)
		h.mount = func() {
			h.inside("mount", "-t", image.Type, "-o", "loop", image.File, h.path)
			h.inside("chmod", "0700", h.path)
		}
	}
	h.mount()
	h.configure(s)
	return h
}

// configure makes the daemon's directory. The daemon runs in the namespace.
func (h *host) configure(s setting) {
	w, dir := h.w, hosttest.Dir(h.w)
	h.kubeconfig = filepath.Join(dir, "kubeconfig")
	w.Must(w.kubeconfig(h.kubeconfig))
	config := fmt.Sprintf("provisioner = %q\nnode = %q\nkubeconfig = %q\nmetrics = \"\"\n[pool.fast]\nscope = \"every-node\"\npath = %q\n%s\n",
		w.Provisioner, h.node, h.kubeconfig, h.path, s.extra)
	if s.raw != "" {
		config = h.onThisMachine(s.raw)
	}
	h.Daemon = w.Daemon(h.node, cmp.Or(s.pool, "fast"), rig.Options{Dir: dir, Config: config, Wrap: h.namespace.Enter()})
}

// inside runs a command in the host's mount namespace.
func (h *host) inside(args ...string) {
	h.w.Helper()
	h.namespace.Run(args...)
}

// unmount closes the pool, and waits until the daemon knows if one runs.
func (h *host) unmount() {
	h.w.Helper()
	h.w.Unmounts(h.node, h.namespace, h.path)
	h.w.Must(h.WaitStatus(h.w.Soon(), "is closed"))
}

// run starts the daemon and waits until it is ready. It ends with the test.
func (h *host) run() *host {
	h.w.Helper()
	h.w.Run(h.Daemon)
	return h
}

// in is a path below the pool as this process can reach it.
func (h *host) in(elem ...string) string {
	return h.namespace.Path(append([]string{h.path}, elem...)...)
}

func (h *host) ours(dir string) string { return h.in(".hostpath-provisioner", dir) }

// write puts the node's name into the volume's directory, as a pod there would.
func (h *host) write(pv string) {
	h.w.Helper()
	h.w.Must(os.WriteFile(h.in(pv, "data"), []byte(h.node), 0o600))
}

// wantData looks for what write wrote, at a path below the pool.
func (h *host) wantData(dir string) {
	h.w.Helper()
	data, err := os.ReadFile(h.in(dir, "data"))
	if string(data) != h.node {
		h.w.Errorf("%s on %s has %q, %v", dir, h.node, data, err)
	}
}

// wantTree waits until the pool holds exactly these.
func (h *host) wantTree(want ...string) { h.w.Helper(); h.w.WantTree(h.node, h.in(), want...) }
