package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// world is one node with one daemon and one pool, and the cluster.
type world struct {
	opt       options
	ctx       context.Context
	begin     time.Time
	cluster   *cluster.Cluster
	client    kubernetes.Interface
	namespace string
	pool      string // mount point and path
	killer    *killer
	daemon    *rig.Daemon
	serial    int             // of claims
	baseline  map[string]bool // what is there when there is no claim
	stayed    int             // volumes that kills left whole in the trash
}

// failure ends the program: the story could not be played.
type failure string

// The methods that make world a hosttest.T.

func (w *world) Helper()                   {}
func (w *world) Name() string              { return "crash" }
func (w *world) Fatal(args ...any)         { panic(failure(fmt.Sprint(args...))) }
func (w *world) Fatalf(f string, a ...any) { panic(failure(fmt.Sprintf(f, a...))) }

func (w *world) must(err error, doing string) {
	if err != nil {
		w.Fatalf("%s: %v", doing, err)
	}
}

func (w *world) say(format string, args ...any) {
	fmt.Printf("[%6.1fs] %s\n", time.Since(w.begin).Seconds(), fmt.Sprintf(format, args...))
}

// name is that of the pool, the provisioner and the node.
const name = "crash"

// Classes by what they ask for.
const (
	deleted   = "kill-delete"
	consumer  = "kill-consumer" // WaitForFirstConsumer: the daemon has to take the claim first
	archiving = "kill-archive"
	retaining = "kill-retain"
)

// Of each volume's directory: nothing that it would have by itself.
const (
	dirMode = 0o751
	dirUID  = 4321
	dirGID  = 1234
)

// build makes everything up to a running daemon with an open pool.
func (w *world) build() {
	w.say("starting the control plane")
	c, err := cluster.Start(w.ctx, cluster.Options{Dir: hosttest.Dir(w)})
	w.must(err, "starting the control plane")
	w.cluster = c
	config := c.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	w.client, err = kubernetes.NewForConfig(config)
	w.must(err, "making a client")
	w.must(c.AddNode(w.ctx, name, nil), "adding a node")
	w.namespace, err = c.NewNamespace(w.ctx, name)
	w.must(err, "making a namespace")
	w.makeClasses()
	w.makeHost()
	w.say("starting the daemon")
	w.start()
	w.must(w.daemon.WaitStatus(w.soon(), "1 of 1 pool open"), "opening the pool")
	w.killer.arm("", 0)
	w.baseline = map[string]bool{}
	w.until(func() bool { return w.killer.quiet(calm) })
	for thing := range w.look().things {
		w.baseline[thing] = true
	}
}

func (w *world) makeClasses() {
	for class, change := range map[string]func(*storagev1.StorageClass){
		deleted:   func(*storagev1.StorageClass) {},
		consumer:  func(c *storagev1.StorageClass) { *c.VolumeBindingMode = storagev1.VolumeBindingWaitForFirstConsumer },
		archiving: func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"onDelete": "archive"} },
		retaining: func(c *storagev1.StorageClass) { *c.ReclaimPolicy = corev1.PersistentVolumeReclaimRetain },
	} {
		c := cluster.StorageClass(class, name, storagev1.VolumeBindingImmediate)
		change(c)
		_, err := w.client.StorageV1().StorageClasses().Create(w.ctx, c, metav1.CreateOptions{})
		w.must(err, "making a class")
	}
}

func (w *world) makeHost() {
	w.pool = hosttest.PoolMount(w, hosttest.Mkfs(w, "ext4", 96))
	dir := hosttest.Dir(w)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	var err error
	w.killer, err = newKiller(filepath.Join(dir, "killer"), scope{pool: w.pool, state: filepath.Join(dir, "state"), locks: state.PoolLocks})
	w.must(err, "listening for daemons")
	w.daemon, err = rig.New(rig.Options{Binary: "/proc/self/exe", Env: w.killer.env(w.opt.daemon), Dir: dir, Config: fmt.Sprintf(`provisioner = %q
node = %q
kubeconfig = %q
metrics = ""
[pool.crash]
path = %q
scope = %q
mode = "%04o"
owner = "%d"
group = "%d"
`, name, name, kubeconfig, w.pool, w.opt.scope, dirMode, dirUID, dirGID)})
	w.must(err, "configuring the daemon")
	manifests, code := w.daemon.Call("manifests")
	if code != 0 {
		w.Fatal(manifests)
	}
	w.must(w.cluster.Apply(w.ctx, []byte(manifests)), "applying the manifests")
	w.must(w.cluster.ServiceAccountKubeconfig(w.ctx, "hostpath-provisioner", "hostpath-provisioner", "", kubeconfig), "making its kubeconfig")
	if out, code := w.daemon.Call("prepare", name); code != 0 {
		w.Fatalf("prepare: %s", out)
	}
}

// soon is a context for one wait.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(w.ctx, w.opt.settle)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// start starts the daemon and waits until it is ready.
func (w *world) start() { w.must(w.daemon.Run(w.soon()), "starting the daemon") }

// alive says whether the daemon runs. It ends here by being killed only.
func (w *world) alive() bool {
	select {
	case <-w.daemon.Exited():
		return false
	default:
		return true
	}
}

// until asks again and again, and says whether it came true in time.
func (w *world) until(is func() bool) bool {
	for ctx := w.soon(); ctx.Err() == nil; time.Sleep(3 * time.Millisecond) {
		if is() {
			return true
		}
	}
	return false
}

// stop ends everything. Nobody needs its state any more.
func (w *world) stop() {
	if w.opt.keepLog != "" && w.daemon != nil {
		if err := os.WriteFile(w.opt.keepLog, []byte(w.daemon.Log()), 0o600); err != nil {
			fmt.Println("keeping the log:", err)
		}
	}
	var err error
	if w.daemon != nil && w.daemon.Exited() != nil && w.alive() {
		w.daemon.Kill()
	}
	if w.cluster != nil {
		err = errors.Join(err, w.cluster.Kill())
	}
	if err != nil {
		fmt.Println("stopping:", err)
	}
}
