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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// GetClaim requests a claim from the API server. It returns nil without an error if the claim does
// not exist.
func (c *Client) GetClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return claimKind.get(ctx, c, namespace, name)
}

// GetVolume requests a volume from the API server. It returns nil without an error if the volume
// does not exist.
func (c *Client) GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return volumeKind.get(ctx, c, "", name)
}

// GetDriver requests a CSIDriver from the API server. It returns nil without an error if there is
// none of the name.
func (c *Client) GetDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return driverKind.get(ctx, c, "", name)
}

// ClassProvisioner requests a StorageClass from the API server and returns its provisioner, "" if
// the class does not exist.
func (c *Client) ClassProvisioner(ctx context.Context, name string) (string, error) {
	class, err := classKind.get(ctx, c, "", name)
	if class == nil {
		return "", err
	}
	return class.Provisioner, nil
}

// ClusterID returns the UID of the namespace kube-system. Every cluster has it from its first start
// on, and a restore of etcd keeps it. It returns "" without an error if the kubeconfig may not read
// that namespace: a kubeconfig of rights of one's own may lack it.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	namespace, err := namespaceKind.get(ctx, c, "", metav1.NamespaceSystem)
	switch {
	case apierrors.IsForbidden(err):
		return "", nil
	case namespace == nil:
		return "", err
	}
	return string(namespace.UID), nil
}

// absent reports whether an error is the API server's response that no object has this name. A 404
// of something in between, a load balancer without a server behind it, say, names no object, or is
// an unexpected response to client-go, which puts the name in itself (apimachinery, pkg/api/errors,
// NewNotFound and NewGenericServerResponse).
func absent(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name
}

// NodeExists requests a Node from the API server and reports whether it exists.
func (c *Client) NodeExists(ctx context.Context, name string) (bool, error) {
	request := c.groups[core].Get().Resource(nodeKind.plural).
		SetHeader("Accept", metadataOnly("PartialObjectMetadata"))
	exists, err := readInto(ctx, request, &metav1.PartialObjectMetadata{}, name)
	return exists, about(err, "read node %s", name)
}

// metadataOnly returns the Accept header with which the server leaves out spec and status.
func metadataOnly(kind string) string {
	as := ";as=" + kind + ";g=meta.k8s.io;v=v1"
	return runtime.ContentTypeProtobuf + as + "," + runtime.ContentTypeJSON + as
}

// NodeCount returns how many Nodes the cluster has, by the server's estimate: the server sends one,
// without spec and status, and the number of the remaining ones.
func (c *Client) NodeCount(ctx context.Context) (int, error) {
	page, err := c.nodesPage(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("count the nodes: %w", err)
	}
	count := len(page.Items)
	switch {
	case page.RemainingItemCount != nil:
		count += int(*page.RemainingItemCount)
	case page.Continue != "":
		count++ // at least
	}
	return count, nil
}

// nodesPage reads a page of nodes without spec and status.
func (c *Client) nodesPage(ctx context.Context, of metav1.ListOptions) (
	*metav1.PartialObjectMetadataList, error) {
	page := &metav1.PartialObjectMetadataList{}
	return page, receiveList(ctx, c.groups[core].Get().Resource(nodeKind.plural).
		SetHeader("Accept", metadataOnly("PartialObjectMetadataList")).
		VersionedParams(&of, c.params).Timeout(callTimeout), page)
}

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

// The requests from here on are those of a person with rights that no daemon has.

// EachClaim reads all claims of the cluster, a page at a time.
func (c *Client) EachClaim(ctx context.Context, visit func(*corev1.PersistentVolumeClaim)) error {
	return claimKind.each(ctx, c, selection{}, visit)
}

// EachContent reads all VolumeSnapshotContents of the cluster, a page at a time. A cluster without
// that resource has none.
func (c *Client) EachContent(ctx context.Context, visit func(*snapshotapi.Content)) error {
	return ignoreMissing(contentKind.each(ctx, c, selection{}, visit))
}

// EachLease reads the Leases in the daemons' namespace, a page at a time.
func (c *Client) EachLease(ctx context.Context, visit func(*coordinationv1.Lease)) error {
	return leaseKind.each(ctx, c, selection{namespace: c.options.Namespace}, visit)
}

// EachCapacity reads what a node publishes for these drivers, by the node's label value, or what
// all do where that is "".
func (c *Client) EachCapacity(ctx context.Context, drivers []string, node string,
	visit func(*storagev1.CSIStorageCapacity)) error {
	labels := managerLabel + "=" + component + "," +
		driverLabel + " in (" + strings.Join(drivers, ",") + ")"
	if node != "" {
		labels += "," + plan.NodeLabel + "=" + node
	}
	return capacityKind.each(ctx, c, selection{namespace: c.options.Namespace, labels: labels}, visit)
}

// MarkClaim writes an annotation and the list of finalizers of a claim, if it is as given, and
// returns it as it is then: a conflict otherwise.
func (c *Client) MarkClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim,
	key string, value *string, finalizers []string) (*corev1.PersistentVolumeClaim, error) {
	now, err := claimKind.change(ctx, c, claim, map[string]any{"metadata": asGiven(claim, map[string]any{
		"annotations": map[string]*string{key: value}, "finalizers": finalizers,
	})})
	return now, about(err, "mark claim %s/%s", claim.Namespace, claim.Name)
}

// CreateClaim makes a claim. One that has the name already is left as it is: a conflict.
func (c *Client) CreateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	_, err := claimKind.create(ctx, c, claim.Namespace, claim)
	return about(err, "create claim %s/%s", claim.Namespace, claim.Name)
}

// DeleteClaim deletes a claim, if it has the UID. It is no error if it is gone.
func (c *Client) DeleteClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	return claimKind.removeThis(ctx, c, claim, nil)
}

// DeletePod deletes a pod at once, if it has the UID, whether or not a kubelet is there to stop it.
// It is no error if it is gone.
func (c *Client) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	return podKind.removeThis(ctx, c, pod, new(int64))
}

// DeleteContent deletes a VolumeSnapshotContent, if it has the UID. It is no error if it is gone.
func (c *Client) DeleteContent(ctx context.Context, of *snapshotapi.Content) error {
	return contentKind.removeThis(ctx, c, of, nil)
}

// GetPod requests a pod. It returns nil without an error if the pod does not exist.
func (c *Client) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return podKind.get(ctx, c, namespace, name)
}

// GetClass requests a StorageClass. It returns nil without an error if the class does not exist.
func (c *Client) GetClass(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	return classKind.get(ctx, c, "", name)
}

// EachEvent reads the events of a namespace that a field selector leaves, a page at a time.
func (c *Client) EachEvent(ctx context.Context, namespace, fields string,
	visit func(*corev1.Event)) error {
	return eventKind.each(ctx, c, selection{namespace: namespace, fields: fields}, visit)
}

// EachRoom reads what all nodes publish for these drivers.
func (c *Client) EachRoom(ctx context.Context, drivers []string,
	visit func(storagecapacity.Object)) error {
	return c.EachCapacity(ctx, drivers, "", func(o *storagev1.CSIStorageCapacity) {
		visit(capacityOf(o))
	})
}

// ContextNamespace is the namespace of the context of an administrator's kubeconfig; "default" if
// it names none.
func ContextNamespace(kubeconfig string, overrides *clientcmd.ConfigOverrides) string {
	raw, err := loadFiles(kubeconfig, true)
	if err != nil {
		return corev1.NamespaceDefault
	}
	config := clientcmd.NewDefaultClientConfig(*raw, overrides)
	if namespace, _, err := config.Namespace(); err == nil {
		return namespace
	}
	return corev1.NamespaceDefault
}
