package volume

import (
	"errors"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/subvolume"
)

// passMax is how often a directory is read again because another process goes on writing to it.
const passMax = 8

// shutOutEvery is after how many entries the owner of a directory is shut out of it, and of those
// above, while it is emptied.
const shutOutEvery = 1 << 10

// purger removes a tree that its owner may have made as nasty as possible, and may still be writing
// to. Package tree walks it, and says what that refuses. The purger works on single names beneath
// the walk's descriptors:
//
//	links out of the volume       unlinked, never followed                              TestPurgeHostile, TestPurgeLinksThatAreKept
//	hard links to files outside   unlinked; the flags that were cleared are set again   TestPurgeOtherNames
//	mounts inside                 left and counted                                      TestPurgeMountInside, TestPurgeMountThatIsKept
//	devices and FIFOs             removed without being opened                          TestPurgeOpensNoDevice
//	immutable, append-only        the flag is cleared                                   TestPurgeHostile
//	subvolumes, also read-only    emptied and removed by rmdir(2); the flag is cleared   TestPurgeReadOnlySubvolumes
//	trees of any depth            moved up, so that no directory is closed meanwhile    TestPurgeHostile, TestPurgeOfFullDirectories
//	a process that goes on        shut out by owner and mode; left after passMax        TestPurgeWhileWriting, TestPurgeNeverEmpty
//	directories that are moved    looked for again by a pass of the directory above     TestPurgeMovedMeanwhile
type purger struct {
	pace
	top    string // the tree's name in the trash
	work   *progress.Work
	purged Purged
	moves  int // to make names for what is moved up
}

// visit removes one entry, unless it is a directory with something in it. That is moved up or
// entered.
func (e *purger) visit(at tree.Entry) (tree.Leave, error) {
	if err := e.giveWay(); err != nil {
		return nil, err
	}
	if e.purged.Removed%shutOutEvery == shutOutEvery-1 {
		for _, dir := range append(at.Above(), at.Dir) {
			shutOut(dir)
		}
	}
	err := removeAny(at.Dir, at.Name)
	if kept(err) || errors.Is(err, unix.EACCES) {
		err = e.unflag(at.Dir, at.Name)
	}
	switch {
	case !errors.Is(err, unix.ENOTEMPTY):
		e.count(at, err)
		return nil, nil
	case at.Depth() >= tree.Held && e.moveUp(at):
		return nil, nil
	}
	e.pool.crashPoint("directory found")
	return e.leave(), nil
}

// unflag clears the immutable and append-only flags that keep an entry, then removes it. A file
// that has other names, which may be outside the volume, gets its flags back.
func (e *purger) unflag(dir int, name string) error {
	clearFlags(dir)
	fd, err := openPlain(dir, name)
	if err != nil {
		return removeAny(dir, name)
	}
	defer unix.Close(fd)
	was := clearFlags(fd)
	err = removeAny(dir, name)
	var st unix.Stat_t
	if was != 0 && unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 0 {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, was)
	}
	return err
}

func (e *purger) count(at tree.Entry, err error) {
	if err == nil {
		e.purged.Removed++
		e.work.Add(1, 0)
		return
	}
	e.purged.add(func() string { return path.Join(e.top, at.Path()) }, mountPoint(err))
}

// leave returns what is done with a directory that was emptied: it is removed. A process that is
// still writing to it is shut out, as far as it is not root; if it is, the directory is left after
// some passes. A directory that its owner moved away, or replaced, before it was opened is nothing
// that is left: what has its name then keeps the directory above, which is read again.
func (e *purger) leave() tree.Leave {
	left, moves, pass := e.purged.Left, e.moves, 0
	return func(at tree.Entry, fd int, err error) (again bool, stop error) {
		if at.Depth() > 0 && (fd < 0 && vanished(err) || errors.Is(err, unix.ENOENT)) {
			return false, nil
		}
		if err == nil {
			e.pool.crashPoint("directory emptied")
			err = e.rmdir(at.Dir, at.Name)
		}
		if pass++; moves != e.moves { // what moved up here is progress, however often
			pass, moves = 0, e.moves
		}
		if fd >= 0 && errors.Is(err, unix.ENOTEMPTY) && e.purged.Left == left {
			shutOut(fd)
			again = pass < passMax
		}
		if !again && (err == nil || e.purged.Left == left) {
			e.count(at, err)
		}
		return again, nil
	}
}

// vanished reports whether a directory was not opened because it is gone, or because its name is
// another file's by now.
func vanished(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

func (e *purger) rmdir(dir int, name string) error {
	err := remove(dir, name, unix.AT_REMOVEDIR)
	if kept(err) {
		err = e.unflag(dir, name)
	}
	return err
}

// moveUp moves a directory that lies too deep into the highest directory of the volume that takes
// it (a btrfs subvolume or a project quota in between says EXDEV), where a later pass finds it.
func (e *purger) moveUp(at tree.Entry) bool {
	for _, above := range at.Above() {
		for range 2 {
			e.moves++
			err := moveOut(at.Dir, at.Name, above, ".moved-up-"+strconv.Itoa(e.moves))
			if err == nil {
				return true
			}
			if !kept(err) {
				break
			}
			clearFlags(at.Dir)
			clearFlags(above)
			unflag(at.Dir, at.Name)
		}
	}
	return false
}

// openPlain opens a directory or regular file for reading, and nothing else: opening a device node
// can do things (tapes rewind), opening a FIFO can hang. It is looked at before it is opened.
func openPlain(dir int, name string) (int, error) {
	look, err := openat.Open(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0, beneath)
	if err != nil {
		return -1, err
	}
	defer unix.Close(look)
	var st unix.Stat_t
	if err := unix.Fstat(look, &st); err != nil {
		return -1, err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return -1, errNotAFile
	}
	// The magic link leads to the very inode that was looked at (proc(5)). It is the thread's:
	// "self" is the first thread's, which may have given itself a table of descriptors of its own.
	return openat.Open(unix.AT_FDCWD, "/proc/thread-self/fd/"+strconv.Itoa(look), unix.O_RDONLY|unix.O_NONBLOCK, 0, 0)
}

// keepFlags are FS_IMMUTABLE_FL and FS_APPEND_FL of linux/fs.h, which STATX_ATTR_* repeat.
const keepFlags = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND

// clearFlags clears what keeps a file or a directory's entries, and returns the flags that were
// there, 0 if nothing was cleared. The next unlink tells if it failed. A subvolume that was
// read-only may be written to then.
func clearFlags(fd int) (was int) {
	subvolume.MakeWritable(fd)
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil || flags&keepFlags == 0 {
		return 0
	}
	_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags&^keepFlags)
	return flags
}

// unflag clears an entry's own flags.
func unflag(dir int, name string) {
	if fd, err := openPlain(dir, name); err == nil {
		clearFlags(fd)
		unix.Close(fd)
	}
}

// shutOut makes a directory root's alone, also for processes that have it open already: every new
// name asks for permission again.
func shutOut(fd int) {
	if unix.Fchown(fd, 0, 0) == nil {
		_ = unix.Fchmod(fd, 0o700)
	}
}

// mountPoint says what openat2 (EXDEV) and unlink(2) (EBUSY) mean.
func mountPoint(err error) error {
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EBUSY) {
		return errors.New("something is mounted on it")
	}
	return err
}
