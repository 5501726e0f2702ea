package sanity

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

const (
	node      = "node-a"
	namespace = "default"
	class     = "fast-csi"
	snapshots = "live"
)

// cluster has the objects that the daemon's reconcilers read and write, in memory. Binding a claim
// to its volume and a VolumeSnapshot to its content is kube-controller-manager's and the
// snapshot-controller's part, and done here.
type cluster struct {
	controllers.API // what the work on one node's pool never asks for is not there
	self            plan.Self
	claims          map[string]*corev1.PersistentVolumeClaim // by namespace and name
	volumes         map[string]*corev1.PersistentVolume
	contents        map[string]*snapshotapi.Content
	refusals        map[string]refusal // by kind and name of the object that was told
	version         int
}

// refusal is a warning event.
type refusal struct{ reason, message string }

func newCluster(self plan.Self) *cluster {
	return &cluster{
		self: self, claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		contents: map[string]*snapshotapi.Content{}, refusals: map[string]refusal{},
	}
}

func (c *cluster) listers() controllers.Listers {
	keep := func(claim *corev1.PersistentVolumeClaim) bool {
		return c.self.KeepClaim(claim) || c.self.KeepGrowing(claim)
	}
	return controllers.Listers{
		Claims: view[*corev1.PersistentVolumeClaim]{c.claims, keep}, Volumes: view[*corev1.PersistentVolume]{all: c.volumes},
		Classes: view[*storagev1.StorageClass]{all: map[string]*storagev1.StorageClass{class: {
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: c.self.Provisioner,
		}}},
		Nodes: view[*corev1.Node]{all: map[string]*corev1.Node{node: {
			ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{plan.HostnameLabel: node}},
		}}},
	}
}

func contents(c *cluster) view[*snapshotapi.Content] {
	return view[*snapshotapi.Content]{all: c.contents}
}

// view is what an informer has of some objects: those that it keeps.
type view[T interface{ DeepCopy() T }] struct {
	all  map[string]T
	keep func(T) bool // nil keeps all
}

func (v view[T]) Get(key string) (one T, kept bool) {
	one, is := v.all[key]
	if !is || v.keep != nil && !v.keep(one) {
		return *new(T), false
	}
	return one.DeepCopy(), true
}

func (v view[T]) List() (all []T) {
	for _, key := range slices.Sorted(maps.Keys(v.all)) {
		if one, kept := v.Get(key); kept {
			all = append(all, one)
		}
	}
	return all
}

func (v view[T]) Watched() bool { return true }

// write returns a conflict if an object is not as given, and gives it another version.
func (c *cluster) write(object, given metav1.Object) error {
	if object.GetUID() != given.GetUID() || object.GetResourceVersion() != given.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, given.GetName(), errors.New("it was changed"))
	}
	c.touch(object)
	return nil
}

func (c *cluster) touch(object metav1.Object) {
	c.version++
	object.SetResourceVersion(strconv.Itoa(c.version))
}

func (c *cluster) GetClaim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return c.claims[namespace+"/"+name].DeepCopy(), nil
}

func (c *cluster) GetVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return c.volumes[name].DeepCopy(), nil
}

func (c *cluster) EachVolume(_ context.Context, visit func(*corev1.PersistentVolume)) error {
	for _, v := range c.volumes {
		visit(v.DeepCopy())
	}
	return nil
}

func (c *cluster) NodeCount(context.Context) (int, error)           { return 2, nil }
func (c *cluster) NodeExists(context.Context, string) (bool, error) { return true, nil }
func (c *cluster) ClusterID(context.Context) (string, error)        { return "cluster", nil }
func (c *cluster) ClassProvisioner(context.Context, string) (string, error) {
	return c.self.Provisioner, nil
}

func (c *cluster) GetDriver(context.Context, string) (*storagev1.CSIDriver, error) {
	return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: new(bool)}}, nil
}

func (c *cluster) EventLastWritten(context.Context, corev1.ObjectReference, string, string, string) (time.Time, string, error) {
	return time.Time{}, "", nil
}

// CreateVolume binds the claim at once, as kube-controller-manager does soon.
func (c *cluster) CreateVolume(_ context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if existing := c.volumes[pv.Name]; existing != nil {
		return existing.DeepCopy(), nil
	}
	made := pv.DeepCopy()
	made.UID = types.UID("volume-" + pv.Name)
	made.Status.Phase = corev1.VolumeBound
	c.touch(made)
	c.volumes[pv.Name] = made
	claim := c.claims[pv.Spec.ClaimRef.Namespace+"/"+pv.Spec.ClaimRef.Name]
	claim.Spec.VolumeName, claim.Status.Phase, claim.Status.Capacity = pv.Name, corev1.ClaimBound, made.Spec.Capacity.DeepCopy()
	c.touch(claim)
	return nil, nil
}

// release is what kube-controller-manager does with a volume whose claim was deleted.
func (c *cluster) release(pv *corev1.PersistentVolume) {
	delete(c.claims, pv.Spec.ClaimRef.Namespace+"/"+pv.Spec.ClaimRef.Name)
	pv.Status.Phase = corev1.VolumeReleased
	c.touch(pv)
}

func (c *cluster) ReleaseFinalizer(_ context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	now := c.volumes[pv.Name]
	if now == nil {
		return nil, nil
	}
	if err := c.write(now, pv); err != nil {
		return nil, err
	}
	now.Finalizers = slices.DeleteFunc(now.Finalizers, func(f string) bool { return f == plan.Finalizer })
	return now.DeepCopy(), nil
}

func (c *cluster) DeleteVolume(_ context.Context, pv *corev1.PersistentVolume) error {
	if now := c.volumes[pv.Name]; now != nil {
		if err := c.write(now, pv); err != nil {
			return err
		}
		delete(c.volumes, pv.Name)
	}
	return nil
}

func (c *cluster) PatchClaimStatus(_ context.Context, claim *corev1.PersistentVolumeClaim, s plan.ClaimStatus) (*corev1.PersistentVolumeClaim, error) {
	now := c.claims[claim.Namespace+"/"+claim.Name]
	if err := c.write(now, claim); err != nil {
		return nil, err
	}
	now.Status.AllocatedResourceStatuses = nil
	if s.State != "" {
		now.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: s.State}
	}
	if s.Allocated != nil {
		now.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: *s.Allocated}
	}
	if s.Capacity != nil {
		now.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *s.Capacity}
	}
	return now.DeepCopy(), nil
}

func (c *cluster) SetCapacity(_ context.Context, pv *corev1.PersistentVolume, size resource.Quantity) error {
	now := c.volumes[pv.Name]
	if err := c.write(now, pv); err != nil {
		return err
	}
	now.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
	return nil
}

func (c *cluster) GetContent(_ context.Context, name string) (*snapshotapi.Content, error) {
	if now := c.contents[name]; now != nil {
		return now.DeepCopy(), nil
	}
	return nil, nil
}

// GetSnapshot returns a VolumeSnapshot with what the snapshot-controller takes over from its
// content.
func (c *cluster) GetSnapshot(_ context.Context, _, name string) (*snapshotapi.Snapshot, error) {
	content := c.contents[contentName(name)]
	if content == nil {
		return nil, nil
	}
	ready, bound := content.Ready(), content.Name
	return &snapshotapi.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: content.Spec.SnapshotRef.UID, DeletionTimestamp: content.DeletionTimestamp},
		Status:     &snapshotapi.SnapshotStatus{BoundContent: &bound, ReadyToUse: &ready},
	}, nil
}

func contentName(snapshot string) string { return "snapcontent-" + snapshot }

func (c *cluster) GetSnapshotClass(_ context.Context, name string) (*snapshotapi.Class, error) {
	return &snapshotapi.Class{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: c.self.Provisioner}, nil
}

// patch changes a content that is as given.
func (c *cluster) patch(of *snapshotapi.Content, change func(*snapshotapi.Content)) (*snapshotapi.Content, error) {
	now := c.contents[of.Name]
	if now == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "volumesnapshotcontents"}, of.Name)
	}
	if err := c.write(now, of); err != nil {
		return nil, err
	}
	change(now)
	return now.DeepCopy(), nil
}

func (c *cluster) TakeContent(_ context.Context, of *snapshotapi.Content, node string) (*snapshotapi.Content, error) {
	return c.patch(of, func(now *snapshotapi.Content) { now.Annotations[plan.NodeLabel] = node })
}

func (c *cluster) SetContentStatus(_ context.Context, of *snapshotapi.Content, s snapshotapi.ContentStatus) error {
	_, err := c.patch(of, func(now *snapshotapi.Content) { now.Status = &s })
	return err
}

func (c *cluster) ClearContentStatus(
	_ context.Context, of *snapshotapi.Content,
) (*snapshotapi.Content, error) {
	if of.Status == nil {
		return of, nil
	}
	return c.patch(of, func(now *snapshotapi.Content) { now.Status = nil })
}

// ReleaseContent takes the last finalizer off, and with it the content goes.
func (c *cluster) ReleaseContent(_ context.Context, of *snapshotapi.Content) (was bool, err error) {
	_, err = c.patch(of, func(now *snapshotapi.Content) { delete(c.contents, now.Name) })
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Event is part of report.Events.
func (c *cluster) Event(ref corev1.ObjectReference, kind, reason, message string) {
	if kind == corev1.EventTypeWarning {
		c.refusals[ref.Kind+"/"+ref.Name] = refusal{reason, message}
	}
}

// uncounted is metrics that no one reads.
type uncounted struct{}

func (uncounted) Claim(string, string, time.Duration) {}
func (uncounted) Volume(string, string)               {}
func (uncounted) Part(string, string)                 {}
func (uncounted) Expansion(string, string)            {}
func (uncounted) Snapshot(string)                     {}
func (uncounted) Pool(gate.State)                     {}
func (uncounted) Usage(string, usage.Pool)            {}
