//go:build nodes

package nodes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statistics: of a volume of source local kubelet reports what statfs(2) has, and of one of source hostPath nothing. df in
// a pod has the same. That is the whole pool here: only a filesystem that limits projects has the claim's size there, and
// this kernel may have none (chapter quota of test/vm).
func statistics(ctx context.Context, w *environment) {
	var pool syscall.Statfs_t
	w.must(syscall.Statfs(w.b.path(poolDir), &pool), "asking for the pool's size")
	size := float64(pool.Blocks) * float64(pool.Bsize)
	var got map[string]float64
	w.must(eventually(ctx, "kubelet's statistics", func() error {
		if got = w.volumeStats(ctx, w.b, "local"); got["used"] == 0 || got["available"] == 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	}), "reading kubelet's metrics")
	w.showf("kubelet on node-b: claim local: %v", got)
	if got["capacity"] != size || got["used"] >= size {
		w.Fatalf("kubelet reports %v of a pool of %.0f bytes", got, size)
	}
	if got := w.volumeStats(ctx, w.b, "data-node-b"); len(got) > 0 {
		w.Fatalf("kubelet reports %v of a hostPath volume", got)
	}
	for _, pod := range []string{"local", "first-node-b"} {
		if shown := w.df(ctx, w.b, pod); shown != size {
			w.Fatalf("df in pod %s has %.0f bytes, want %.0f", pod, shown, size)
		}
	}
}

// volumeStats are what a node's kubelet has of a claim's volume: kubelet_volume_stats_capacity_bytes and so on.
func (w *environment) volumeStats(ctx context.Context, h *host, claim string) map[string]float64 {
	w.Helper()
	all := map[string]float64{}
	for _, what := range []string{"capacity", "used", "available"} {
		label := fmt.Sprintf("persistentvolumeclaim=%q", claim)
		for _, value := range w.kubeletMetric(ctx, h, "kubelet_volume_stats_"+what+"_bytes", label) {
			all[what] = value
		}
	}
	return all
}

// kubeletMetric are the values of the samples of a node's kubelet that have this name and these labels.
func (w *environment) kubeletMetric(ctx context.Context, h *host, name string, labels ...string) (values []float64) {
	w.Helper()
	page, err := w.client.CoreV1().RESTClient().Get().Resource("nodes").Name(h.name).SubResource("proxy").Suffix("metrics").DoRaw(ctx)
	w.must(err, "reading the metrics of the kubelet on "+h.name)
	for line := range strings.Lines(string(page)) {
		sample, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		lacks := func(label string) bool { return !strings.Contains(sample, label) }
		if !strings.HasPrefix(sample, name+"{") || slices.ContainsFunc(labels, lacks) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		w.must(err, "reading "+line)
		values = append(values, number)
	}
	return values
}

// df is the size in bytes that df has in a pod's container.
func (w *environment) df(ctx context.Context, h *host, name string) float64 {
	w.Helper()
	pod, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, name, metav1.GetOptions{})
	w.must(err, "reading a pod")
	container := strings.TrimPrefix(containerOf(pod), "containerd://")
	out, err := h.call("ctr", "--namespace=k8s.io", "task", "exec", "--exec-id=df", container,
		"/bin/busybox", "df", "-P", "-k", "/volumes/"+claimOf(pod))
	w.must(err, "calling df in pod "+name)
	w.showf("df in pod %s:\n%s", name, out)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	kib, err := strconv.ParseFloat(fields[1], 64)
	w.must(err, "reading what df printed")
	return kib * 1024
}

func claimOf(pod *corev1.Pod) string { return pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName }
