package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// EachVolume reads all volume objects of the cluster, a page at a time.
func (c *Client) EachVolume(ctx context.Context, visit func(*corev1.PersistentVolume)) error {
	return each(ctx, c.allVolumes(), visit)
}

func (c *Client) allVolumes() *source {
	return c.source(c.core, "persistentvolumes",
		func() runtime.Object { return &corev1.PersistentVolumeList{} })
}

// EachVolumeOf reads the volume objects whose node's label has one of these values, or another one
// than these, a page at a time.
func (c *Client) EachVolumeOf(ctx context.Context, nodes []string, not bool,
	visit func(*corev1.PersistentVolume)) error {
	source, in := c.allVolumes(), " in ("
	if not {
		in = "," + plan.NodeLabel + " notin ("
	}
	source.labels = plan.NodeLabel + in + strings.Join(nodes, ",") + ")"
	return each(publishing(ctx), source, visit)
}

// EachNode reads all nodes, a page at a time.
func (c *Client) EachNode(ctx context.Context, visit func(*corev1.Node)) error {
	return each(publishing(ctx), c.allNodes(), visit)
}

func (c *Client) allNodes() *source {
	return c.source(c.core, "nodes", func() runtime.Object { return &corev1.NodeList{} })
}

// FewVolumes reads the volume objects of the cluster as they are at the time of the call or later,
// in one page: of more than limit only some. It reports whether visit was called with all.
func (c *Client) FewVolumes(ctx context.Context, limit int64, visit func(*corev1.PersistentVolume)) (all bool, err error) {
	next, err := eachOfPage(ctx, c.allVolumes(), metav1.ListOptions{Limit: limit}, visit)
	return err == nil && next == "", err
}

// EachPod reads the pods that a field selector leaves, a page at a time: of one namespace, or of
// all if it is empty.
func (c *Client) EachPod(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error {
	source := c.source(c.core, "pods", func() runtime.Object { return &corev1.PodList{} })
	source.namespace, source.fields = namespace, fields
	return each(ctx, source, visit)
}

// fewPages are as many pages of pods as FewPods reads.
const fewPages = 5

// FewPods is EachPod of a namespace that reads no more than the first pages.
func (c *Client) FewPods(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error {
	source := c.source(c.core, "pods", func() runtime.Object { return &corev1.PodList{} })
	source.namespace, source.fields = namespace, fields
	options := metav1.ListOptions{Limit: defaultTimings.pageSize}
	for range fewPages {
		next, err := eachOfPage(ctx, source, options, visit)
		if options.Continue = next; err != nil || next == "" {
			return err
		}
	}
	return nil
}

// EachLock reads the leader election objects of this name in all namespaces: Leases, and the
// Endpoints of older programs, which are converted to the Lease in their annotation. It is an error
// if the kubeconfig may not list them.
func (c *Client) EachLock(ctx context.Context, name string, visit func(*coordinationv1.Lease)) error {
	leases := c.source(c.coordination, "leases", func() runtime.Object { return &coordinationv1.LeaseList{} })
	endpoints := c.source(c.core, "endpoints", func() runtime.Object { return &corev1.EndpointsList{} })
	leases.fields, endpoints.fields = "metadata.name="+name, "metadata.name="+name
	return errors.Join(each(ctx, leases, visit), each(ctx, endpoints, func(e *corev1.Endpoints) {
		var leader leaderRecord
		text := e.Annotations["control-plane.alpha.kubernetes.io/leader"]
		if text == "" || json.Unmarshal([]byte(text), &leader) != nil {
			return
		}
		visit(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}, Spec: leader.spec()})
	}))
}

// leaderRecord is the annotation of Endpoints that are a lock (client-go,
// tools/leaderelection/resourcelock, LeaderElectionRecord). That package would link the clientset,
// which takes 10 MiB in each daemon (TestNoClientset (daemon)).
type leaderRecord struct {
	HolderIdentity       string      `json:"holderIdentity"`
	LeaseDurationSeconds int32       `json:"leaseDurationSeconds"`
	AcquireTime          metav1.Time `json:"acquireTime"`
	RenewTime            metav1.Time `json:"renewTime"`
	LeaderTransitions    int32       `json:"leaderTransitions"`
}

func (r *leaderRecord) spec() coordinationv1.LeaseSpec {
	return coordinationv1.LeaseSpec{
		HolderIdentity: &r.HolderIdentity, LeaseDurationSeconds: &r.LeaseDurationSeconds, LeaseTransitions: &r.LeaderTransitions,
		AcquireTime: &metav1.MicroTime{Time: r.AcquireTime.Time}, RenewTime: &metav1.MicroTime{Time: r.RenewTime.Time},
	}
}

func each[T any](ctx context.Context, from *source, visit func(T)) error {
	for options := (metav1.ListOptions{Limit: defaultTimings.pageSize}); ; {
		next, err := eachOfPage(ctx, from, options, visit)
		if options.Continue = next; err != nil || next == "" {
			return err
		}
	}
}

// eachOfPage reads one page. next is where the next one begins, "" if there is none.
func eachOfPage[T any](ctx context.Context, from *source, options metav1.ListOptions, visit func(T)) (next string, err error) {
	page, err := from.List(ctx, options)
	if err != nil {
		return "", fmt.Errorf("list %s: %w", from.resource, err)
	}
	if err := meta.EachListItem(page, func(o runtime.Object) error {
		if item, ok := o.(T); ok {
			visit(item)
		}
		return nil
	}); err != nil {
		return "", fmt.Errorf("list %s: %w", from.resource, err)
	}
	about, err := meta.ListAccessor(page)
	if err != nil {
		return "", fmt.Errorf("list %s: %w", from.resource, err)
	}
	return about.GetContinue(), nil
}

// GetNode requests a node from the API server. It returns nil without an error if the node does not
// exist.
func (c *Client) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return read[corev1.Node](ctx, c.core.Get().Resource("nodes"), name, "node "+name)
}

// CSIDrivers returns the CSI drivers that kubelet has registered on a node. A node without a
// CSINode has none.
func (c *Client) CSIDrivers(ctx context.Context, node string) (names []string, err error) {
	registered, err := read[storagev1.CSINode](ctx, c.storage.Get().Resource("csinodes"), node, "the CSI drivers of node "+node)
	if registered == nil {
		return nil, err
	}
	for _, driver := range registered.Spec.Drivers {
		names = append(names, driver.Name)
	}
	return names, nil
}

// CheckVolume returns an error if the server would not accept an object of a name that another
// object still has: the server validates it and runs admission before it checks the name
// (apiserver, pkg/registry/generic/registry, Store.Create).
func (c *Client) CheckVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	request := c.core.Post().Resource("persistentvolumes").Param("dryRun", metav1.DryRunAll).
		Body(pv).Timeout(callTimeout)
	err := receiveObject(ctx, request, &corev1.PersistentVolume{}, pv.Name, "")
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("the server would not take volume %s: %w", pv.Name, err)
	}
	return nil
}

// PatchVolume changes labels, annotations, finalizers and policy of a volume object, if it still is
// as given: a concurrent change is not overwritten, and is an error (a conflict). It returns the
// changed object.
func (c *Client) PatchVolume(ctx context.Context, pv *corev1.PersistentVolume, m plan.MetadataPatch) (*corev1.PersistentVolume, error) {
	return c.markVolume(ctx, pv, m)
}

// CheckPatch returns the error that PatchVolume would return: of the server's rights and
// policies, too. Nothing is changed.
func (c *Client) CheckPatch(ctx context.Context, pv *corev1.PersistentVolume,
	m plan.MetadataPatch) error {
	_, err := c.markVolume(ctx, pv, m, metav1.DryRunAll)
	return err
}

func (c *Client) markVolume(ctx context.Context, pv *corev1.PersistentVolume, m plan.MetadataPatch,
	dryRun ...string) (*corev1.PersistentVolume, error) {
	change := map[string]any{"metadata": asGiven(pv, map[string]any{
		"labels": m.Labels, "annotations": m.Annotations, "finalizers": m.Finalizers,
	})}
	if m.Reclaim != "" {
		change["spec"] = map[string]any{"persistentVolumeReclaimPolicy": m.Reclaim}
	}
	request := c.volumePatch(types.MergePatchType)
	for _, all := range dryRun {
		request = request.Param("dryRun", all)
	}
	now, err := patch[corev1.PersistentVolume](ctx, request, pv.Name, pv.UID, change)
	if err != nil {
		return nil, fmt.Errorf("mark volume %s: %w", pv.Name, err)
	}
	return now, nil
}
