//go:build nodes

package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// inlined has a pod's volume written in the pod, as docs/csi.md does.
func inlined(size string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: provisioner, VolumeAttributes: map[string]string{"storagePool": "fast", "size": size},
		}}
	}
}

// inlineVolumes are the directories of such volumes in a host's pool.
func (w *environment) inlineVolumes(h *host) []string {
	w.Helper()
	return slices.DeleteFunc(w.volumes(h), func(name string) bool { return !strings.HasPrefix(name, "csi-") })
}

// untilStopped has a container end, with an error, when a file is there. Its pod starts it again.
const untilStopped = `echo "$POD" >> pods
while [ ! -e stop ]; do sleep 0.05; done
exit 1
`

func (d *csiData) inline(ctx context.Context, w *environment) {
	w.createPod(ctx, w.pod("scratch", "scratch", nil, on(w.a), fsGroup, inlined("16Mi"), runs(untilStopped), func(s *corev1.PodSpec) {
		s.RestartPolicy = corev1.RestartPolicyAlways
	}))
	container := containerOf(w.ready(ctx, "scratch"))
	all := w.inlineVolumes(w.a)
	if len(all) != 1 || len(w.inlineVolumes(w.b)) > 0 {
		w.Fatalf("the pools have %q and %q", all, w.inlineVolumes(w.b))
	}
	if out, code := w.a.daemon.Call("volumes"); code != 0 || !strings.Contains(out, "inline") || !strings.Contains(out, w.namespace+"/scratch") {
		w.Fatalf("volumes: exit code %d\n%s", code, out)
	}
	d.restartAll(ctx, w)
	if now := w.inlineVolumes(w.a); !slices.Equal(now, all) {
		w.Fatalf("the pool had %q, and has %q", all, now)
	}
	w.keeps(ctx, "scratch", container)
	d.containerAgain(ctx, w, all[0])
}

// restartAll has the daemon look for volumes that no pod has while neither kubelet nor the node
// service runs.
func (d *csiData) restartAll(ctx context.Context, w *environment) {
	w.Helper()
	before := d.a.registrations(w)
	w.must(w.a.kubelet.end(syscall.SIGTERM, 30*time.Second), "stopping kubelet")
	w.stop(ctx, w.a)
	d.a.stop(w)
	w.must(w.a.daemon.Run(ctx), "starting the daemon again")
	d.a.start(w)
	w.must(w.a.startKubelet(), "starting kubelet again")
	d.a.registeredAgain(ctx, w, before)
	w.kubeletResponds(ctx, "scratch")
}

// containerAgain: a container that is started again finds the data, and needs no daemon.
func (d *csiData) containerAgain(ctx context.Context, w *environment, dir string) {
	w.Helper()
	w.withoutDaemonFor(ctx, func() { w.startedAgain(ctx, "scratch", w.a.path(poolDir, dir)) })
}

// startedAgain has a pod's container end (untilStopped), and waits until it finds its volume again.
func (w *environment) startedAgain(ctx context.Context, pod, dir string) {
	w.Helper()
	stop := filepath.Join(dir, "stop")
	w.must(os.WriteFile(stop, nil, 0o666), "stopping the container")
	_, err := cluster.WaitFor(ctx, w.client.CoreV1().Pods(w.namespace), pod, func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running == nil
	})
	w.must(err, "waiting for the container's end")
	w.must(os.Remove(stop), "letting it start again")
	_, err = cluster.WaitFor(ctx, w.client.CoreV1().Pods(w.namespace), pod, func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0 && isReady(p)
	})
	w.must(err, "waiting for the container")
	text, err := os.ReadFile(filepath.Join(dir, "pods"))
	if err != nil || strings.Count(string(text), pod+"\n") < 2 {
		w.Fatalf("the container that was started again has %q, %v", text, err)
	}
}

func (d *csiData) inlineRefused(ctx context.Context, w *environment) {
	pod := w.createPod(ctx, w.pod("much", "much", nil, on(w.a), fsGroup, inlined("60Mi")))
	const promised = "of 64.0 MiB for all inline volumes (inline_volumes) 16.0 MiB are promised"
	w.told(ctx, pod, "FailedMount", promised)
	w.deletePod(ctx, "much")
}

func (d *csiData) inlineWaits(ctx context.Context, w *environment) {
	w.stop(ctx, w.a)
	pod := w.createPod(ctx, w.pod("late", "late", nil, on(w.a), fsGroup, inlined("16Mi")))
	w.told(ctx, pod, "FailedMount", "hostpath-provisioner.service does not respond")
	w.must(w.a.daemon.Run(ctx), "starting the daemon again")
	w.ready(ctx, "late")
	if all := w.inlineVolumes(w.a); len(all) != 2 {
		w.Fatalf("the pool has %q", all)
	}
}

// inlineGone: the daemon looks for what it was not told of when it starts, and then every five
// minutes. Kubelet removes a pod's directory a while after the pod has gone, by which it is known.
func (d *csiData) inlineGone(ctx context.Context, w *environment) {
	w.deletePod(ctx, "late")
	w.must(eventually(ctx, "the end of a volume", func() error { return w.inlineLeft(1) }), "waiting")
	w.stop(ctx, w.a)
	scratch, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, "scratch", metav1.GetOptions{})
	w.must(err, "reading a pod")
	w.deletePod(ctx, "scratch")
	w.must(eventually(ctx, "the end of the pod's directory", func() error {
		_, err := os.Lstat(w.a.path("/var/lib/kubelet/pods", string(scratch.UID)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return cmp.Or(err, errors.New("it is there"))
	}), "waiting for kubelet")
	w.must(w.inlineLeft(1), "looking at what no daemon removes")
	w.must(w.a.daemon.Run(ctx), "starting the daemon again")
	w.must(eventually(ctx, "the end of a volume", func() error { return w.inlineLeft(0) }), "waiting")
}

// inlineLeft returns an error unless node-a has so many inline volumes.
func (w *environment) inlineLeft(n int) error {
	w.Helper()
	if all := w.inlineVolumes(w.a); len(all) != n {
		return fmt.Errorf("the pool has %q", all)
	}
	return nil
}
