package kube

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Contents returns an informer of the VolumeSnapshotContents of the drivers that are called
// Options.Provisioner or one of Options.Aliases. It is of objects that a cluster need not have: an
// error is not reported, and as long as the cluster has no such resource it is asked for again at
// least every longestDelay. onChange may be nil.
func (c *Client) Contents(onChange func(old, new *snapshotapi.Content)) *Informer[*snapshotapi.Content] {
	s := NewInformer(contentKind.source(c, selection{}), func(one *snapshotapi.Content) bool { return c.options.Serves(one.Spec.Driver) }, onChange)
	s.transform = leanContent
	return s
}

// leanContent is a content without the metadata that nothing reads.
func leanContent(of *snapshotapi.Content) *snapshotapi.Content {
	lean := of.DeepCopy()
	lean.ManagedFields, lean.Labels = nil, nil
	lean.Annotations = map[string]string{}
	for _, key := range []string{snapshotapi.BeingDeleted, plan.NodeLabel} {
		if value, has := of.Annotations[key]; has {
			lean.Annotations[key] = words.Name(value)
		}
	}
	return lean
}

// RunOptional runs an informer of a resource that the cluster need not have, until ctx ends.
func RunOptional[T Object](ctx context.Context, s *Informer[T]) {
	s.Run(context.WithValue(ctx, uncounted{}, true))
}

// GetContent requests a VolumeSnapshotContent. It returns nil without an error if there is none of
// the name.
func (c *Client) GetContent(ctx context.Context, name string) (*snapshotapi.Content, error) {
	return contentKind.get(ctx, c, "", name)
}

// GetSnapshot requests a VolumeSnapshot. It returns nil without an error if there is none of the
// name.
func (c *Client) GetSnapshot(ctx context.Context, namespace, name string) (*snapshotapi.Snapshot, error) {
	return snapshotKind.get(ctx, c, namespace, name)
}

// GetSnapshotClass requests a VolumeSnapshotClass. It returns nil without an error if there is none
// of the name.
func (c *Client) GetSnapshotClass(ctx context.Context, name string) (*snapshotapi.Class, error) {
	return snapshotClassKind.get(ctx, c, "", name)
}

// TakeContent writes on a content which node has its snapshot, or is to make it: from then on the
// admission policies let that node's daemon alone write to it. It returns the content as it is
// then. The error is a conflict if the content has changed.
func (c *Client) TakeContent(ctx context.Context, of *snapshotapi.Content, node string) (*snapshotapi.Content, error) {
	return c.patchContent(ctx, of, map[string]any{"metadata": map[string]any{"annotations": map[string]any{plan.NodeLabel: node}}})
}

// SetContentStatus writes what a status has over that of a content, and no error if the status has
// none. The error is a conflict if the content has changed.
func (c *Client) SetContentStatus(ctx context.Context, of *snapshotapi.Content, status snapshotapi.ContentStatus) error {
	fields, err := json.Marshal(status)
	if err != nil {
		return err
	}
	all := map[string]any{"error": nil}
	if err := json.Unmarshal(fields, &all); err != nil {
		return err
	}
	_, err = c.patchContent(ctx, of, map[string]any{"status": all}, ofStatus)
	return err
}

// ClearContentStatus removes from a content's status what a driver says of a snapshot that there
// is, and returns the content as it is then. The error is a conflict if the content has changed.
func (c *Client) ClearContentStatus(ctx context.Context, of *snapshotapi.Content) (*snapshotapi.Content, error) {
	none := map[string]any{"snapshotHandle": nil, "creationTime": nil, "restoreSize": nil, "readyToUse": nil}
	return c.patchContent(ctx, of, map[string]any{"status": none}, ofStatus)
}

// ReleaseContent takes the finalizer of the driver's side off a content that is being deleted. The
// error is a conflict if the content has changed; was is false for one that is gone.
func (c *Client) ReleaseContent(ctx context.Context, of *snapshotapi.Content) (was bool, err error) {
	left := slices.DeleteFunc(slices.Clone(of.Finalizers), func(f string) bool { return f == snapshotapi.Finalizer })
	_, err = c.patchContent(ctx, of, map[string]any{"metadata": map[string]any{"finalizers": left}})
	if absent(err, of.Name) {
		return false, nil
	}
	return err == nil, err
}

// patchContent sends a merge patch that the server refuses if the content is not as given any more.
func (c *Client) patchContent(ctx context.Context, of *snapshotapi.Content, change map[string]any,
	how ...option) (*snapshotapi.Content, error) {
	metadata, _ := change["metadata"].(map[string]any)
	change["metadata"] = asGiven(of, metadata)
	now, err := contentKind.change(ctx, c, of, change, how...)
	return now, about(err, "write VolumeSnapshotContent %s", of.Name)
}
