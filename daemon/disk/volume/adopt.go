package volume

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Usable returns nil if the pool has a plain directory of this name: no link, no mount,
// nothing else. Nothing is changed, and nothing in it is looked at.
func (p *Pool) Usable(ctx context.Context, id mounts.Identity, directory string) error {
	if err := record.CheckDirectory(directory); err != nil {
		return fmt.Errorf("pool %q: %w", p.name, err)
	}
	return p.with(ctx, id, "looking at "+directory, func(s *session) error {
		fd, err := s.volumeDir(directory)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
}

// Adopt writes a record for a directory that is in the pool and has none; from then on it is ours.
// The directory itself is not touched. One that is recorded the same is fine, and takes the object
// that is replaced from this record; what else is there is ErrConflict, ErrPlace or ErrForeign.
//
// Another process may work in the pool meanwhile: its Sweep can take a record that is being written
// for one of a process that died. Then it is written again.
func (p *Pool) Adopt(ctx context.Context, id mounts.Identity, r record.Record) error {
	if err := record.CheckDirectory(r.Directory); err != nil {
		return p.about(r.PV, err)
	}
	return p.on(ctx, id, r.PV, func(s *session) error {
		if err := s.open(volumesDir, stagingDir, trashDir, archiveDir); err != nil {
			return err
		}
		for try := 1; ; try++ {
			err := s.adopt(r)
			if try == 10 || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
	})
}

func (s *session) adopt(r record.Record) error {
	fd, err := s.volumeDir(r.Directory)
	if err != nil {
		return err
	}
	unix.Close(fd)
	old, place, err := s.find(r.PV)
	if errors.Is(err, ErrNotRecorded) {
		if place, err = s.place(r); err == nil && place != record.InPool {
			err = wrongPlace(place)
		}
		if err != nil {
			return err
		}
		return s.adoptRecord(r)
	}
	switch {
	case err != nil:
		return err
	case place != record.InPool:
		return wrongPlace(place)
	}
	if err := conflict(r, old); err != nil {
		return err
	}
	if r.Replaced != "" && old.Replaced != r.Replaced {
		old.Replaced = r.Replaced
		return s.rewrite(old)
	}
	if err := s.finishRecordName(r.PV); err != nil {
		return err
	}
	return s.sync(volumesDir)
}

// adoptRecord: a crash before the rename leaves a record that is swept or gets its name, and a
// directory that is as foreign as it was; one after it leaves a record whose object has no label
// yet, which is kept.
func (s *session) adoptRecord(r record.Record) error {
	return s.putRecord(r, func() error {
		volumes := s.dirs[volumesDir]
		return wrap("naming the record", moveOut(volumes, s.newName(r.PV), volumes, r.PV+recordSuffix))
	})
}

// Forget drops the record of a volume whose directory is in the pool, and leaves the directory as
// it is, without a limit: foreign from then on. Without a record there is nothing to do.
func (p *Pool) Forget(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, err := s.inPool(pv)
		switch {
		case errors.Is(err, ErrNotRecorded):
			return nil
		case err != nil:
			return err
		}
		return s.dropRecord(r, true)
	})
}
