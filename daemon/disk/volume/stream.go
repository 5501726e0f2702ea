package volume

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// A volume that comes in a stream is a copy (copy.go) that another process than the daemon makes,
// beside it. It has its directory in staging locked (flock(2)) until it is in the pool: what is
// locked, Sweep leaves alone. The kernel ends the lock with the process, and what that has made is
// discarded then, by Sweep or by the next call.

// Write writes what is in a volume's directory to a stream; nil counts it only. After that it calls
// last, from when on nothing writes there: what did since the beginning is treecopy.ErrWritten.
func (p *Pool) Write(ctx context.Context, id mounts.Identity, pv string, to io.Writer,
	o treecopy.Options, last func() error) (done treecopy.Copied, err error) {
	err = p.with(ctx, id, "sending volume "+pv, func(s *session) error {
		r, place, err := s.find(pv)
		switch {
		case err != nil:
			return err
		case place != record.InPool:
			return wrongPlace(place)
		}
		dir, err := s.openVolume(r.Directory)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		if last == nil {
			done, err = treecopy.Write(ctx, dir, to, o)
			return err
		}
		ours, err := s.dir(stagingDir)
		if err != nil {
			return err
		}
		watched, err := treecopy.Watch(ctx, ours)
		if err == nil {
			done, err = treecopy.Write(ctx, dir, to, o)
		}
		if err == nil {
			err = last()
		}
		if err == nil {
			err = watched.Unchanged(ctx, dir)
		}
		return err
	})
	return done, p.about(pv, err)
}

// Sent notes in the record that the volume was written to this stream, durably.
func (p *Pool) Sent(ctx context.Context, id mounts.Identity, pv, stream string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		return s.noteBeside(pv, func(r *record.Record) { r.Sent = stream })
	})
}

// DropReceived discards a volume that came in a stream, and whose object was not made: Purge
// removes it. One of which there is nothing, or that is discarded already, is fine.
func (p *Pool) DropReceived(ctx context.Context, id mounts.Identity, pv string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		if err := s.open(volumesDir, stagingDir, trashDir); err != nil {
			return err
		}
		r, place, err := s.find(pv)
		switch {
		case errors.Is(err, ErrNotRecorded):
			return nil
		case err != nil:
			return err
		case r.Origin.Kind != record.Stream || r.Moving == "":
			return fmt.Errorf("%w: it did not come in a stream", ErrConflict)
		case place == record.InStaging && s.receives(pv):
			return ErrReceiving
		case place == record.InStaging, place == record.InPool:
			return s.discard(r, place)
		case place == record.InTrash, place == record.InArchive:
			return wrongPlace(place)
		}
		return nil
	})
}

// hold locks the directory of a volume that is received until the session ends.
func (s *session) hold(dir int, spec Spec) error {
	if spec.Receive == nil {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.dirs[stagingDir+"/"+spec.PV] = fd
	err = openat.Retry(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	return wrap("locking the directory", err)
}

// receives reports whether another process has a volume's directory in staging locked.
func (s *session) receives(pv string) bool {
	fd, err := openDir(s.dirs[stagingDir], pv)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	err = openat.Retry(func() error { return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) })
	return errors.Is(err, unix.EWOULDBLOCK)
}
