package volume

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// An archived volume has its directory in the archive under its PV's name, and its record beside it
// as NAME.json. Names of directories and of records never meet: no directory's name ends in .json.
// A PV's name may come again, of adopted volumes for instance: then the next one is NAME~2, which
// no PV is called.
//
// A directory without a record beside it is one whose record is still among the pool's: its
// archiving was cut short.

// archivesMax is how many archived volumes one PV's name may have.
const archivesMax = 1000

// archiveName is the n-th name in the archive for a PV, from 1.
func archiveName(pv string, n int) string {
	if n == 1 && !strings.HasSuffix(pv, recordSuffix) {
		return pv
	}
	return pv + "~" + strconv.Itoa(n)
}

// halfArchived is the name of the directory in the archive whose record is among the pool's, "" if
// there is none.
func halfArchived(pv string, exists func(string) (bool, error)) (string, error) {
	for n := 1; n <= archivesMax; n++ {
		name := archiveName(pv, n)
		there, err := exists(name)
		if err != nil {
			return "", err
		}
		recorded, err := exists(name + recordSuffix)
		switch {
		case err != nil:
			return "", err
		case there && !recorded:
			return name, nil
		case !there && !recorded && n > 1: // the first may have been removed by people
			return "", nil
		}
	}
	return "", nil
}

// Archive moves a volume's directory and its record to the archive, where the daemon forgets them:
// first the directory, then the record. In between, the record says that it is in the archive, and
// the next call goes on. An archived volume is fine.
func (p *Pool) Archive(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, place, err := s.outgoing(pv, archiveDir, record.InTrash)
		if err != nil || place == "" {
			return err
		}
		switch place {
		case record.InPool:
			name, err := s.freeInArchive(pv)
			if err != nil {
				return err
			}
			if err := s.moveVolume(r, s.dirs[archiveDir], name); err != nil {
				return err
			}
		case record.Nowhere:
			return nil // Purge forgets the record
		}
		return s.archiveRecord(r)
	})
}

// freeInArchive is a name that neither a directory nor a record has.
func (s *session) freeInArchive(pv string) (string, error) {
	for n := 1; n <= archivesMax; n++ {
		name := archiveName(pv, n)
		there, err := exists(s.dirs[archiveDir], name)
		if err == nil && !there {
			there, err = exists(s.dirs[archiveDir], name+recordSuffix)
		}
		if err != nil || !there {
			return name, err
		}
	}
	return "", fmt.Errorf("the archive has %d volumes of this name", archivesMax)
}

func (s *session) archiveRecord(r record.Record) error {
	place, name, err := s.locate(r)
	if err == nil && place != record.InArchive {
		err = wrongPlace(place)
	}
	if err != nil {
		return err
	}
	volumes, archive := s.dirs[volumesDir], s.dirs[archiveDir]
	// The new name first: a filesystem that does not make a rename durable at once has the
	// directory under both names then, not under none.
	err = errors.Join(s.sync(archiveDir), s.sync(""))
	if err != nil {
		return err
	}
	s.pool.crashPoint("move durable")
	if err := s.finishRecordName(r.PV); err != nil {
		return err
	}
	if err := moveOut(volumes, r.PV+recordSuffix, archive, name+recordSuffix); err != nil {
		return wrap("archiving the record", err)
	}
	s.pool.crashPoint("record moved")
	if err := s.sync(archiveDir); err != nil {
		return err
	}
	return s.durable("record's move durable", volumesDir)
}

// putBackArchived moves a directory out of the archive whose record is among the pool's.
func (s *session) putBackArchived(r record.Record) error {
	_, name, err := s.locate(r)
	if err != nil {
		return err
	}
	if err := s.finishRecordName(r.PV); err != nil {
		return err
	}
	return s.putBack(r, archiveDir, name)
}

// unarchive undoes Archive: first the record, then the directory. A crash in between leaves what
// one in Archive leaves, and PutBack goes on.
func (s *session) unarchive(pv, claimUID string) error {
	if err := s.open(volumesDir, archiveDir); err != nil {
		return err
	}
	found, err := s.findArchived(pv, claimUID)
	if err != nil {
		return err
	}
	there, err := exists(s.root, found.Directory)
	switch {
	case err != nil:
		return err
	case there:
		return fmt.Errorf("putting back directory %q: %w", found.Directory, ErrForeign)
	}
	err = moveOut(s.dirs[archiveDir], found.file, s.dirs[volumesDir], pv+recordSuffix)
	if err != nil {
		return wrap("putting back the record", err)
	}
	s.pool.crashPoint("record put back")
	if err := s.sync(volumesDir, archiveDir); err != nil {
		return err
	}
	s.pool.crashPoint("record put back durably")
	return s.putBack(found.Record, archiveDir, found.name)
}

// archivedVolume is one whose record is in the archive as well.
type archivedVolume struct {
	record.Record
	file string // of the record
	name string // of the directory
}

// findArchived looks for a PV's volume that is archived whole, ErrNotRecorded if there is none. If
// there are several, or only one of another claim, there is none: of these people decide.
func (s *session) findArchived(pv, claimUID string) (found archivedVolume, err error) {
	files, err := s.names(archiveDir)
	if err != nil {
		return found, err
	}
	err = ErrNotRecorded
	for _, file := range sorted(files) {
		s.pool.progress(s.call)
		if !strings.HasSuffix(file, recordSuffix) {
			continue
		}
		r, broken := readRecord(s.dirs[archiveDir], file, pv)
		if broken != nil || r.ClaimUID != claimUID && pv != "pvc-"+r.ClaimUID {
			continue // a name that is made of the claim's UID is given once
		}
		name := strings.TrimSuffix(file, recordSuffix)
		if !files[name] {
			continue
		}
		if err == nil {
			return found, fmt.Errorf("%w: the archive has several volumes of claim %s/%s", ErrNotRecorded, r.Namespace, r.Claim)
		}
		r.Place, r.Archived = record.InArchive, true
		found, err = archivedVolume{r, file, name}, nil
	}
	return found, err
}

// LookupArchived returns the record of a claim's volume that is whole in the archive, its record
// too; ErrNotRecorded if there is none.
func (p *Pool) LookupArchived(ctx context.Context, id mounts.Identity, pv, claimUID string) (r record.Record, err error) {
	err = p.on(ctx, id, pv, func(s *session) error {
		found, err := s.findArchived(pv, claimUID)
		r = found.Record
		return err
	})
	return r, err
}

// archivedBefore puts back a volume that is to be made and is whole in the archive: its claim was
// deleted, and then the API server was restored to a day before the volume was made. back is false
// if there is none; that costs one look.
func (s *session) archivedBefore(spec Spec) (back bool, err error) {
	archive, err := s.dir(archiveDir)
	if err != nil {
		return false, err
	}
	if there, err := exists(archive, archiveName(spec.PV, 1)+recordSuffix); !there || err != nil {
		return false, err
	}
	found, err := s.findArchived(spec.PV, spec.ClaimUID)
	if errors.Is(err, ErrNotRecorded) {
		return false, nil
	}
	if err == nil {
		err = conflict(spec.Record, found.Record)
	}
	if err == nil && s.pool.hostID != "" && !spec.PutBack {
		err = removed(record.InArchive)
	}
	if err == nil {
		err = s.unarchive(spec.PV, spec.ClaimUID)
	}
	return err == nil, err
}
