package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/everynode"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/expansion"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/podclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Lister is a view of watched objects; keys are "name" or "namespace/name".
type Lister[T any] interface {
	Get(key string) (T, bool)
	List() []T
}

// WatchedLister is a Store that knows whether it is kept up to date at this moment, or only
// remembers.
type WatchedLister[T any] interface {
	Lister[T]
	Watched() bool
}

// Listers is what the daemon watches.
type Listers struct {
	Claims  WatchedLister[*corev1.PersistentVolumeClaim] // those that may concern this node (plan.KeepClaim and its like)
	Classes WatchedLister[*storagev1.StorageClass]       // those of our provisioner
	Volumes Lister[*corev1.PersistentVolume]             // those of this node
	Nodes   Lister[*corev1.Node]                         // this node alone
	// Pods are those that wait to start on this node and use claims (plan.LeanPod). It may be nil.
	Pods Lister[*corev1.Pod]
}

// API is the part of Kubernetes that the controllers use. What is read is read from the API itself,
// before something that cannot be undone. An object that does not exist is nil without an error.
type API interface {
	ownership.API
	everynode.API
	expansion.API
	leadership.Leases
	podclaims.API
	Reader
	// ReadTombstone returns nil without an error for a volume that has none.
	ReadTombstone(ctx context.Context, pv string) (*plan.Tombstone, error)
	// CreateVolume returns the object that has the name already, if there is one.
	CreateVolume(ctx context.Context, pv *corev1.PersistentVolume) (existing *corev1.PersistentVolume, err error)
	// HoldVolume puts our finalizer on an object whose policy and claim are still as given; else it
	// returns a conflict. It returns the object as it is then, nil if it is gone.
	HoldVolume(ctx context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error)
	// DeleteVolume deletes an object that is still as given, a conflict if it is not.
	DeleteVolume(ctx context.Context, pv *corev1.PersistentVolume) error
	// SetSelectedNode writes the node on a claim, unless another writer changed it: won is false.
	SetSelectedNode(ctx context.Context, claim *corev1.PersistentVolumeClaim,
		node string) (won bool, err error)
}

// Reader reads what the other parts of API do not.
type Reader interface {
	// EachVolume reads all volume objects of the cluster.
	EachVolume(ctx context.Context, visit func(*corev1.PersistentVolume)) error
	// FewVolumes reads the volume objects of the cluster, of more than limit only some. all reports
	// whether these were all.
	FewVolumes(ctx context.Context, limit int64, visit func(*corev1.PersistentVolume)) (all bool, err error)
	// EachKept reads the volume objects that the policy of the VolumeIndex has labelled as kept for
	// claims of these names, and perhaps others.
	EachKept(ctx context.Context, claims []string, visit func(*corev1.PersistentVolume)) error
	// EachMissed reads all volume objects of the cluster, and calls visit with those that are kept
	// for a claim and have not that label.
	EachMissed(ctx context.Context, visit func(*corev1.PersistentVolume)) error
	// VolumeIndex returns which policy labels kept volumes, "" for none. Another identity is
	// another policy, or was changed.
	VolumeIndex(ctx context.Context) (identity string, err error)
	// TryVolumeIndex reports whether the API server labels a volume by that policy. Nothing is
	// changed.
	TryVolumeIndex(ctx context.Context, pv *corev1.PersistentVolume) (labels bool, err error)
	NodeCount(ctx context.Context) (int, error)
	NodeExists(ctx context.Context, name string) (bool, error)
	// EventLastWritten returns when an event was written last, by any daemon, and its message; the
	// zero time is never.
	EventLastWritten(ctx context.Context, ref corev1.ObjectReference, kind, reason, message string) (at time.Time, text string, err error)
	// GetDriver returns the CSIDriver of this name.
	GetDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	// ClassProvisioner is the provisioner of a class, "" if there is no such class.
	ClassProvisioner(ctx context.Context, class string) (string, error)
}

// Snapshots is the part of the API group snapshot.storage.k8s.io that the controllers use. An
// object that does not exist is nil without an error. Writes return a conflict if the content is
// not as given any more.
type Snapshots interface {
	GetContent(ctx context.Context, name string) (*snapshotapi.Content, error)
	GetSnapshot(ctx context.Context, namespace, name string) (*snapshotapi.Snapshot, error)
	GetSnapshotClass(ctx context.Context, name string) (*snapshotapi.Class, error)
	// TakeContent writes the node's name on a content.
	TakeContent(ctx context.Context, of *snapshotapi.Content, node string) (*snapshotapi.Content, error)
	SetContentStatus(ctx context.Context, of *snapshotapi.Content, status snapshotapi.ContentStatus) error
	// ClearContentStatus returns the content as it is then.
	ClearContentStatus(ctx context.Context, of *snapshotapi.Content) (*snapshotapi.Content, error)
	// ReleaseContent takes our finalizer off. was is false for a content that is gone.
	ReleaseContent(ctx context.Context, of *snapshotapi.Content) (was bool, err error)
}

// Pauser stops the pods that write to a volume for a moment. The context that Pause returns ends
// when they go on; end has them go on, and returns how long how many stood still, or that they did
// not all the time.
type Pauser interface {
	Pause(ctx context.Context, pool, volume string) (paused context.Context, end func() (Paused, error), err error)
}

// InlineHost finds out which inline volumes pods of this host have. An error comes with true.
type InlineHost interface {
	// Mounted reports whether a directory of a pool is mounted for a pod.
	Mounted(directory string) (bool, error)
	// Pod reports whether kubelet has a directory of the pod with this UID.
	Pod(uid string) (bool, error)
}

// Paused says how many pods stood still, and for how long.
type Paused struct {
	Pods int
	For  time.Duration
}

// Published is what the nodes publish for the scheduler.
type Published interface {
	// Compared returns how many nodes publish what the scheduler compares for a provisioner's
	// classes, as far as this node knows; 0: it compares nothing.
	Compared(provisioner string) int
	// Offers returns it by class: nothing if the scheduler does not compare it.
	Offers(ctx context.Context) (map[string]*plan.Offers, error)
	// RefusedFor returns why the API server refuses what this node publishes for a class, "" if it
	// does not.
	RefusedFor(class string) string
}

// Prober looks at one pool. It returns by the context's deadline, also when the pool hangs, and
// finds a pool closed in which a call of its storage does not return.
type Prober interface {
	Probe(ctx context.Context) hostcheck.Report
}

// Metrics counts. It never blocks.
type Metrics interface {
	everynode.Metrics
	expansion.Metrics
	Claim(pool, reason string, took time.Duration)
	Snapshot(reason string)
	Pool(s gate.State)
	Usage(pool string, takes usage.Pool)
}
