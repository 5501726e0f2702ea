package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
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
		e.metrics = Need(rig.FreeAddress())(e, "looking for a port")
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

// Plane is a control plane with a namespace. It ends with the program.
type Plane struct {
	*Program
	Cluster   *cluster.Cluster
	Client    kubernetes.Interface // the administrator's, over protobuf, without a limit of requests
	Namespace string
}

// Claims are those of the namespace.
func (p *Plane) Claims() clientcorev1.PersistentVolumeClaimInterface {
	return p.Client.CoreV1().PersistentVolumeClaims(p.Namespace)
}

// Volumes are all volume objects.
func (p *Plane) Volumes() clientcorev1.PersistentVolumeInterface {
	return p.Client.CoreV1().PersistentVolumes()
}

// StartPlane starts a control plane. The options need no directory.
func (p *Program) StartPlane(ctx context.Context, namespace string, o cluster.Options) *Plane {
	p.Say("starting the control plane")
	o.Dir = hosttest.Dir(p)
	c := Need(cluster.Start(ctx, o))(p, "starting the control plane")
	p.Cleanup(c.Kill) // its state is of no further use
	config := c.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client := Need(kubernetes.NewForConfig(config))(p, "making a client")
	plane := &Plane{Program: p, Cluster: c, Client: client}
	plane.Namespace = Need(c.NewNamespace(ctx, namespace))(p, "making a namespace")
	return plane
}

// AddClass makes a StorageClass of Immediate binding, or as change changes it.
func (p *Plane) AddClass(ctx context.Context, name, provisioner string, change ...func(*storagev1.StorageClass)) {
	class := cluster.StorageClass(name, provisioner, storagev1.VolumeBindingImmediate)
	for _, f := range change {
		f(class)
	}
	_, err := p.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	p.Must(err, "making a class")
}

// ApplyManifests gives the daemons the rights that the product asks an administrator for. The
// classes that a configuration would have are the program's own to make.
func (p *Plane) ApplyManifests(ctx context.Context, d *rig.Daemon) {
	manifests, code := d.Call("manifests", "--no-classes")
	if code != 0 {
		p.Fatal(manifests)
	}
	p.Must(p.Cluster.Apply(ctx, []byte(manifests)), "applying the manifests")
}

// WriteKubeconfig writes the kubeconfig of a node's daemon; node is empty for one that is no
// node's.
func (p *Plane) WriteKubeconfig(ctx context.Context, node, file string) error {
	const account = "hostpath-provisioner"
	if err := p.Cluster.ServiceAccountKubeconfig(ctx, account, account, node, file); err != nil {
		return fmt.Errorf("making a kubeconfig: %w", err)
	}
	return nil
}

// AddPeer makes another node, with a daemon that runs whenever the first does, and the same pool:
// the same storage, or, where own is given, that filesystem at the same path. The second daemon has
// a mount namespace of its own, because two daemons of one host do not share a pool.
func (e *Environment) AddPeer(ctx context.Context, p Pool, own *hosttest.Image) {
	dir, node := filepath.Join(e.opt.Dir, "peer"), e.Node+"-peer"
	e.Must(os.MkdirAll(dir, 0o700), "adding a second node")
	e.Must(e.Cluster.AddHost(ctx, node, nil), "adding a second node")
	mounts := "mkdir -p /run/hostpath-provisioner; mount -t tmpfs node /run/hostpath-provisioner"
	if own != nil {
		e.peerPool = hosttest.PoolMount(e, *own)
		// The first node's filesystem goes: a mount on top of it would hide its mount point.
		mounts += fmt.Sprintf("; umount %[1]s; mount --bind %[2]s %[1]s; umount %[2]s", p.Path, e.peerPool)
	}
	e.peer = Need(rig.New(rig.Options{Binary: e.opt.Binary, Dir: dir,
		Config: e.config(node, ""), Wrap: []string{
			"unshare", "--mount", "--propagation", "slave", "sh", "-ec", mounts + `; exec "$@"`, "sh",
		}}))(e, "configuring the second daemon")
	if out, code := e.peer.Call("prepare", p.Name); code != 0 {
		e.Fatalf("prepare %s: %s", p.Name, out)
	}
}

// NodeService makes the CSI node service, which does not run yet. Its sockets are closed with the
// trial.
func (p *Program) NodeService(o csinode.Options) *csinode.Service {
	s := Need(csinode.New(o))(p, "making the sockets of the node service")
	p.Cleanup(s.Close)
	return s
}

// Redirect makes the daemon's kubeconfig point to another server, whose certificate ca has signed.
func (e *Environment) Redirect(server string, ca []byte) error {
	return cluster.Redirect(e.Kubeconfig, e.Kubeconfig, server, ca)
}

// Storage is a filesystem that holds a pool. With a peer that has its own each node has one; else
// there is one.
type Storage struct {
	pool    string        // where this program sees it
	daemons []*rig.Daemon // of the nodes that have it
}

// Storages are all that hold the pool, the first node's first.
func (e *Environment) Storages(p Pool) []Storage {
	if e.peerPool == "" {
		return []Storage{{p.Path, e.daemons()}}
	}
	return []Storage{{p.Path, []*rig.Daemon{e.Daemon}}, {e.peerPool, []*rig.Daemon{e.peer}}}
}

// StorageAt is a filesystem that this program sees at a path.
func (e *Environment) StorageAt(path string) Storage { return Storage{path, e.daemons()} }

// Log is what the daemons that have this storage wrote.
func (s Storage) Log() string { return logs(s.daemons) }

// Path is a path in the pool.
func (s Storage) Path(elem ...string) string {
	return filepath.Join(append([]string{s.pool}, elem...)...)
}

// Trash is the path of a volume that was moved to the trash whole.
func (s Storage) Trash(volume string) string { return s.Path(hostcheck.PrivateDir, "trash", volume) }

// Tree is the names of everything in the pool (pool.Tree).
func (s Storage) Tree() ([]string, error) { return pool.Tree(s.pool) }
