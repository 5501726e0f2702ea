// Package snapshotapi has the objects of the API group snapshot.storage.k8s.io, version v1, with
// the fields that the daemon reads and writes. They are the cluster's CustomResourceDefinitions and
// not Kubernetes' own, and their Go module (external-snapshotter/client) asks for a later k8s.io
// than the daemon's.
//
// The package will not send a request, decide anything, or import another package of this project.
package snapshotapi

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// GroupVersion is that of all objects here.
var GroupVersion = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// Names that the snapshot-controller and the provisioner of a driver share (external-snapshotter
// v8.6.0, pkg/utils/util.go).
const (
	Kind = "VolumeSnapshot"
	// Finalizer of a content: the snapshot-controller sets it, and the driver's side takes it off
	// when the data is gone.
	Finalizer = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
	// BeingDeleted is an annotation of a content whose VolumeSnapshot is deleted: before that it is
	// not removed.
	BeingDeleted = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
	// HandlePrefix begins the name of a new snapshot, before the UID of its VolumeSnapshot
	// (csi-snapshotter
	// --snapshot-name-prefix).
	HandlePrefix = "snapshot-"
)

// Values of Content.Spec.DeletionPolicy.
const (
	PolicyDelete = "Delete"
	PolicyRetain = "Retain"
)

// Snapshot is a VolumeSnapshot: what a user asks for.
type Snapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SnapshotSpec    `json:"spec"`
	Status            *SnapshotStatus `json:"status,omitempty"`
}

// SnapshotSpec is of what a user asks for a snapshot.
type SnapshotSpec struct {
	Source SnapshotSource `json:"source"`
}

// SnapshotSource names a claim, unless it names a content that is there.
type SnapshotSource struct {
	Claim   *string `json:"persistentVolumeClaimName,omitempty"`
	Content *string `json:"volumeSnapshotContentName,omitempty"`
}

// SnapshotStatus is the snapshot-controller's.
type SnapshotStatus struct {
	BoundContent *string `json:"boundVolumeSnapshotContentName,omitempty"`
	ReadyToUse   *bool   `json:"readyToUse,omitempty"`
	Error        *Error  `json:"error,omitempty"`
}

// Failure is the message of a status's error, "" if there is none.
func (s *SnapshotStatus) Failure() string {
	if s == nil || s.Error == nil || s.Error.Message == nil {
		return ""
	}
	return *s.Error.Message
}

// Content is a VolumeSnapshotContent: what a driver has of it.
type Content struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ContentSpec    `json:"spec"`
	Status            *ContentStatus `json:"status,omitempty"`
}

// ContentSpec is what the snapshot-controller asks of a driver, or people do.
type ContentSpec struct {
	SnapshotRef    SnapshotRef   `json:"volumeSnapshotRef"`
	DeletionPolicy string        `json:"deletionPolicy"`
	Driver         string        `json:"driver"`
	Class          *string       `json:"volumeSnapshotClassName,omitempty"`
	Source         ContentSource `json:"source"`
}

// SnapshotRef is the VolumeSnapshot that a content belongs to. Its UID is empty until it is bound.
type SnapshotRef struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
}

// ContentSource has one of its fields: the volume of which a snapshot is to be made, or the
// snapshot that is there.
type ContentSource struct {
	VolumeHandle   *string `json:"volumeHandle,omitempty"`
	SnapshotHandle *string `json:"snapshotHandle,omitempty"`
}

// ContentStatus is the driver's.
type ContentStatus struct {
	SnapshotHandle *string `json:"snapshotHandle,omitempty"`
	CreationTime   *int64  `json:"creationTime,omitempty"` // nanoseconds since the epoch
	RestoreSize    *int64  `json:"restoreSize,omitempty"`  // bytes
	ReadyToUse     *bool   `json:"readyToUse,omitempty"`
	Error          *Error  `json:"error,omitempty"`
}

// Error is why there is no snapshot.
type Error struct {
	Time    *metav1.Time `json:"time,omitempty"`
	Message *string      `json:"message,omitempty"`
}

// Class is a VolumeSnapshotClass.
type Class struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Driver            string            `json:"driver"`
	Parameters        map[string]string `json:"parameters,omitempty"`
}

// ContentList is a page of contents.
type ContentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Content `json:"items"`
}

// AddToScheme registers the objects under their kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(GroupVersion.WithKind(Kind), &Snapshot{})
	s.AddKnownTypeWithName(GroupVersion.WithKind("VolumeSnapshotContent"), &Content{})
	s.AddKnownTypeWithName(GroupVersion.WithKind("VolumeSnapshotContentList"), &ContentList{})
	s.AddKnownTypeWithName(GroupVersion.WithKind("VolumeSnapshotClass"), &Class{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Handle is the name of a content's snapshot at the driver: that in its status, that which people
// gave, or that which a new one gets. It is "" for a content that no VolumeSnapshot asks for.
func (c *Content) Handle() string {
	switch {
	case c.Status != nil && c.Status.SnapshotHandle != nil:
		return *c.Status.SnapshotHandle
	case c.Spec.Source.SnapshotHandle != nil:
		return *c.Spec.Source.SnapshotHandle
	case c.Spec.SnapshotRef.UID != "":
		return HandlePrefix + string(c.Spec.SnapshotRef.UID)
	}
	return ""
}

// Failure is the message of the status's error, "" if it has none.
func (c *Content) Failure() string {
	if c.Status == nil || c.Status.Error == nil || c.Status.Error.Message == nil {
		return ""
	}
	return *c.Status.Error.Message
}

// NewError is the error of a status.
func NewError(message string, at time.Time) *Error {
	return &Error{Time: &metav1.Time{Time: at}, Message: &message}
}

// Ready reports whether volumes can be made from it. A driver says so together with the handle;
// without one people wrote it, and nothing was made.
func (c *Content) Ready() bool {
	return c.Status != nil && c.Status.ReadyToUse != nil && *c.Status.ReadyToUse && c.Status.SnapshotHandle != nil
}

// DeepCopyObject is part of runtime.Object.
func (s *Snapshot) DeepCopyObject() runtime.Object {
	copied := &Snapshot{TypeMeta: s.TypeMeta, ObjectMeta: *s.ObjectMeta.DeepCopy()}
	copied.Spec.Source.Claim = pointTo(s.Spec.Source.Claim)
	copied.Spec.Source.Content = pointTo(s.Spec.Source.Content)
	if from := s.Status; from != nil {
		copied.Status = &SnapshotStatus{pointTo(from.BoundContent), pointTo(from.ReadyToUse), nil}
		if from.Error != nil {
			copied.Status.Error = &Error{from.Error.Time.DeepCopy(), pointTo(from.Error.Message)}
		}
	}
	return copied
}

// DeepCopy returns a copy that shares nothing.
func (c *Content) DeepCopy() *Content {
	copied := &Content{TypeMeta: c.TypeMeta, ObjectMeta: *c.ObjectMeta.DeepCopy(), Spec: c.Spec}
	copied.Spec.Class = pointTo(c.Spec.Class)
	copied.Spec.Source = ContentSource{pointTo(c.Spec.Source.VolumeHandle), pointTo(c.Spec.Source.SnapshotHandle)}
	if s := c.Status; s != nil {
		copied.Status = &ContentStatus{
			SnapshotHandle: pointTo(s.SnapshotHandle), CreationTime: pointTo(s.CreationTime), RestoreSize: pointTo(s.RestoreSize), ReadyToUse: pointTo(s.ReadyToUse),
		}
		if s.Error != nil {
			copied.Status.Error = &Error{Time: s.Error.Time.DeepCopy(), Message: pointTo(s.Error.Message)}
		}
	}
	return copied
}

// DeepCopyObject is part of runtime.Object.
func (c *Content) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopyObject is part of runtime.Object.
func (c *Class) DeepCopyObject() runtime.Object {
	return &Class{TypeMeta: c.TypeMeta, ObjectMeta: *c.ObjectMeta.DeepCopy(), Driver: c.Driver, Parameters: maps.Clone(c.Parameters)}
}

// DeepCopyObject is part of runtime.Object.
func (l *ContentList) DeepCopyObject() runtime.Object {
	copied := &ContentList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopy())
	}
	return copied
}

func pointTo[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}
