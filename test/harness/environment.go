package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Options say which environment.
type Options struct {
	Name    string          // of the provisioner, the node and the namespace; empty: the program's
	Plane   cluster.Options // of the control plane
	Dir     string          // of the daemon; empty: a new one
	Binary  string          // of the daemon; empty: the command line's
	Env     []string        // more of the daemon's environment
	Metrics bool            // the daemon serves its metrics
	TOML    string          // more keys of the configuration, before its tables
}

// Environment is a control plane with one node, which has no kubelet, and one daemon with pools.
// The daemon has its own identity and rights.
type Environment struct {
	*Plane
	Node       string // the name of the node and of the provisioner
	Daemon     *rig.Daemon
	Kubeconfig string // the daemon's

	opt     Options
	metrics string // address, empty: none
	pools   string // TOML
	stops   bool   // a cleanup stops the daemons

	peer     *rig.Daemon // a second daemon, on a second node
	peerPool string      // where this program sees the peer's pool, if it has a filesystem of its own
}

// Start starts the control plane, and makes the daemon without starting it: AddPool adds pools.
func Start(ctx context.Context, p *Program, o Options) *Environment {
	return StartOn(ctx, p.StartPlane(ctx, cmp.Or(o.Name, p.Name()), o.Plane), o)
}

// StartOn is Start on a control plane that runs.
func StartOn(ctx context.Context, p *Plane, o Options) *Environment {
	o.Name, o.Dir = cmp.Or(o.Name, p.Name()), cmp.Or(o.Dir, hosttest.Dir(p))
	o.Binary = cmp.Or(o.Binary, p.Binary)
	e := &Environment{Plane: p, Node: o.Name, opt: o, Kubeconfig: filepath.Join(o.Dir, "kubeconfig")}
	e.Must(e.Cluster.AddHost(ctx, e.Node, nil), "adding a node")
	var err error
	if o.Metrics {
		e.metrics, err = rig.FreeAddress()
		e.Must(err, "looking for a port")
	}
	// No configuration is without a pool, and the manifests need none.
	e.Daemon, err = rig.New(rig.Options{Binary: o.Binary, Dir: o.Dir, Env: o.Env, Config: e.config(e.Node, e.metrics) + "[pool.none]\npath = \"/none\"\n"})
	e.Must(err, "configuring the daemon")
	e.Cleanup(e.keepLog)
	e.ApplyManifests(ctx, e.Daemon)
	e.Must(e.WriteKubeconfig(ctx, "", e.Kubeconfig), "starting")
	return e
}

// config is the configuration of a node's daemon.
func (e *Environment) config(node, metrics string) string {
	return fmt.Sprintf("provisioner = %q\nnode = %q\nkubeconfig = %q\nmetrics = %q\n", e.Node, node, e.Kubeconfig, metrics) + e.opt.TOML + e.pools
}

// Pool is a pool of the environment's daemon.
type Pool struct {
	Name  string
	Path  string
	TOML  string // more lines of its table
	Mount func() // mounts the storage at the path, between two calls of prepare; nil: it is mounted already
}

// AddPool adds a pool to the configuration, and makes it as an operator does: prepare, mount,
// prepare.
func (e *Environment) AddPool(p Pool) {
	e.pools += fmt.Sprintf("[pool.%s]\npath = %q\n%s", p.Name, p.Path, p.TOML)
	e.Must(e.Daemon.Configure(e.config(e.Node, e.metrics)), "configuring the daemon")
	if p.Mount != nil {
		e.Prepare(p.Name)
		p.Mount()
	}
	e.Prepare(p.Name)
}

// Prepare calls prepare.
func (e *Environment) Prepare(pool string) {
	if out, code := e.Daemon.Call("prepare", pool); code != 0 {
		e.Fatalf("prepare %s: %s", pool, out)
	}
}

// Mkfs makes an ext4 filesystem whose threads have nothing left to initialize: that would only take
// time.
func Mkfs(t hosttest.T, mib int) hosttest.Image {
	return hosttest.Mkfs(t, "ext4", mib, "-E", "lazy_itable_init=0,lazy_journal_init=0")
}

// Replace makes another binary, with more in its environment, the daemon of the first node; the
// directories stay. No daemon may run meanwhile.
func (e *Environment) Replace(binary string, env ...string) (err error) {
	e.Daemon, err = rig.New(rig.Options{Binary: binary, Dir: e.opt.Dir, Config: e.config(e.Node, e.metrics), Env: env})
	return err
}

// daemons are the first one and its peer.
func (e *Environment) daemons() []*rig.Daemon {
	if e.peer == nil {
		return []*rig.Daemon{e.Daemon}
	}
	return []*rig.Daemon{e.Daemon, e.peer}
}

// Run starts the daemons and waits until they have told READY. They are stopped with the program.
func (e *Environment) Run(ctx context.Context) error {
	if !e.stops {
		e.stops = true
		e.Cleanup(e.Stop)
	}
	for _, d := range e.daemons() {
		if err := d.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Running reports whether all daemons run.
func (e *Environment) Running() bool {
	for _, d := range e.daemons() {
		if !d.Running() {
			return false
		}
	}
	return true
}

// Stop stops the daemons that run, as systemd does. An exit code other than 0 is an error.
func (e *Environment) Stop() (all error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, d := range e.daemons() {
		if !d.Running() {
			continue
		}
		_, code, err := d.Stop(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("the daemon ended with exit code %d", code)
		}
		all = errors.Join(all, err)
	}
	return all
}

// Log is what the daemons wrote.
func (e *Environment) Log() string { return logs(e.daemons()) }

func logs(daemons []*rig.Daemon) (all string) {
	for _, d := range daemons {
		all += d.Log()
	}
	return all
}

func (e *Environment) keepLog() error {
	file := cmp.Or(e.KeepLog, os.Getenv("KEEP_LOG"))
	if file == "" {
		return nil
	}
	return os.WriteFile(file, []byte(e.Log()), 0o600)
}
