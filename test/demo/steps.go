package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// tell is the whole story.
func (w *world) tell(ctx context.Context) {
	w.makeDir()
	w.name = "hostpath-demo-" + random()
	w.startCluster(ctx)
	w.makePool()
	w.startDaemon(ctx)
	w.applyClass(ctx)
	first := w.claimBecomesVolume(ctx)
	second := w.refusedWhileUnmounted(ctx)
	w.goesThroughWhenMounted(ctx, second)
	w.deleteVolume(ctx, first)
}

// startCluster runs a control plane, or uses the one that KUBECONFIG names.
func (w *world) startCluster(ctx context.Context) {
	if file := os.Getenv("KUBECONFIG"); file != "" {
		w.useCluster(ctx, file)
		return
	}
	w.step("starting etcd, kube-apiserver, kube-controller-manager and kube-scheduler")
	c, err := cluster.Start(ctx, cluster.Options{Dir: w.path("cluster"), Stdout: os.Stdout})
	w.must(err, "starting the control plane")
	w.cluster, w.client, w.own, w.node = c, c.Client(), true, "node-a"
	w.later(func(context.Context) error { return c.Stop() })
	w.must(c.AddNode(ctx, w.node, map[string]string{corev1.LabelHostname: "host-a"}), "adding a node")
	w.showf("node %s, whose label kubernetes.io/hostname is host-a", w.node)
}

func (w *world) useCluster(ctx context.Context, file string) {
	w.step("using the cluster of KUBECONFIG=%s", file)
	config, err := clientcmd.BuildConfigFromFlags("", file)
	w.must(err, "reading "+file)
	w.cluster, err = cluster.Attach(config)
	w.must(err, "making a client")
	w.client = w.cluster.Client()
	w.node = os.Getenv("NODE")
	if w.node == "" {
		w.node, err = os.Hostname()
		w.must(err, "reading the host's name")
	}
	_, err = w.client.CoreV1().Nodes().Get(ctx, w.node, metav1.GetOptions{})
	w.must(err, fmt.Sprintf("looking for node %q (NODE=... names another one)", w.node))
	w.showf("node %s", w.node)
}

// makePool does what an operator does on a host: prepare, mount, prepare, check.
func (w *world) makePool() {
	w.step("making a pool: an ext4 filesystem on a loop device, over an immutable mount point")
	w.image = hosttest.Mkfs(w, "ext4", 256)
	w.mount = filepath.Join(hosttest.Dir(w), "fast")
	if !w.own {
		w.later(func(context.Context) error { return w.clearHost() })
	}
	var err error
	w.daemon, err = rig.New(rig.Options{Dir: w.path("daemon"), Config: fmt.Sprintf(`provisioner = %q
node        = %q
kubeconfig  = %q
metrics     = ""
[pool.fast]
path        = %q
filesystem  = "ext4"
`, w.name, w.node, w.path("daemon.kubeconfig"), w.mount)})
	w.must(err, "configuring the daemon")
	w.call(0, "prepare", "fast")
	w.showf("$ mount -o loop,nosuid,nodev fast.img %s", w.mount)
	w.image.Mount(w, w.mount, "nosuid", "nodev")
	w.call(0, "prepare", "fast")
	w.call(0, "check")
}

func (w *world) startDaemon(ctx context.Context) {
	if w.own {
		w.step("starting the daemon with the rights that `hostpath-provisioner manifests` gives it")
		manifests, code := w.daemon.Call("manifests", "--no-classes") // the demonstration makes its own, of the same name
		if code != 0 {
			w.Fatal(manifests)
		}
		w.must(w.cluster.Apply(ctx, []byte(manifests)), "applying the manifests")
		w.must(w.cluster.ServiceAccountKubeconfig(ctx, "hostpath-provisioner", "hostpath-provisioner", w.node, w.path("daemon.kubeconfig")), "making its kubeconfig")
	} else {
		w.step("starting the daemon with the rights of KUBECONFIG")
		data, err := os.ReadFile(os.Getenv("KUBECONFIG"))
		w.must(err, "reading KUBECONFIG")
		w.must(os.WriteFile(w.path("daemon.kubeconfig"), data, 0o600), "copying the kubeconfig")
	}
	w.must(w.daemon.Run(ctx), "starting the daemon")
	w.later(func(ctx context.Context) error { _, _, err := w.daemon.Stop(ctx); return err })
	w.showf("READY=1, STATUS=%s", w.daemon.Status())
}

func (w *world) applyClass(ctx context.Context) {
	class := cluster.StorageClass(w.name, w.name, storagev1.VolumeBindingWaitForFirstConsumer)
	class.Parameters = map[string]string{"pool": "fast"}
	_, err := w.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	w.must(err, "creating a storage class")
	w.later(func(ctx context.Context) error {
		return w.client.StorageV1().StorageClasses().Delete(ctx, w.name, metav1.DeleteOptions{})
	})
	w.namespace, err = w.cluster.NewNamespace(ctx, w.name+"-")
	w.must(err, "creating a namespace")
	w.later(func(ctx context.Context) error {
		return w.client.CoreV1().Namespaces().Delete(ctx, w.namespace, metav1.DeleteOptions{})
	})
	if !w.own {
		w.later(w.removeAll)
	}
}

// apply makes a claim and a pod that uses it.
func (w *world) apply(ctx context.Context, name, size string) *corev1.PersistentVolumeClaim {
	claim, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Create(ctx, cluster.Claim(w.namespace, name, w.name, size), metav1.CreateOptions{})
	w.must(err, "creating a claim")
	pod := cluster.Pod(w.namespace, name, name)
	if !w.own {
		pod.Spec.NodeSelector = nil
		pod.Spec.Affinity = onNode(w.node)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		c := &pod.Spec.Containers[0]
		c.Image, c.ImagePullPolicy = cmp.Or(os.Getenv("IMAGE"), "busybox"), corev1.PullIfNotPresent
		c.Command = []string{"sh", "-c", fmt.Sprintf("echo %s > /volumes/%s/%s", name, name, letter)}
	}
	_, err = w.client.CoreV1().Pods(w.namespace).Create(ctx, pod, metav1.CreateOptions{})
	w.must(err, "creating a pod")
	w.showf("applied claim %s (%s, class %s) and a pod that uses it", name, size, w.name)
	return claim
}

// remove deletes a pod and its claim and waits until the volume object is gone.
func (w *world) remove(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	w.must(w.client.CoreV1().Pods(w.namespace).Delete(ctx, claim.Name, now), "deleting the pod")
	w.must(w.client.CoreV1().PersistentVolumeClaims(w.namespace).Delete(ctx, claim.Name, metav1.DeleteOptions{}), "deleting the claim")
	w.must(w.cluster.WaitVolumeGone(ctx, "pvc-"+string(claim.UID)), "waiting for the volume to go")
}

func (w *world) claimBecomesVolume(ctx context.Context) *corev1.PersistentVolumeClaim {
	w.step("a claim becomes a volume")
	claim := w.apply(ctx, "first", "64Mi")
	w.bound(ctx, claim)
	return claim
}

// bound waits for a claim to be Bound and shows it, its volume and its directory.
func (w *world) bound(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	now, err := w.cluster.WaitClaimBound(ctx, w.namespace, claim.Name)
	w.must(err, "waiting for the claim")
	pv, err := w.client.CoreV1().PersistentVolumes().Get(ctx, now.Spec.VolumeName, metav1.GetOptions{})
	w.must(err, "reading the volume")
	source := pv.Spec.HostPath
	if source == nil || source.Type == nil || *source.Type != corev1.HostPathDirectory {
		w.Fatalf("volume %s is not a hostPath of type Directory: %+v", pv.Name, pv.Spec.PersistentVolumeSource)
	}
	terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	w.showf("claim   %s: %s", now.Name, now.Status.Phase)
	w.showf("volume  %s: %s, hostPath %s (type %s), only where %s is %v", pv.Name, pv.Status.Phase, source.Path, *source.Type, terms.Key, terms.Values)
	info, err := os.Stat(source.Path)
	w.must(err, "looking at the directory")
	w.showf("on disk %s %s", info.Mode(), source.Path)
	pod, err := w.cluster.WaitPodScheduled(ctx, w.namespace, claim.Name)
	w.must(err, "waiting for the pod to be scheduled")
	w.showf("pod     %s: on node %s", pod.Name, pod.Spec.NodeName)
	w.ran(ctx, pod.Name, source.Path)
}

// letter is the file that a pod writes into its volume.
const letter = "hello"

// ran waits for the pod to have written into its volume, and reads that on the host. Without a kubelet there is nothing
// to wait for.
func (w *world) ran(ctx context.Context, name, directory string) {
	node, err := w.client.CoreV1().Nodes().Get(ctx, w.node, metav1.GetOptions{})
	w.must(err, "reading the node")
	ready := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	if w.own || !slices.ContainsFunc(node.Status.Conditions, ready) {
		w.showf("        no kubelet is here: the pod does not run, and its volume stays empty")
		return
	}
	for {
		pod, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, name, metav1.GetOptions{})
		w.must(err, "waiting for the pod to run")
		if pod.Status.Phase == corev1.PodSucceeded {
			break
		}
		if pod.Status.Phase == corev1.PodFailed {
			w.Fatalf("the pod failed: %s %s %+v", pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses)
		}
		time.Sleep(200 * time.Millisecond)
	}
	text, err := os.ReadFile(filepath.Join(directory, letter))
	w.must(err, "reading what the pod wrote")
	if string(text) != name+"\n" {
		w.Fatalf("the pod wrote %q, and the host reads %q", name, text)
	}
	w.showf("data    the pod ran and wrote %s: %s", filepath.Join(directory, letter), strings.TrimSpace(string(text)))
}

// clearHost takes away what a namespace of its own would have taken with it.
func (w *world) clearHost() error {
	unix.Unmount(w.mount, unix.MNT_DETACH) // it may not be mounted
	if _, err := os.Stat(w.mount); err == nil {
		hosttest.SetImmutable(w, w.mount, false)
	}
	return errors.Join(os.RemoveAll(filepath.Dir(w.mount)), os.RemoveAll(filepath.Dir(w.image.File)))
}

func (w *world) refusedWhileUnmounted(ctx context.Context) *corev1.PersistentVolumeClaim {
	w.step("the pool is unmounted: the next claim is refused, and says why")
	hosttest.Unmount(w, w.mount)
	w.must(w.daemon.WaitStatus(ctx, "is closed"), "waiting for the gate to close")
	w.showf("STATUS=%s", w.daemon.Status())
	claim := w.apply(ctx, "second", "32Mi")
	event, err := w.cluster.WaitEvent(ctx, claim, "PoolClosed")
	w.must(err, "waiting for the event")
	w.showf("event   %s %s: %s", event.Type, event.Reason, event.Message)
	now, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	w.must(err, "reading the claim")
	if now.Status.Phase != corev1.ClaimPending {
		w.Fatalf("the claim is %s, want Pending", now.Status.Phase)
	}
	if all, err := os.ReadDir(w.mount); err != nil || len(all) != 0 {
		w.Fatalf("the bare mount point is not empty: %v %v", all, err)
	}
	w.showf("the bare mount point %s is still empty", w.mount)
	return claim
}

func (w *world) goesThroughWhenMounted(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	w.step("the pool is mounted again: the same claim goes through")
	w.image.Mount(w, w.mount, "nosuid", "nodev")
	w.bound(ctx, claim)
	if got := w.entries(w.mount); len(got) != 2 {
		w.Fatalf("the pool has %v, want the two volumes", got)
	}
}

func (w *world) deleteVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	w.step("a claim is deleted: its volume goes, and its directory")
	directory := "pvc-" + string(claim.UID)
	w.remove(ctx, claim)
	got := w.entries(w.mount)
	if slices.Contains(got, directory) || len(got) != 1 {
		w.Fatalf("the pool has %v, want the other volume alone", got)
	}
	w.showf("gone: volume %s and %s", directory, filepath.Join(w.mount, directory))
	w.showf("kept: %s", filepath.Join(w.mount, got[0]))
	w.call(0, "volumes")
}

// removeAll removes the claims that are left while the daemon still runs, wherever the story ended: a volume
// whose pool is not mounted would stay. A cluster of its own goes as a whole.
func (w *world) removeAll(ctx context.Context) error {
	if exec.Command("mountpoint", "--quiet", w.mount).Run() != nil {
		if out, err := exec.Command("mount", "-o", "loop,nosuid,nodev", w.image.File, w.mount).CombinedOutput(); err != nil {
			return fmt.Errorf("mount %s: %w: %s", w.mount, err, out)
		}
	}
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := w.client.CoreV1().Pods(w.namespace).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return err
	}
	claims, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range claims.Items {
		if err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Delete(ctx, c.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	for _, c := range claims.Items {
		if err := w.cluster.WaitVolumeGone(ctx, "pvc-"+string(c.UID)); err != nil {
			return err
		}
	}
	return nil
}

func onNode(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}}}},
	}}}
}

func random() string {
	b := make([]byte, 3)
	rand.Read(b)
	return hex.EncodeToString(b)
}
