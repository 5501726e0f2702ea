//go:build nodes

package nodes

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// TestNodes is one story, because a cluster takes longer to start than each of its steps.
func TestNodes(t *testing.T) {
	tell(t, usual, []step{
		{"a real control plane", startCluster},
		{"two nodes, each with its own kubelet and containerd", twoNodes},
		{"a pod on each node runs, before there is any provisioner", plainPods},
		{"a pool and a daemon on each node, with the rights that manifests gives", install},
		{"KUBECONFIG=... make demo on node-a: its pods run, and nothing of it stays", demonstration},
		{"the same, interrupted while its pool is unmounted", demonstrationStopped},
		{"a pod on each node writes to its WaitForFirstConsumer claim, as a user that is not root", waitForConsumer},
		{"an Immediate claim is provisioned on one node, and its pod follows", immediate},
		{"source local: kubelet applies fsGroup, which lets a user write that the mode alone does not", local},
		{"claims grow while their pods run, beside kubelet's own expansion of local volumes", expansion},
		{"ReadWriteOncePod: the scheduler refuses a second pod, kubelet with source local only", oncePod},
		{"a pod that is made again finds the data", again},
		{"daemon, kubelet and containerd are killed: pods go on, and new ones find the data", killed},
		{"a claim is deleted: its directory goes, and nothing on the other node changes", deletion},
		{"node-b's pool is unmounted: a claim that may go nowhere else is refused, with an event", refusal},
		{"a claim that may go elsewhere is given back, and the scheduler takes it to node-a", moves},
		{"pods whose directory is missing wait with an event, and no program makes it on the host's disk", missing},
		{"the pool is mounted again: what waited goes on, with the data", mountedAgain},
		{"everything is deleted: both pools are empty, records and trash included", empty},
	})
}

func startCluster(ctx context.Context, w *environment) { w.startCluster(ctx) }

func twoNodes(ctx context.Context, w *environment) {
	archive := w.makeArchive()
	w.a = w.startNode(ctx, 1, "node-a", archive)
	w.b = w.startNode(ctx, 2, "node-b", archive)
	var err error
	w.namespace, err = w.cluster.NewNamespace(ctx, "nodes")
	w.must(err, "creating a namespace")
}

// plainPods shows that the nodes are in order, so that what fails later is about volumes.
func plainPods(ctx context.Context, w *environment) {
	for _, h := range []*host{w.a, w.b} {
		w.createPod(ctx, w.pod("plain-"+h.name, "scratch", nil, on(h), func(s *corev1.PodSpec) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}))
	}
	for _, h := range []*host{w.a, w.b} {
		w.ready(ctx, "plain-"+h.name)
		w.deletePod(ctx, "plain-"+h.name)
	}
}

func install(ctx context.Context, w *environment) {
	w.manifests(ctx)
	w.install(ctx, w.a, 64)
	w.install(ctx, w.b, 256)
	w.class(ctx, "immediate", storagev1.VolumeBindingImmediate, "pool", "fast")
	w.class(ctx, "host", storagev1.VolumeBindingWaitForFirstConsumer, "source", "hostPath")
	w.class(ctx, "local", storagev1.VolumeBindingWaitForFirstConsumer, "source", "local", "mode", "0770")
}

func waitForConsumer(ctx context.Context, w *environment) {
	for _, h := range []*host{w.a, w.b} {
		w.claim(ctx, "data-"+h.name, "host")
		w.createPod(ctx, w.pod("first-"+h.name, "data-"+h.name, nil, on(h)))
	}
	for _, h := range []*host{w.a, w.b} {
		w.ready(ctx, "first-"+h.name)
		w.only(ctx, "data-"+h.name, h)
	}
}

func immediate(ctx context.Context, w *environment) {
	begin := time.Now()
	w.claim(ctx, "now", "immediate")
	h := w.hostOf(w.bound(ctx, "now"))
	w.showf("no pod yet, and after %.1fs the claim is bound on %s", time.Since(begin).Seconds(), h.name)
	if pod := w.run(ctx, w.pod("now", "now", nil)); pod.Spec.NodeName != h.name {
		w.Fatalf("the pod is on %s, its volume on %s", pod.Spec.NodeName, h.name)
	}
	w.only(ctx, "now", h)
}

// local is on node-b, for the steps without its pool.
func local(ctx context.Context, w *environment) {
	w.claim(ctx, "local", "local")
	w.run(ctx, w.pod("local", "local", nil, on(w.b), fsGroup))
	info := w.only(ctx, "local", w.b)
	gid := info.Sys().(*syscall.Stat_t).Gid
	if want := fs.ModeDir | fs.ModeSetgid | 0o770; gid != volumeGroup || info.Mode() != want {
		w.Fatalf("the directory is %s of group %d, want %s of group %d", info.Mode(), gid, want, volumeGroup)
	}
}

func fsGroup(s *corev1.PodSpec) {
	gid := int64(volumeGroup)
	s.SecurityContext.FSGroup = &gid
}

func again(ctx context.Context, w *environment) {
	w.deletePod(ctx, "first-node-a")
	w.deletePod(ctx, "local")
	w.createPod(ctx, w.pod("second-node-a", "data-node-a", []string{"first-node-a"}))
	w.createPod(ctx, w.pod("local-2", "local", []string{"local"}, fsGroup))
	if pod := w.ready(ctx, "second-node-a"); pod.Spec.NodeName != w.a.name {
		w.Fatalf("the pod is on %s, its volume on %s", pod.Spec.NodeName, w.a.name)
	}
	w.ready(ctx, "local-2")
}

// killed is on node-a: second-node-a runs there all the time.
func killed(ctx context.Context, w *environment) {
	before, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, "second-node-a", metav1.GetOptions{})
	w.must(err, "reading a pod")
	w.a.daemon.Kill()
	w.must(w.a.stop(syscall.SIGKILL), "killing kubelet and containerd")
	w.must(w.a.startContainerd(ctx), "starting containerd again")
	w.must(w.a.startKubelet(), "starting kubelet again")
	w.must(w.a.daemon.Run(ctx), "starting the daemon again")
	w.showf("%s: %s", w.a.name, w.a.daemon.Status())
	w.createPod(ctx, w.pod("third-node-a", "data-node-a", []string{"first-node-a", "second-node-a"}))
	w.claim(ctx, "later", "hostpath-provisioner")
	w.createPod(ctx, w.pod("later", "later", nil, on(w.a)))
	w.ready(ctx, "third-node-a")
	w.ready(ctx, "later")
	w.only(ctx, "later", w.a)
	after, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, "second-node-a", metav1.GetOptions{})
	w.must(err, "reading a pod")
	if is, was := containerOf(after), containerOf(before); is != was || !isReady(after) {
		w.Fatalf("the running pod's container is %s, ready %t; it was %s", is, isReady(after), was)
	}
	w.showf("pod second-node-a is still the container it was: %.24s", containerOf(after))
}

func containerOf(pod *corev1.Pod) string { return pod.Status.ContainerStatuses[0].ContainerID }

func deletion(ctx context.Context, w *environment) {
	kept, other := w.bound(ctx, "later").Name, w.tree(w.b)
	w.deletePod(ctx, "second-node-a")
	w.deletePod(ctx, "third-node-a")
	begin := time.Now()
	gone := w.deleteClaim(ctx, "data-node-a")
	took := time.Since(begin).Seconds()
	left := w.volumes(w.a)
	if slices.Contains(left, gone) || !slices.Contains(left, kept) {
		w.Fatalf("node-a has %v, want %s gone and %s kept", left, gone, kept)
	}
	w.showf("gone from node-a %.1fs after the claim was deleted: %s\nkept on node-a: %s", took, gone, strings.Join(left, " "))
	if now := w.tree(w.b); now != other {
		w.Fatalf("node-b's pool changed; it was\n%sand is\n%s", other, now)
	}
	w.showf("node-b's pool is as it was, %d lines", strings.Count(other, "\n"))
}

func refusal(ctx context.Context, w *environment) {
	w.unmount(ctx, w.b)
	claim := w.claimOn(ctx, "stuck", w.b)
	w.createPod(ctx, w.pod("stuck", "stuck", nil, on(w.b)))
	w.told(ctx, claim, "PoolClosed", "node-b")
	now, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	w.must(err, "reading the claim")
	if now.Status.Phase != corev1.ClaimPending {
		w.Fatalf("the claim is %s", now.Status.Phase)
	}
	w.bare(w.b)
}

// claimOn makes a claim for which a node was chosen just before its pool closed: the scheduler
// chooses no node of which it knows that it has no room, as it does soon afterwards.
func (w *environment) claimOn(ctx context.Context, name string, h *host) *corev1.PersistentVolumeClaim {
	w.Helper()
	return w.claim(ctx, name, "hostpath-provisioner", annotated(selectedNode, h.name))
}

// moves needs the scheduler to choose node-a once node-b has given the claim back. Its pod prefers
// a label, which moves to node-a then. The move alone changes nothing: the scheduler waits for a
// volume where one was selected.
func moves(ctx context.Context, w *environment) {
	w.label(ctx, w.b, `"yes"`)
	history := w.follow(ctx, "moves")
	claim := w.claimOn(ctx, "moves", w.b)
	w.createPod(ctx, w.pod("moves", "moves", nil, preferLabelled))
	w.event(ctx, claim, "PoolClosed")
	w.label(ctx, w.b, "null")
	w.label(ctx, w.a, `"yes"`)
	if pod := w.ready(ctx, "moves"); pod.Spec.NodeName != w.a.name {
		w.Fatalf("the pod is on %s", pod.Spec.NodeName)
	}
	w.only(ctx, "moves", w.a)
	w.bare(w.b)
	seen := history()
	w.showf("selected-node was in turn: %s", strings.Join(seen, ", "))
	if len(seen) < 3 || seen[0] != w.b.name || seen[1] != "none" || seen[len(seen)-1] != w.a.name {
		w.Fatalf("want node-b, none, ..., node-a")
	}
}

const preferred = "nodes.test/preferred"

// label sets or, with null, removes the label on a node. The value is JSON.
func (w *environment) label(ctx context.Context, h *host, value string) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %s}}}`, preferred, value)
	_, err := w.client.CoreV1().Nodes().Patch(ctx, h.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.must(err, "labelling "+h.name)
}

func preferLabelled(s *corev1.PodSpec) {
	s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: preferred, Operator: corev1.NodeSelectorOpExists},
			}},
		}},
	}}
}

// missing is about existing volumes on node-b, whose pool is still unmounted.
func missing(ctx context.Context, w *environment) {
	w.deletePod(ctx, "first-node-b")
	w.deletePod(ctx, "local-2")
	for name, pod := range map[string]*corev1.Pod{
		"is not a directory": w.pod("waits", "data-node-b", []string{"first-node-b"}),
		"does not exist":     w.pod("waits-local", "local", []string{"local", "local-2"}, fsGroup),
	} {
		pod = w.createPod(ctx, pod)
		w.told(ctx, pod, "FailedMount", name)
		w.repeated(ctx, pod, "FailedMount")
		pod, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		w.must(err, "reading the pod")
		if state := pod.Status.ContainerStatuses; pod.Status.Phase != corev1.PodPending || len(state) > 0 && state[0].State.Waiting == nil {
			w.Fatalf("the pod is %s: %+v", pod.Status.Phase, state)
		}
	}
	w.bare(w.b)
	w.showf("no container was started, and the bare mount point is still empty")
}

// repeated waits until the event was seen a second time: kubelet has tried again, with the same
// end.
func (w *environment) repeated(ctx context.Context, pod *corev1.Pod, reason string) {
	w.Helper()
	event, err := w.cluster.WaitEvent(ctx, pod, reason)
	w.must(err, "waiting for an event")
	_, err = cluster.WaitFor(ctx, w.client.CoreV1().Events(w.namespace), event.Name, func(e *corev1.Event) bool { return e.Count > 1 })
	w.must(err, "waiting for the event to be repeated")
}

func mountedAgain(ctx context.Context, w *environment) {
	begin := time.Now()
	w.mount(w.b)
	w.must(w.b.daemon.WaitStatus(ctx, "1 of 1 pool"), "waiting for the gate to open")
	w.showf("node-b, after %s: %s", time.Since(begin).Round(time.Millisecond), w.b.daemon.Status())
	for _, name := range []string{"waits", "waits-local", "stuck"} {
		w.ready(ctx, name)
	}
	w.only(ctx, "data-node-b", w.b)
	w.only(ctx, "local", w.b)
	w.only(ctx, "stuck", w.b)
}

func empty(ctx context.Context, w *environment) {
	for claim, pod := range map[string]string{
		"data-node-b": "waits", "local": "waits-local", "stuck": "stuck", "moves": "moves", "now": "now", "later": "later",
	} {
		w.deleteClaim(ctx, claim, pod)
	}
	for _, h := range []*host{w.a, w.b} {
		if left := w.volumes(h); len(left) > 0 {
			w.Fatalf("%s has %v", h.name, left)
		}
		w.purged(ctx, h)
		w.onHost(h, 0, "volumes")
		w.stop(ctx, h)
	}
}
