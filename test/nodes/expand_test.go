//go:build nodes

package nodes

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// expansion: kubelet has a no-op expansion of its own for local volumes, and none for hostPath. It
// runs beside the daemon's, whichever is first, and the pods run on.
func expansion(ctx context.Context, w *environment) {
	for claim, pod := range map[string]string{"data-node-a": "first-node-a", "local": "local"} {
		before := containerOf(w.ready(ctx, pod))
		for _, size := range []string{"9Mi", "10Mi", "12Mi"} {
			w.grow(ctx, claim, size)
		}
		w.keeps(ctx, pod, before)
		w.settledAt(ctx, claim, "12Mi")
	}
}

// grow requests another size for a claim, and waits until it has it.
func (w *environment) grow(ctx context.Context, claim, size string) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	_, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Patch(ctx, claim, types.MergePatchType, patch, metav1.PatchOptions{})
	w.must(err, "requesting "+size)
	want := resource.MustParse(size)
	_, err = w.cluster.WaitClaim(ctx, w.namespace, claim, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Capacity.Storage().Cmp(want) == 0 && len(c.Status.AllocatedResourceStatuses) == 0 && len(cluster.Resizing(c)) == 0
	})
	w.must(err, "waiting for "+size)
}

// settledAt checks that a claim has its size still when kubelet has looked at its pod once more,
// and prints the events about it.
func (w *environment) settledAt(ctx context.Context, claim, size string) {
	w.Helper()
	c, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, claim, metav1.GetOptions{})
	w.must(err, "reading the claim")
	if got := c.Status.Capacity.Storage().String(); got != size || c.Status.AllocatedResources.Storage().String() != size {
		w.Fatalf("claim %s has %s, want %s", claim, got, size)
	}
	w.showf("claim %s: %s\n%s", claim, size, strings.TrimSpace(w.events(claim)))
}
