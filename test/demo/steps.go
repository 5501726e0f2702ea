package demo

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

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// tell is the whole story.
func (e *environment) tell(ctx context.Context) {
	e.makeDir()
	e.name = "hostpath-demo-" + random()
	e.startCluster(ctx)
	e.makePool()
	e.startDaemon(ctx)
	e.applyClass(ctx)
	first := e.claimBecomesVolume(ctx)
	second := e.refusedWhileUnmounted(ctx)
	e.goesThroughWhenMounted(ctx, second)
	e.deleteVolume(ctx, first)
}

// startCluster runs a control plane, or uses the one that KUBECONFIG names.
func (e *environment) startCluster(ctx context.Context) {
	if file := os.Getenv("KUBECONFIG"); file != "" {
		e.useCluster(ctx, file)
		return
	}
	e.step("starting etcd, kube-apiserver, kube-controller-manager and kube-scheduler")
	c, err := cluster.Start(ctx, cluster.Options{Dir: e.path("cluster"), Stdout: os.Stdout})
	e.Must(err, "starting the control plane")
	e.cluster, e.client, e.own, e.node = c, c.Client(), true, "node-a"
	e.undo(func(context.Context) error { return c.Stop() })
	e.Must(c.AddNode(ctx, e.node, map[string]string{corev1.LabelHostname: "host-a"}), "adding a node")
	e.showf("node %s, whose label kubernetes.io/hostname is host-a", e.node)
}

func (e *environment) useCluster(ctx context.Context, file string) {
	e.step("using the cluster of KUBECONFIG=%s", file)
	config := harness.Need(clientcmd.BuildConfigFromFlags("", file))(e, "reading "+file)
	e.cluster = harness.Need(cluster.Attach(config))(e, "making a client")
	e.client = e.cluster.Client()
	e.node = os.Getenv("NODE")
	if e.node == "" {
		e.node = harness.Need(os.Hostname())(e, "reading the host's name")
	}
	_, err := e.client.CoreV1().Nodes().Get(ctx, e.node, metav1.GetOptions{})
	e.Must(err, fmt.Sprintf("looking for node %q (NODE=... names another one)", e.node))
	e.showf("node %s", e.node)
}

// makePool does what an operator does on a host: prepare, mount, prepare, check.
func (e *environment) makePool() {
	e.step("making a pool: an ext4 filesystem on a loop device, over an immutable mount point")
	e.image = hosttest.Mkfs(e, "ext4", 256)
	e.mount = filepath.Join(hosttest.Dir(e), "fast")
	if !e.own {
		e.undo(func(context.Context) error { return e.clearHost() })
	}
	var err error
	e.daemon, err = rig.New(rig.Options{Dir: e.path("daemon"), Config: fmt.Sprintf(`provisioner = %q
node        = %q
kubeconfig  = %q
metrics     = ""

[pool.fast]
path        = %q
filesystem  = "ext4"
`, e.name, e.node, e.path("daemon.kubeconfig"), e.mount)})
	e.Must(err, "configuring the daemon")
	e.call(0, "prepare", "fast")
	e.showf("$ mount -o loop,nosuid,nodev fast.img %s", e.mount)
	e.image.Mount(e, e.mount, "nosuid", "nodev")
	e.call(0, "prepare", "fast")
	e.call(0, "check")
}

func (e *environment) startDaemon(ctx context.Context) {
	if e.own {
		e.step("starting the daemon with the rights that `hostpath-provisioner manifests` gives it")
		manifests, code := e.daemon.Call("manifests", "--no-classes") // the demonstration makes its own, of the same name
		if code != 0 {
			e.Fatal(manifests)
		}
		e.Must(e.cluster.Apply(ctx, []byte(manifests)), "applying the manifests")
		e.Must(e.cluster.ServiceAccountKubeconfig(ctx, "hostpath-provisioner", "hostpath-provisioner", e.node, e.path("daemon.kubeconfig")), "making its kubeconfig")
	} else {
		e.step("starting the daemon with the rights of KUBECONFIG")
		data := harness.Need(os.ReadFile(os.Getenv("KUBECONFIG")))(e, "reading KUBECONFIG")
		e.Must(os.WriteFile(e.path("daemon.kubeconfig"), data, 0o600), "copying the kubeconfig")
	}
	e.Must(e.daemon.Run(ctx), "starting the daemon")
	e.undo(func(ctx context.Context) error { _, _, err := e.daemon.Stop(ctx); return err })
	e.showf("READY=1, STATUS=%s", e.daemon.Status())
}

func (e *environment) applyClass(ctx context.Context) {
	class := cluster.StorageClass(e.name, e.name, storagev1.VolumeBindingWaitForFirstConsumer)
	class.Parameters = map[string]string{"pool": "fast"}
	_, err := e.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	e.Must(err, "creating a storage class")
	e.undo(func(ctx context.Context) error {
		return e.client.StorageV1().StorageClasses().Delete(ctx, e.name, metav1.DeleteOptions{})
	})
	e.namespace = harness.Need(e.cluster.NewNamespace(ctx, e.name+"-"))(e, "creating a namespace")
	e.undo(func(ctx context.Context) error {
		return e.client.CoreV1().Namespaces().Delete(ctx, e.namespace, metav1.DeleteOptions{})
	})
	if !e.own {
		e.undo(e.removeAll)
	}
}

// apply makes a claim and a pod that uses it.
func (e *environment) apply(ctx context.Context, name, size string) *corev1.PersistentVolumeClaim {
	claim, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Create(ctx, cluster.Claim(e.namespace, name, e.name, size), metav1.CreateOptions{})
	e.Must(err, "creating a claim")
	pod := cluster.Pod(e.namespace, name, name)
	if !e.own {
		pod.Spec.NodeSelector = nil
		pod.Spec.Affinity = cluster.OnNodes(e.node)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		c := &pod.Spec.Containers[0]
		c.Image, c.ImagePullPolicy = cmp.Or(os.Getenv("IMAGE"), "busybox"), corev1.PullIfNotPresent
		c.Command = []string{"sh", "-c", fmt.Sprintf("echo %s > /volumes/%s/%s", name, name, letter)}
	}
	_, err = e.client.CoreV1().Pods(e.namespace).Create(ctx, pod, metav1.CreateOptions{})
	e.Must(err, "creating a pod")
	e.showf("applied claim %s (%s, class %s) and a pod that uses it", name, size, e.name)
	return claim
}

// remove deletes a pod and its claim and waits until the volume object is gone.
func (e *environment) remove(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	e.Must(e.client.CoreV1().Pods(e.namespace).Delete(ctx, claim.Name, now), "deleting the pod")
	e.Must(e.client.CoreV1().PersistentVolumeClaims(e.namespace).Delete(ctx, claim.Name, metav1.DeleteOptions{}), "deleting the claim")
	e.Must(e.cluster.WaitVolumeGone(ctx, "pvc-"+string(claim.UID)), "waiting for the volume to go")
}

func (e *environment) claimBecomesVolume(ctx context.Context) *corev1.PersistentVolumeClaim {
	e.step("a claim becomes a volume")
	claim := e.apply(ctx, "first", "64Mi")
	e.bound(ctx, claim)
	return claim
}

// bound waits for a claim to be Bound and shows it, its volume and its directory.
func (e *environment) bound(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	now, err := e.cluster.WaitClaimBound(ctx, e.namespace, claim.Name)
	e.Must(err, "waiting for the claim")
	pv, err := e.client.CoreV1().PersistentVolumes().Get(ctx, now.Spec.VolumeName, metav1.GetOptions{})
	e.Must(err, "reading the volume")
	source := pv.Spec.Local
	if source == nil {
		e.Fatalf("volume %s is not local: %+v", pv.Name, pv.Spec.PersistentVolumeSource)
	}
	terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	e.showf("claim   %s: %s", now.Name, now.Status.Phase)
	e.showf("volume  %s: %s, local %s, only where %s is %v", pv.Name, pv.Status.Phase, source.Path, terms.Key, terms.Values)
	info := harness.Need(os.Stat(source.Path))(e, "looking at the directory")
	e.showf("on disk %s %s", info.Mode(), source.Path)
	pod, err := e.cluster.WaitPodScheduled(ctx, e.namespace, claim.Name)
	e.Must(err, "waiting for the pod to be scheduled")
	e.showf("pod     %s: on node %s", pod.Name, pod.Spec.NodeName)
	e.ran(ctx, pod.Name, source.Path)
}

// letter is the file that a pod writes into its volume.
const letter = "hello"

// ran waits for the pod to have written into its volume, and reads that on the host. Without a
// kubelet there is nothing to wait for.
func (e *environment) ran(ctx context.Context, name, directory string) {
	node, err := e.client.CoreV1().Nodes().Get(ctx, e.node, metav1.GetOptions{})
	e.Must(err, "reading the node")
	ready := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	if e.own || !slices.ContainsFunc(node.Status.Conditions, ready) {
		e.showf("        no kubelet is here: the pod does not run, and its volume stays empty")
		return
	}
	for {
		pod, err := e.client.CoreV1().Pods(e.namespace).Get(ctx, name, metav1.GetOptions{})
		e.Must(err, "waiting for the pod to run")
		if pod.Status.Phase == corev1.PodSucceeded {
			break
		}
		if pod.Status.Phase == corev1.PodFailed {
			e.Fatalf("the pod failed: %s %s %+v", pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses)
		}
		time.Sleep(200 * time.Millisecond)
	}
	text, err := os.ReadFile(filepath.Join(directory, letter))
	e.Must(err, "reading what the pod wrote")
	if string(text) != name+"\n" {
		e.Fatalf("the pod wrote %q, and the host reads %q", name, text)
	}
	e.showf("data    the pod ran and wrote %s: %s", filepath.Join(directory, letter), strings.TrimSpace(string(text)))
}

// clearHost takes away what a namespace of its own would have taken with it.
func (e *environment) clearHost() error {
	unix.Unmount(e.mount, unix.MNT_DETACH) // it may not be mounted
	if _, err := os.Stat(e.mount); err == nil {
		hosttest.SetImmutable(e, e.mount, false)
	}
	return errors.Join(os.RemoveAll(filepath.Dir(e.mount)), os.RemoveAll(filepath.Dir(e.image.File)))
}

func (e *environment) refusedWhileUnmounted(ctx context.Context) *corev1.PersistentVolumeClaim {
	e.step("the pool is unmounted: the next claim is refused, and says why")
	hosttest.Unmount(e, e.mount)
	e.Must(e.daemon.WaitStatus(ctx, "is closed"), "waiting for the gate to close")
	e.showf("STATUS=%s", e.daemon.Status())
	if e.own {
		e.awaitPublished(ctx)
	}
	claim := e.apply(ctx, "second", "32Mi")
	reason := "NoNodeFits" // the scheduler chooses no node without room
	if !e.own {
		reason = "PoolClosed" // there is no CSIDriver of the demonstration's provisioner: nothing is compared
	}
	event := harness.Need(e.cluster.WaitEvent(ctx, claim, reason))(e, "waiting for the event")
	e.showf("event   %s %s: %s", event.Type, event.Reason, event.Message)
	now, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	e.Must(err, "reading the claim")
	if now.Status.Phase != corev1.ClaimPending {
		e.Fatalf("the claim is %s, want Pending", now.Status.Phase)
	}
	if all, err := os.ReadDir(e.mount); err != nil || len(all) != 0 {
		e.Fatalf("the bare mount point is not empty: %v %v", all, err)
	}
	e.showf("the bare mount point %s is still empty", e.mount)
	return claim
}

// awaitPublished waits until the scheduler is told that no node has room: a claim that comes before
// is given to the node, and refused there.
func (e *environment) awaitPublished(ctx context.Context) {
	_, err := cluster.WaitFor(ctx, e.client.StorageV1().CSIDrivers(), e.name, func(d *storagev1.CSIDriver) bool {
		return d.Spec.StorageCapacity != nil && *d.Spec.StorageCapacity
	})
	e.Must(err, "waiting for the scheduler to compare")
	all, err := e.client.StorageV1().CSIStorageCapacities("hostpath-provisioner").List(ctx, metav1.ListOptions{})
	e.Must(err, "reading what is published")
	for _, o := range all.Items {
		_, err := cluster.WaitFor(ctx, e.client.StorageV1().CSIStorageCapacities(o.Namespace), o.Name, func(o *storagev1.CSIStorageCapacity) bool {
			return o.MaximumVolumeSize.IsZero()
		})
		e.Must(err, "waiting for what is published")
		e.showf("published for class %s on %s: 0 B", o.StorageClassName, o.OwnerReferences[0].Name)
	}
}

func (e *environment) goesThroughWhenMounted(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	e.step("the pool is mounted again: the same claim goes through")
	e.image.Mount(e, e.mount, "nosuid", "nodev")
	e.bound(ctx, claim)
	if got := e.entries(e.mount); len(got) != 2 {
		e.Fatalf("the pool has %v, want the two volumes", got)
	}
}

func (e *environment) deleteVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	e.step("a claim is deleted: its volume goes, and its directory")
	directory := "pvc-" + string(claim.UID)
	e.remove(ctx, claim)
	got := e.entries(e.mount)
	if slices.Contains(got, directory) || len(got) != 1 {
		e.Fatalf("the pool has %v, want the other volume alone", got)
	}
	e.showf("gone: volume %s and %s", directory, filepath.Join(e.mount, directory))
	e.showf("kept: %s", filepath.Join(e.mount, got[0]))
	e.call(0, "volumes")
}

// removeAll removes the claims that are left while the daemon still runs, wherever the story ended:
// a volume whose pool is not mounted would stay. A cluster of its own goes as a whole.
func (e *environment) removeAll(ctx context.Context) error {
	if exec.Command("mountpoint", "--quiet", e.mount).Run() != nil {
		if out, err := exec.Command("mount", "-o", "loop,nosuid,nodev", e.image.File, e.mount).CombinedOutput(); err != nil {
			return fmt.Errorf("mount %s: %w: %s", e.mount, err, out)
		}
	}
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if err := e.client.CoreV1().Pods(e.namespace).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return err
	}
	claims, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range claims.Items {
		if err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Delete(ctx, c.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	for _, c := range claims.Items {
		if err := e.cluster.WaitVolumeGone(ctx, "pvc-"+string(c.UID)); err != nil {
			return err
		}
	}
	return nil
}

func random() string {
	b := make([]byte, 3)
	rand.Read(b)
	return hex.EncodeToString(b)
}
