//go:build nodes

package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// expansion: kubelet has a no-op expansion of its own for local volumes, and none for hostPath. It runs beside the
// daemon's, whichever is first, and the pods run on. Kubelet looks at the volumes of a pod that changes, and else once a
// minute: so the pods change all the time.
func expansion(ctx context.Context, w *environment) {
	for _, c := range []struct {
		claim, pod string
		h          *host
		plugin     string // kubelet's
		expands    bool
	}{{"data-node-a", "first-node-a", w.a, "host-path", false}, {"local", "local", w.b, "local-volume", true}} {
		before := containerOf(w.ready(ctx, c.pod))
		still := w.keepChanging(ctx, c.pod)
		for i := range 20 {
			w.grow(ctx, c.claim, fmt.Sprintf("%dKi", 8<<10+(i+1)<<8))
		}
		if c.expands {
			w.must(eventually(ctx, "kubelet's own expansion", func() error {
				if w.kubeletExpansions(ctx, c.h, c.plugin) == 0 {
					return errors.New("none")
				}
				return nil
			}), "expanding local volumes")
		}
		w.showf("pod %s changed %d times meanwhile; %.0f expansions by kubelet", c.pod, still(), w.kubeletExpansions(ctx, c.h, c.plugin))
		if n := w.kubeletExpansions(ctx, c.h, c.plugin); n > 0 && !c.expands {
			w.Fatalf("kubelet expanded a volume of %s", c.plugin)
		}
		if now := w.ready(ctx, c.pod); containerOf(now) != before {
			w.Fatalf("pod %s was started again", c.pod)
		}
		w.settledAt(ctx, c.claim, "13Mi")
	}
}

// kubeletExpansions returns how many expansions the kubelet of a node has tried with one of its plugins.
func (w *environment) kubeletExpansions(ctx context.Context, h *host, plugin string) (n float64) {
	w.Helper()
	for _, value := range w.kubeletMetric(ctx, h, "storage_operation_duration_seconds_count", `operation_name="volume_fs_resize"`,
		fmt.Sprintf("volume_plugin=%q", "kubernetes.io/"+plugin)) {
		n += value
	}
	return n
}

// keepChanging changes an annotation of a pod, one request after the other. The function that it returns ends that, and
// returns how many there were.
func (w *environment) keepChanging(ctx context.Context, pod string) func() int {
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"nodes.test/changed":"%d"}}}`, n)
			if _, err := w.client.CoreV1().Pods(w.namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
				n++
			}
		}
		changes <- n
	}()
	return func() int { cancel(); return <-changes }
}

// grow requests another size for a claim, and waits until it has it.
func (w *environment) grow(ctx context.Context, claim, size string) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	_, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Patch(ctx, claim, types.MergePatchType, patch, metav1.PatchOptions{})
	w.must(err, "requesting "+size)
	want := resource.MustParse(size)
	_, err = w.cluster.WaitClaim(ctx, w.namespace, claim, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Capacity.Storage().Cmp(want) == 0 && len(c.Status.AllocatedResourceStatuses) == 0 && len(c.Status.Conditions) == 0
	})
	w.must(err, "waiting for "+size)
}

// settledAt checks that a claim has its size still when kubelet has looked at its pod once more, and shows what it was told.
func (w *environment) settledAt(ctx context.Context, claim, size string) {
	w.Helper()
	c, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, claim, metav1.GetOptions{})
	w.must(err, "reading the claim")
	if got := c.Status.Capacity.Storage().String(); got != size || c.Status.AllocatedResources.Storage().String() != size {
		w.Fatalf("claim %s has %s, want %s", claim, got, size)
	}
	w.showf("claim %s: %s\n%s", claim, size, strings.TrimSpace(w.events(claim)))
}
