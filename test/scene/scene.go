// Package scene is where the long proofs play: a control plane, a Node without a kubelet, a class, and
// one daemon with one pool on a filesystem of its own. The daemon has its own identity and rights.
//
// It asserts nothing, it knows no faults, and it does not watch: what happens on the scene is the
// program's part. The program must run isolated (hosttest.Isolate), for the scene mounts.
package scene

import (
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

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Options say which scene.
type Options struct {
	Name    string   // of the pool, the class, the provisioner and the node
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
	Client     kubernetes.Interface // the administrator's, over protobuf, without a limit
	Namespace  string
	Class      string
	Pool       string // the pool's path
	Kubeconfig string // the daemon's
	Daemon     *rig.Daemon

	dir, config string
	running     bool
}

// Build makes everything, up to a daemon that is configured and does not run yet.
func Build(ctx context.Context, t hosttest.T, o Options) *Scene {
	must := func(err error, doing string) {
		if err != nil {
			t.Fatalf("%s: %v", doing, err)
		}
	}
	s := &Scene{Name: o.Name, Class: o.Name, dir: hosttest.Dir(t)}
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
	s.config = fmt.Sprintf(`provisioner = %q
node = %q
kubeconfig = %q
metrics = %q
[pool.%s]
path = %q
`, o.Name, o.Name, s.Kubeconfig, o.Metrics, o.Name, s.Pool)
	return s.Cast(o.Binary)
}

// Cast makes another binary, with more in its environment, the daemon of the scene; the directories
// stay. Nothing must run meanwhile.
func (s *Scene) Cast(binary string, env ...string) (err error) {
	s.Daemon, err = rig.New(rig.Options{Binary: binary, Dir: s.dir, Config: s.config, Env: env})
	return err
}

func (s *Scene) identify(ctx context.Context) error {
	manifests, code := s.Daemon.Call("manifests")
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
	// Nothing is left for the filesystem's threads to initialize, which would only take time.
	hosttest.Mkfs(t, "ext4", o.MiB, "-E", "lazy_itable_init=0,lazy_journal_init=0").Mount(t, s.Pool)
	if out, code := s.Daemon.Call("prepare", o.Name); code != 0 {
		return errors.New(out)
	}
	return nil
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

// Path is a path in the pool.
func (s *Scene) Path(elem ...string) string {
	return filepath.Join(append([]string{s.Pool}, elem...)...)
}

// Disk is what lies in the pool: the volumes' directories, the names of the recorded volumes, and
// everything in staging, trash and archive.
func (s *Scene) Disk() (directories, records, leftovers []string, err error) {
	all := map[string]*[]string{".": &directories, "volumes": &records, "staging": &leftovers, "trash": &leftovers, "archive": &leftovers}
	for dir, into := range all {
		path := s.Path(hostcheck.PrivateDir, dir)
		if dir == "." {
			path = s.Pool
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, nil, nil, err
		}
		for _, e := range entries {
			if e.Name() != "lost+found" && e.Name() != hostcheck.PrivateDir {
				*into = append(*into, strings.TrimSuffix(e.Name(), ".json"))
			}
		}
	}
	return directories, records, leftovers, nil
}

// Run starts the daemon and waits until it has told READY.
func (s *Scene) Run(ctx context.Context) error {
	s.running = true
	return s.Daemon.Run(ctx)
}

// Alive says whether the daemon runs.
func (s *Scene) Alive() bool {
	if !s.running {
		return false
	}
	select {
	case <-s.Daemon.Exited():
		return false
	default:
		return true
	}
}

// Rest ends the daemon in good order.
func (s *Scene) Rest() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s.running = false
	_, code, err := s.Daemon.Stop(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the daemon ended with exit code %d", code)
	}
	return err
}

// Stop ends the daemon, where one runs, and the control plane.
func (s *Scene) Stop() (err error) {
	if s.running {
		err = s.Rest()
	}
	return errors.Join(err, s.Cluster.Kill()) // nobody needs its state any more
}
