package main

import (
	"context"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// storage is the pool's directory as the product reaches it. Each call is a step. What no step of this world needs is
// not there.
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

func (s storage) ask(name, pv string) result { return s.askFor(call{name: name, cell: numberOf(pv)}) }

func (s storage) askFor(c call) result {
	c.pool = s.pool
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

func (s storage) Create(_ context.Context, _ mounts.Identity, spec volume.Spec) (string, error) {
	spec.Copied = nil // it is told to the claim alone
	return valueOf[string](s.askFor(call{name: "Create", cell: numberOf(spec.PV), spec: s.p.tree.disks.spec(spec)}))
}

func (s storage) Undo(_ context.Context, _ mounts.Identity, pv string) error {
	return s.ask("Undo", pv).err
}

func (s storage) Resize(_ context.Context, _ mounts.Identity, pv string, bytes int64) error {
	return s.askFor(call{name: "Resize", cell: numberOf(pv), spec: uint32(moreThanOne(bytes))}).err
}

func (s storage) Raise(_ context.Context, _ mounts.Identity, pv string, bytes int64) (bool, error) {
	return valueOf[bool](s.askFor(call{name: "Raise", cell: numberOf(pv), spec: uint32(moreThanOne(bytes))}))
}

func (s storage) Trash(_ context.Context, _ mounts.Identity, pv string) error {
	return s.ask("Trash", pv).err
}

func (s storage) PutBack(_ context.Context, _ mounts.Identity, pv, _ string) error {
	return s.ask("PutBack", pv).err
}

func (s storage) Discard(_ context.Context, _ mounts.Identity, pv string) error {
	return s.ask("Discard", pv).err
}

func (s storage) Archive(_ context.Context, _ mounts.Identity, pv string) error {
	return s.ask("Archive", pv).err
}

func (s storage) Retain(_ context.Context, _ mounts.Identity, pv string) error {
	return s.ask("Retain", pv).err
}

func (s storage) Published(_ context.Context, _ mounts.Identity, pv string) error {
	return s.ask("Published", pv).err
}

func (s storage) Purge(_ context.Context, _ mounts.Identity, pv string) (volume.Purged, error) {
	return valueOf[volume.Purged](s.ask("Purge", pv))
}

func (s storage) Lookup(_ context.Context, _ mounts.Identity, pv string) (record.Record, error) {
	return valueOf[record.Record](s.ask("Lookup", pv))
}

func (s storage) LookupArchived(_ context.Context, _ mounts.Identity, pv, _ string) (record.Record, error) {
	return valueOf[record.Record](s.ask("LookupArchived", pv))
}

func (s storage) Exists(_ context.Context, _ mounts.Identity, directory string) (bool, error) {
	c := call{name: "Exists", cell: numberOf(strings.TrimPrefix(directory, otherPattern))}
	if strings.HasPrefix(directory, otherPattern) {
		c.spec = 1
	}
	return valueOf[bool](s.askFor(c))
}

func (s storage) List(context.Context, mounts.Identity) (volume.Inventory, error) {
	return valueOf[volume.Inventory](s.askFor(call{name: "List", cell: -1}))
}

func (s storage) Sweep(context.Context, mounts.Identity) (int, error) {
	return valueOf[int](s.askFor(call{name: "Sweep", cell: -1}))
}
