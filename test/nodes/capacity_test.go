//go:build nodes

package nodes

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// room: the pod prefers node-a, whose pool is too small for its claim. The scheduler knows that, and does not try it.
func room(ctx context.Context, w *environment) {
	const mib = 100
	w.published(ctx, func(a, b int64) bool { return 0 < a && a < mib && b > mib })
	w.label(ctx, w.a, `"yes"`)
	history := w.follow(ctx, "large")
	w.claimOfSize(ctx, "large", fmt.Sprint(mib, "Mi"))
	w.createPod(ctx, w.pod("large", "large", nil, preferLabelled))
	if pod := w.ready(ctx, "large"); pod.Spec.NodeName != w.b.name {
		w.Fatalf("the pod is on %s", pod.Spec.NodeName)
	}
	w.only(ctx, "large", w.b)
	if seen := history(); !slices.Equal(seen, []string{w.b.name}) {
		w.Fatalf("selected-node was in turn %v, want node-b alone", seen)
	}
	w.label(ctx, w.a, "null")
	w.deleteClaim(ctx, "large", "large")
}

func (w *environment) claimOfSize(ctx context.Context, name, size string) {
	w.Helper()
	_, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Create(ctx, cluster.Claim(w.namespace, name, provisioner, size), metav1.CreateOptions{})
	w.must(err, "creating a claim")
}

// published waits until the scheduler compares capacities, and until these are so, in MiB, for the class of the manifests.
func (w *environment) published(ctx context.Context, are func(a, b int64) bool) {
	w.Helper()
	err := eventually(ctx, "the nodes' capacities", func() error {
		driver, err := w.client.StorageV1().CSIDrivers().Get(ctx, provisioner, metav1.GetOptions{})
		if err != nil || driver.Spec.StorageCapacity == nil || !*driver.Spec.StorageCapacity {
			return fmt.Errorf("the scheduler compares nothing: %w", err)
		}
		list, err := w.client.StorageV1().CSIStorageCapacities(provisioner).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		mib := map[string]int64{w.a.name: -1, w.b.name: -1}
		for _, o := range list.Items {
			if o.StorageClassName == provisioner {
				mib[o.Labels["hostpath-provisioner/node"]] = o.MaximumVolumeSize.Value() >> 20
			}
		}
		if !are(mib[w.a.name], mib[w.b.name]) {
			return fmt.Errorf("%v", mib)
		}
		w.showf("published for new volumes, in MiB: %v", mib)
		return nil
	})
	w.must(err, "waiting for what is published")
}

// passedBy: the scheduler knows that node-b's pool is closed, and gives it no claim.
func passedBy(ctx context.Context, w *environment) {
	w.unmount(ctx, w.b)
	w.published(ctx, func(_, b int64) bool { return b == 0 })
	w.claim(ctx, "stuck", provisioner)
	w.createPod(ctx, w.pod("stuck", "stuck", nil, on(w.b)))
	_, err := cluster.WaitFor(ctx, w.client.CoreV1().Pods(w.namespace), "stuck", func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && strings.Contains(c.Message, "did not have enough free storage")
		})
	})
	w.must(err, "waiting for the scheduler")
	w.showf("%s", w.events("stuck"))
	claim, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, "stuck", metav1.GetOptions{})
	w.must(err, "reading the claim")
	if node := claim.Annotations[selectedNode]; node != "" {
		w.Fatalf("the claim was given to %s", node)
	}
	w.bare(w.b)
}

// publishNothing has a node's daemon publish nothing any more. It runs on.
func (w *environment) publishNothing(h *host) {
	w.Helper()
	text, err := os.ReadFile(h.daemon.Path("etc", "config.toml"))
	w.must(err, "reading the configuration")
	w.must(h.daemon.Configure("publish_capacity = false\n"+string(text)), "changing the configuration")
	w.must(h.daemon.Signal(syscall.SIGHUP), "having the configuration read")
}
