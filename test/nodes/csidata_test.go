//go:build nodes

package nodes

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// csiData is the driver on two nodes. What is tried is on node-a; the scheduler would have chosen
// node-b.
type csiData struct {
	a, b *csiNode
}

// TestCSIData is the story of what is in volumes with source csi: snapshots, clones, growth, and
// volumes that are written in a pod.
func TestCSIData(t *testing.T) {
	d := &csiData{}
	tell(t, dataLimit, []step{
		{"a real control plane", startCluster},
		{"two nodes, each with its own kubelet and containerd", twoNodes},
		{"Kubernetes' snapshot-controller", startSnapshotController},
		{"an xfs, a daemon and the driver on each node", d.install},
		{"a pod writes all the time, on node-a", d.write},
		{"daemon, node service, kubelet and containerd are killed: the pod goes on writing", d.disturbed},
		{"the claim grows while the pod writes", d.grows},
		{"a live snapshot: a claim from it is on its node, and a pod finds the data", d.live},
		{"a claim from the claim: on its node, and a pod finds the data", d.clone},
		{"paused snapshots of a pod that writes: the order holds, and the pod goes on", d.paused},
		{"the node service is killed while the pod stands still: the pod goes on when it is started again", d.killedInAPause},
		{"a claim from the last one: a pod finds the order", d.restored},
		{"a pod has a volume that is written in it, and keeps it while all is restarted", d.inline},
		{"what is too large is refused, with an event", d.inlineRefused},
		{"without the daemon such a pod waits, with an event, and then starts", d.inlineWaits},
		{"the pods go: so do their volumes, also of one that went while the daemon was away", d.inlineGone},
		{"everything is deleted: both pools are empty, and nothing is mounted for a pod", d.empty},
	})
}

// dataLimit is for a step. After a pause nine times as long passes before the next one, and on a
// machine that is short of processors a pause was 13 seconds long.
const dataLimit = 8 * time.Minute

// dataKeys are those of the pool. mkfs.xfs makes files share blocks by default.
const dataKeys = `source = "csi"
mode = "0770"
clones = "reflink"
snapshots = "live"
pause_limit = "20s"
inline_volumes = "64Mi"
`

func (d *csiData) install(ctx context.Context, w *environment) {
	w.manifests(ctx, "--inline-volumes")
	for _, h := range []*host{w.a, w.b} {
		c := &csiNode{driver: provisioner, h: h, asked: []string{"pause.sock", "inline.sock"}}
		w.installOn(ctx, h, storage{name: "fast", path: poolDir, fs: "xfs", mib: 512, keys: dataKeys})
		c.register(ctx, w)
		if h == w.a {
			d.a = c
		} else {
			d.b = c
		}
	}
	w.class(ctx, "csi", storagev1.VolumeBindingWaitForFirstConsumer, "source", "csi")
	w.snapshotClass(ctx, "live")
	w.snapshotClass(ctx, "paused")
	w.label(ctx, w.b, `"yes"`)
}

// runs has a pod do something else, once it has found what it wants to find. FIND and POD are as in
// script.
func runs(what string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Containers[0].Command[2] = `set -eu
cd /volumes/*
for name in $FIND; do grep -qx "$name" pods || { echo "$name is not in: $(ls -la)"; exit 1; }; done
` + what
	}
}

// steadily writes all the time, and ends at the first error.
const steadily = `echo "$POD" >> pods
n=0
while :; do n=$((n + 1)); echo $n >> log; sleep 0.05; done
`

func (d *csiData) write(ctx context.Context, w *environment) {
	w.claim(ctx, "data", "csi")
	w.run(ctx, w.pod("writer", "data", nil, on(w.a), fsGroup, runs(steadily)))
	w.only(ctx, "data", w.a)
}

// same checks that a pod's container is the one that it was, and waits until it has written more to
// a file.
func (w *environment) same(ctx context.Context, name, container, claim, file string) {
	w.Helper()
	at := w.a.path(poolDir, w.bound(ctx, claim).Name, file)
	before, err := os.ReadFile(at)
	w.must(err, "reading what the pod wrote")
	w.must(eventually(ctx, "the pod to write", func() error {
		now, err := os.ReadFile(at)
		if err == nil && string(now) == string(before) {
			err = fmt.Errorf("%s is as it was", file)
		}
		return err
	}), "waiting")
	pod, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, name, metav1.GetOptions{})
	w.must(err, "reading a pod")
	if containerOf(pod) != container || pod.Status.Phase != corev1.PodRunning {
		w.Fatalf("pod %s is %s, with another container or an error: %+v", name, pod.Status.Phase, pod.Status.ContainerStatuses)
	}
}

func (d *csiData) disturbed(ctx context.Context, w *environment) {
	container, before := containerOf(w.ready(ctx, "writer")), d.a.registrations(w)
	w.a.daemon.Kill()
	w.must(d.a.service.Kill(), "killing the service")
	w.must(w.a.stop(syscall.SIGKILL), "killing kubelet and containerd")
	w.same(ctx, "writer", container, "data", "log")
	w.must(w.a.startContainerd(ctx), "starting containerd again")
	w.must(w.a.startKubelet(), "starting kubelet again")
	d.a.start(w)
	w.must(w.a.daemon.Run(ctx), "starting the daemon again")
	d.a.registeredAgain(ctx, w, before)
	w.run(ctx, w.pod("later", "data", []string{"writer"}, fsGroup))
	w.same(ctx, "writer", container, "data", "log")
	w.deletePod(ctx, "later")
}

func (d *csiData) grows(ctx context.Context, w *environment) {
	container := containerOf(w.ready(ctx, "writer"))
	for _, size := range []string{"9Mi", "12Mi"} {
		w.grow(ctx, "data", size)
	}
	w.same(ctx, "writer", container, "data", "log")
	w.settledAt(ctx, "data", "12Mi")
}

// from makes a claim of 12Mi from a source, and a pod that the scheduler would place on node-b.
func (d *csiData) from(ctx context.Context, w *environment, name string, source *corev1.TypedLocalObjectReference, find string, do ...func(*corev1.PodSpec)) {
	w.Helper()
	w.claim(ctx, name, "csi", sized("12Mi"), func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = source
	})
	pod := w.pod("of-"+name, name, []string{find}, append(do, fsGroup, preferLabelled)...)
	if pod = w.run(ctx, pod); pod.Spec.NodeName != w.a.name {
		w.Fatalf("the pod is on %s, the source of its claim on %s", pod.Spec.NodeName, w.a.name)
	}
	w.only(ctx, name, w.a)
}

func (d *csiData) live(ctx context.Context, w *environment) {
	_, said := w.snapshot(ctx, "live", "data", "live")
	if !strings.Contains(said, "copied one file after another") {
		w.Fatalf("the event does not say what a live snapshot is")
	}
	d.from(ctx, w, "revived", cluster.FromSnapshot("live"), "writer")
	w.deleteClaim(ctx, "revived", "of-revived")
}

func (d *csiData) clone(ctx context.Context, w *environment) {
	d.from(ctx, w, "cloned", &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}, "writer")
	w.deleteClaim(ctx, "cloned", "of-cloned")
	w.deleteClaim(ctx, "data", "writer")
}

// ordered writes each number to one file and then to another: at each moment the second one has
// that of the first, or the one before. Between the two a copy has many files to look at.
const ordered = `mkdir first last many
printf 100000000 > first/number
printf 100000000 > last/number
n=0
while [ $n -lt 1000 ]; do n=$((n + 1)); : > many/$n; done
echo "$POD" >> pods
i=100000000
while :; do i=$((i + 1)); printf $i 1<>first/number; printf $i 1<>last/number; done
`

// pauses has node-a make paused snapshots, as docs/snapshots.md switches them on.
func (d *csiData) pauses(ctx context.Context, w *environment) {
	w.Helper()
	w.configure(w.a, func(config string) string {
		return strings.Replace(config, `snapshots = "live"`, `snapshots = "paused"`, 1)
	})
	w.stop(ctx, w.a)
	d.a.stop(w)
	d.a.start(w)
	w.must(w.a.daemon.Run(ctx), "starting the daemon again")
}

// pausedTries are three: without the pause most are not in order.
const pausedTries = 3

func (d *csiData) paused(ctx context.Context, w *environment) {
	d.pauses(ctx, w)
	w.claim(ctx, "ordered", "csi")
	container := containerOf(w.run(ctx, w.pod("ordered", "ordered", nil, on(w.a), fsGroup, runs(ordered))))
	for try := range pausedTries {
		made, said := w.snapshot(ctx, fmt.Sprintf("paused-%d", try), "ordered", "paused")
		if !strings.Contains(said, "all files of one moment") || !strings.Contains(said, "nothing ran in the pods that have the volume mounted (1)") {
			w.Fatalf("the event does not say that one pod was paused")
		}
		first, last := w.snapshotFile(w.a, made, "first/number"), w.snapshotFile(w.a, made, "last/number")
		w.showf("%s was written first, and %s last", first, last)
		if f, l := number(w, first), number(w, last); f != l && f != l+1 || f < 100000000 {
			w.Errorf("snapshot %d is of no one moment: %s was written first, and %s last", try, first, last)
		}
		w.same(ctx, "ordered", container, "ordered", "last/number")
	}
}

// killedInAPause asks for a pause as the daemon does, so that it is certain that the service is
// killed in the middle of one. Nothing runs what its unit has as ExecStopPost=.
func (d *csiData) killedInAPause(ctx context.Context, w *environment) {
	container := containerOf(w.ready(ctx, "ordered"))
	volume := w.bound(ctx, "ordered").Name
	socket := w.a.path(pause.SocketPath("/var/lib/kubelet", provisioner))
	paused, p, err := pause.Client{Socket: socket}.Begin(ctx, "fast", volume)
	w.must(err, "asking for a pause")
	w.standsStill(paused, volume)
	w.must(d.a.service.Kill(), "killing the service")
	<-paused.Done()
	if _, err := p.End(); err == nil {
		w.Errorf("a pause whose service was killed is said to be whole")
	}
	w.standsStill(ctx, volume)
	d.a.start(w)
	w.same(ctx, "ordered", container, "ordered", "last/number")
}

// standsStill checks for a second that the pod writes nothing more, and that the pause is not over
// by then.
func (w *environment) standsStill(ctx context.Context, volume string) {
	w.Helper()
	at := w.a.path(poolDir, volume, "first/number")
	before, err := os.ReadFile(at)
	w.must(err, "reading what the pod wrote")
	select {
	case <-ctx.Done():
		w.Fatalf("the pod went on by itself")
	case <-time.After(time.Second):
	}
	if after, err := os.ReadFile(at); err != nil || string(after) != string(before) {
		w.Fatalf("the pod writes while it is paused: %s, then %s, %v", before, after, err)
	}
}

func number(w *environment, text string) int {
	w.Helper()
	n, err := strconv.Atoi(text)
	w.must(err, "reading a number")
	return n
}

// checks is what a pod does that finds the order.
const checks = `a=$(cat first/number) b=$(cat last/number)
echo "$a was written first, and $b last"
[ $((a - b)) = 0 ] || [ $((a - b)) = 1 ]
echo "$POD" >> pods
sleep infinity
`

func (d *csiData) restored(ctx context.Context, w *environment) {
	d.from(ctx, w, "restored", cluster.FromSnapshot(fmt.Sprintf("paused-%d", pausedTries-1)), "ordered", runs(checks))
	w.deleteClaim(ctx, "ordered", "ordered")
	w.deleteClaim(ctx, "restored", "of-restored")
}

func (d *csiData) empty(ctx context.Context, w *environment) {
	names := []string{"live"}
	for try := range pausedTries {
		names = append(names, fmt.Sprintf("paused-%d", try))
	}
	w.deleteSnapshots(ctx, names...)
	for _, c := range []*csiNode{d.a, d.b} {
		w.purged(ctx, c.h)
		c.unmounted(w)
		w.stop(ctx, c.h)
		c.stop(w)
	}
}
