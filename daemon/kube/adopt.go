package kube

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// EachVolume reads all volume objects of the cluster, a page at a time.
func (c *Client) EachVolume(ctx context.Context, visit func(*corev1.PersistentVolume)) error {
	return volumeKind.each(ctx, c, selection{}, visit)
}

// EachVolumeOf reads the volume objects whose node's label has one of these values, or another one
// than these, a page at a time.
func (c *Client) EachVolumeOf(ctx context.Context, nodes []string, not bool,
	visit func(*corev1.PersistentVolume)) error {
	in := " in ("
	if not {
		in = "," + plan.NodeLabel + " notin ("
	}
	labels := plan.NodeLabel + in + strings.Join(nodes, ",") + ")"
	return volumeKind.each(publishing(ctx), c, selection{labels: labels}, visit)
}

// EachNode reads all nodes, a page at a time.
func (c *Client) EachNode(ctx context.Context, visit func(*corev1.Node)) error {
	return nodeKind.each(publishing(ctx), c, selection{}, visit)
}

// FewVolumes reads the volume objects of the cluster as they are at the time of the call or later,
// in one page: of more than limit only some. It reports whether visit was called with all.
func (c *Client) FewVolumes(ctx context.Context, limit int64, visit func(*corev1.PersistentVolume)) (all bool, err error) {
	next, err := eachOfPage(ctx, volumeKind.source(c, selection{}), metav1.ListOptions{Limit: limit}, visit)
	return err == nil && next == "", err
}

// EachPod reads the pods that a field selector leaves, a page at a time: of one namespace, or of
// all if it is empty.
func (c *Client) EachPod(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error {
	return podKind.each(ctx, c, selection{namespace: namespace, fields: fields}, visit)
}

// fewPages are as many pages of pods as FewPods reads.
const fewPages = 5

// FewPods is EachPod of a namespace that reads no more than the first pages.
func (c *Client) FewPods(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error {
	source := podKind.source(c, selection{namespace: namespace, fields: fields})
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
	named := selection{fields: "metadata.name=" + name}
	ofLeases := leaseKind.each(ctx, c, named, visit)
	return errors.Join(ofLeases, endpointsKind.each(ctx, c, named, func(e *corev1.Endpoints) {
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

// GetNode requests a node from the API server. It returns nil without an error if the node does not
// exist.
func (c *Client) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return nodeKind.get(ctx, c, "", name)
}

// CSIDrivers returns the CSI drivers that kubelet has registered on a node. A node without a
// CSINode has none.
func (c *Client) CSIDrivers(ctx context.Context, node string) (names []string, err error) {
	registered, err := csiNodeKind.get(ctx, c, "", node)
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
	_, err := volumeKind.create(ctx, c, "", pv, dryRun)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return about(err, "the server would not take volume %s", pv.Name)
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
	_, err := c.markVolume(ctx, pv, m, dryRun)
	return err
}

func (c *Client) markVolume(ctx context.Context, pv *corev1.PersistentVolume, m plan.MetadataPatch,
	how ...option) (*corev1.PersistentVolume, error) {
	change := map[string]any{"metadata": asGiven(pv, map[string]any{
		"labels": m.Labels, "annotations": m.Annotations, "finalizers": m.Finalizers,
	})}
	if m.Reclaim != "" {
		change["spec"] = map[string]any{"persistentVolumeReclaimPolicy": m.Reclaim}
	}
	now, err := volumeKind.change(ctx, c, pv, change, how...)
	return now, about(err, "mark volume %s", pv.Name)
}
