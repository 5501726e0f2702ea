package snapshotapi

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

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
	if s.Status != nil {
		copied.Status = &SnapshotStatus{BoundContent: pointTo(s.Status.BoundContent), ReadyToUse: pointTo(s.Status.ReadyToUse)}
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
