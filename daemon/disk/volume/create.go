package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/subvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// Spec is a volume to be made.
type Spec struct {
	record.Record             // Version and Created are filled in
	Mode          fs.FileMode // of the directory; permission, set-id and sticky bits
	UID, GID      int         // its owner
	Label         string      // its SELinux label, born with it; "" leaves it to the policy
	Quota         int64       // in bytes, to which the directory is limited; 0 sets none
	Project       bool        // it is limited by a project quota, and not as CephFS does it (ErrNoQuota elsewhere)
	// Full is of a volume with an Origin: its data is copied, at most as much as Requested, and not
	// shared with the origin's.
	Full bool
	// Subvolume: the directory is a subvolume of a btrfs. One with an Origin that is a subvolume,
	// too, is a snapshot of that, of one moment, unless Full; a snapshot of a plain directory is
	// refused (subvolume.ErrNone).
	Subvolume bool
	// Copied is told what the copy has, before the volume is in its place. It may be nil.
	Copied func(treecopy.Copied)
	// Expected is what the Origin takes, where that is known otherwise than by a project, for the
	// estimate in Working.
	Expected progress.Total
	// Pause begins a time in which nothing writes to the Origin, for the last pass of a copy that
	// is not Full. end ends it, and returns an error unless it lasted until then; ctx ends when it
	// ends early. Pause is nil for a copy of one pass.
	Pause func(ctx context.Context) (paused context.Context, end func() error, err error)
	// Receive fills the directory of a volume whose Origin is a stream.
	Receive func(ctx context.Context, dir int, o treecopy.Options) (treecopy.Copied, error)
	// PutBack: in a shared pool, what is whole in the trash or the archive is put back. Without it
	// that is ErrRemoved: another daemon may be about to remove it, after one that was paused
	// decided to make it. In other pools it is put back always.
	PutBack bool
}

// Create makes a volume's directory and returns its absolute path; then both it and its record are
// on stable storage. A volume that is there already is fine, if its record says the same. Nothing
// is left of one that cannot be made (ENOSPC, EDQUOT). What else is there is ErrForeign,
// ErrConflict or ErrPlace, and is not touched. A volume with an Origin is a copy of that, which
// takes as long as there are files (copy.go).
func (p *Pool) Create(ctx context.Context, id mounts.Identity, spec Spec) (dir string, err error) {
	if err := record.CheckDirectory(spec.Directory); err != nil {
		return "", p.about(spec.PV, err)
	}
	spec.Atomic = spec.Kind == record.Snapshot && spec.Subvolume && !spec.Full // of another copy its origin says that
	err = p.on(ctx, id, spec.PV, func(s *session) error {
		if err := s.open(volumesDir, stagingDir); err != nil {
			return err
		}
		if s.pool.hostID != "" {
			return s.createShared(spec)
		}
		return s.create(spec)
	})
	return filepath.Join(p.path, spec.Directory), err
}

// create tries first what is right for nearly all: nothing is there. Each call that makes something
// replaces nothing, so that they say it if something is. What lies in the trash or the archive
// without a record has no say.
func (s *session) create(spec Spec) error {
	if back, err := s.archivedBefore(spec); back || err != nil {
		return err
	}
	if err := s.make(spec); !errors.Is(err, errBegun) {
		return err
	}
	old, place, err := s.find(spec.PV)
	recorded := !errors.Is(err, ErrNotRecorded)
	if !recorded {
		place, err = s.place(spec.Record)
	}
	switch {
	case err != nil:
		return err
	case recorded && (place == record.InTrash || place == record.InArchive || place == record.InPool):
		if half(old) && place == record.InPool && otherCopy(old, spec.Record) {
			return errors.Join(s.discard(old, place), wrongPlace(record.Emptying))
		}
		if err := conflict(spec.Record, old); err != nil {
			return err
		}
		if spec.Copied != nil && old.Atomic {
			spec.Copied(treecopy.Copied{Atomic: true})
		}
		return s.resume(old, place)
	case place == record.InTrash, place == record.Emptying, place == record.InArchive:
		return wrongPlace(place)
	case isCopy(spec.Record) && s.pool.purges(spec.PV): // its directory is gone, and Purge is about to drop the record
		return wrongPlace(record.Emptying)
	case place == record.InStaging && s.receives(spec.PV):
		return ErrReceiving
	case place != record.InPool:
		if err := s.rollBack(spec.PV, s.dirs[volumesDir]); err != nil {
			return err
		}
		if recorded && isCopy(old) && place == record.InStaging {
			return wrongPlace(record.Emptying)
		}
		return s.make(spec)
	default:
		return fmt.Errorf("directory %q: %w", spec.Directory, ErrForeign)
	}
}

// resume finishes a volume whose directory is in the pool: the call that put it there may have
// died, or returned an error, before that was durable. One that is in the trash or the archive was
// deleted, and then the API server was restored to a day before it was made: it is the same
// claim's.
func (s *session) resume(r record.Record, place record.Place) error {
	if err := s.wholeBack(r, place); err != nil {
		return err
	}
	fd, err := s.volumeDir(r.Directory)
	if err != nil {
		return err
	}
	unix.Close(fd)
	if err := s.finishRecordName(r.PV); err != nil {
		return err
	}
	return s.sync("")
}

// wholeBack puts back what is whole elsewhere.
func (s *session) wholeBack(r record.Record, place record.Place) error {
	switch place {
	case record.InTrash:
		return s.putBack(r, trashDir, r.PV)
	case record.InArchive:
		return s.putBackArchived(r)
	default:
		return nil
	}
}

// errBegun: there is something of the volume already.
var errBegun = errors.New("begun already")

// make makes a volume of which nothing is there. errBegun says that something is; a record that was
// begun for it (<pv>.json.new) may be there then, too.
//
//	record written      a crash leaves <pv>.json.new, torn or not: swept, or written again
//	staging made..mode  and staging/<pv>: swept, or made again
//	durable             the same, on stable storage, or written out so that nothing that follows lasts without it
//	record named        a record without a directory: the claim still wants it, or Undo
//	renamed             a volume without an object, perhaps not durable: published, or Undo
//	pool durable        a volume without an object: published, or Undo
//
// A power cut can undo the last steps, but a reader that sees "renamed" sees "durable"
// (TestPowerCut).
func (s *session) make(spec Spec) (err error) {
	for range 3 {
		done, assignErr := s.assign(&spec)
		if assignErr != nil {
			return assignErr
		}
		err = s.makeAssigned(spec)
		if done(err == nil); !errors.Is(err, errTaken) {
			break
		}
	}
	return err
}

// makeAssigned is make of a volume that has its project, if it is to have one.
func (s *session) makeAssigned(spec Spec) error {
	// A record that was begun beside what is there, and left by a crash, would say that it is this
	// volume's.
	if there, err := exists(s.root, spec.Directory); there || err != nil {
		return cmp.Or(err, errBegun)
	}
	prepare := s.prepare
	if isCopy(spec.Record) {
		prepare = s.prepareCopy
	}
	err := prepare(spec)
	if errors.Is(err, errBegun) {
		return err
	}
	if err == nil {
		// From here on there is a volume. NOREPLACE: what appeared since we looked is not ours, and
		// as long as staging/<pv> is there, every process can tell.
		if err = move(s.dirs[stagingDir], spec.PV, s.root, spec.Directory); err == nil {
			s.pool.crashPoint("renamed")
			return s.durable("pool durable", "")
		}
		if errors.Is(err, unix.EEXIST) {
			err = ErrForeign
		}
		err = fmt.Errorf("directory %q: %w", spec.Directory, err)
	}
	return errors.Join(err, s.rollBack(spec.PV, s.dirs[volumesDir]))
}

// prepare does everything up to the moment in which the volume can be put in its place.
func (s *session) prepare(spec Spec) error {
	record, err := s.beginRecord(spec.Record)
	if err != nil {
		return err
	}
	defer unix.Close(record)
	s.pool.crashPoint("record written")
	dir, err := s.makeStaging(spec)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	s.pool.crashPoint("staging made")
	if err := s.applyAttributes(dir, spec); err != nil {
		return err
	}
	if err := s.makeDurable(record, dir); err != nil {
		return err
	}
	s.pool.crashPoint("durable")
	err = s.nameRecord(spec.PV)
	s.pool.crashPoint("record named")
	return err
}

// makeDurable makes sure that a reader that finds the directory in the pool after a power cut finds
// the whole record, too. Where the filesystem keeps the order of changes, the record's data is all
// that has to be waited for.
func (s *session) makeDurable(record, dir int) error {
	if s.pool.ordered.of(s.id, s.root) {
		return wrap("writing out the record", writeOut(record))
	}
	return together(
		func() error { return wrap("fsync of the record", fsync(record)) },
		func() error { return wrap("fsync of the directory", fsync(dir)) },
		func() error { return s.sync(volumesDir) },
	)
}

// beginRecord writes the first record of a volume, and returns its file; errBegun if the volume has
// one. Where its data has to be written out (makeDurable), that begins: the disk works while the
// directory is made.
func (s *session) beginRecord(r record.Record) (fd int, err error) {
	there, err := exists(s.dirs[volumesDir], r.PV+recordSuffix)
	switch {
	case err != nil:
		return -1, wrap("looking for a record", err)
	case there:
		return -1, errBegun
	}
	volumes, text, err := s.newRecord(r)
	if err != nil {
		return -1, err
	}
	fd, err = createFile(volumes, s.newName(r.PV), text)
	switch {
	case errors.Is(err, unix.EEXIST):
		return -1, errBegun
	case err != nil:
		return -1, wrap("writing the record", err)
	}
	if s.pool.ordered.of(s.id, s.root) {
		beginWriteOut(fd)
	}
	return fd, nil
}

// newRecord is the directory that a record will be written to, and its text.
func (s *session) newRecord(r record.Record) (volumes int, text []byte, err error) {
	if r.Created.IsZero() {
		r.Created = time.Now().UTC().Truncate(time.Second)
	}
	if text, err = r.Encode(); err != nil {
		return -1, nil, err
	}
	volumes, err = s.dir(volumesDir)
	return volumes, text, err
}

// writeRecord writes a record under its new name, in place of what has that name.
func (s *session) writeRecord(r record.Record) (fd int, err error) {
	volumes, text, err := s.newRecord(r)
	if err != nil {
		return -1, err
	}
	fd, err = writeNew(volumes, s.newName(r.PV), text)
	return fd, wrap("writing the record", err)
}

// finishRecordName gives a new record its final name, if a crash came before that. One that has an
// older record beside it was to replace that and was not: it goes.
func (s *session) finishRecordName(pv string) error {
	volumes, err := s.dir(volumesDir)
	if err != nil {
		return err
	}
	err = moveOut(volumes, s.newName(pv), volumes, pv+recordSuffix)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EEXIST):
		err = remove(volumes, s.newName(pv), 0)
	}
	return wrap("naming the record of an earlier call", err)
}

// nameRecord puts a record that was just written in the place of the older one, if any.
func (s *session) nameRecord(pv string) error {
	volumes, err := s.dir(volumesDir)
	if err != nil {
		return err
	}
	err = openat.Retry(func() error { return unix.Renameat(volumes, s.newName(pv), volumes, pv+recordSuffix) })
	return wrap("naming the record", err)
}

// makeStaging makes the directory with its label. Only root reaches it here.
func (s *session) makeStaging(spec Spec) (fd int, err error) {
	staging := s.dirs[stagingDir]
	err = selinux.CreatedAs(spec.Label, func() error {
		if spec.Subvolume {
			return subvolume.Create(staging, spec.PV)
		}
		return openat.Retry(func() error { return unix.Mkdirat(staging, spec.PV, 0o700) })
	})
	if errors.Is(err, unix.EEXIST) {
		return -1, errBegun
	}
	if err != nil {
		return -1, wrap("making the directory", err)
	}
	fd, err = openDir(staging, spec.PV)
	if err == nil && spec.Subvolume {
		if err = labelled(fd, spec.Label); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	return fd, wrap("opening the directory", err)
}

// applyAttributes gives a directory its project, quota, owner and mode, in that order: chown clears
// set-id bits (chown(2)), and the mode says that all the rest is done.
func (s *session) applyAttributes(dir int, spec Spec) error {
	if err := s.project(dir, spec.Record); err != nil {
		return err
	}
	if err := s.limitAsRecorded(dir, spec.Record, spec.Quota); err != nil {
		return err
	}
	if err := unix.Fchown(dir, spec.UID, spec.GID); err != nil {
		return wrap("setting the owner", err)
	}
	s.pool.crashPoint("owner set")
	if err := unix.Fchmod(dir, unixMode(spec.Mode)); err != nil {
		return wrap("setting the mode", err)
	}
	s.pool.crashPoint("mode set")
	return nil
}

// rollBack removes what is left of an attempt, this one or one of a process that died. The record
// goes first, and durably: without staging/<pv> it would claim a directory that may be foreign.
func (s *session) rollBack(pv string, volumes int) error {
	if discarded, err := s.discardCopy(pv); discarded || err != nil {
		return err
	}
	old, err := exists(volumes, pv+recordSuffix)
	if err != nil {
		return err
	}
	err = remove(volumes, s.newName(pv), 0)
	if old {
		err = errors.Join(err, remove(volumes, pv+recordSuffix, 0))
		s.pool.crashPoint("record rolled back")
		err = errors.Join(err, s.sync(volumesDir))
	}
	if err != nil {
		return fmt.Errorf("rolling back the record: %w", err)
	}
	err = s.dropStaged(pv)
	s.pool.crashPoint("directory rolled back")
	return wrap("rolling back the directory", err)
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
