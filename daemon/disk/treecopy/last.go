package treecopy

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// ErrWritten: the source was changed while nothing was to change it.
var ErrWritten = errors.New("something that is not stopped writes to the volume")

// Last is Again for the time in which what is known to write stands still. It returns ErrWritten if
// anything was changed from its beginning to the end of the copy, by whatever it was: then the
// files are not of one moment.
//
//	write, also of attributes     change time of the file, before the data is there                             TestLast
//	write to a mapping            the same: what was dirty when its file was copied is read-only since          TestLast
//	name that comes or goes       change time of the directory                                                  TestLast
//	directory that is moved       the same; each is looked at after all that is in it                           TestLast
//	what was written before       an older change time, by the filesystem's own clock                           TestLastBefore
//	change time in the future     of a clock that was set back since                                            TestLastFuture
//	clock that is set meanwhile   ErrClock, as of all passes               TestLastClock
//
// A write that began before and ends meanwhile is in the copy as a whole: FICLONE waits for it.
func Last(ctx context.Context, from, to int, o Options) (Copied, error) {
	w, err := Watch(ctx, to)
	if err != nil {
		return Copied{}, err
	}
	done, err := Again(ctx, from, to, o)
	if err == nil {
		err = w.Unchanged(ctx, from)
	}
	if err == nil {
		err = o.Seen.clock.set()
	}
	return done, err
}

// Watched is a tree in which changes are noticed by their times.
type Watched struct {
	to    int           // directory of the same filesystem, which tells the time
	since unix.Timespec // what was changed before has an older change time, and what is changed later has not
	now   unix.Timespec // at the last look
}

// Watch begins to watch; to is a directory of the same filesystem, whose times it sets. The clock
// of change times may stand still for a tick (10 ms at most): what was changed before it went on
// could not be told from what is changed later. From Linux 6.13 on it goes on with each look
// (multigrain timestamps).
func Watch(ctx context.Context, to int) (w *Watched, err error) {
	w = &Watched{to: to}
	var before unix.Timespec
	if before, err = w.time(); err == nil {
		w.since, err = w.time()
	}
	for err == nil && !older(before, w.since) {
		time.Sleep(time.Millisecond / 4)
		if w.since, err = w.time(); err == nil {
			err = ctx.Err()
		}
	}
	w.now = w.since
	return w, err
}

// Since is the time of the beginning, by the clock of change times.
func (w *Watched) Since() unix.Timespec { return w.since }

// Unchanged is ErrWritten if something in the open directory was changed since Watch.
func (w *Watched) Unchanged(ctx context.Context, from int) error {
	return tree.Walk(ctx, from, ".", w.visit)
}

// time is the change time of what is changed now.
func (w *Watched) time() (unix.Timespec, error) {
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	var st unix.Stat_t
	err := openat.Retry(func() error { return unix.UtimesNanoAt(w.to, ".", now, 0) })
	if err == nil {
		err = unix.Fstat(w.to, &st)
	}
	return st.Ctim, err
}

func (w *Watched) visit(e tree.Entry) (tree.Leave, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(e.Dir, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT); err != nil {
		return nil, replaced(e, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return w.leave, nil
	case unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK: // are not copied
		return nil, nil
	}
	err := w.look(e, st)
	if err != nil && mounted(e) {
		return nil, nil
	}
	return nil, err
}

// leave looks at a directory of which all entries were looked at: what came to one of those before,
// or was moved away from this one, changed it.
func (w *Watched) leave(e tree.Entry, fd int, err error) (again bool, stop error) {
	if errors.Is(err, unix.EXDEV) { // a mount
		return false, nil
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		return false, replaced(e, err)
	}
	return false, w.look(e, st)
}

// look is ErrWritten if the entry was changed.
func (w *Watched) look(e tree.Entry, st unix.Stat_t) error {
	if older(st.Ctim, w.since) {
		return nil
	}
	if older(w.now, st.Ctim) {
		var err error
		if w.now, err = w.time(); err != nil {
			return err
		}
	}
	if future := older(w.now, st.Ctim); future {
		return nil
	}
	return about(e, ErrWritten)
}

// mounted reports whether something is mounted on an entry, which is left out of the copy.
func mounted(e tree.Entry) bool {
	fd, err := openat.Open(e.Dir, e.Name, unix.O_PATH|unix.O_NOFOLLOW, 0, openat.Beneath)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.EXDEV)
}

// replaced is the error of an entry that was there when its directory was read.
func replaced(e tree.Entry, err error) error {
	for _, gone := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, tree.ErrDirectoryReplaced} {
		if errors.Is(err, gone) {
			return about(e, ErrWritten)
		}
	}
	return about(e, err)
}
