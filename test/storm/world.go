package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// world is what the storm hits.
type world struct {
	opt       options
	begin     time.Time
	cluster   *cluster.Cluster
	client    kubernetes.Interface
	namespace string
	scene     *scene
	daemon    *rig.Daemon
}

// failure ends the program: the storm could not be played.
type failure string

// The methods that make world a hosttest.T.

func (w *world) Helper()                   {}
func (w *world) Name() string              { return "storm" }
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

const (
	name = "storm" // of the pool, the class, the provisioner and the node
	// patience is for one wait: claims that failed are tried again after at most 30 s.
	patience = 90 * time.Second
)

// build makes everything up to a running daemon with an open pool.
func (w *world) build(ctx context.Context) {
	w.say("starting the control plane")
	c, err := cluster.Start(ctx, cluster.Options{Dir: hosttest.Dir(w)})
	w.must(err, "starting the control plane")
	w.cluster = c
	config := c.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	w.client, err = kubernetes.NewForConfig(config)
	w.must(err, "making a client")
	w.must(c.AddNode(ctx, name, nil), "adding a node")
	w.namespace, err = c.NewNamespace(ctx, name)
	w.must(err, "making a namespace")
	class := cluster.StorageClass(name, name, storagev1.VolumeBindingImmediate)
	_, err = w.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	w.must(err, "making a class")
	w.startDaemon(ctx)
}

func (w *world) startDaemon(ctx context.Context) {
	w.scene = newScene(w)
	dir := hosttest.Dir(w)
	kubeconfig := dir + "/kubeconfig"
	var err error
	w.daemon, err = rig.New(rig.Options{Binary: w.opt.daemon, Dir: dir, Config: fmt.Sprintf(`provisioner = %q
node = %q
kubeconfig = %q
metrics = ""
[pool.storm]
path = %q
immutable = "off"
`, name, name, kubeconfig, w.scene.mount)})
	w.must(err, "configuring the daemon")
	manifests, code := w.daemon.Call("manifests", "--no-classes") // the storm has its own
	if code != 0 {
		w.Fatal(manifests)
	}
	w.must(w.cluster.Apply(ctx, []byte(manifests)), "applying the manifests")
	w.must(w.cluster.ServiceAccountKubeconfig(ctx, "hostpath-provisioner", "hostpath-provisioner", "", kubeconfig), "making its kubeconfig")
	if out, code := w.daemon.Call("prepare", "storm"); code != 0 {
		w.Fatalf("prepare: %s", out)
	}
	w.scene.bait(w)
	w.say("starting the daemon, with nothing immutable and bait in every wrong place")
	w.must(w.daemon.Run(ctx), "starting the daemon")
	w.waitStatus(ctx, "1 of 1 pool open")
}

// waitStatus waits for words in the daemon's STATUS.
func (w *world) waitStatus(ctx context.Context, words string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w.must(w.daemon.WaitStatus(ctx, words), "listening to the daemon")
}

// stop ends the daemon, in good order, and the control plane.
func (w *world) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	if w.daemon != nil {
		_, code, stopErr := w.daemon.Stop(ctx)
		if err = stopErr; err == nil && code != 0 {
			err = fmt.Errorf("the daemon ended with exit code %d", code)
		}
	}
	if w.cluster != nil {
		err = errors.Join(err, w.cluster.Kill()) // nobody needs its state any more
	}
	return err
}

// alive says whether the daemon runs.
func (w *world) alive() bool {
	select {
	case <-w.daemon.Exited():
		return false
	default:
		return true
	}
}

// reasons counts how often the daemon's log names each reason.
func (w *world) reasons() map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(w.daemon.Log()) {
		if _, rest, found := strings.Cut(line, " reason="); found {
			reason, _, _ := strings.Cut(rest, " ")
			count[strings.TrimSpace(reason)]++
		}
	}
	return count
}

func (w *world) keepLog() {
	if w.opt.keepLog == "" || w.daemon == nil {
		return
	}
	if err := os.WriteFile(w.opt.keepLog, []byte(w.daemon.Log()), 0o600); err != nil {
		fmt.Println("keeping the log:", err)
	}
}
