package model

import (
	"context"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// storage is the pool's directory as the product reaches it. Each call is a step. What no step of
// this world needs is not there.
type storage struct {
	disk.Storage
	p    *product
	pool uint8
	host uint8 // by which daemons of a shared pool tell their files apart
}

// result is what a call returned.
type result struct {
	value any
	err   error
}

func (s storage) ask(id mounts.Identity, name, pv string) result {
	return s.askFor(id, call{name: name, cell: numberOf(pv)})
}

func (s storage) askFor(id mounts.Identity, c call) result {
	c.pool, c.on = s.pool, seat(id.Inode-firstInode)
	if s.pool == sharedPool {
		c.host = s.host
	}
	a, ok := s.p.ask(op{kind: onDisk, at: c.cell, disk: c})
	if !ok {
		return result{err: errStopped}
	}
	return s.p.tree.disks.results.value(a.disk)
}

// valueOf is what a call returned, of its type.
func valueOf[T any](r result) (value T, err error) {
	if v, is := r.value.(T); is {
		value = v
	}
	return value, r.err
}

func (s storage) Create(_ context.Context, id mounts.Identity, spec volume.Spec) (string, error) {
	spec.Copied = nil // it is told to the claim alone
	return valueOf[string](s.askFor(id, call{name: "Create", cell: numberOf(spec.PV), spec: s.p.tree.disks.spec(spec)}))
}

func (s storage) Undo(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Undo", pv).err
}

func (s storage) Resize(_ context.Context, id mounts.Identity, pv string, bytes int64) error {
	return s.askFor(id, call{name: "Resize", cell: numberOf(pv), spec: uint32(moreThanOne(bytes))}).err
}

func (s storage) ResizeFrom(
	_ context.Context, id mounts.Identity, pv string, was, bytes int64,
) (bool, error) {
	sizes := moreThanOne(was)*(most+1) + moreThanOne(bytes)
	made := call{name: "ResizeFrom", cell: numberOf(pv), spec: uint32(sizes)}
	return valueOf[bool](s.askFor(id, made))
}

func (s storage) Trash(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Trash", pv).err
}

func (s storage) PutBack(_ context.Context, id mounts.Identity, pv, _ string) error {
	return s.ask(id, "PutBack", pv).err
}

func (s storage) Discard(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Discard", pv).err
}

func (s storage) Archive(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Archive", pv).err
}

func (s storage) Retain(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Retain", pv).err
}

func (s storage) Hold(_ context.Context, id mounts.Identity, pv string, held bool) error {
	name := "Unhold"
	if held {
		name = "Hold"
	}
	return s.ask(id, name, pv).err
}

func (s storage) Published(_ context.Context, id mounts.Identity, pv string) error {
	return s.ask(id, "Published", pv).err
}

func (s storage) Purge(_ context.Context, id mounts.Identity, pv string) (volume.Purged, error) {
	return valueOf[volume.Purged](s.ask(id, "Purge", pv))
}

func (s storage) Lookup(_ context.Context, id mounts.Identity, pv string) (record.Record, error) {
	return valueOf[record.Record](s.ask(id, "Lookup", pv))
}

func (s storage) LookupArchived(_ context.Context, id mounts.Identity, pv, _ string) (record.Record, error) {
	return valueOf[record.Record](s.ask(id, "LookupArchived", pv))
}

func (s storage) Exists(_ context.Context, id mounts.Identity, directory string) (bool, error) {
	c := call{name: "Exists", cell: numberOf(strings.TrimPrefix(directory, otherPattern))}
	if strings.HasPrefix(directory, otherPattern) {
		c.spec = 1
	}
	return valueOf[bool](s.askFor(id, c))
}

func (s storage) List(_ context.Context, id mounts.Identity) (volume.Inventory, error) {
	return valueOf[volume.Inventory](s.askFor(id, call{name: "List", cell: -1}))
}

func (s storage) Sweep(_ context.Context, id mounts.Identity) (int, error) {
	return valueOf[int](s.askFor(id, call{name: "Sweep", cell: -1}))
}
