package tree

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

const (
	// Held is how many directories below each other stay open. Of those below them the one that is
	// read is open, and for a moment the one above or below it.
	Held = 32
	// Deepest is how many directories below each other are entered. Each takes some 200 bytes, and
	// its name.
	Deepest = 100_000
	// mostNew is how many entries may come while a tree is walked, and so many are not looked at.
	mostNew = 1 << 17
)

var (
	// ErrDirectoryReplaced: the walk could not go back to a directory, because directories were
	// moved meanwhile. What is in it and was not visited before is not visited.
	ErrDirectoryReplaced = errors.New("directories in it were moved meanwhile")
	// ErrDeep: a directory lies below Deepest others.
	ErrDeep = errors.New("too many directories below each other")
	// ErrGrows: most of what the walk came to was made after it began. It would not end, whatever
	// the filesystem.
	ErrGrows = errors.New("files are made in it as fast as it is read")
)

// Visit visits one entry of a directory. Nothing is known of the entry but its name. If a Leave is
// returned, the entry is entered as a directory. An error ends the walk.
//
// While directories change, an entry may be visited twice, or not at all.
type Visit func(at Entry) (Leave, error)

// Leave ends the visit of a directory, after all entries in it were visited. fd is the directory.
// If it was not opened, fd is -1 and err the reason: EXDEV is a mount, ENOTDIR no directory, ENOENT
// one that is gone. If it was not read to its end, err is the reason, too; with
// ErrDirectoryReplaced fd is -1. If again is true and fd a descriptor, the directory is read once
// more. An error ends the walk.
//
// Each directory that is to be entered is left, unless one above it is left with
// ErrDirectoryReplaced, or the walk is ended before.
type Leave func(at Entry, fd int, err error) (again bool, stop error)

// Entry is an entry of an open directory. It is valid until the function that it was given to
// returns.
type Entry struct {
	Dir  int // the descriptor of the directory; the walk closes it
	Name string

	w     *walk
	depth int
}

// walk is the way from the top of a tree down to the directory that is read.
type walk struct {
	ctx     context.Context
	start   int // the descriptor of the directory that has the tree; its caller closes it
	visitor Visit
	levels  []*level
	buffer  []byte
	deepest int
	growth  growth
}

// Walk visits an entry of an open directory, and everything below it that is to be entered. A
// directory is visited before what is in it, and left after that. The context is looked at before
// each entry, and its error returned.
func Walk(ctx context.Context, dir int, name string, visit Visit) error {
	return newWalk(ctx, dir, visit).run(name)
}

func newWalk(ctx context.Context, dir int, visit Visit) *walk {
	return &walk{
		ctx: ctx, start: dir, visitor: visit, buffer: make([]byte, pieceSize), deepest: Deepest,
		growth: growth{most: mostNew, began: time.Now().Unix()},
	}
}

func (w *walk) run(name string) error {
	defer func() { w.cut(0) }()
	err := w.visit(name)
	for err == nil && len(w.levels) > 0 {
		err = w.next()
	}
	return err
}

// next visits the next entry of the directory that is read, or leaves it.
func (w *walk) next() error {
	name, err := w.levels[len(w.levels)-1].next(w.buffer)
	if name == "" {
		return w.leave(err)
	}
	return w.visit(name)
}

// visit visits an entry of the directory that is read.
func (w *walk) visit(name string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	at := w.entry(len(w.levels), name)
	if w.growth.endless(at) {
		return ErrGrows
	}
	leave, err := w.visitor(at)
	if leave == nil || err != nil {
		return err
	}
	fd, err := w.enter(at)
	if err != nil {
		_, err = leave(at, -1, err)
		return err
	}
	twice := w.growth.again(fd) || at.twice()
	w.levels = append(w.levels, &level{name: name, leave: leave, fd: fd, twice: twice})
	return nil
}

// entry is an entry of the directory that lies below so many others of the tree.
func (w *walk) entry(depth int, name string) Entry {
	dir := w.start
	if depth > 0 {
		dir = w.levels[depth-1].fd
	}
	return Entry{Dir: dir, Name: name, w: w, depth: depth}
}

// enter opens an entry as a directory. The one that has it is closed, if it lies too deep to be
// held.
func (w *walk) enter(at Entry) (fd int, err error) {
	if at.depth >= w.deepest {
		return -1, ErrDeep
	}
	fd, err = openat.Open(at.Dir, at.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, openat.Beneath)
	if err != nil || at.depth <= Held {
		return fd, err
	}
	if err := w.levels[at.depth-1].suspend(); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// leave leaves the directory that is read; err is why it was not read to its end.
func (w *walk) leave(err error) error {
	depth := len(w.levels) - 1
	l := w.levels[depth]
	if depth > Held {
		if err := goBack(l.fd, w.levels[depth-1]); err != nil {
			return w.abandon(fmt.Errorf("%w: %v", ErrDirectoryReplaced, err))
		}
	}
	again, stop := l.leave(w.entry(depth, l.name), l.fd, err)
	switch {
	case stop != nil:
		return stop
	case again:
		return w.again(depth)
	}
	w.cut(depth)
	return nil
}

// again has the directory read once more, below which nothing is open.
func (w *walk) again(depth int) error {
	if depth > Held {
		if err := w.levels[depth-1].suspend(); err != nil {
			return err
		}
	}
	return w.levels[depth].rewind()
}

// goBack opens the directory above, which was closed, by "..".
func goBack(from int, above *level) error {
	fd, err := openat.Open(from, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_XDEV)
	if err != nil {
		return err
	}
	if err := above.resume(fd); err != nil {
		unix.Close(fd)
		return err
	}
	return nil
}

// abandon goes on in the deepest directory that is held: the way to those below it is lost.
func (w *walk) abandon(err error) error {
	leave, name := w.levels[Held].leave, w.levels[Held].name
	w.cut(Held)
	_, stop := leave(w.entry(Held, name), -1, err)
	return stop
}

// cut ends the way after so many directories, and closes those below.
func (w *walk) cut(depth int) {
	for _, l := range w.levels[depth:] {
		l.close()
	}
	clear(w.levels[depth:])
	w.levels = w.levels[:depth]
}

// Depth is how many directories of the tree the entry lies below; the top of the tree lies below
// none.
func (e Entry) Depth() int { return e.depth }

// Path is the way from the top of the tree to the entry, "" for the top itself. Its owner chose its
// length.
func (e Entry) Path() string {
	if e.depth == 0 {
		return ""
	}
	names := make([]string, 0, e.depth)
	for _, l := range e.w.levels[1:e.depth] {
		names = append(names, l.name)
	}
	return strings.Join(append(names, e.Name), "/")
}

// Above returns the descriptors of the directories that the entry's directory lies below, as far as
// they are held: from the top of the tree downwards, at most Held. The walk closes them.
func (e Entry) Above() []int {
	var all []int
	for _, l := range e.w.levels[:max(0, min(Held, e.depth-1))] {
		all = append(all, l.fd)
	}
	return all
}

// growth tells a large tree from one that grows as fast as it is walked. Which of both costs a
// system call for each entry, of a large tree alone.
type growth struct {
	most    int   // entries that are not looked at, and that may have come
	began   int64 // in seconds since 1970, when the walk did
	visited int
	came    int                      // of those that were looked at
	entered map[mounts.Identity]bool // at most so many
}

// endless reports whether two of three entries came while the tree was walked. One that is gone by
// now came and went.
func (g *growth) endless(at Entry) bool {
	if g.visited++; g.visited <= g.most {
		return false
	}
	if at.twice() || g.isNew(at) {
		g.came++
	}
	return g.came > g.most && g.came/2 > g.visited/3
}

// isNew reports whether an entry was made after the walk began, or a file got the name. What has
// further names gets a change time with each that a purge removes, and a directory when that moves
// it up.
func (g *growth) isNew(at Entry) bool {
	var st unix.Statx_t
	const mask = unix.STATX_BTIME | unix.STATX_CTIME | unix.STATX_NLINK | unix.STATX_TYPE
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if unix.Statx(at.Dir, at.Name, flags, mask, &st) != nil {
		return true
	}
	born := st.Mask&unix.STATX_BTIME != 0 && st.Btime.Sec > g.began
	directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
	return born || !directory && st.Nlink == 1 && st.Ctime.Sec > g.began
}

// again reports whether a directory was entered before: it was moved to where the walk came later.
func (g *growth) again(dir int) bool {
	if g.visited < g.most {
		return false
	}
	id, err := mounts.IdentityOf(dir)
	if err != nil || g.entered[id] {
		return err == nil
	}
	if g.entered == nil {
		g.entered = map[mounts.Identity]bool{}
	}
	if len(g.entered) < g.most {
		g.entered[id] = true
	}
	return false
}

// twice reports whether the entry is in a directory that was entered before.
func (e Entry) twice() bool { return e.depth > 0 && e.w.levels[e.depth-1].twice }
