//go:build nodes

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

const (
	poolDir      = "/srv/fast" // the same on both nodes, and another filesystem
	provisioner  = "hostpath-provisioner"
	selectedNode = "volume.kubernetes.io/selected-node"
)

// storage is a pool, and what it is on.
type storage struct {
	name, path string
	fs         string
	mib        int
	mkfs       []string // more arguments of mkfs
	keys       string   // more keys of the pool's table
}

func (s storage) config() string {
	return fmt.Sprintf("[pool.%s]\npath = %q\nfilesystem = %q\n%s", s.name, s.path, s.fs, s.keys)
}

// install is installOn with an ext4 alone, which mkfs.ext4 makes with these arguments.
func (w *environment) install(ctx context.Context, h *host, mib int, mkfs ...string) {
	w.installOn(ctx, h, storage{name: "fast", path: poolDir, fs: "ext4", mib: mib, mkfs: mkfs})
}

// installOn puts the daemon on a node, as an operator would: configuration, prepare, mount,
// prepare, check. The first pool is the one at poolDir. Its node name is not configured: it has to
// find the one that kubelet has.
func (w *environment) installOn(ctx context.Context, h *host, pools ...storage) {
	dir := h.file("daemon")
	w.must(os.Mkdir(dir, 0o700), "making the daemon's directory")
	wrapper, err := h.wrap()
	w.must(err, "putting the daemon on "+h.name)
	config := fmt.Sprintf("kubeconfig = %q\nmetrics = \"\"\n", h.file("daemon.kubeconfig"))
	for _, s := range pools {
		config += s.config()
	}
	h.daemon, err = rig.New(rig.Options{Binary: wrapper, Dir: dir, Config: config})
	w.must(err, "configuring the daemon")
	for n, s := range pools {
		image := hosttest.Mkfs(w, s.fs, s.mib, s.mkfs...)
		if n == 0 {
			h.image = image
		}
		w.onHost(h, 0, "prepare", s.name)
		w.mountAt(h, image, s.path)
		w.onHost(h, 0, "prepare", s.name)
	}
	w.onHost(h, 0, "check")
	w.must(w.cluster.ServiceAccountKubeconfig(ctx, provisioner, provisioner, h.name, h.file("daemon.kubeconfig")), "making the daemon's kubeconfig")
	w.must(h.daemon.Run(ctx), "starting the daemon")
	w.showf("%s: %s", h.name, h.daemon.Status())
}

// wrap makes a program that runs the daemon's binary in the node's namespaces, with the process id
// that it was started with.
func (n *node) wrap() (string, error) {
	script := fmt.Sprintf("#!/bin/sh\nexec nsenter %s %s \"$@\"\n", strings.Join(n.enter(), " "), n.file(provisioner))
	wrapper := n.file(provisioner + ".sh")
	return wrapper, os.WriteFile(wrapper, []byte(script), 0o755)
}

// onHost runs a subcommand of the daemon's binary on the node and wants this exit code.
func (w *environment) onHost(h *host, code int, args ...string) {
	w.Helper()
	out, got := h.daemon.Call(args...)
	w.showf("%s# %s %s\n%s", h.name, provisioner, strings.Join(args, " "), out)
	if got != code {
		w.Fatalf("%s: %s: exit code %d, want %d", h.name, strings.Join(args, " "), got, code)
	}
}

func (w *environment) mount(h *host) { w.Helper(); w.mountAt(h, h.image, poolDir) }

func (w *environment) mountAt(h *host, image hosttest.Image, dir string) {
	w.Helper()
	_, err := h.call("mount", "-o", "loop", image.File, dir)
	w.must(err, "mounting the pool")
}

// unmount is plain: a daemon that held the pool busy would fail it.
func (w *environment) unmount(ctx context.Context, h *host) {
	w.Helper()
	_, err := h.call("umount", poolDir)
	w.must(err, "unmounting the pool")
	begin := time.Now()
	w.must(h.daemon.WaitStatus(ctx, "is closed"), "waiting for the gate to close")
	w.showf("%s, after %s: %s", h.name, time.Since(begin).Round(time.Millisecond), h.daemon.Status())
}

// bare checks that nothing was written to the directory under the pool's mount.
func (w *environment) bare(h *host) {
	w.Helper()
	entries, err := os.ReadDir(h.path(poolDir))
	if err != nil || len(entries) != 0 {
		w.Fatalf("the bare mount point on %s has %v %v, want nothing", h.name, entries, err)
	}
}

// class makes a storage class, with parameters as pairs.
func (w *environment) class(ctx context.Context, name string, mode storagev1.VolumeBindingMode, params ...string) {
	w.Helper()
	class := cluster.StorageClass(name, provisioner, mode)
	class.Parameters, class.AllowVolumeExpansion = map[string]string{}, new(bool)
	*class.AllowVolumeExpansion = true
	for i := 0; i < len(params); i += 2 {
		class.Parameters[params[i]] = params[i+1]
	}
	_, err := w.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	w.must(err, "creating a class")
}

// claim makes a claim, of 8Mi where its size is not changed.
func (w *environment) claim(
	ctx context.Context, name, class string, change ...func(*corev1.PersistentVolumeClaim),
) *corev1.PersistentVolumeClaim {
	w.Helper()
	claim := cluster.Claim(w.namespace, name, class, "8Mi")
	for _, f := range change {
		f(claim)
	}
	claims := w.client.CoreV1().PersistentVolumeClaims(w.namespace)
	claim, err := claims.Create(ctx, claim, metav1.CreateOptions{})
	w.must(err, "creating a claim")
	return claim
}

// annotated gives a claim an annotation.
func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{key: value} }
}

// manifests applies what the program prints with these flags.
func (w *environment) manifests(ctx context.Context, flags ...string) {
	w.Helper()
	text, err := w.a.call(append([]string{w.a.file(provisioner), "manifests"}, flags...)...)
	w.must(err, "printing the manifests")
	w.must(w.cluster.Apply(ctx, []byte(text)), "applying the manifests")
}

// configure writes the daemon's configuration anew, changed.
func (w *environment) configure(h *host, change func(string) string) {
	w.Helper()
	config, err := os.ReadFile(h.daemon.Path("etc", "config.toml"))
	w.must(err, "reading the configuration")
	w.must(h.daemon.Configure(change(string(config))), "configuring the daemon")
}

// stop has the daemon end, which it has to do without an error.
func (w *environment) stop(ctx context.Context, h *host) {
	w.Helper()
	if _, code, err := h.daemon.Stop(ctx); err != nil || code != 0 {
		w.Fatalf("stopping the daemon: %d, %v", code, err)
	}
}

func sized(size string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	}
}

// bound is the claim's volume, when there is one.
func (w *environment) bound(ctx context.Context, name string) *corev1.PersistentVolume {
	w.Helper()
	claim, err := w.cluster.WaitClaimBound(ctx, w.namespace, name)
	w.must(err, "waiting for claim "+name)
	pv, err := w.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	w.must(err, "reading the volume of "+name)
	return pv
}

// only checks that the claim's volume is a directory on this host and on no other, and that its
// user's file in it is that user's.
func (w *environment) only(ctx context.Context, claim string, h *host) fs.FileInfo {
	w.Helper()
	pv := w.bound(ctx, claim)
	for _, other := range []*host{w.a, w.b} {
		info, err := os.Lstat(other.path(poolDir, pv.Name))
		if other != h && !errors.Is(err, fs.ErrNotExist) {
			w.Fatalf("the volume of %s is on %s too: %v %v", claim, other.name, info, err)
		}
	}
	info, err := os.Lstat(h.path(poolDir, pv.Name))
	w.must(err, "looking for the volume of "+claim+" on "+h.name)
	file, err := os.Lstat(h.path(poolDir, pv.Name, "pods"))
	w.must(err, "looking for what the pod wrote")
	if owner := file.Sys().(*syscall.Stat_t).Uid; owner != user {
		w.Fatalf("the file in the volume of %s belongs to user %d, want %d", claim, owner, user)
	}
	source := "local"
	if path := pv.Spec.HostPath; path != nil {
		source = "hostPath"
		if path.Type != nil {
			source += " of type " + string(*path.Type)
		}
	} else if pv.Spec.CSI != nil {
		source = "csi"
	}
	w.showf("claim %s: %s %s/%s, %s, on %s only", claim, source, poolDir, pv.Name, info.Mode(), h.name)
	return info
}

// tree is everything in a host's pool, a line each, with owners, modes and contents.
func (w *environment) tree(h *host) string {
	w.Helper()
	return w.treeAt(h, poolDir)
}

// treeAt is the same of any directory.
func (w *environment) treeAt(h *host, dir string) string {
	w.Helper()
	const list = `cd "$1"
find . -name lost+found -prune -o -printf '%M %U:%G %p\n' | sort
find . -type f -exec sha256sum {} + | sort`
	out, err := h.call("sh", "-euc", list, "sh", dir)
	w.must(err, "listing "+dir+" of "+h.name)
	return out
}

// volumes are the names in a host's pool that are not the daemon's own.
func (w *environment) volumes(h *host) []string { w.Helper(); return w.volumesAt(h, poolDir) }

func (w *environment) volumesAt(h *host, pool string) []string {
	w.Helper()
	entries, err := os.ReadDir(h.path(pool))
	w.must(err, "listing the pool of "+h.name)
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && e.Name() != "lost+found" {
			names = append(names, e.Name())
		}
	}
	return names
}

// purged waits until nothing is left in a host's pool. The purge goes on behind the deletion, and
// nothing tells of its end.
func (w *environment) purged(ctx context.Context, h *host) { w.Helper(); w.purgedAt(ctx, h, poolDir) }

// purgedAt is purged for a pool at another path.
func (w *environment) purgedAt(ctx context.Context, h *host, pool string) {
	w.Helper()
	err := eventually(ctx, "the purge on "+h.name, func() error {
		for _, dir := range []string{"trash", "staging", "volumes"} {
			entries, err := os.ReadDir(h.path(pool, ".hostpath-provisioner", dir))
			if err != nil || len(entries) > 0 {
				return fmt.Errorf("%s: %v %w", dir, entries, err)
			}
		}
		if left := w.volumesAt(h, pool); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	w.must(err, "purging")
}

// deleteClaim deletes the pods, then the claim, and waits until its volume object is gone. It
// returns the volume's name.
func (w *environment) deleteClaim(ctx context.Context, claim string, pods ...string) string {
	w.Helper()
	pv := w.bound(ctx, claim).Name
	for _, pod := range pods {
		w.deletePod(ctx, pod)
	}
	w.must(w.client.CoreV1().PersistentVolumeClaims(w.namespace).Delete(ctx, claim, metav1.DeleteOptions{}), "deleting claim "+claim)
	w.must(w.cluster.WaitVolumeGone(ctx, pv), "waiting for the volume of "+claim+" to go")
	return pv
}

// event waits for an event on the object and shows it.
func (w *environment) event(ctx context.Context, object cluster.Object, reason string) *corev1.Event {
	w.Helper()
	event, err := w.cluster.WaitEvent(ctx, object, reason)
	w.must(err, "waiting for an event")
	w.showf("%s %s: %s %s: %s", event.InvolvedObject.Kind, object.GetName(), event.Type, event.Reason, event.Message)
	return event
}

// told waits for an event on the object, which has to say this.
func (w *environment) told(ctx context.Context, object cluster.Object, reason, says string) {
	w.Helper()
	if event := w.event(ctx, object, reason); !strings.Contains(event.Message, says) {
		w.Fatalf("the event does not say %q", says)
	}
}
