package volume

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Undo takes back a volume that no object points to. No pod ever had it, so it is empty; one that is
// not is left alone (ErrNotEmpty). One that is retained or being removed is refused.
func (p *Pool) Undo(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, place, err := s.find(pv)
		switch {
		case errors.Is(err, ErrNotRecorded):
			return s.dropStaging(pv)
		case err != nil:
			return err
		case r.Retained:
			return ErrRetained
		case place == InTrash, place == Emptying, place == InArchive:
			return place.wrong()
		case place == InPool:
			if err := s.removeEmpty(r); err != nil {
				return err
			}
		}
		// A crash here leaves a record without a directory: Undo again.
		if err := s.dropRecord(pv); err != nil {
			return err
		}
		return s.dropStaging(pv)
	})
}

func (s *session) removeEmpty(r Record) error {
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
	s.pool.did("directory removed")
	err = s.sync("")
	s.pool.did("pool durable")
	return err
}

// dropRecord forgets a volume whose directory is gone.
func (s *session) dropRecord(pv string) error {
	volumes, err := s.dir(volumesDir)
	if err != nil {
		return err
	}
	err = errors.Join(remove(volumes, pv+recordSuffix, 0), remove(volumes, s.newName(pv), 0))
	s.pool.did("record removed")
	if err != nil {
		return wrap("removing the record", err)
	}
	err = s.sync(volumesDir)
	s.pool.did("record's removal durable")
	return err
}

func (s *session) dropStaging(pv string) error {
	staging, err := s.dir(stagingDir)
	if err != nil {
		return err
	}
	err = remove(staging, pv, unix.AT_REMOVEDIR)
	s.pool.did("staging removed")
	return wrap("removing the directory from staging", err)
}

// Trash moves a volume's directory to the trash; then its name is free and its move durable, and
// Purge can take its time. A directory that is in the trash already, or gone, is fine.
func (p *Pool) Trash(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, place, err := s.outgoing(pv, trashDir, InArchive)
		if err != nil || place == "" {
			return err
		}
		if place == InPool {
			if err := s.trash(r); err != nil {
				return err
			}
		}
		// Also when the rename was an earlier call's: that one may have died before it was durable.
		err = s.sync(trashDir, "")
		s.pool.did("move durable")
		return err
	})
}

// PutBack moves a volume's directory from the trash to its place in the pool, durably: its removal was
// begun, and then its object and its claim were there again, because the API server was restored to an
// earlier day. One that is in its place is fine. ErrPlace says that nothing whole is left to put back.
func (p *Pool) PutBack(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, place, err := s.find(pv)
		switch {
		case err != nil:
			return err
		case place == InTrash:
			return s.putBack(r)
		case place != InPool:
			return place.wrong()
		default: // by an earlier call, which may have died before the rename was durable
			return s.sync("", trashDir)
		}
	})
}

// putBack moves what is in the trash. The rename replaces nothing: what has the volume's name in the
// pool by now is somebody else's. A crash before it leaves the volume in the trash, with its object or
// its claim: whoever looks at that next comes here again. One after it leaves it in its place; a power
// cut can undo that until it is durable.
func (s *session) putBack(r Record) error {
	trash, err := s.dir(trashDir)
	if err != nil {
		return err
	}
	err = moveBack(trash, r.PV, s.root, r.Directory)
	if errors.Is(err, unix.EPERM) { // a pod that had it open may have made it immutable since
		unflag(trash, r.PV)
		err = moveBack(trash, r.PV, s.root, r.Directory)
	}
	if errors.Is(err, unix.EEXIST) {
		err = ErrForeign
	}
	if err != nil {
		return fmt.Errorf("putting back directory %q: %w", r.Directory, err)
	}
	s.pool.did("put back")
	err = s.sync("", trashDir)
	s.pool.did("put back durably")
	return err
}

// outgoing finds a volume that is to be moved to one of our directories, and opens what that takes. A
// volume in staging, or in the other place that volumes are moved to, cannot be. With neither record
// nor directory there is nothing to move, and the place is "".
func (s *session) outgoing(pv, to string, other Place) (r Record, place Place, err error) {
	if err := s.open(to, volumesDir); err != nil {
		return r, "", err
	}
	r, place, err = s.find(pv)
	switch {
	case errors.Is(err, ErrNotRecorded):
		return r, "", s.notRecorded(pv)
	case err != nil:
		return r, "", err
	case place == InStaging, place == other, place == Emptying && other == InTrash:
		return r, "", place.wrong()
	}
	return r, place, nil
}

// trash: a retained volume that is deleted after all is not retained any more; were that written
// after the move, a crash in between would leave it in the trash for good.
func (s *session) trash(r Record) error {
	if r.Retained {
		r.Retained = false
		if err := s.rewrite(r); err != nil {
			return err
		}
	}
	// A crash before this leaves the volume in the pool, with its object. One after it leaves it in
	// the trash, with its object: whoever deletes that calls Trash again.
	return s.moveVolume(r, s.dirs[trashDir], r.PV)
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
// in between somebody may swap it; renaming follows nothing and replaces nothing, so it can be told
// afterwards and put back.
func (s *session) moveVolume(r Record, to int, name string) error {
	fd, err := s.volumeDir(r.Directory)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var meant unix.Stat_t
	if err := unix.Fstat(fd, &meant); err != nil {
		return err
	}
	s.pool.did("checked")
	err = moveOut(s.root, r.Directory, to, name)
	if errors.Is(err, unix.EPERM) { // a pod may make its volume's own directory immutable
		unflag(s.root, r.Directory)
		err = moveOut(s.root, r.Directory, to, name)
	}
	if err != nil {
		return fmt.Errorf("directory %q: %w", r.Directory, err)
	}
	moved, err := lstat(to, name)
	if err == nil && (moved.Ino != meant.Ino || moved.Dev != meant.Dev) {
		return errors.Join(fmt.Errorf("directory %q: %w: it was replaced meanwhile", r.Directory, ErrForeign),
			moveBack(to, name, s.root, r.Directory))
	}
	s.pool.did("moved")
	return err
}

// Archive moves a volume's directory and its record to the archive, where the daemon forgets them:
// first the directory, then the record. In between, the record says that it is in the archive, and
// the next call goes on. An archived volume is fine.
func (p *Pool) Archive(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, place, err := s.outgoing(pv, archiveDir, InTrash)
		if err != nil || place == "" {
			return err
		}
		switch place {
		case InPool:
			if err := s.moveVolume(r, s.dirs[archiveDir], r.Directory); err != nil {
				return err
			}
		case Nowhere:
			return nil // Purge forgets the record
		}
		return s.archiveRecord(r)
	})
}

func (s *session) archiveRecord(r Record) error {
	volumes, archive := s.dirs[volumesDir], s.dirs[archiveDir]
	// The new name first: a filesystem that does not make a rename durable at once has the directory
	// under both names then, not under none.
	err := errors.Join(s.sync(archiveDir), s.sync(""))
	s.pool.did("move durable")
	if err != nil {
		return err
	}
	if err := s.settleRecord(r.PV); err != nil {
		return err
	}
	if err := moveOut(volumes, r.PV+recordSuffix, archive, archivedRecord(r)); err != nil {
		return wrap("archiving the record", err)
	}
	s.pool.did("record moved")
	err = errors.Join(s.sync(archiveDir), s.sync(volumesDir))
	s.pool.did("record's move durable")
	return err
}

// Retain notes in the record that the data is kept without an object, so that nothing that cleans up
// ever touches it. A volume without a record is never touched anyway.
func (p *Pool) Retain(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		if err := s.open(volumesDir); err != nil {
			return err
		}
		r, place, err := s.find(pv)
		switch {
		case errors.Is(err, ErrNotRecorded):
			return nil
		case err != nil:
			return err
		case place != InPool && place != Nowhere:
			return place.wrong()
		}
		if r.Retained {
			return errors.Join(s.settleRecord(pv), s.sync(volumesDir))
		}
		r.Retained = true
		return s.rewrite(r)
	})
}

// Published notes in the record that the volume has its object, so that nobody takes it for one that no
// pod ever had. A volume without a record, or whose record says nothing else, is fine.
func (p *Pool) Published(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		if err := s.open(volumesDir); err != nil {
			return err
		}
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

// rewrite replaces a record. A crash before the rename leaves the old record and a new one beside it,
// which Sweep removes.
func (s *session) rewrite(r Record) error {
	if err := s.settleRecord(r.PV); err != nil {
		return err
	}
	fd, err := s.writeRecord(r)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s.pool.did("record written")
	if err := fsync(fd); err != nil {
		return wrap("fsync of the record", err)
	}
	s.pool.did("record durable")
	if err := s.nameRecord(r.PV); err != nil {
		return err
	}
	s.pool.did("record named")
	err = s.sync(volumesDir)
	s.pool.did("record's name durable")
	return err
}
