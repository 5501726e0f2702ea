package treecopy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// reader makes a tree of a stream, whoever wrote that. The names of files that have several are in
// the copier's directory in the tree until that is whole, so memory does not grow with them.
type reader struct {
	copier
	from    io.Reader
	entries uint64
	most    uint64
	behind  bool // Options.Cut
	piece   []byte
}

// ErrNotKept: a stream goes on from one whose files the reader has not, or without some of which
// the directory was moved while that was written.
var ErrNotKept = errors.New("it is not among the files that came before")

// Read makes in an open directory, which is empty but for o.Store, what Write has written, at most
// so many entries and o.Limit bytes of data; ErrLimit if there are more. What it made when an error
// came stays there. It has read the stream to its end when it returns without one.
func Read(ctx context.Context, from io.Reader, to int, most uint64, o Options) (Copied, error) {
	r := &reader{copier: newCopier(ctx, to, o), from: from, most: most}
	r.depth = 0
	defer r.links.close()
	defer func() {
		if r.at != r.links.dir {
			r.leaveAt()
		}
	}()
	if o.Store != "" {
		if err := r.links.open(o.Store); err != nil {
			return r.done, err
		}
	}
	if o.Live {
		r.at = r.links.dir
	}
	for whole := false; !whole; {
		if err := r.step(); err != nil {
			return r.done, err
		}
		var i item
		err := ReadItem(from, itemMax, &i)
		if err == nil {
			err = i.check()
		}
		if err != nil {
			return r.done, err
		}
		if whole, err = r.item(i); err != nil {
			return r.done, fmt.Errorf("%q: %w", words.Ends(string(i.Name), pathMax), err)
		}
	}
	if _, err := from.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return r.done, errors.Join(fmt.Errorf("%w: it does not end with the tree", ErrStream), err)
	}
	return r.done, nil
}

// item makes one entry; whole is of the top that is left.
func (r *reader) item(i item) (whole bool, err error) {
	if i.Kind != itemUp {
		r.o.Work.Add(1, 0)
		if r.entries++; r.entries > r.most {
			return false, ErrLimit
		}
	}
	name, st := string(i.Name), i.stat()
	if r.o.Live {
		return r.live(i, st)
	}
	switch i.Kind {
	case itemDir:
		return false, r.down(name)
	case itemUp:
		if (r.depth == 0) != (name == ".") {
			return false, fmt.Errorf("%w: another directory is left", ErrStream)
		}
		whole = r.depth == 0
		return whole, r.leave(name, i, st)
	case itemFile:
		return false, r.file(name, i, st)
	case itemKept:
		return false, r.kept(name, i)
	case itemLink:
		linked, err := r.links.link(keyText(i.Key), r.at, name)
		if err == nil && !linked {
			err = fmt.Errorf("%w: its file did not come before", ErrStream)
		}
		r.done.HardLinks++
		return false, err
	case itemSymlink:
		return false, r.symlink(name, string(i.Target), st)
	case itemFIFO:
		return false, r.fifo(name, attributed{fd: -1, given: i.Attrs}, st)
	}
	return false, fmt.Errorf("%w: an item of kind %.20q", ErrStream, i.Kind)
}

// live puts one file of a volume that was in use into the store.
func (r *reader) live(i item, st unix.Stat_t) (whole bool, err error) {
	name := keyText(i.Key)
	switch i.Kind {
	case itemUp:
		return true, nil
	case itemKept:
		return false, r.whole(i.Key, r.isKept(name, i, i.version()))
	case itemFile:
		key := i.Key
		if err := unix.Unlinkat(r.at, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return false, err
		}
		i.Key, st.Atim = 0, i.version()
		return false, r.whole(key, r.file(name, i, st))
	}
	return false, fmt.Errorf("%w: an item of kind %.20q", ErrStream, i.Kind)
}

// whole notes the last file that is whole, unless an earlier stream had more.
func (r *reader) whole(key uint64, err error) error {
	if err == nil && (r.behind || r.o.Cut == 0) {
		r.done.Last = key
	}
	r.behind = r.behind || r.o.Cut == key
	return err
}

func keyText(key uint64) string { return strconv.FormatUint(key, 10) }

func (r *reader) down(name string) error {
	if r.depth >= tree.Deepest {
		return tree.ErrDeep
	}
	err := openat.Retry(func() error { return unix.Mkdirat(r.at, name, 0o700) })
	if err == nil {
		err = r.enter(name)
	}
	r.depth++
	return err
}

func (r *reader) leave(name string, i item, st unix.Stat_t) error {
	r.done.Directories++
	if err := r.attributes(attributed{fd: -1, given: i.Attrs}, r.at, st); err != nil {
		return err
	}
	return r.finish(name, -1, st)
}

func (r *reader) file(name string, i item, st unix.Stat_t) error {
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW
	to, err := openat.Open(r.at, name, flags, 0o600, openat.Beneath)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := r.data(to, i.Size); err != nil {
		return err
	}
	if err := r.attributes(attributed{fd: -1, given: i.Attrs}, to, st); err != nil {
		return err
	}
	r.done.Files++
	if i.Key != 0 {
		if err := r.links.replace(keyText(i.Key), r.at, name); err != nil {
			return err
		}
	}
	return setTimes(r.at, name, st)
}

// kept gives a file of an earlier stream its name.
func (r *reader) kept(name string, i item) error {
	if r.o.Store == "" {
		return ErrNotKept
	}
	is, err := r.links.link(keyText(i.Key), r.at, name)
	if err == nil && !is {
		err = ErrNotKept
	}
	if err == nil { // the times are right after an earlier try
		err = r.isKept(name, i, i.version(), i.stat().Atim)
	}
	if err == nil {
		err = setTimes(r.at, name, i.stat())
	}
	return err
}

// version is what a file in Store has as its access time, before it is in its place: which version
// of the file it is, by the change time in the source, some 34 years earlier. A walk misses what is
// moved from before it to behind it: what is in Store may be a version that it missed the next of.
func (i item) version() unix.Timespec {
	return unix.Timespec{Sec: i.Ctime[0] - 1<<30, Nsec: i.Ctime[1]}
}

// isKept is ErrNotKept if a name in the directory that is filled is not the file that is meant.
func (r *reader) isKept(name string, i item, versions ...unix.Timespec) error {
	var st unix.Stat_t
	err := unix.Fstatat(r.at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch is := i.stat(); {
	case errors.Is(err, unix.ENOENT):
		return ErrNotKept
	case err != nil:
		return err
	case st.Size != i.Size || st.Mtim != is.Mtim || !slices.Contains(versions, st.Atim):
		return ErrNotKept
	}
	r.done.Files++
	return nil
}

// data writes a file's pieces, in their order and within its size.
func (r *reader) data(to int, size int64) error {
	var head [12]byte
	for end := int64(0); ; {
		if err := r.step(); err != nil {
			return err
		}
		if err := readFull(r.from, head[:4]); err != nil {
			return err
		}
		n := int64(binary.BigEndian.Uint32(head[:]))
		if n == 0 {
			return unix.Ftruncate(to, size)
		}
		if err := readFull(r.from, head[4:]); err != nil {
			return err
		}
		at := int64(binary.BigEndian.Uint64(head[4:]))
		if n > chunkMax || at < end || at > size-n {
			return fmt.Errorf("%w: %d bytes at %d of %d", ErrStream, n, at, size)
		}
		if r.done.Bytes+n > r.o.Limit {
			return ErrLimit
		}
		if r.piece == nil {
			r.piece = make([]byte, chunkMax)
		}
		if err := readFull(r.from, r.piece[:n]); err != nil {
			return err
		}
		if err := pwriteAll(to, r.piece[:n], at); err != nil {
			return fmt.Errorf("writing its data: %w", err)
		}
		end = at + n
		if err := r.wrote(n); err != nil {
			return err
		}
	}
}

func pwriteAll(fd int, p []byte, at int64) error {
	for len(p) > 0 {
		n, err := 0, error(nil)
		err = openat.Retry(func() error { n, err = unix.Pwrite(fd, p, at); return err })
		if err != nil {
			return err
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}
