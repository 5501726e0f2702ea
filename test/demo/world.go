package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// world is what the steps act on.
type world struct {
	begin     time.Time
	dir       string // on the host, for the control plane and the daemon
	cluster   *cluster.Cluster
	own       bool // the cluster is ours to stop
	client    kubernetes.Interface
	daemon    *rig.Daemon
	image     hosttest.Image
	mount     string // the pool's mount point
	node      string
	name      string // of the class, the provisioner and the namespace's prefix
	namespace string
	undo      []func(context.Context) error
}

// The methods that make world a hosttest.T.

func (w *world) Helper()                   {}
func (w *world) Name() string              { return "demo" }
func (w *world) Fatal(args ...any)         { panic(failure(fmt.Sprint(args...))) }
func (w *world) Fatalf(f string, a ...any) { panic(failure(fmt.Sprintf(f, a...))) }

// must ends the story unless err is nil.
func (w *world) must(err error, doing string) {
	if err != nil {
		w.Fatalf("%s: %v", doing, err)
	}
}

// step announces what comes; show prints what is there.
func (w *world) step(format string, args ...any) {
	fmt.Printf("\n[%5.1fs] %s\n", time.Since(w.begin).Seconds(), fmt.Sprintf(format, args...))
}

func (w *world) show(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		fmt.Print("    ", line)
	}
}

func (w *world) showf(format string, args ...any) { w.show(fmt.Sprintf(format, args...)) }

// entries are the visible names in a directory.
func (w *world) entries(dir string) []string {
	all, err := os.ReadDir(dir)
	w.must(err, "looking into "+dir)
	var names []string
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), ".") && e.Name() != "lost+found" {
			names = append(names, e.Name())
		}
	}
	return names
}

// call runs the daemon's binary as an operator would, shows what it says, and wants this exit code.
func (w *world) call(code int, args ...string) {
	fmt.Println("    $ hostpath-provisioner", strings.Join(args, " "))
	out, got := w.daemon.Call(args...)
	w.show(out)
	if got != code {
		w.Fatalf("hostpath-provisioner %s: exit code %d, want %d", strings.Join(args, " "), got, code)
	}
}

// post prints what helps to understand a failure.
func (w *world) post() {
	if w.daemon != nil {
		fmt.Printf("\nthe daemon's log:\n%s", w.daemon.Log())
	}
}

// close undoes what the namespace does not: objects, the control plane and the directory.
func (w *world) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all error
	for i := len(w.undo) - 1; i >= 0; i-- {
		all = errors.Join(all, w.undo[i](ctx))
	}
	if all != nil {
		fmt.Println("cleaning up:", all)
	}
	return all
}

func (w *world) later(undo func(context.Context) error) { w.undo = append(w.undo, undo) }

// keep lets the command end and leaves everything running until this process is told to stop.
func (w *world) keep(ctx context.Context) {
	fmt.Printf(`
KEEP=1: everything goes on running. To use it:
    export KUBECONFIG=%[1]s
    kubectl get pv,pvc -A                       # no kubectl? make .build/kubectl
    kubectl -n %[2]s get events
    nsenter -t %[3]d -m ls -la %[4]s
    nsenter -t %[3]d -m umount %[4]s            # and apply another claim of class %[5]s
    tail -f %[6]s
To end it and remove everything:
    kill %[3]d
`, w.kubeconfig(), w.namespace, os.Getpid(), w.mount, w.name, w.daemon.Path("log"))
	if w.own { // else it is in no namespace of its own, and stays in the foreground
		w.must(hosttest.Detach(), "going on in the background")
	}
	<-ctx.Done()
}

func (w *world) kubeconfig() string {
	if w.own {
		return w.cluster.Kubeconfig()
	}
	return os.Getenv("KUBECONFIG")
}

func (w *world) makeDir() {
	dir, err := os.MkdirTemp("", "hostpath-provisioner-demo-")
	w.must(err, "making a directory")
	w.dir = dir
	w.later(func(context.Context) error { return os.RemoveAll(dir) })
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}
