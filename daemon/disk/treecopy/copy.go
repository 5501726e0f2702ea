package treecopy

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Options say how a tree is copied.
type Options struct {
	// Full copies the data; else files share their blocks (FICLONE), which xfs and btrfs can.
	Full bool
	// Limit is how many bytes of data a full copy may have; 0 is no limit.
	Limit int64
	// Step is called before each entry and each piece of a file. Its error ends the copy. It may be
	// nil.
	Step func() error
	// Seen has Copy note what Again needs. Only copies that share their blocks can have it; it may
	// be nil.
	Seen *Seen
	// Work counts what was copied. It may be nil.
	Work *progress.Work
	// Since has Write leave out the data of files that did not change since, by their change times:
	// the reader has them of an earlier stream. The zero value is none.
	Since unix.Timespec
	// Cut is the file, by its inode, behind which the stream that Since is of was cut off, 0 if it was
	// not: Write leaves out the data of that one and of those before it alone, and Copied.Last is
	// of those behind it.
	Cut uint64
	// Live has Write go on where it meets a change, and write files alone: what changed is written
	// again by a Write that has the beginning of this one as Since. Read puts them into Store.
	Live bool
	// Store is the name of a directory in the tree in which Read keeps files by their inodes in the
	// source, for a further stream, and has those that come without data from; it is there, and
	// stays. "" is none.
	Store string
}

var (
	// ErrNoReflink: the filesystem cannot share blocks between files.
	ErrNoReflink = errors.New("the filesystem cannot make copies that share their blocks (reflink)")
	// ErrLimit: there is more data than Options.Limit.
	ErrLimit = errors.New("there is more data than the copy may have")
)

// Copied says what a copy has, and what it has not.
type Copied struct {
	Directories int // with the top
	Files       int // each once, however many names it has
	HardLinks   int // further names of files
	Symlinks    int
	FIFOs       int
	Bytes       int64 // of data that a full copy wrote
	Atomic      bool  // it is a snapshot of a subvolume, of one moment, in which nothing else was counted

	Sockets, Devices int // left out
	Mounts           int // places where something is mounted, left out
	Gone             int // entries that were removed or replaced before they were copied
	Changed          int // files of a full copy that were written to meanwhile
	Subvolumes       int // left out of a snapshot of one; 255 are as many as more

	Last uint64 // inode in the source of the last file that Read made whole of a live stream
	Lost int    // owners, modes and attributes that this process may not set
}

// copier is a copy under way.
type copier struct {
	ctx   context.Context
	o     Options
	top   int // the destination's top; its caller closes it
	at    int // the directory of the destination that is filled, top or one of our own
	depth int // how many directories of the tree it lies below, -1 before the top is visited
	links *linkStore
	done  Copied
	text  []byte // for names and values of attributes

	leases   openat.Leases
	unsynced int64 // bytes that were written since the last syncfs(2)
}

// Copy copies what is in an open directory, and its attributes, into another one that is empty.
// What was copied when an error came stays there. ctx is looked at before each entry and each piece
// of a file.
func Copy(ctx context.Context, from, to int, o Options) (Copied, error) {
	c := newCopier(ctx, to, o)
	defer c.leaveAt()
	if o.Seen == nil {
		defer c.links.close()
	} else if err := o.Seen.begin(); err != nil {
		return c.done, err
	}
	err := tree.Walk(ctx, from, ".", c.visit)
	if o.Seen != nil {
		o.Seen.lost, o.Seen.mounts = c.done.Lost, c.done.Mounts
	}
	return c.done, err
}

func newCopier(ctx context.Context, to int, o Options) copier {
	c := copier{ctx: ctx, o: o, top: to, at: to, depth: -1, links: &linkStore{top: to, dir: -1}, text: make([]byte, 64<<10)}
	if o.Seen != nil { // its passes have one store
		if o.Seen.links == nil {
			o.Seen.links = c.links
		}
		c.links = o.Seen.links
	}
	return c
}

// visit copies one entry; a directory is made and entered.
func (c *copier) visit(e tree.Entry) (tree.Leave, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	fd, err := openat.Open(e.Dir, e.Name, unix.O_PATH|unix.O_NOFOLLOW, 0, openat.Beneath)
	if err != nil {
		return nil, c.skip(e, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, about(e, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		c.o.Work.Add(1, 0)
		return c.directory(e, st)
	}
	err = c.entry(fd, e.Name, st)
	if err == nil {
		c.o.Work.Add(1, 0)
	}
	return nil, about(e, err)
}

// step is called before each entry and each piece of a file.
func (c *copier) step() error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.o.Step != nil {
		return c.o.Step()
	}
	return nil
}

// skip counts what is not copied because of an error that the source's owner may cause; all others
// it returns.
func (c *copier) skip(e tree.Entry, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, errReplaced):
		c.done.Gone++
	case errors.Is(err, unix.EXDEV):
		c.done.Mounts++
	default:
		return about(e, err)
	}
	return nil
}

// errReplaced: an entry of this name was copied already, before the source's owner replaced it.
var errReplaced = errors.New("it was replaced meanwhile")

// entry copies what is no directory and open by O_PATH.
func (c *copier) entry(fd int, name string, st unix.Stat_t) error {
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		err = c.file(fd, name, st)
	case unix.S_IFLNK:
		err = c.copySymlink(fd, name, st)
	case unix.S_IFIFO:
		err = c.fifo(name, attributed{fd: fd, path: true}, st)
	case unix.S_IFSOCK:
		c.done.Sockets++
	default:
		c.done.Devices++
	}
	if errors.Is(err, unix.EEXIST) {
		c.done.Gone++
		return nil
	}
	return err
}

// directory makes a directory and goes into it. Its attributes come last: what is made in it would
// change its times, and could inherit its ACL.
func (c *copier) directory(e tree.Entry, st unix.Stat_t) (tree.Leave, error) {
	if e.Depth() > 0 {
		if err := c.enter(e.Name); err != nil {
			return nil, c.skip(e, err)
		}
	}
	c.depth = e.Depth()
	return func(e tree.Entry, fd int, err error) (bool, error) {
		if c.depth != e.Depth() { // of those between the walk says nothing: parts of the tree may be missing
			return false, about(e, tree.ErrDirectoryReplaced)
		}
		if fd < 0 {
			return false, c.drop(e, err)
		}
		if removed(e, err) { // its copy has what was read of it
			c.done.Gone++
			err = nil
		}
		return false, about(e, errors.Join(err, c.leave(e.Name, fd, st)))
	}, nil
}

// removed reports whether a directory below the top was removed while it was read: getdents(2) has
// ENOENT then.
func removed(e tree.Entry, err error) bool { return e.Depth() > 0 && errors.Is(err, unix.ENOENT) }

// enter makes a directory that only this process reaches and goes into it. One that is there was
// copied before its owner moved it, or made another one of its name: what is in both is put
// together.
func (c *copier) enter(name string) error {
	err := openat.Retry(func() error { return unix.Mkdirat(c.at, name, 0o700) })
	there := errors.Is(err, unix.EEXIST)
	if err != nil && !there {
		return err
	}
	fd, err := openat.Open(c.at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, openat.Beneath)
	if err != nil {
		return errReplaced // another kind of entry had the name before
	}
	c.leaveAt()
	c.at = fd
	if there && c.o.Seen != nil {
		return c.o.Seen.mix(fd)
	}
	return nil
}

// leaveAt closes the directory that is filled.
func (c *copier) leaveAt() {
	if c.at != c.top {
		unix.Close(c.at)
	}
	c.at = c.top
}

// up goes to the directory above. No other process can move what is in the destination.
func (c *copier) up() error {
	fd := c.top
	if c.depth > 1 {
		var err error
		if fd, err = openat.Open(c.at, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_XDEV); err != nil {
			return err
		}
	}
	c.leaveAt()
	c.at = fd
	c.depth--
	return nil
}

// leave gives a directory that was copied its attributes, and goes up.
func (c *copier) leave(name string, from int, st unix.Stat_t) error {
	c.done.Directories++
	if err := c.attributes(attributed{fd: from}, c.at, st); err != nil {
		return err
	}
	return c.finish(name, from, st)
}

// finish goes up from a directory that is whole, and sets its times.
func (c *copier) finish(name string, from int, st unix.Stat_t) error {
	if c.o.Seen != nil {
		if err := c.o.Seen.note(from, c.at); err != nil {
			return err
		}
	}
	if c.depth == 0 {
		if c.o.Seen != nil {
			c.o.Seen.top = st // for Sweep
			return nil
		}
		if err := c.links.remove(); err != nil {
			return err
		}
		return setTimes(c.at, ".", st)
	}
	if err := c.up(); err != nil {
		return err
	}
	return setTimes(c.at, name, st)
}

// drop takes back a directory that could not be entered in the source.
func (c *copier) drop(e tree.Entry, err error) error {
	if e.Depth() == 0 {
		return err
	}
	if err := c.up(); err != nil {
		return about(e, err)
	}
	if err := unix.Unlinkat(c.at, e.Name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return about(e, err)
	}
	return c.skip(e, err)
}

// about says which entry an error is of. Its path was chosen by the source's owner.
func about(e tree.Entry, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%q: %w", words.Ends(e.Path(), pathMax), err)
}

// pathMax is how much is said of a path, in bytes.
const pathMax = 160
