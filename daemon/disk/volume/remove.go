package volume

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Undo removes a volume that no object points to. No pod ever had it, so it is empty; one that is
// not is left alone (ErrNotEmpty). One that is retained or being removed is refused. A copy has
// data from the start: if its object was never to be made, it is discarded, and Purge removes it.
func (p *Pool) Undo(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, place, err := s.find(pv)
		switch {
		case errors.Is(err, ErrNotRecorded):
			return s.dropStaging(pv)
		case err != nil:
			return err
		case r.Retained, r.Unheld:
			return ErrRetained
		case place == record.InTrash, place == record.Emptying, place == record.InArchive:
			return wrongPlace(place)
		case half(r) && (place == record.InStaging || place == record.InPool):
			return s.discard(r, place)
		case place == record.InPool:
			if err := s.removeEmpty(r); err != nil {
				return err
			}
		}
		// A crash here leaves a record without a directory: Undo again.
		if err := s.dropRecord(r, place == record.InPool); err != nil {
			return err
		}
		return s.dropStaging(pv)
	})
}

func (s *session) removeEmpty(r record.Record) error {
	fd, err := s.volumeDir(r.Directory)
	if err != nil {
		return err
	}
	unix.Close(fd)
	err = remove(s.root, r.Directory, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("directory %q: %w", r.Directory, ErrNotEmpty)
	}
	if err != nil {
		return fmt.Errorf("directory %q: %w", r.Directory, err)
	}
	s.pool.crashPoint("directory removed")
	return s.durable("pool durable", "")
}

// dropRecord forgets a volume whose directory is gone, or has no project's limit any more: its
// project is free then. removed says that this call removed the directory.
func (s *session) dropRecord(r record.Record, removed bool) error {
	if err := s.release(r, removed); err != nil {
		return err
	}
	volumes, err := s.dir(volumesDir)
	if err != nil {
		return err
	}
	err = errors.Join(remove(volumes, r.PV+recordSuffix, 0), remove(volumes, s.newName(r.PV), 0))
	s.pool.crashPoint("record removed")
	if err != nil {
		return wrap("removing the record", err)
	}
	if err := s.durable("record's removal durable", volumesDir); err != nil {
		return err
	}
	s.pool.recorded.forget(r.ProjectID)
	return nil
}

func (s *session) dropStaging(pv string) error {
	err := s.dropStaged(pv)
	s.pool.crashPoint("staging removed")
	return wrap("removing the directory from staging", err)
}

// Trash moves a volume's directory to the trash; then its name is free and its move durable, and
// Purge can take its time. A directory that is in the trash already, or gone, is fine.
func (p *Pool) Trash(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, place, err := s.outgoing(pv, trashDir, record.InArchive)
		if err != nil || place == "" {
			return err
		}
		if place == record.InPool || r.Retained || r.Unheld {
			if err := s.trash(r, place); err != nil {
				return err
			}
		}
		// Also when the rename was an earlier call's: that one may have died before it was durable.
		return s.durable("move durable", trashDir, "")
	})
}

// PutBack moves a volume's directory from the trash or the archive to its place in the pool,
// durably: its removal was begun, and then its object was to keep it after all, because the API
// server was restored to an earlier day or the policy changed. One that is in its place is fine.
// ErrPlace says that nothing whole is left to put back. Of several archived volumes of one name it
// is that of the claim, by UID.
func (p *Pool) PutBack(ctx context.Context, id mounts.Identity, pv, claimUID string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, place, err := s.find(pv)
		switch {
		case errors.Is(err, ErrNotRecorded):
			return s.unarchive(pv, claimUID)
		case err != nil:
			return err
		case place == record.InTrash:
			return s.putBack(r, trashDir, pv)
		case place == record.InArchive:
			return s.putBackArchived(r)
		case place != record.InPool:
			return wrongPlace(place)
		default: // by an earlier call, which may have died before the rename was durable
			return s.sync("", trashDir, archiveDir)
		}
	})
}

// putBack moves what is in the trash, or half archived. The rename replaces nothing: what has the
// volume's name in the pool by now is foreign. A crash before it leaves the volume where it is,
// with its object or its claim: who looks at that next comes here again. One after it leaves it in
// its place; a power cut can undo that until it is durable.
func (s *session) putBack(r record.Record, from, name string) error {
	dir, err := s.dir(from)
	if err != nil {
		return err
	}
	err = unkept(moveBack, dir, name, s.root, r.Directory) // a pod may still have it open
	if errors.Is(err, unix.EEXIST) {
		err = ErrForeign
	}
	if err != nil {
		return fmt.Errorf("putting back directory %q: %w", r.Directory, err)
	}
	s.pool.crashPoint("put back")
	err = s.sync("", from)
	s.pool.crashPoint("put back durably")
	return err
}

// outgoing finds a volume that is to be moved to one of our directories, and opens what that takes.
// A volume in staging, or in the other place that volumes are moved to, cannot be. With neither
// record nor directory there is nothing to move, and the place is "".
func (s *session) outgoing(pv, to string, other record.Place) (r record.Record, place record.Place, err error) {
	if err := s.open(to, volumesDir); err != nil {
		return r, "", err
	}
	r, place, err = s.find(pv)
	switch {
	case errors.Is(err, ErrNotRecorded):
		return r, "", s.notRecorded(pv)
	case err != nil:
		return r, "", err
	case place == record.InStaging, place == other, place == record.Emptying && other == record.InTrash:
		return r, "", wrongPlace(place)
	}
	return r, place, nil
}

// trash: a retained volume that is deleted after all is not retained any more; were that written
// after the move, a crash in between would leave it in the trash for good.
func (s *session) trash(r record.Record, place record.Place) error {
	if r.Retained || r.Unheld {
		r.Retained, r.Unheld = false, false
		if err := s.rewrite(r); err != nil {
			return err
		}
	}
	if place != record.InPool {
		return nil
	}
	// A crash before this leaves the volume in the pool, with its object. One after it leaves it in
	// the trash, with its object: the call that deletes that calls Trash again.
	return s.moveVolume(r, s.dirs[trashDir], r.PV)
}

// Discard gives a volume in the trash the name that says that its files may go: its object is gone,
// and it went by the hand of the caller. Only then does Purge empty it, whichever process calls
// that. One that is not whole in the trash is fine, one that is retained is refused.
//
// A crash before the rename leaves a volume that is whole and has no object, which looks like one
// whose finalizer was forced off: it is kept, and told. A power cut can undo the rename until it is
// durable.
func (p *Pool) Discard(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, err := s.load(pv)
		switch {
		case errors.Is(err, ErrNotRecorded):
			return nil
		case err != nil:
			return err
		case r.Retained:
			return ErrRetained
		}
		trash, err := s.dir(trashDir)
		if err != nil {
			return err
		}
		err = unkept(moveOut, trash, pv, trash, pv+emptyingSuffix)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return wrap("discarding it", err)
		}
		s.pool.crashPoint("discarded")
		// Before the first file goes: what a power cut brings back under its old name must be
		// whole.
		err = s.sync(trashDir)
		s.pool.crashPoint("discarded durably")
		return err
	})
}

// notRecorded: without a record a directory's name can only be guessed. If nothing has the usual
// one, there is nothing that could be in the way.
func (s *session) notRecorded(pv string) error {
	there, err := exists(s.root, pv)
	if there {
		return fmt.Errorf("%w, and the pool has a directory of its name", ErrNotRecorded)
	}
	return err
}

// moveVolume moves a volume's directory out of the pool. The name is checked and then renamed, and
// in between another process may swap it; renaming follows nothing and replaces nothing, so it can
// be told afterwards and put back.
func (s *session) moveVolume(r record.Record, to int, name string) error {
	fd, err := s.volumeDir(r.Directory)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var meant unix.Stat_t
	if err := unix.Fstat(fd, &meant); err != nil {
		return err
	}
	s.pool.crashPoint("checked")
	err = unkept(moveOut, s.root, r.Directory, to, name)
	if err != nil {
		return fmt.Errorf("directory %q: %w", r.Directory, err)
	}
	moved, err := lstat(to, name)
	if err == nil && (moved.Ino != meant.Ino || moved.Dev != meant.Dev) {
		return errors.Join(fmt.Errorf("directory %q: %w: it was replaced meanwhile", r.Directory, ErrForeign),
			moveBack(to, name, s.root, r.Directory))
	}
	s.pool.crashPoint("moved")
	return err
}

// Retain notes in the record that the data is kept without an object, so that nothing that cleans
// up ever touches it. A volume without a record is never touched anyway. A record whose directory
// is nowhere goes, but in a shared pool, where another daemon may be about to make it.
func (p *Pool) Retain(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, place, err := s.find(pv)
		switch {
		case errors.Is(err, ErrNotRecorded):
			return nil
		case err != nil:
			return err
		case place == record.InTrash, place == record.InArchive:
			return wrongPlace(place)
		}
		switch {
		case place == record.Nowhere && s.pool.hostID == "": // nothing is there to be kept: an Undo was cut off
			return s.dropRecord(r, false)
		case r.Retained:
			return errors.Join(s.finishRecordName(pv), s.sync(volumesDir))
		}
		r.Retained, r.Unheld = true, false
		return s.rewrite(r)
	})
}

// Hold notes in the record whether the volume's object has our finalizer. One without it is
// retained when it goes, by whomever. A volume that is not in its place is refused.
func (p *Pool) Hold(ctx context.Context, id mounts.Identity, pv string, held bool) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, err := s.inPool(pv)
		switch {
		case err != nil:
			return err
		case r.Unheld == !held: // by an earlier call, which may have died before it was durable
			return errors.Join(s.finishRecordName(pv), s.sync(volumesDir))
		}
		r.Unheld = !held
		return s.rewrite(r)
	})
}

// Published notes in the record that the volume has its object, so that it is not taken for one
// that no pod ever had. A volume without a record, or whose record says nothing else, is fine.
func (p *Pool) Published(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, err := s.load(pv)
		if errors.Is(err, ErrNotRecorded) {
			return nil
		}
		if err != nil || !r.Unpublished {
			return err
		}
		r.Unpublished = false
		return s.rewrite(r)
	})
}

// rewrite replaces a record. A crash before the rename leaves the old record and a new one beside
// it, which Sweep removes.
func (s *session) rewrite(r record.Record) error {
	if err := s.finishRecordName(r.PV); err != nil {
		return err
	}
	return s.putRecord(r, func() error { return s.nameRecord(r.PV) })
}

// putRecord writes a record and makes it durable before name gives it its final name, and that name
// after.
func (s *session) putRecord(r record.Record, name func() error) error {
	fd, err := s.writeRecord(r)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s.pool.crashPoint("record written")
	if err := fsync(fd); err != nil {
		return wrap("fsync of the record", err)
	}
	s.pool.crashPoint("record durable")
	if err := name(); err != nil {
		return err
	}
	s.pool.crashPoint("record named")
	return s.durable("record's name durable", volumesDir)
}
