//go:build nodes

package nodes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// oncePod shows who refuses a second pod of a ReadWriteOncePod claim: the scheduler in any case,
// and kubelet, for a pod that the scheduler has not placed, with source local only.
func oncePod(ctx context.Context, w *environment) {
	w.claimOnce(ctx, "once", "host")
	w.run(ctx, w.pod("once-first", "once", nil, on(w.a)))
	w.refusedBy(ctx, w.pod("once-scheduled", "once", nil, on(w.a)), "FailedScheduling")
	w.run(ctx, w.pod("once-placed", "once", []string{"once-first"}, placed(w.a)))
	w.deleteClaim(ctx, "once", "once-first", "once-placed")

	w.claimOnce(ctx, "once-local", "local")
	w.run(ctx, w.pod("local-first", "once-local", nil, on(w.a), fsGroup))
	w.refusedBy(ctx, w.pod("local-scheduled", "once-local", nil, on(w.a), fsGroup), "FailedScheduling")
	w.refusedBy(ctx, w.pod("local-placed", "once-local", nil, placed(w.a), fsGroup), "FailedMount")
	w.deleteClaim(ctx, "once-local", "local-first")
}

// placed gives the pod to a node's kubelet without the scheduler.
func placed(h *host) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { s.NodeName = h.name }
}

func (w *environment) claimOnce(ctx context.Context, name, class string) {
	w.Helper()
	w.claim(ctx, name, class, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
}

// refusedBy makes the pod, waits for the event that refuses it for its claim's access mode, and
// deletes it.
func (w *environment) refusedBy(ctx context.Context, pod *corev1.Pod, reason string) {
	w.Helper()
	pod = w.createPod(ctx, pod)
	w.told(ctx, pod, reason, "ReadWriteOncePod")
	w.deletePod(ctx, pod.Name)
}
