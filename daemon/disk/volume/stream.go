package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

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

// Sending is one writing of a volume to a stream.
type Sending struct {
	treecopy.Options
	// Begin is called with the time, by the filesystem's clock, at which nothing was read yet. It
	// returns the stream.
	Begin func(since unix.Timespec) (io.Writer, error)
	// Last is called behind the data. From then on nothing writes to the volume: what did since the
	// beginning is treecopy.ErrWritten. It is nil for a volume that is in use.
	Last func() error
}

// Write writes what is in a volume's directory to a stream; without Begin it counts it only.
func (p *Pool) Write(ctx context.Context, id mounts.Identity, pv string,
	o Sending) (done treecopy.Copied, err error) {
	err = p.with(ctx, id, "sending volume "+pv, func(s *session) error {
		r, err := s.inPool(pv)
		if err != nil {
			return err
		}
		dir, err := s.openVolume(r.Directory)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		if o.Begin == nil {
			done, err = treecopy.Write(ctx, dir, nil, o.Options)
			return err
		}
		done, err = s.writes(ctx, dir, o)
		return err
	})
	return done, p.about(pv, err)
}

func (s *session) writes(ctx context.Context, dir int, o Sending) (done treecopy.Copied,
	err error) {
	ours, err := s.dir(stagingDir)
	if err != nil {
		return done, err
	}
	watched, err := treecopy.Watch(ctx, ours)
	if err != nil {
		return done, err
	}
	to, err := o.Begin(watched.Since())
	if err == nil && o.Live { // a write to a mapping that is dirty sets no change time
		err = openat.Retry(func() error { return unix.Syncfs(dir) })
	}
	if err == nil {
		done, err = treecopy.Write(ctx, dir, to, o.Options)
	}
	if err != nil || o.Last == nil {
		return done, err
	}
	if err = o.Last(); err == nil {
		err = watched.Unchanged(ctx, dir)
	}
	return done, err
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

// A volume that comes in several streams stays in staging until the last one is whole:
//
//	base made      a record that names no stream: discarded by the next call
//	files came     the same, or the record of the base, which has all that it had
//	cut off        the base of the next stream, as far as it came
//	durable        the same
//	noted          the base of the next stream
//	taken          whole, in staging: it is discarded, and sent anew
//	renamed        a volume without an object, as any that was received
//
// Sweep leaves it. What came last replaces the files of the base alone that changed since that, and
// which each stream that goes on from the base has.

// ReceiveBase makes a volume in staging of a stream, or changes it by one that goes on from base.
// With whole it is put into the pool: spec.Record is its record then.
func (p *Pool) ReceiveBase(ctx context.Context, id mounts.Identity, spec Spec, base string,
	whole bool) error {
	return p.on(ctx, id, spec.PV, func(s *session) error {
		if err := s.open(volumesDir, stagingDir); err != nil {
			return err
		}
		dir, err := s.base(&spec, base)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		s.call.copies.Store(true)
		defer s.call.copies.Store(false)
		cut := &CutError{}
		err = s.fill(-1, dir, spec)
		switch {
		case err == nil && whole:
			return s.taken(dir, spec)
		case errors.As(err, &cut):
			spec.Origin.UID = cut.Base
		case err != nil:
			return fmt.Errorf("copying volume %s: %w", spec.Origin.Name, err)
		}
		if err := openat.Retry(func() error { return unix.Syncfs(dir) }); err != nil {
			return wrap("writing out the copy", err)
		}
		return errors.Join(err,
			s.noteBeside(spec.PV, func(r *record.Record) { r.Origin = spec.Origin }))
	})
}

// CutError is returned by Spec.Receive, and by ReceiveBase then, for a stream that was cut off: what
// came is durable, and the base of a stream that goes on from Base.
type CutError struct {
	Base string
	Err  error
}

func (e *CutError) Error() string { return e.Err.Error() }

// Unwrap is how it was cut off.
func (e *CutError) Unwrap() error { return e.Err }

// base opens the directory in staging, which is locked until the session ends, and has nothing but
// the files that came. spec gets its record's Partial.
func (s *session) base(spec *Spec, base string) (dir int, err error) {
	if base == "" {
		return s.newBase(spec)
	}
	r, place, err := s.find(spec.PV)
	switch {
	case err != nil:
		return -1, err
	case place == record.InStaging && s.receives(spec.PV):
		return -1, ErrReceiving
	case place != record.InStaging || r.Partial == "" || r.Origin.UID != base:
		return -1, wrongPlace(place)
	}
	spec.Partial, spec.ProjectID = r.Partial, r.ProjectID
	if dir, err = openDir(s.dirs[stagingDir], spec.PV); err != nil {
		return -1, err
	}
	return dir, closing(dir, func() error {
		if err := s.hold(dir, *spec); err != nil {
			return err
		}
		return treecopy.Emptied(s.ctx, dir, spec.Partial)
	})
}

// closing closes a descriptor, unless the work is done.
func closing(fd int, work func() error) (err error) {
	done := false
	defer func() {
		if !done {
			unix.Close(fd)
		}
	}()
	err = work()
	done = err == nil
	return err
}

// newBase makes one. Its record names no stream before the first one is whole.
func (s *session) newBase(spec *Spec) (dir int, err error) {
	if taken, err := exists(s.root, spec.Directory); taken || err != nil {
		return -1, errors.Join(err, fmt.Errorf("directory %q: %w", spec.Directory, ErrForeign))
	}
	done, err := s.assign(spec)
	if err != nil {
		return -1, err
	}
	begun := *spec
	begun.Origin.UID = ""
	dir, err = s.stageCopy(begun)
	if done(err == nil); err != nil {
		return -1, err
	}
	return dir, closing(dir, func() (err error) {
		if spec.Partial, err = treecopy.Store(dir); err != nil {
			return err
		}
		return s.noteBeside(spec.PV, func(r *record.Record) { r.Partial = spec.Partial })
	})
}

// taken puts a volume whose last stream is whole into the pool.
func (s *session) taken(dir int, spec Spec) error {
	store := spec.Partial
	err := s.noteBeside(spec.PV, func(r *record.Record) {
		r.Origin, r.Moving, r.Partial = spec.Origin, spec.Moving, ""
	})
	if err == nil {
		s.pool.crashPoint("taken")
		err = treecopy.Unstore(dir, store)
	}
	if err == nil && spec.ProjectID != 0 {
		err = s.limit(dir, spec.Record, spec.Quota)
	}
	if err == nil {
		err = wrap("writing out the copy",
			openat.Retry(func() error { return unix.Syncfs(dir) }))
	}
	if err != nil {
		return err
	}
	if err := move(s.dirs[stagingDir], spec.PV, s.root, spec.Directory); err != nil {
		return fmt.Errorf("directory %q: %w", spec.Directory, err)
	}
	s.pool.crashPoint("renamed")
	return s.durable("pool durable", "")
}

// Announce has a daemon that works in the pool, too, count what its records promise before it makes
// another volume: this process has written one.
func (p *Pool) Announce(ctx context.Context, id mounts.Identity) error {
	return p.with(ctx, id, "announcing a volume", func(s *session) error {
		dir, err := openDir(s.root, metaDir)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		now := unix.NsecToTimespec(time.Now().UnixNano())
		return unix.UtimesNanoAt(dir, ".", []unix.Timespec{now, now}, 0)
	})
}

// Announced is when Announce was called last; it is later, too, where a file came beside the
// records.
func (p *Pool) Announced(ctx context.Context, id mounts.Identity) (at time.Time, err error) {
	err = p.with(ctx, id, "looking for announced volumes", func(s *session) error {
		var st unix.Stat_t
		if err := unix.Fstatat(s.root, metaDir, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		at = time.Unix(st.Mtim.Unix())
		return nil
	})
	return at, err
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
