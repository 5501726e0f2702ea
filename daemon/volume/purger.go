package volume

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

const (
	// depthMax is how many directories below each other are open at the same time. What lies deeper
	// is moved up, so that neither descriptors nor stack grow with the tree.
	depthMax = 32
	// passMax is how often a directory is read again because another process goes on writing to it.
	passMax = 8
	// burst is how many entries are removed before the purge looks whether it is in the way.
	burst = 32
	// pathMax is how much is said of a path within a volume, in bytes. Its owner made it as long as he liked.
	pathMax = 160
)

// purger removes a tree that its owner may have made as nasty as he could, and may still be writing
// to. It works on single names beneath descriptors (beneath, in sys.go):
//
//	links out of the volume       unlinked, never followed                              TestPurgeHostile, TestPurgeLinksThatAreKept
//	hard links to files outside   unlinked; the flags that were cleared are set again   TestPurgeOtherNames
//	mounts inside                 left and counted                                      TestPurgeMountInside, TestPurgeMountThatIsKept
//	devices and FIFOs             removed without being opened                          TestPurgeOpensNoDevice
//	immutable, append-only        the flag is cleared                                   TestPurgeHostile
//	trees of any depth            moved up, so that descriptors are bounded             TestPurgeHostile
//	a process that goes on        shut out by owner and mode; left after passMax        TestPurgeWhileWriting, TestPurgeNeverEmpty
type purger struct {
	ctx     context.Context
	pool    *Pool
	call    *call
	purged  Purged
	open    []int // the directories from the trash down to the one that is being emptied
	moves   int   // to make names for what is moved up
	since   int   // entries since the last pause
	began   time.Time
	stopped error
}

func newPurger(ctx context.Context, s *session, trash int) *purger {
	return &purger{ctx: ctx, pool: s.pool, call: s.call, open: []int{trash}, began: time.Now()}
}

// entry removes one entry, with all that is in it. at is its directory's path, for messages.
func (e *purger) entry(dir int, name, at string) {
	if !e.goOn() {
		return
	}
	err := removeAny(dir, name)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		err = e.unflag(dir, name)
	}
	if errors.Is(err, unix.ENOTEMPTY) {
		e.directory(dir, name, at)
		return
	}
	e.count(path.Join(at, name), err)
}

// unflag clears the immutable and append-only flags that keep an entry, then removes it. A file that
// has other names, which may be outside the volume, gets its flags back.
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

func (e *purger) count(path string, err error) {
	if err == nil {
		e.purged.Removed++
		return
	}
	e.purged.Left++
	if len(e.purged.Paths) < leftMax {
		e.purged.Paths = append(e.purged.Paths, fmt.Sprintf(`"%s": %v`, words.Ends(path, pathMax), mountPoint(err)))
	}
}

// directory empties and removes a directory. A process that is still writing to it is shut out, as
// far as it is not root; if it is, the directory is left after some passes.
func (e *purger) directory(dir int, name, at string) {
	if len(e.open) > depthMax && e.moveUp(dir, name) {
		return
	}
	fd, err := openPlain(dir, name)
	if err != nil {
		e.count(path.Join(at, name), err)
		return
	}
	defer unix.Close(fd)
	e.open = append(e.open, fd)
	defer func() { e.open = e.open[:len(e.open)-1] }()
	left, moves := e.purged.Left, -1
	for pass := 0; pass < passMax && e.stopped == nil; pass++ {
		if moves != e.moves { // what moved up here is progress, however often
			pass, moves = 0, e.moves
		}
		if err = e.pass(fd, path.Join(at, name)); err != nil {
			break
		}
		e.pool.crashPoint("directory emptied")
		if err = e.rmdir(dir, name); !errors.Is(err, unix.ENOTEMPTY) || e.purged.Left > left {
			break
		}
		shutOut(fd)
	}
	if e.stopped == nil && (err == nil || e.purged.Left == left) {
		e.count(path.Join(at, name), err)
	}
}

func (e *purger) rmdir(dir int, name string) error {
	err := remove(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.EPERM) {
		err = e.unflag(dir, name)
	}
	return err
}

// pass removes every entry that a directory has now.
func (e *purger) pass(fd int, at string) error {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	buffer := make([]byte, 8<<10)
	for e.stopped == nil {
		n, err := getdents(fd, buffer)
		if n == 0 || err != nil {
			return err
		}
		_, _, entries := unix.ParseDirent(buffer[:n], -1, nil)
		for _, name := range entries {
			e.entry(fd, name, at)
		}
	}
	return nil
}

// moveUp moves a directory that lies too deep into the highest directory of the volume that takes it
// (a btrfs subvolume or a project quota in between says EXDEV), where a later pass finds it.
func (e *purger) moveUp(dir int, name string) bool {
	for _, above := range e.open[1 : len(e.open)-1] {
		for range 2 {
			e.moves++
			err := moveOut(dir, name, above, ".moved-up-"+strconv.Itoa(e.moves))
			if err == nil {
				return true
			}
			if !errors.Is(err, unix.EPERM) {
				break
			}
			clearFlags(dir)
			clearFlags(above)
			unflag(dir, name)
		}
	}
	return false
}

// goOn is asked before each entry. It gives way to calls in the foreground: their fsyncs
// commit the journal with all that a purge put there, so a purge does little while they are under way.
func (e *purger) goOn() bool {
	e.pool.progress(e.call)
	if e.stopped == nil {
		e.stopped = e.ctx.Err()
	}
	if e.since++; e.stopped != nil || e.since < burst {
		return e.stopped == nil
	}
	pause := time.Duration(0)
	if e.pool.urgent.Load() > 0 {
		pause = max(time.Millisecond, 4*time.Since(e.began))
	}
	e.wait(min(pause, 20*time.Millisecond))
	e.since, e.began = 0, time.Now()
	return e.stopped == nil
}

func (e *purger) wait(pause time.Duration) {
	if pause == 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.ctx.Done():
		e.stopped = e.ctx.Err()
	}
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
	// The magic link leads to the very inode that was looked at (proc(5)). It is the thread's: "self" is
	// the first thread's, which may have given itself a table of descriptors of its own.
	return openat.Open(unix.AT_FDCWD, "/proc/thread-self/fd/"+strconv.Itoa(look), unix.O_RDONLY|unix.O_NONBLOCK, 0, 0)
}

// keepFlags are FS_IMMUTABLE_FL and FS_APPEND_FL of linux/fs.h, which STATX_ATTR_* repeat.
const keepFlags = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND

// clearFlags clears what keeps a file or a directory's entries, and returns the flags that were there,
// 0 if nothing was cleared. The next unlink tells if it failed.
func clearFlags(fd int) (was int) {
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
