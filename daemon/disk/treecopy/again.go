package treecopy

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// again is a further pass of a copy: what changed since the last one is copied again.
//
//	file with an older change time       as it was: each write sets it
//	directory that its copy was made of  gone through
//	all else                             moved aside in the copy, and copied anew with what is below it
//	in the copy alone                    moved aside
//
// What has which name in a directory is looked at only if its change time is not older: each name
// that comes or goes sets it, also where two are exchanged, which on xfs leaves the change times of
// the files (TestAgain). A mount that goes sets none: after a pass that met one each name is looked
// at.
type again struct {
	copier
	dev   uint64
	since unix.Timespec
	fresh int         // how many directories the one lies below that is copied anew, -1: none is
	way   []wentAgain // the directories on the way that are gone through
}

// wentAgain is a directory that is gone through, and how it was.
type wentAgain struct {
	st      unix.Stat_t
	changed bool
}

// Again brings a copy up to date that Copy made, with the same o.Seen, which says what it was made
// of. It returns what the copy lacks as a whole; Directories, Files and the like are those of this
// pass. An error leaves a copy that is of no use.
func Again(ctx context.Context, from, to int, o Options) (Copied, error) {
	a := &again{copier: newCopier(ctx, to, o), since: o.Seen.since(), fresh: -1}
	defer a.leaveAt()
	var st unix.Stat_t
	if err := errors.Join(o.Seen.begin(), unix.Fstat(from, &st)); err != nil {
		return Copied{}, err
	}
	a.dev = st.Dev
	err := tree.Walk(ctx, from, ".", a.visit)
	if err == nil {
		err = o.Seen.clock.set()
	}
	a.done.Lost += o.Seen.lost
	o.Seen.lost, o.Seen.mounts = a.done.Lost, a.done.Mounts
	return a.done, err
}

func (a *again) visit(e tree.Entry) (tree.Leave, error) {
	if a.fresh >= 0 {
		return a.copier.visit(e)
	}
	if err := a.step(); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(e.Dir, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT); err != nil {
		return nil, a.skip(e, err)
	}
	directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch known, err := a.known(e, directory, st); {
	case err != nil:
		return nil, about(e, err)
	case known && directory:
		return a.through(e, st), nil
	case known:
		a.count(st)
		return nil, nil
	}
	if err := a.o.Seen.aside(a.top, a.at, e.Name); err != nil {
		return nil, about(e, err)
	}
	return a.anew(e)
}

// known reports whether the copy has an entry as it is. It goes into the copy of a directory.
func (a *again) known(e tree.Entry, directory bool, st unix.Stat_t) (bool, error) {
	switch {
	case directory && e.Depth() == 0:
		return true, nil
	case st.Dev != a.dev: // a mount
		return false, nil
	case directory:
		return a.into(e.Name, st)
	case !older(st.Ctim, a.since):
		return false, nil
	case !a.way[len(a.way)-1].changed:
		return true, nil
	case st.Mode&unix.S_IFMT != unix.S_IFREG: // soon made
		return false, nil
	}
	var copied unix.Stat_t
	err := unix.Fstatat(a.at, e.Name, &copied, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && a.o.Seen.isOf(st.Ino, copied.Ino), err
}

// into goes into the directory of the copy that has this name, if it was made of this one.
func (a *again) into(name string, st unix.Stat_t) (bool, error) {
	fd, err := openat.Open(a.at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, openat.Beneath)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return false, nil
	case err != nil:
		return false, err
	}
	var made unix.Stat_t
	if err := unix.Fstat(fd, &made); err != nil || !a.o.Seen.isOf(st.Ino, made.Ino) {
		unix.Close(fd)
		return false, err
	}
	a.leaveAt()
	a.at = fd
	return true, nil
}

// count counts what is not copied.
func (a *again) count(st unix.Stat_t) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		a.done.Sockets++
	case unix.S_IFCHR, unix.S_IFBLK:
		a.done.Devices++
	}
}

// anew copies an entry, and what is below it.
func (a *again) anew(e tree.Entry) (tree.Leave, error) {
	leave, err := a.copier.visit(e)
	if leave == nil || err != nil {
		return nil, err
	}
	a.fresh = e.Depth()
	return func(e tree.Entry, fd int, err error) (bool, error) {
		a.fresh = -1
		return leave(e, fd, err)
	}, nil
}

// through goes through a directory whose copy is a.at.
func (a *again) through(e tree.Entry, st unix.Stat_t) tree.Leave {
	a.depth = e.Depth()
	a.way = append(a.way, wentAgain{st, !older(st.Ctim, a.since) || a.o.Seen.mounts > 0})
	return func(e tree.Entry, fd int, err error) (bool, error) {
		was := a.way[len(a.way)-1]
		a.way = a.way[:len(a.way)-1]
		switch {
		case a.depth != e.Depth():
			return false, about(e, tree.ErrDirectoryReplaced)
		case fd < 0, removed(e, err):
			return false, a.lose(e, err)
		case err == nil && was.changed:
			err = a.like(fd, was.st)
		}
		if err == nil {
			err = a.finish(e.Name, fd, was.st)
		}
		return false, about(e, err)
	}
}

// lose takes a directory out of the copy that could not be entered in the source, or was removed
// there.
func (a *again) lose(e tree.Entry, err error) error {
	if e.Depth() == 0 {
		return err
	}
	if err := a.up(); err != nil {
		return about(e, err)
	}
	if err := a.o.Seen.aside(a.top, a.at, e.Name); err != nil {
		return about(e, err)
	}
	return a.skip(e, err)
}

// like takes out of a directory of the copy what the source's has not any more, and gives it the
// same attributes.
func (a *again) like(from int, st unix.Stat_t) error {
	if err := a.withoutOthers(from); err != nil {
		return err
	}
	return a.attributes(attributed{fd: from}, a.at, st)
}

// withoutOthers moves aside what the source's directory has not.
func (a *again) withoutOthers(from int) error {
	if _, err := unix.Seek(a.at, 0, unix.SEEK_SET); err != nil {
		return err
	}
	buffer, more := make([]byte, 32<<10), true
	for more {
		var names []string
		var err error
		if names, more, err = tree.Read(a.at, buffer, nil); err != nil {
			return err
		}
		for _, name := range names {
			if err := a.withoutOther(from, name); err != nil {
				return fmt.Errorf("%.100q: %w", name, err)
			}
		}
	}
	return nil
}

func (a *again) withoutOther(from int, name string) error {
	if a.depth == 0 && (name == a.o.Seen.name || name == a.links.name) {
		return nil
	}
	var st unix.Stat_t
	err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	if errors.Is(err, unix.ENOENT) {
		return a.o.Seen.aside(a.top, a.at, name)
	}
	return err
}

func older(one, other unix.Timespec) bool {
	return one.Sec < other.Sec || one.Sec == other.Sec && one.Nsec < other.Nsec
}
