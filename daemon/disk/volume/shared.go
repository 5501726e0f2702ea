package volume

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// A shared pool is one in which daemons of other hosts may be at work at the same time: usually one
// is, but one that was paused goes on where it was when it wakes, and no lock stops it. Most
// network filesystems (NFS, CephFS, FUSE) cannot rename without replacing, so the usual way to make
// a volume could put an empty directory in the place of one that a pod has just begun to use. In a
// shared pool each step that counts is therefore one that can only succeed once, whichever daemon
// tries:
//
//	record written   under a name of this daemon's own: swept when it is old
//	record linked    link(2) replaces nothing: one record, whichever daemon wrote it; they all say the same
//	directory made   mkdir(2) replaces nothing: one directory, in its place from the start, mode 0700
//	attributes       label, quota, owner, and the mode at last: repeated as long as it was not done
//	durable          a volume without an object: published, or Undo
//
// Nothing is rolled back here when a step fails: what this daemon made, another one may have found
// and published since. The next try goes on with it, and Undo removes it when the claim is gone.

// createShared is create for a shared pool.
func (s *session) createShared(spec Spec) error {
	// What an earlier try of this daemon left under its own name says nothing to others.
	if err := remove(s.dirs[volumesDir], s.newName(spec.PV), 0); err != nil {
		return wrap("removing an older record", err)
	}
	if back, err := s.archivedBefore(spec); back || err != nil {
		return err
	}
	old, place, err := s.find(spec.PV)
	if errors.Is(err, ErrNotRecorded) {
		if err := s.vacant(spec.Record); err != nil {
			return err
		}
		if old, err = s.linkRecord(spec); err == nil {
			place, err = s.place(old)
		}
	}
	switch {
	case err != nil:
		return err
	case place == record.Emptying:
		return wrongPlace(place)
	case !spec.PutBack && (place == record.InTrash || place == record.InArchive):
		return removed(place)
	}
	if err := conflict(spec.Record, old); err != nil {
		return err
	}
	if err := s.wholeBack(old, place); err != nil {
		return err
	}
	if err := s.fromAlone(spec, old, place); err != nil {
		return err
	}
	return s.makeDirectory(spec)
}

// fromAlone goes on with what a daemon left half made that had the pool for its node alone, before
// it was shared. Nothing has told the API server of it: the record becomes that of a shared volume.
func (s *session) fromAlone(spec Spec, old record.Record, place record.Place) error {
	if place == record.InStaging {
		if err := s.dropStaged(spec.PV); err != nil {
			return wrap("staging", err)
		}
		s.pool.crashPoint("staging swept")
	}
	if old.Scope == "" || old.Scope == spec.Scope {
		return nil
	}
	old.Scope, old.Node = spec.Scope, spec.Node
	return s.rewrite(old)
}

// removed is the error of a volume that is whole at p and was to be made.
func removed(p record.Place) error { return fmt.Errorf("%w: it is %s", ErrRemoved, p.Describe()) }

// vacant: what has a volume's name and no record is not ours.
func (s *session) vacant(r record.Record) error {
	place, err := s.place(r)
	switch {
	case err != nil || place == record.Nowhere:
		return err
	case place == record.InPool:
		return fmt.Errorf("directory %q: %w", r.Directory, ErrForeign)
	default:
		return wrongPlace(place)
	}
}

// linkRecord gives a volume its record, durably, and returns the one that it has then: perhaps one
// that another daemon linked a moment before.
func (s *session) linkRecord(spec Spec) (record.Record, error) {
	fd, err := s.writeRecord(spec.Record)
	if err != nil {
		return record.Record{}, err
	}
	defer unix.Close(fd)
	s.pool.crashPoint("record written")
	if err := fsync(fd); err != nil {
		return record.Record{}, wrap("fsync of the record", err)
	}
	volumes, own, final := s.dirs[volumesDir], s.newName(spec.PV), spec.PV+recordSuffix
	err = openat.Retry(func() error { return unix.Linkat(volumes, own, volumes, final, 0) })
	if noLinks(err) {
		err = moveOut(volumes, own, volumes, final)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return record.Record{}, wrap("naming the record", err)
	}
	s.pool.crashPoint("record linked")
	if err := errors.Join(remove(volumes, own, 0), s.sync(volumesDir)); err != nil {
		return record.Record{}, wrap("naming the record", err)
	}
	s.pool.crashPoint("record durable")
	return s.load(spec.PV)
}

// noLinks: EPERM is the error of filesystems without hard links (link(2)).
func noLinks(err error) bool {
	for _, none := range []error{unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS, unix.EMLINK} {
		if errors.Is(err, none) {
			return true
		}
	}
	return false
}

func (s *session) makeDirectory(spec Spec) error {
	err := selinux.CreatedAs(spec.Label, func() error {
		return openat.Retry(func() error { return unix.Mkdirat(s.root, spec.Directory, bornMode) })
	})
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return wrap("making the directory", err)
	}
	s.pool.crashPoint("directory made")
	fd, err := s.openVolume(spec.Directory)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if unfinished, err := born(fd); err != nil {
		return wrap("looking at the directory", err)
	} else if made || unfinished {
		if err := s.applyAttributes(fd, spec); err != nil {
			return err
		}
	}
	if err := fsync(fd); err != nil {
		return wrap("fsync of the directory", err)
	}
	return s.durable("pool durable", "")
}

// bornMode is that of a directory that was made and has not its attributes yet.
const bornMode = 0o700

// born reports whether a directory is as it was made: without its attributes, and without files of
// a pod.
func born(fd int) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	if st.Mode&0o7777&^unix.S_ISGID != bornMode {
		return false, nil
	}
	all, err := names(fd)
	return len(all) == 0, err
}

// newName is under which a record is written, before it has its name. In a shared pool each daemon
// has its own, so that no daemon gives a record its name while another one writes to it.
func (s *session) newName(pv string) string { return pv + s.pool.newSuffix() }

func (p *Pool) newSuffix() string {
	if p.hostID == "" {
		return newSuffix
	}
	return recordSuffix + "." + p.hostID + ".new"
}

// orphanedAfter is when a record that another daemon of a shared pool began to write is swept. One
// that it still wanted is written again: sweeping too early costs it a try.
const orphanedAfter = time.Hour

// sweepOrphanedFiles removes records that other daemons began to write and did not name: those of
// other nodes, and of this or another one from when the pool was shared and is not any more, or the
// other way round.
func (s *session) sweepOrphanedFiles(files map[string]bool) error {
	for _, name := range sorted(files) {
		if !strings.HasSuffix(name, ".new") || strings.HasSuffix(name, s.pool.newSuffix()) {
			continue
		}
		st, err := lstat(s.dirs[volumesDir], name)
		if err == nil && time.Since(time.Unix(st.Mtim.Unix())) > orphanedAfter {
			err = remove(s.dirs[volumesDir], name, 0)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return wrap("an orphaned temporary file", err)
		}
	}
	return nil
}

// refusal is what a file server's refusal means to a process of this user.
func refusal(user int) error {
	if user != 0 {
		return ErrNotRoot
	}
	return ErrSquashed
}

// remote puts what an error of a network filesystem means into its chain. A stale handle is one
// that the file server forgot: the pool is looked at anew. To root, only a file server says no; any
// other user's capabilities it does not know.
func (p *Pool) remote(err error) error {
	switch {
	case errors.Is(err, unix.ESTALE):
		return fmt.Errorf("%w: %w", ErrDirectoryReplaced, err)
	case errors.Is(err, ErrNoQuota), errors.Is(err, selinux.ErrFSCreate): // no server was asked
		return err
	case p.hostID != "" && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)):
		return fmt.Errorf("%w: %w", refusal(unix.Geteuid()), err)
	default:
		return err
	}
}
