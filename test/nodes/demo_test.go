//go:build nodes

package nodes

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// demonstration is `KUBECONFIG=... make demo`, called on node-a beside the daemon that is there:
// its pods run on this kubelet and write, and it takes everything back.
func demonstration(ctx context.Context, w *environment) {
	w.unchanged(ctx, w.a, func() {
		out, err := w.demo(w.a).CombinedOutput()
		w.showf("%s", out)
		w.must(err, "running the demonstration")
		if count := strings.Count(string(out), "the pod ran and wrote"); count != 2 {
			w.Fatalf("%d pods are said to have written, want 2", count)
		}
	})
}

// demonstrationStopped is interrupted at its worst moment, with a volume in a pool that is not
// mounted.
func demonstrationStopped(ctx context.Context, w *environment) {
	w.unchanged(ctx, w.a, func() {
		cmd := w.demo(w.a)
		out, err := cmd.StdoutPipe()
		w.must(err, "making a pipe")
		w.must(cmd.Start(), "starting the demonstration")
		sent := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.showf("%s", lines.Text())
			if strings.Contains(lines.Text(), "Warning PoolClosed: ") && !sent {
				sent = true
				w.must(cmd.Process.Signal(syscall.SIGINT), "interrupting the demonstration")
			}
		}
		if err := cmd.Wait(); !sent || err == nil {
			w.Fatalf("interrupted: %t, it ended with %v", sent, err)
		}
	})
}

// demo is the demonstration on a host, from a copy of its program in the node's directory: the
// repository may lie below a directory that nodes have their own of.
func (w *environment) demo(h *host) *exec.Cmd {
	w.Helper()
	w.must(os.WriteFile(h.file("prove"), w.read(build(w, "prove")), 0o755), "copying the demonstration")
	cmd := h.command(h.file("prove"), "demo")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.cluster.Kubeconfig(), "NODE="+h.name, "IMAGE="+imageName,
		"HOSTPATH_PROVISIONER="+h.file(provisioner))
	return cmd
}

func (w *environment) read(file string) []byte {
	w.Helper()
	data, err := os.ReadFile(file)
	w.must(err, "reading "+file)
	return data
}

// unchanged checks that do leaves no object, mount or file of the demonstration.
func (w *environment) unchanged(ctx context.Context, h *host, do func()) {
	w.Helper()
	mounts, files, objects := w.mounts(h), w.listing(h, "/media"), w.objects(ctx)
	do()
	if now := w.mounts(h); !slices.Equal(now, mounts) {
		w.Fatalf("%s has the mounts\n%v\nbefore it had\n%v", h.name, now, mounts)
	}
	if now := w.listing(h, "/media"); !slices.Equal(now, files) {
		w.Fatalf("/media has %v, before it had %v", now, files)
	}
	if now := w.objects(ctx); !slices.Equal(now, objects) {
		w.Fatalf("the cluster has %v, before it had %v", now, objects)
	}
}

// objects are the classes and volumes, and the namespaces that are not being deleted.
func (w *environment) objects(ctx context.Context) []string {
	w.Helper()
	var names []string
	classes, err := w.client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	w.must(err, "listing classes")
	for _, o := range classes.Items {
		names = append(names, "class "+o.Name)
	}
	volumes, err := w.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	w.must(err, "listing volumes")
	for _, o := range volumes.Items {
		names = append(names, "volume "+o.Name)
	}
	namespaces, err := w.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	w.must(err, "listing namespaces")
	for _, o := range namespaces.Items {
		if o.DeletionTimestamp == nil {
			names = append(names, "namespace "+o.Name)
		}
	}
	return names
}

// mounts are the mount points on the host that are not kubelet's or the runtime's.
func (w *environment) mounts(h *host) []string {
	w.Helper()
	out, err := h.call("findmnt", "--raw", "--noheadings", "--output", "TARGET")
	w.must(err, "listing mounts")
	return slices.DeleteFunc(strings.Fields(out), func(target string) bool {
		return strings.HasPrefix(target, "/var/lib/kubelet/") || strings.HasPrefix(target, "/run/")
	})
}

// listing are the names in a directory of the host.
func (w *environment) listing(h *host, dir string) []string {
	w.Helper()
	entries, err := os.ReadDir(h.path(dir))
	w.must(err, "listing "+dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
