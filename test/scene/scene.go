// Package scene is where the long proofs play: a control plane, a Node without a kubelet, a class, and
// one daemon with one pool on a filesystem of its own. The daemon has its own identity and rights.
//
// It asserts nothing, it knows no faults, and it does not watch: what happens on the scene is the
// program's part. The program must run isolated (hosttest.Isolate), for the scene mounts.
package scene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Options say which scene.
type Options struct {
	Name    string   // of the pool, the class, the provisioner and the node
	Scope   string   // of the pool; empty: node
	Binary  string   // of the daemon; empty: the rig's default
	Metrics string   // address that the daemon serves its metrics on; empty: none
	MiB     int      // size of the pool's filesystem
	Args    []string // more flags of the control plane
	Env     []string // more of its environment
}

// Scene is what was built. Its fields are for reading.
type Scene struct {
	Name       string
	Cluster    *cluster.Cluster
	Scope      string
	Client     kubernetes.Interface // the administrator's, over protobuf, without a limit
	Namespace  string
	Class      string
	Pool       string // the pool's path
	Kubeconfig string // the daemon's
	Daemon     *rig.Daemon

	dir, config string
	running     bool
	peer        *rig.Daemon // a second daemon, on a second node
	peerPool    string      // where this program sees the peer's pool, if it has a filesystem of its own
}

// Storage is a filesystem that holds the pool. In scope every-node each node has its own; else there is one.
type Storage struct {
	pool    string        // where this program sees it
	daemons []*rig.Daemon // of the nodes that have it
}

// Build makes everything, up to a daemon that is configured and does not run yet.
func Build(ctx context.Context, t hosttest.T, o Options) *Scene {
	must := func(err error, doing string) {
		if err != nil {
			t.Fatalf("%s: %v", doing, err)
		}
	}
	s := &Scene{Name: o.Name, Class: o.Name, Scope: cmp.Or(o.Scope, plan.ScopeNode), dir: hosttest.Dir(t)}
	var err error
	s.Cluster, err = cluster.Start(ctx, cluster.Options{Dir: hosttest.Dir(t), ExtraArgs: o.Args, Env: o.Env})
	must(err, "starting the control plane")
	config := s.Cluster.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	s.Client, err = kubernetes.NewForConfig(config)
	must(err, "making a client")
	must(s.Cluster.AddNode(ctx, o.Name, nil), "adding a node")
	s.Namespace, err = s.Cluster.NewNamespace(ctx, o.Name)
	must(err, "making a namespace")
	class := cluster.StorageClass(o.Name, o.Name, storagev1.VolumeBindingImmediate)
	_, err = s.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	must(err, "making a class")
	must(s.configure(o), "configuring the daemon")
	must(s.identify(ctx), "giving the daemon its rights")
	must(s.mount(t, o), "making the pool")
	return s
}

func (s *Scene) configure(o Options) (err error) {
	s.Kubeconfig, s.Pool = filepath.Join(s.dir, "kubeconfig"), filepath.Join(s.dir, "pool")
	s.config = s.of(o.Name, o)
	return s.Cast(o.Binary)
}

// of is the configuration of a node's daemon.
func (s *Scene) of(node string, o Options) string {
	scope := ""
	if o.Scope != "" {
		scope = fmt.Sprintf("scope = %q\n", o.Scope)
	}
	return fmt.Sprintf(`provisioner = %q
node = %q
kubeconfig = %q
metrics = %q
[pool.%s]
path = %q
%s`, o.Name, node, s.Kubeconfig, o.Metrics, o.Name, s.Pool, scope)
}

// AddPeer makes another node, with a daemon that runs whenever the first does. It has the same storage, or a filesystem
// of its own at the same path in scope every-node. It has a mount namespace of its own, because two daemons of one
// host do not share a pool.
func (s *Scene) AddPeer(ctx context.Context, t hosttest.T, o Options) (err error) {
	dir, node := filepath.Join(s.dir, "peer"), o.Name+"-peer"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := s.Cluster.AddNode(ctx, node, nil); err != nil {
		return err
	}
	mounts := "mkdir -p /run/hostpath-provisioner; mount -t tmpfs node /run/hostpath-provisioner"
	if o.Scope == plan.ScopeEveryNode {
		s.peerPool = hosttest.PoolMount(t, mkfs(t, o))
		// The first node's filesystem goes: a mount on top of it would hide its mount point.
		mounts += fmt.Sprintf("; umount %[1]s; mount --bind %[2]s %[1]s; umount %[2]s", s.Pool, s.peerPool)
	}
	s.peer, err = rig.New(rig.Options{Binary: o.Binary, Dir: dir, Config: s.of(node, o), Wrap: []string{
		"unshare", "--mount", "--propagation", "slave", "sh", "-ec", mounts + `; exec "$@"`, "sh",
	}})
	if err != nil {
		return err
	}
	if out, code := s.peer.Call("prepare", o.Name); code != 0 {
		return errors.New(out)
	}
	return nil
}

// Log is what the daemons wrote.
func (s *Scene) Log() string { return logs(s.daemons()) }

func logs(daemons []*rig.Daemon) (all string) {
	for _, d := range daemons {
		all += d.Log()
	}
	return all
}

// Cast makes another binary, with more in its environment, the daemon of the scene; the directories
// stay. Nothing must run meanwhile.
func (s *Scene) Cast(binary string, env ...string) (err error) {
	s.Daemon, err = rig.New(rig.Options{Binary: binary, Dir: s.dir, Config: s.config, Env: env})
	return err
}

func (s *Scene) identify(ctx context.Context) error {
	manifests, code := s.Daemon.Call("manifests", "--no-classes") // the scene has its own
	if code != 0 {
		return errors.New(manifests)
	}
	if err := s.Cluster.Apply(ctx, []byte(manifests)); err != nil {
		return err
	}
	const account = "hostpath-provisioner"
	return s.Cluster.ServiceAccountKubeconfig(ctx, account, account, "", s.Kubeconfig)
}

// mount makes the pool as an operator does: prepare, mount, prepare.
func (s *Scene) mount(t hosttest.T, o Options) error {
	if out, code := s.Daemon.Call("prepare", o.Name); code != 0 {
		return errors.New(out)
	}
	mkfs(t, o).Mount(t, s.Pool)
	if out, code := s.Daemon.Call("prepare", o.Name); code != 0 {
		return errors.New(out)
	}
	return nil
}

// mkfs leaves nothing for the filesystem's threads to initialize, which would only take time.
func mkfs(t hosttest.T, o Options) hosttest.Image {
	return hosttest.Mkfs(t, "ext4", o.MiB, "-E", "lazy_itable_init=0,lazy_journal_init=0")
}

// Redirect makes the daemon's kubeconfig point to another server, whose certificate ca has signed.
func (s *Scene) Redirect(server string, ca []byte) error {
	config, err := clientcmd.LoadFromFile(s.Kubeconfig)
	if err != nil {
		return err
	}
	for _, c := range config.Clusters {
		c.Server, c.CertificateAuthorityData = server, ca
	}
	return clientcmd.WriteToFile(*config, s.Kubeconfig)
}

// Storages are all that hold the pool, the first node's first.
func (s *Scene) Storages() []Storage {
	if s.peerPool == "" {
		return []Storage{{s.Pool, s.daemons()}}
	}
	return []Storage{{s.Pool, []*rig.Daemon{s.Daemon}}, {s.peerPool, []*rig.Daemon{s.peer}}}
}

// Log is what the daemons that have this storage wrote.
func (s Storage) Log() string { return logs(s.daemons) }

// Path is a path in the pool.
func (s Storage) Path(elem ...string) string {
	return filepath.Join(append([]string{s.pool}, elem...)...)
}

// Trash is the path of a volume that was moved to the trash whole.
func (s Storage) Trash(volume string) string { return s.Path(hostcheck.PrivateDir, "trash", volume) }

// Disk is what lies in the pool: the volumes' directories, the names of the recorded volumes, and
// everything in staging, trash and archive.
func (s Storage) Disk() (directories, records, leftovers []string, err error) {
	all := map[string]*[]string{".": &directories, "volumes": &records, "staging": &leftovers, "trash": &leftovers, "archive": &leftovers}
	for dir, into := range all {
		path := s.Path(hostcheck.PrivateDir, dir)
		if dir == "." {
			path = s.pool
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, nil, nil, err
		}
		for _, e := range entries {
			if e.Name() == "lost+found" || e.Name() == hostcheck.PrivateDir {
				continue
			}
			name := strings.TrimSuffix(e.Name(), ".json")
			if into == &leftovers {
				name = filepath.Join(dir, name)
			}
			*into = append(*into, name)
		}
	}
	return directories, records, leftovers, nil
}

// daemons are the first one and its peer.
func (s *Scene) daemons() []*rig.Daemon {
	if s.peer == nil {
		return []*rig.Daemon{s.Daemon}
	}
	return []*rig.Daemon{s.Daemon, s.peer}
}

// Run starts the daemons and waits until they have told READY.
func (s *Scene) Run(ctx context.Context) error {
	s.running = true
	for _, d := range s.daemons() {
		if err := d.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Alive says whether the daemons run.
func (s *Scene) Alive() bool {
	if !s.running {
		return false
	}
	for _, d := range s.daemons() {
		select {
		case <-d.Exited():
			return false
		default:
		}
	}
	return true
}

// Rest ends the daemons in good order.
func (s *Scene) Rest() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s.running = false
	var all error
	for _, d := range s.daemons() {
		_, code, err := d.Stop(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("the daemon ended with exit code %d", code)
		}
		all = errors.Join(all, err)
	}
	return all
}

// Stop ends the daemon, where one runs, and the control plane.
func (s *Scene) Stop() (err error) {
	if s.running {
		err = s.Rest()
	}
	return errors.Join(err, s.Cluster.Kill()) // nobody needs its state any more
}
