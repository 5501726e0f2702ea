package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Purged says what a purge did.
type Purged struct {
	Removed int // entries, with the volume's own directory
	Rest        // what could not be removed, not counting the directories that hold it
	// Forgotten: nothing was left, and the record was removed, too. One that was archived has its
	// record in the archive.
	Forgotten bool
}

func (l Purged) err() error {
	if l.Left == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d removed, %v", ErrLeft, l.Removed, l.Rest)
}

// Purge finishes a removal that Discard or Archive began: it empties the volume's place in the
// trash, removes it, and then the record. One that is whole in the trash is ErrPlace. It takes as
// long as there are files, one volume of a pool at a time, and makes room for calls in the
// foreground; ctx ends it between two entries, and the next call goes on. A retained volume, and
// one that is gone, are fine.
func (p *Pool) Purge(ctx context.Context, id mounts.Identity, pv string) (Purged, error) {
	purged, err := p.purge(ctx, id, pv)
	return purged, p.about(pv, err)
}

func (p *Pool) purge(ctx context.Context, id mounts.Identity, pv string) (Purged, error) {
	if err := record.CheckPV(pv); err != nil {
		return Purged{}, err
	}
	select {
	case p.purging <- struct{}{}:
		defer func() { <-p.purging }()
	case <-ctx.Done():
		return Purged{}, ctx.Err()
	}
	p.purged.Store(&pv)
	defer p.purged.Store(nil)
	s, err := p.begin(ctx, id, "removing volume "+pv)
	if err != nil {
		return Purged{}, err
	}
	defer s.end()
	s.call.background.Store(true)
	if err := s.open(stagingDir, volumesDir, trashDir, archiveDir); err != nil {
		return Purged{}, err
	}
	r, err := s.load(pv)
	switch {
	case err != nil && !errors.Is(err, ErrNotRecorded):
		return Purged{}, err
	case err == nil && r.Retained:
		return Purged{}, nil // also what is left of one whose files were going
	}
	purged, err := s.empty(ctx, pv, r)
	if err != nil {
		return purged, err
	}
	// The volume's lock is not held in between: emptying takes minutes, and Create and Lookup see
	// that it goes on.
	unlock, err := p.locks.Take(ctx, pv)
	if err != nil {
		return purged, err
	}
	defer unlock()
	if err := s.share(ctx); err != nil {
		return purged, err
	}
	purged.Forgotten, err = s.finishPurge(pv, purged.Removed > 0)
	return purged, err
}

// purges reports whether a Purge of the volume is under way.
func (p *Pool) purges(pv string) bool {
	of := p.purged.Load()
	return of != nil && *of == pv
}

// empty empties and removes trash/<pv>~, if it is there. Of a volume without a record r is zero.
func (s *session) empty(ctx context.Context, pv string, r record.Record) (Purged, error) {
	trash, name := s.dirs[trashDir], pv+emptyingSuffix
	there, err := exists(trash, name)
	if err != nil || !there {
		return Purged{}, err
	}
	e := purger{pace: pace{ctx: ctx, pool: s.pool, call: s.call, began: time.Now()}, top: name}
	e.work = s.works(WorkPurge, pv, progress.Total{Files: s.takes(r).Files})
	err = tree.Walk(ctx, trash, name, e.visit)
	s.pool.crashPoint("emptied")
	if err != nil {
		return e.purged, err
	}
	return e.purged, e.purged.err()
}

// finishPurge forgets the record of a directory that is gone, or finishes an archived one's.
// removed says that this call removed it.
func (s *session) finishPurge(pv string, removed bool) (forgotten bool, err error) {
	// A crash before this leaves a record whose directory is nowhere: Purge again.
	if err := s.sync(trashDir); err != nil {
		return false, err
	}
	s.pool.crashPoint("trash durable")
	r, place, err := s.find(pv)
	switch {
	case errors.Is(err, ErrNotRecorded):
		return false, nil
	case err != nil:
		return false, err
	case place == record.InArchive:
		return false, s.archiveRecord(r)
	case place == record.Nowhere && !r.Retained, place == record.InPool && removed && half(r): // what has a half copy's name is foreign
		err := s.dropRecord(r, removed)
		return err == nil, err
	case r.Retained:
		return false, nil
	default:
		return false, wrongPlace(place)
	}
}

// removeAny removes one entry that is no directory with something in it; ENOTEMPTY if it is one.
func removeAny(dir int, name string) error {
	err := remove(dir, name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = remove(dir, name, unix.AT_REMOVEDIR)
	}
	if errors.Is(err, unix.EEXIST) { // POSIX allows either, rmdir(2)
		return unix.ENOTEMPTY
	}
	return err
}
