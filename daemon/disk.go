package daemon

import (
	"context"
	"errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controller"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// disk speaks controller's words with volume's hands. It adds only the label that volumes are born
// with, "" where there is no SELinux.
type disk struct {
	*volume.Pool
	label string
}

func newDisk(hands *volume.Pool, selinuxType string) disk {
	if selinuxType != "" && selinux.Enabled() {
		return disk{hands, selinux.Label(selinuxType)}
	}
	return disk{hands, ""}
}

func (d disk) Create(ctx context.Context, id mounts.Identity, m controller.Making) error {
	quota := int64(0)
	if m.Quota {
		quota = m.Record.Requested
	}
	_, err := d.Pool.Create(ctx, id, volume.Spec{Record: m.Record, Mode: m.Mode, UID: m.UID, GID: m.GID, Label: d.label, Quota: quota})
	return translate(err)
}

func (d disk) Undo(ctx context.Context, id mounts.Identity, pv string) error {
	return translate(d.Pool.Undo(ctx, id, pv))
}

func (d disk) Trash(ctx context.Context, id mounts.Identity, pv string) error {
	return translate(d.Pool.Trash(ctx, id, pv))
}

func (d disk) PutBack(ctx context.Context, id mounts.Identity, pv, claimUID string) error {
	return translate(d.Pool.PutBack(ctx, id, pv, claimUID))
}

func (d disk) Discard(ctx context.Context, id mounts.Identity, pv string) error {
	return translate(d.Pool.Discard(ctx, id, pv))
}

func (d disk) Archive(ctx context.Context, id mounts.Identity, pv string) error {
	return translate(d.Pool.Archive(ctx, id, pv))
}

func (d disk) Retain(ctx context.Context, id mounts.Identity, pv string) error {
	return translate(d.Pool.Retain(ctx, id, pv))
}

func (d disk) Published(ctx context.Context, id mounts.Identity, pv string) error {
	return translate(d.Pool.Published(ctx, id, pv))
}

func (d disk) Purge(ctx context.Context, id mounts.Identity, pv string) error {
	_, err := d.Pool.Purge(ctx, id, pv)
	return translate(err)
}

func (d disk) Lookup(ctx context.Context, id mounts.Identity, pv string) (*record.Record, error) {
	return recorded(d.Pool.Lookup(ctx, id, pv))
}

func (d disk) Archived(ctx context.Context, id mounts.Identity, pv, claimUID string) (*record.Record, error) {
	return recorded(d.Pool.LookupArchived(ctx, id, pv, claimUID))
}

// recorded is nil without an error where there is no record.
func recorded(r record.Record, err error) (*record.Record, error) {
	switch {
	case errors.Is(err, volume.ErrNotRecorded):
		return nil, nil
	case err != nil:
		return nil, translate(err)
	}
	return &r, nil
}

func (d disk) Exists(ctx context.Context, id mounts.Identity, directory string) (bool, error) {
	there, err := d.Pool.Exists(ctx, id, directory)
	return there, translate(err)
}

// Records leaves damaged records out: nothing is done with them, and the volumes command shows them.
func (d disk) Records(ctx context.Context, id mounts.Identity) ([]record.Record, error) {
	inventory, err := d.Pool.List(ctx, id)
	return inventory.Volumes, translate(err)
}

func (d disk) Sweep(ctx context.Context, id mounts.Identity) (int, error) {
	n, err := d.Pool.Sweep(ctx, id)
	return n, translate(err)
}

// translate puts the error that controller knows into the chain.
func translate(err error) error {
	for from, to := range map[error]error{
		volume.ErrMoved:    controller.ErrMoved,
		volume.ErrNotEmpty: controller.ErrNotEmpty,
		volume.ErrNoQuota:  controller.ErrNoQuota,
	} {
		if errors.Is(err, from) {
			return translated{err, to}
		}
	}
	return err
}

// translated reads like the original and is also the other.
type translated struct {
	error
	also error
}

func (t translated) Unwrap() []error { return []error{t.error, t.also} }
