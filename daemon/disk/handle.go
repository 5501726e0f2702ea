package disk

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Handle is a pool at the moment in which it was opened, for one piece of work. Its methods end
// with the context that it was opened with, and with the pool: see the package's comment. The zero
// Handle is closed.
//
// A call that hangs is left behind in the kernel. There are at most as many of these as workers,
// because a closed pool gets no new ones. Each call can be repeated, so the one left behind does no
// harm when it ends; what it made and is not wanted any more is found by its record.
type Handle struct {
	State  gate.State // of the moment in which the handle was opened
	ctx    context.Context
	pool   *Pool
	id     mounts.Identity // of the same moment
	closed <-chan struct{}
}

// errClosed is of a call for which the pool was not open, or did not stay open.
var errClosed = fmt.Errorf("%w: the pool was closed before the call was done", volume.ErrDirectoryReplaced)

// call does a piece of work in the pool, and does not wait for it longer than the handle lasts.
func call[T any](h Handle, work func(s Storage) (T, error)) (T, error) {
	var none T
	if !h.open() {
		return none, errClosed
	}
	defer h.pool.tracker.begin()()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := work(h.pool.Storage)
		done <- result{value, err}
		if !h.open() { // what kept the pool closed may have been this
			h.pool.Look()
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-h.closed:
		return none, errClosed
	case <-h.ctx.Done():
		return none, h.ctx.Err()
	}
}

// open reports whether the pool was open and has been since.
func (h Handle) open() bool {
	if h.pool == nil || !h.State.Removable() {
		return false
	}
	select {
	case <-h.closed:
		return false
	default:
		return true
	}
}

func (h Handle) do(work func(s Storage) error) error {
	_, err := call(h, func(s Storage) (struct{}, error) { return struct{}{}, work(s) })
	return err
}

// on does a piece of work on one volume.
func (h Handle) on(pv string,
	work func(s Storage, ctx context.Context, id mounts.Identity, pv string) error) error {
	return h.do(func(s Storage) error { return work(s, h.ctx, h.id, pv) })
}

// Create makes a volume, with the pool's label. It waits while too many are being made. The error
// is a *capacity.FullError, and nothing was made, if what the pool has left is less than the volume
// is promised.
func (h Handle) Create(spec volume.Spec) error {
	if !h.open() {
		return errClosed
	}
	select {
	case h.pool.slots <- struct{}{}:
		defer func() { <-h.pool.slots }() // also when the call is left behind: a pool that opens again has all its slots
	case <-h.closed:
		return errClosed
	case <-h.ctx.Done():
		return h.ctx.Err()
	}
	if err := errors.Join(h.recount(), h.count()); err != nil {
		return err
	}
	spec.Label = h.pool.Label
	return h.do(func(s Storage) error { return h.create(s, spec) })
}

// Undo removes an empty volume and its record; volume.ErrNotEmpty if there is data in it.
func (h Handle) Undo(pv string) error {
	return h.do(func(s Storage) error {
		err := s.Undo(h.ctx, h.id, pv)
		if err == nil {
			h.pool.Account.Release(pv)
		}
		return err
	})
}

// Published notes in the record that the volume has its object.
func (h Handle) Published(pv string) error { return h.on(pv, Storage.Published) }

// Resize makes a volume one of this many bytes, in its record and in its limit if it has one. The
// error is a *capacity.FullError, and nothing was changed, if the pool has less left than is needed
// besides.
func (h Handle) Resize(pv string, bytes int64) error {
	if err := h.count(); err != nil {
		return err
	}
	return h.do(func(s Storage) error {
		return h.resize(s, pv, bytes, h.space(), func() (bool, error) { return true, s.Resize(h.ctx, h.id, pv, bytes) })
	})
}

// ResizeFrom is Resize of a volume whose record still says was: else it changes nothing.
func (h Handle) ResizeFrom(pv string, was, bytes int64) error {
	if err := h.count(); err != nil {
		return err
	}
	return h.do(func(s Storage) error {
		do := func() (bool, error) { return s.ResizeFrom(h.ctx, h.id, pv, was, bytes) }
		return h.resize(s, pv, bytes, h.space(), do)
	})
}

// Usage returns what the pool's volumes take of their limits.
func (h Handle) Usage() (usage.Pool, error) {
	return call(h, func(s Storage) (usage.Pool, error) { return s.Usage(h.ctx, h.id) })
}

// Measure returns what a volume's directory takes, as far as one call reads it.
func (h Handle) Measure(pv string) (usage.Measured, error) {
	return call(h, func(s Storage) (usage.Measured, error) { return s.Measure(h.ctx, h.id, pv) })
}

// Sample returns some probes of what a volume's directory takes.
func (h Handle) Sample(pv string) (usage.Sample, error) {
	return call(h, func(s Storage) (usage.Sample, error) { return s.Sample(h.ctx, h.id, pv) })
}

// Trash moves a volume to the trash.
func (h Handle) Trash(pv string) error { return h.on(pv, Storage.Trash) }

// PutBack undoes Trash and Archive, as long as nothing was discarded.
func (h Handle) PutBack(pv, claimUID string) error {
	return h.do(func(s Storage) error { return s.PutBack(h.ctx, h.id, pv, claimUID) })
}

// Discard notes that the files of a volume in the trash may go, because its object went by the
// daemon's hand.
func (h Handle) Discard(pv string) error { return h.on(pv, Storage.Discard) }

// Archive moves a volume and its record to the archive.
func (h Handle) Archive(pv string) error { return h.on(pv, Storage.Archive) }

// Retain notes in the record that the data is kept without an object.
func (h Handle) Retain(pv string) error { return h.on(pv, Storage.Retain) }

// Hold notes in the record whether the volume's object has our finalizer.
func (h Handle) Hold(pv string, held bool) error {
	return h.do(func(s Storage) error { return s.Hold(h.ctx, h.id, pv, held) })
}

// Purge removes the files of a discarded volume, and its record. The error names the entries that
// are left.
func (h Handle) Purge(pv string) error {
	return h.do(func(s Storage) error {
		purged, err := s.Purge(h.ctx, h.id, pv)
		if purged.Forgotten {
			h.pool.Account.Release(pv)
		}
		return err
	})
}

// Lookup returns the record of a volume, nil if it has none; record.ErrDamaged for one that cannot
// be read.
func (h Handle) Lookup(pv string) (*record.Record, error) { return h.lookup(record.Volume, pv) }

// LookupSnapshot is Lookup for a snapshot, by its handle.
func (h Handle) LookupSnapshot(handle string) (*record.Record, error) {
	return h.lookup(record.Snapshot, handle)
}

// LookupInline is Lookup for an inline volume, by its handle.
func (h Handle) LookupInline(handle string) (*record.Record, error) {
	return h.lookup(record.Inline, handle)
}

func (h Handle) lookup(kind record.Kind, name string) (*record.Record, error) {
	r, err := recorded(call(h, func(s Storage) (record.Record, error) { return s.Lookup(h.ctx, h.id, name) }))
	if r != nil && r.Kind != kind {
		return nil, nil
	}
	return r, err
}

// LookupArchived returns the record of a claim's volume that is in the archive with its record, nil
// if there is none.
func (h Handle) LookupArchived(pv, claimUID string) (*record.Record, error) {
	return recorded(call(h, func(s Storage) (record.Record, error) { return s.LookupArchived(h.ctx, h.id, pv, claimUID) }))
}

func recorded(r record.Record, err error) (*record.Record, error) {
	switch {
	case errors.Is(err, volume.ErrNotRecorded):
		return nil, nil
	case err != nil:
		return nil, err
	default:
		return &r, nil
	}
}

// Exists reports whether the pool has a directory of this name.
func (h Handle) Exists(directory string) (bool, error) {
	return call(h, func(s Storage) (bool, error) { return s.Exists(h.ctx, h.id, directory) })
}

// Records returns the pool's records without those that are damaged: nothing is done with these,
// and the volumes command shows them. The pool's account is corrected by them.
func (h Handle) Records() ([]record.Record, error) {
	inventory, err := h.Inventory()
	return inventory.Volumes, err
}

// Inventory returns all that is in the pool, and corrects its account.
func (h Handle) Inventory() (volume.Inventory, error) {
	count := h.pool.counts(h.id)
	inventory, err := call(h, func(s Storage) (volume.Inventory, error) { return s.List(h.ctx, h.id) })
	count(inventory, err)
	return inventory, err
}

// Sweep removes what earlier processes left half made.
func (h Handle) Sweep() error {
	return h.do(func(s Storage) error { _, err := s.Sweep(h.ctx, h.id); return err })
}

// Remark writes the pool's marker anew.
func (h Handle) Remark(marker hostcheck.Marker) error {
	return h.do(func(s Storage) error { return s.Remark(h.ctx, h.id, marker) })
}
