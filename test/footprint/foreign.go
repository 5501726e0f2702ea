// Package footprint measures what watching costs on a node of a large cluster: resident memory and
// bytes received, with claims and volumes of other nodes in a real API server.
//
//	go test ./test/footprint -run '^$' -bench . -args -pairs 20000
//
// With 20,000 pairs on Kubernetes 1.36: our filtered informers 18 to 20 MiB resident (23 at most)
// and 1.24 MB received, the same with the typed clientset linked in 25 to 30 (31), client-go's
// shared informers 225 to 250 and 51 to 53 MB.
//
// It judges nothing but the limit of the filtered informers, and it is a benchmark, so that it runs
// only when asked.
package footprint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// Fill makes the claims from+1 to to with a volume each, as kube-controller-manager leaves them:
// bound to each other. All are of other nodes.
func Fill(ctx context.Context, client kubernetes.Interface, from, to int) error {
	return Each(from, to, func(i int) error { return pair(ctx, client, i) })
}

// Change writes an annotation on the claims from+1 to to, which changes nothing else.
func Change(ctx context.Context, client kubernetes.Interface, from, to int, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"footprint":%q}}}`, value)
	return Each(from, to, func(i int) error {
		_, err := client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, claimName(i), types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// Each calls do for from+1 to to, 16 at once, and returns the errors joined. After an error no more
// is begun.
func Each(from, to int, do func(i int) error) error {
	var (
		next   atomic.Int64
		all    sync.WaitGroup
		errs   [16]error
		failed atomic.Bool
	)
	next.Store(int64(from))
	for worker := range errs {
		all.Go(func() {
			for i := next.Add(1); i <= int64(to) && !failed.Load(); i = next.Add(1) {
				if errs[worker] = do(int(i)); errs[worker] != nil {
					failed.Store(true)
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

// namespace has the claims.
const namespace = metav1.NamespaceDefault

func claimName(i int) string { return fmt.Sprintf("data-application-%d", i) }

// pair makes a claim and its volume, which has the name that a provisioner gives it.
func pair(ctx context.Context, client kubernetes.Interface, i int) error {
	node := fmt.Sprintf("other-%d", i%100)
	claim := cluster.Claim(namespace, claimName(i), "fast", "1Gi")
	claim.Annotations = map[string]string{
		plan.StorageProvisioner: plan.DefaultProvisioner, plan.StorageProvisionerBeta: plan.DefaultProvisioner,
		plan.SelectedNode: node, "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
	}
	claim.Labels = map[string]string{"app.kubernetes.io/name": "application", "app.kubernetes.io/instance": fmt.Sprint(i)}
	made, err := client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	volume := "pvc-" + string(made.UID)
	patch := fmt.Appendf(nil, `{"spec":{"volumeName":%q}}`, volume)
	if _, err := client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, made.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	directory := corev1.HostPathDirectory
	_, err = client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: volume, Finalizers: []string{plan.Finalizer},
			Labels:      map[string]string{plan.NodeLabel: node, plan.PoolLabel: "fast"},
			Annotations: map[string]string{plan.ProvisionedBy: plan.DefaultProvisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, StorageClassName: "fast",
			AccessModes: claim.Spec.AccessModes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: made.Name, UID: made.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/fast/" + volume, Type: &directory}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: plan.HostnameLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	return err
}
