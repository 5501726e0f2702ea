package volume

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// A copy is a volume that has data before it has an object, or a snapshot. It is made in staging,
// under a record that is durable before the first file:
//
//	record written   a crash leaves <pv>.json.new, torn or not: swept, or written again
//	staging made     and staging/<pv>, empty: the same
//	quota set        the same; its limit, which is more (limitCopy), goes with it (dropStaged)
//	record durable   a record of a copy, and staging/<pv>: discarded
//	copied           the same, with data
//	quota set        the same, with its own limit
//	copy durable     the same, with all data on stable storage
//	renamed          a volume without an object: published, or Undo
//	pool durable     the same
//
// To discard is to rename staging/<pv>, whatever it has, to trash/<pv>~, from where Purge removes
// it and the record. So a copy is whole in the pool or not there, and one that died is begun anew.
// Its record says Unpublished until the moment before its object is made: as long as it says that
// no pod had it, and its data goes with it. That of a snapshot says so until the moment before it
// is said to be ready, and nothing is made from it before.

// isCopy reports whether a record is of a snapshot, or of a volume that was made as a copy of
// another one or of a snapshot.
func isCopy(r record.Record) bool { return r.Origin.Name != "" }

// half reports whether a record is of a copy whose object was not to be made yet.
func half(r record.Record) bool { return isCopy(r) && r.Unpublished && !r.Retained }

// otherCopy reports whether a claim's copy is not the one that it is to have by now: the claim that
// is its source was made anew, or the pool's pattern of directories or way of making snapshots
// changed.
func otherCopy(old, want record.Record) bool {
	lesser := want.Kind == record.Snapshot && old.Atomic != want.Atomic
	return old.ClaimUID == want.ClaimUID && (old.Origin.Name != want.Origin.Name || old.Directory != want.Directory || lesser)
}

// prepareCopy is prepare for a copy.
func (s *session) prepareCopy(spec Spec) error {
	if _, err := s.load(spec.PV); !errors.Is(err, ErrNotRecorded) {
		return errBegun
	}
	if taken, err := exists(s.root, spec.Directory); taken || err != nil {
		return errors.Join(err, fmt.Errorf("directory %q: %w", spec.Directory, ErrForeign))
	}
	from, err := -1, error(nil)
	if spec.Receive == nil {
		if from, err = s.openSource(spec.Origin); err != nil {
			return err
		}
		defer unix.Close(from)
		if spec.Atomic, err = ofOneMoment(from, spec); err != nil {
			return fmt.Errorf("volume %s: %w", spec.Origin.Name, err)
		}
	}
	dir, err := s.stageCopy(spec)
	if err != nil {
		return err
	}
	defer func() { closeOpen(dir) }()
	s.call.copies.Store(true)
	if spec.Atomic {
		dir, err = s.snapshot(from, spec)
	} else {
		err = s.fill(from, dir, spec)
	}
	s.pool.progress(s.call)
	s.pool.crashPoint("copied")
	if spec.Receive == nil {
		if gone := s.sameSource(spec.Origin, from); gone != nil {
			return gone
		}
	}
	if err != nil {
		return fmt.Errorf("copying volume %s: %w", spec.Origin.Name, err)
	}
	if spec.ProjectID != 0 { // limitCopy gave it more
		if err := s.limit(dir, spec.Record, spec.Quota); err != nil {
			return err
		}
	}
	if err := openat.Retry(func() error { return unix.Syncfs(dir) }); err != nil {
		return wrap("writing out the copy", err)
	}
	s.call.copies.Store(false)
	s.pool.progress(s.call)
	s.pool.crashPoint("copy durable")
	return nil
}

// stageCopy makes the directory that is filled, with the project and the limit that count what
// comes into it, and the record, durably. An atomic copy makes its own directory, and dir is -1.
func (s *session) stageCopy(spec Spec) (dir int, err error) {
	record, err := s.beginRecord(spec.Record)
	if err != nil {
		return -1, err
	}
	defer unix.Close(record)
	s.pool.crashPoint("record written")
	if spec.Atomic {
		if begun, err := exists(s.dirs[stagingDir], spec.PV); begun || err != nil {
			return -1, cmp.Or(err, errBegun)
		}
		return -1, s.recordCopy(record, spec.PV)
	}
	dir, err = s.makeStaging(spec)
	if err != nil {
		return -1, err
	}
	return dir, closing(dir, func() error {
		s.pool.crashPoint("staging made")
		return inOrder(
			func() error { return s.hold(dir, spec) },
			func() error { return s.project(dir, spec.Record) },
			func() error { return s.limitCopy(dir, spec) },
			func() error { return s.recordCopy(record, spec.PV) },
		)
	})
}

// inOrder takes one step after the other, until one returns an error.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// closeOpen closes a descriptor, unless it is -1.
func closeOpen(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// recordCopy gives the record of a copy its name, durably.
func (s *session) recordCopy(record int, pv string) error {
	return inOrder(
		func() error { return wrap("fsync of the record", fsync(record)) },
		func() error { return s.nameRecord(pv) },
		func() error { return s.durable("record durable", volumesDir, stagingDir) },
	)
}

// openSource opens the volume or the snapshot that is copied.
func (s *session) openSource(o record.Origin) (fd int, err error) {
	r, place, err := s.find(o.Name)
	switch {
	case errors.Is(err, ErrNotRecorded):
		return -1, fmt.Errorf("volume %s: %w", o.Name, ErrSource)
	case err != nil:
		return -1, fmt.Errorf("volume %s: %w", o.Name, err)
	case place != record.InPool || r.ClaimUID != o.UID || r.Kind != o.Kind:
		return -1, fmt.Errorf("volume %s: %w: it is %s", o.Name, ErrSource, place.Describe())
	case half(r):
		return -1, fmt.Errorf("volume %s: %w: it is not ready", o.Name, ErrSource)
	}
	return s.openVolume(r.Directory)
}

// sameSource reports, as an error, that the volume that was copied is not in its place any more:
// files of it may have been removed before they were copied.
func (s *session) sameSource(o record.Origin, was int) error {
	fd, err := s.openSource(o)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	before, err := mounts.IdentityOf(was)
	if err != nil {
		return err
	}
	if now, err := mounts.IdentityOf(fd); err != nil || now != before {
		return errors.Join(err, fmt.Errorf("volume %s: %w: its directory was replaced", o.Name, ErrSource))
	}
	return nil
}

// fill copies a volume's tree. It is in the background: it takes as long as there are files.
func (s *session) fill(from, to int, spec Spec) error {
	s.pool.urgent.Add(-1)
	defer s.pool.urgent.Add(1)
	p := pace{ctx: s.ctx, pool: s.pool, call: s.call, began: time.Now()}
	o := treecopy.Options{
		Full: spec.Full, Limit: spec.Requested, Step: p.giveWay, Work: s.copies(spec),
	}
	return selinux.CreatedAs(spec.Label, func() error {
		copied, err := s.passes(from, to, spec, o)
		if err == nil && spec.Copied != nil {
			spec.Copied(copied)
		}
		return err
	})
}

// passes copies a tree in one pass, or in three, the last of which has little to do: only that one
// needs the pause.
//
//	all of it            as long as there are files
//	what changed since   as long as it takes to look at each
//	what changed since   the same, while nothing writes, and a look whether that is so
func (s *session) passes(from, to int, spec Spec, o treecopy.Options) (treecopy.Copied, error) {
	switch {
	case spec.Receive != nil:
		o.Store = spec.Partial
		return spec.Receive(s.ctx, to, o)
	case spec.Pause == nil:
		return treecopy.Copy(s.ctx, from, to, o)
	}
	o.Seen = new(treecopy.Seen)
	defer o.Seen.Close()
	_, err := treecopy.Copy(s.ctx, from, to, o)
	o.Work = nil // the next passes come to the same files
	if err == nil {
		_, err = treecopy.Again(s.ctx, from, to, o)
	}
	if err == nil { // counts to the copy's limit
		err = o.Seen.Clear(s.ctx, to, o.Step)
	}
	if err != nil {
		return treecopy.Copied{}, err
	}
	s.pool.crashPoint("copied for the most part")
	copied, err := s.passInPause(from, to, spec, o)
	if err == nil {
		err = o.Seen.Sweep(s.ctx, to, o.Step)
	}
	return copied, err
}

// passInPause is the last pass. It gives way to nothing.
func (s *session) passInPause(from, to int, spec Spec, o treecopy.Options) (treecopy.Copied, error) {
	s.pool.progress(s.call)
	paused, end, err := spec.Pause(s.ctx)
	if err != nil {
		return treecopy.Copied{}, fmt.Errorf("%w: %w", ErrPause, err)
	}
	o.Step = nil
	copied, err := treecopy.Last(paused, from, to, o)
	s.pool.crashPoint("copied in the pause")
	if ended := end(); ended != nil { // it is why the copy ended
		err = fmt.Errorf("%w: %w", ErrPause, ended)
	}
	s.pool.progress(s.call)
	return copied, err
}

// discardCopy discards what is staged of a copy, false if nothing is.
func (s *session) discardCopy(pv string) (bool, error) {
	r, place, err := s.find(pv)
	if errors.Is(err, ErrNotRecorded) || err == nil && (!isCopy(r) || place != record.InStaging) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.discard(r, place)
}

// discard moves a copy that was not published to where Purge removes it. Its record stays until
// then.
func (s *session) discard(r record.Record, place record.Place) error {
	trash, err := s.dir(trashDir)
	if err != nil {
		return err
	}
	from, name, err := s.root, r.Directory, error(nil)
	if place == record.InStaging {
		name = r.PV
		from, err = s.dir(stagingDir)
	}
	if err == nil {
		err = s.finishRecordName(r.PV)
	}
	if err == nil {
		err = moveOut(from, name, trash, r.PV+emptyingSuffix)
	}
	if err != nil {
		return wrap("discarding the copy", err)
	}
	s.pool.crashPoint("copy discarded")
	return s.durable("copy discarded durably", volumesDir, stagingDir, trashDir, "")
}
