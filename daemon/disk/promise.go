package disk

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Room is what the pool has for one more volume, or for one that grows. As long as the records
// cannot be read, none of them counts; Create and Resize return why.
func (h Handle) Room() capacity.Room {
	if h.open() {
		_ = h.count()
	}
	return h.pool.Account.Room(h.space())
}

// RoomFor is what the pool has for the volume of this name, which may have been made before.
func (h Handle) RoomFor(pv string) capacity.Room {
	h.Room()
	return h.pool.Account.RoomFor(pv, h.space())
}

// Promised reports whether the pool has a volume of this name, or is about to, as far as it is known
// without reading its records.
func (h Handle) Promised(pv string) bool { return h.pool.Promised(pv) }

// Promised is Handle.Promised.
func (p *Pool) Promised(pv string) bool {
	of, known := p.Account.PromisedTo(pv)
	return known && of.Volume > 0
}

// RoomFor is Handle.RoomFor, as far as it is known without reading records.
func (p *Pool) RoomFor(pv string) capacity.Room {
	h, _ := p.handle(context.Background(), p.Gate.State(p.Name), nil)
	return p.Account.RoomFor(pv, h.space())
}

// Room is what a pool has for one more volume, as far as it is known without reading its records:
// ok is false before they were counted. own is what the pool itself promised.
func (p *Pool) Room() (room capacity.Room, own uint64, ok bool) {
	h, _ := p.handle(context.Background(), p.Gate.State(p.Name), nil)
	own, ok = p.Account.Promised()
	return p.Account.Room(h.space()), own, ok
}

// RoomWith is what the pool would have if so much were promised on its filesystem.
func (p *Pool) RoomWith(promised uint64) capacity.Room {
	h, _ := p.handle(context.Background(), p.Gate.State(p.Name), nil)
	return h.space().Room(promised)
}

// space is what the pool's account is asked with: the filesystem as it was when the handle was
// opened.
func (h Handle) space() capacity.Space {
	r := h.State.Report
	return capacity.Space{
		Device: r.Device, Size: r.Size, RootOnly: r.RootOnly, Available: r.Available, Reserve: r.Reserve, Overcommit: h.pool.Overcommit,
	}
}

// create promises a volume its size and makes it. It runs to its end also where the caller does not
// wait for it any longer, so that what it took is given back. The records are read again then: a
// canceled copy moves what it has to the trash, and the comparison of records that was asked for
// when it was canceled may be over by that time.
func (h Handle) create(s Storage, spec volume.Spec) error {
	taken, err := h.pool.Account.Take(spec.PV, spec.Reserved(), h.space())
	if err != nil {
		return err
	}
	_, err = s.Create(h.ctx, h.id, spec)
	if certain := taken.End(err == nil || h.left(s, spec.PV)); !certain {
		h.pool.Recount()
	}
	if leftBehind := h.ctx.Err() != nil; leftBehind {
		h.pool.Recount()
	}
	return err
}

// Reserve promises a volume that is not made yet its size, until drop is called: its creation
// meanwhile takes nothing more. One that has a promise keeps that. The error is a
// *capacity.FullError if the pool has less left.
func (h Handle) Reserve(pv string, bytes uint64) (drop func(), err error) {
	if !h.open() {
		return nil, errClosed
	}
	if err := h.recount(); err != nil {
		return nil, err
	}
	if !h.pool.Account.Known(h.id) {
		return nil, errClosed
	}
	taken, err := h.pool.Account.Reserve(pv, bytes, h.space())
	if err != nil || taken == nil {
		return func() {}, err
	}
	return h.pool.drop(taken), nil
}

func (p *Pool) drop(taken *capacity.Taken) func() {
	return func() {
		if certain := taken.Drop(); !certain {
			p.Recount()
		}
	}
}

// Reserved is what Reserve returned for a volume of which it is not dropped, nil for none.
func (p *Pool) Reserved(pv string) (drop func()) {
	if taken := p.Account.Reserved(pv); taken != nil {
		return p.drop(taken)
	}
	return nil
}

// resize is create for a volume that there is. do reports whether it has the size then by this
// call.
func (h Handle) resize(s Storage, pv string, bytes int64, of capacity.Space, do func() (bool, error)) error {
	taken, err := h.pool.Account.Grow(pv, uint64(max(bytes, 0)), of)
	if err != nil {
		return err
	}
	resized, err := do()
	if certain := taken.End(err == nil && resized || err != nil && h.resized(s, pv, bytes, taken.Grows())); !certain {
		h.pool.Recount()
	}
	return err
}

// resized reports whether a call that failed wrote the size in the record all the same. If that
// cannot be told it is the larger size that counts.
func (h Handle) resized(s Storage, pv string, bytes int64, grows bool) bool {
	r, err := s.Lookup(context.WithoutCancel(h.ctx), h.id, pv)
	if err != nil && !errors.Is(err, volume.ErrNotRecorded) {
		h.pool.Recount()
		return grows
	}
	return err == nil && r.Reserved() == uint64(max(bytes, 0))
}

// left reports whether a creation that failed left a record, and also if that cannot be told now.
func (h Handle) left(s Storage, pv string) bool {
	_, err := s.Lookup(context.WithoutCancel(h.ctx), h.id, pv)
	if err != nil && !errors.Is(err, volume.ErrNotRecorded) {
		h.pool.Recount()
	}
	return !errors.Is(err, volume.ErrNotRecorded)
}

// recount has the records read if another process has made a volume since that was done.
func (h Handle) recount() error {
	is, announces := h.pool.Storage.(Announcing)
	if !announces {
		return nil
	}
	at, err := call(h, func(Storage) (time.Time, error) { return is.Announced(h.ctx, h.id) })
	if err != nil || h.pool.announced.Load() == at.UnixNano() {
		return err
	}
	h.pool.Account.Forget()
	h.pool.announced.Store(at.UnixNano())
	return h.count()
}

// count has the records read if the account is not of this directory's. One caller reads, and the
// others wait for it.
func (h Handle) count() error {
	if h.pool.Account.Known(h.id) {
		return nil
	}
	select {
	case h.pool.counting <- struct{}{}:
		defer func() { <-h.pool.counting }()
	case <-h.closed:
		return errClosed
	case <-h.ctx.Done():
		return h.ctx.Err()
	}
	if h.pool.Account.Known(h.id) {
		return nil
	}
	_, err := h.Records()
	return err
}

// counts begins to count what a directory's records promise, and returns what ends it.
func (p *Pool) counts(id mounts.Identity) (end func(volume.Inventory, error)) {
	if p == nil {
		return func(volume.Inventory, error) {}
	}
	count := p.Account.Count(id)
	return func(inventory volume.Inventory, err error) {
		if err != nil {
			count.Cancel()
			return
		}
		var unreadable []string
		for _, d := range inventory.Damaged {
			unreadable = append(unreadable, strings.TrimSuffix(d.File, ".json"))
		}
		count.Done(promises(inventory), unreadable...)
	}
}

// promises is what the records promise: also those of volumes in the trash and in the archive, and
// of those that are retained. A record whose directory is gone promises nothing.
func promises(inventory volume.Inventory) map[string]capacity.Promise {
	all := make(map[string]capacity.Promise, len(inventory.Volumes))
	for _, r := range inventory.Volumes {
		if r.Place != record.Nowhere {
			all[r.PV] = capacity.Promise{Volume: r.Reserved()}
		}
	}
	for _, r := range inventory.Archived {
		p := all[r.PV]
		p.Archived += r.Reserved()
		all[r.PV] = p
	}
	return all
}
