// Package demo shows the daemon's main job, step by step, on a real API server and a real
// filesystem, and fails unless every step really held.
//
// It runs in a mount namespace of its own, so that what it mounts is gone when it ends. On the
// cluster that KUBECONFIG names, if it names one, it makes objects with its own name, and mounts on
// the host, because a kubelet would not see what is mounted in another namespace; it removes both.
package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Main is the demonstration, and returns the exit code.
func Main() int {
	if os.Getenv("KUBECONFIG") != "" {
		return run()
	}
	return hosttest.Isolate(run)
}

// limit is for the whole demonstration; a step that waits longer has failed.
const limit = 5 * time.Minute

func run() int {
	ctx, stop := harness.Interruptible()
	defer stop()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return harness.Run(context.Background(), "demo", func(_ context.Context, p *harness.Program) {
		e := &environment{Program: p}
		p.OnFatal(e.post)
		e.tell(limited)
		fmt.Printf("\nevery step held, in %s\n", p.Elapsed().Round(time.Second))
		if os.Getenv("KEEP") == "1" {
			e.keep(ctx)
		}
	})
}

// environment is what the steps act on.
type environment struct {
	*harness.Program
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
}

// step announces what comes; show prints what is there.
func (e *environment) step(format string, args ...any) {
	fmt.Printf("\n[%5.1fs] %s\n", e.Elapsed().Seconds(), fmt.Sprintf(format, args...))
}

func (e *environment) show(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n") + "\n") {
		fmt.Print("    ", line)
	}
}

func (e *environment) showf(format string, args ...any) { e.show(fmt.Sprintf(format, args...)) }

// entries are the visible names in a directory.
func (e *environment) entries(dir string) []string {
	all := harness.Need(os.ReadDir(dir))(e, "looking into "+dir)
	var names []string
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), ".") && e.Name() != "lost+found" {
			names = append(names, e.Name())
		}
	}
	return names
}

// call runs the daemon's binary as an operator would, shows what it says, and wants this exit code.
func (e *environment) call(code int, args ...string) {
	fmt.Println("    $ hostpath-provisioner", strings.Join(args, " "))
	out, got := e.daemon.Call(args...)
	e.show(out)
	if got != code {
		e.Fatalf("hostpath-provisioner %s: exit code %d, want %d", strings.Join(args, " "), got, code)
	}
}

// post prints what helps to understand a failure.
func (e *environment) post() {
	if e.daemon != nil {
		fmt.Printf("\nthe daemon's log:\n%s", e.daemon.Log())
	}
}

// undo calls a function with a minute's time when the program ends: for what the namespace does not
// take back.
func (e *environment) undo(f func(context.Context) error) {
	e.Cleanup(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return f(ctx)
	})
}

// keep lets the command end and leaves everything running until this process is told to stop.
func (e *environment) keep(ctx context.Context) {
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
`, e.kubeconfig(), e.namespace, os.Getpid(), e.mount, e.name, e.daemon.Path("log"))
	if e.own { // else it is in no namespace of its own, and stays in the foreground
		e.Must(hosttest.Detach(), "going on in the background")
	}
	<-ctx.Done()
}

func (e *environment) kubeconfig() string {
	if e.own {
		return e.cluster.Kubeconfig()
	}
	return os.Getenv("KUBECONFIG")
}

func (e *environment) makeDir() {
	dir := harness.Need(os.MkdirTemp("", "hostpath-provisioner-demo-"))(e, "making a directory")
	e.dir = dir
	e.undo(func(context.Context) error { return os.RemoveAll(dir) })
}

func (e *environment) path(elem ...string) string {
	return filepath.Join(append([]string{e.dir}, elem...)...)
}
