package treecopy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// mostLinked is how many files of which not all names were written yet are remembered, some 40
// bytes each.
const mostLinked = 1_000_000

// ErrManyLinks: more than mostLinked files have names that were not come to yet.
var ErrManyLinks = errors.New("too many files have names in several directories")

// writer writes a tree.
type writer struct {
	ctx    context.Context
	o      Options
	to     io.Writer         // nil: only counts
	linked map[uint64]uint64 // names that were not come to yet, by key
	behind bool              // Options.Cut
	within map[uint64]uint64 // subvolumes, by their device numbers
	done   Copied
	text   []byte // for names and values of attributes
	piece  []byte
	leases openat.Leases
}

// Write writes the tree of an open directory to a stream, as Copy would copy it. Nothing may write
// to it meanwhile, unless o.Live: what is noticed of that is ErrWritten. Without a stream it only
// counts what would be written. Of o also Step, Work, Since and Cut are used.
func Write(ctx context.Context, from int, to io.Writer, o Options) (Copied, error) {
	w := &writer{ctx: ctx, o: o, to: to, linked: map[uint64]uint64{}, within: map[uint64]uint64{},
		text: make([]byte, valueMax)}
	err := tree.Walk(ctx, from, ".", w.visit)
	return w.done, err
}

func (w *writer) visit(e tree.Entry) (tree.Leave, error) {
	if err := w.step(); err != nil {
		return nil, err
	}
	leave, err := w.visited(e)
	if w.o.Live && errors.Is(err, ErrWritten) { // it went, or is another by now
		return nil, nil
	}
	return leave, err
}

func (w *writer) visited(e tree.Entry) (tree.Leave, error) {
	fd, err := openat.Open(e.Dir, e.Name, unix.O_PATH|unix.O_NOFOLLOW, 0, openat.Beneath)
	if errors.Is(err, unix.EXDEV) {
		w.done.Mounts++
		return nil, nil
	}
	if err != nil {
		return nil, replaced(e, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, about(e, err)
	}
	w.o.Work.Add(1, 0)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err = w.enter(e, st); err == nil && e.Depth() > 0 {
			err = w.item(item{Kind: itemDir, Name: []byte(e.Name)})
		}
		return w.leave, about(e, err)
	}
	return nil, about(e, w.entry(fd, e, st))
}

// enter notes a subvolume of btrfs by where it is. Its device number is of this mount alone, and a
// later pass may be of another one (Options.Since).
func (w *writer) enter(e tree.Entry, st unix.Stat_t) error {
	if _, known := w.within[st.Dev]; known {
		return nil
	}
	if e.Depth() == 0 {
		w.within[st.Dev] = 0
		return nil
	}
	var around unix.Stat_t
	if err := unix.Fstat(e.Dir, &around); err != nil {
		return err
	}
	w.within[st.Dev] = number(w.key(around), e.Name)
	return nil
}

// key tells an inode from all others of the tree: each subvolume counts its own.
func (w *writer) key(st unix.Stat_t) uint64 {
	if in := w.within[st.Dev]; in != 0 {
		return number(in, fmt.Sprint(st.Ino))
	}
	return st.Ino
}

// number is one that no owner of the tree can choose.
func number(in uint64, name string) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", in, name))
	return binary.BigEndian.Uint64(sum[:])
}

func (w *writer) step() error {
	if err := w.ctx.Err(); err != nil || w.o.Step == nil {
		return err
	}
	return w.o.Step()
}

func (w *writer) item(i item) error {
	switch top := i.Kind == itemUp && string(i.Name) == "."; {
	case w.to == nil, w.o.Live && !top && i.Kind != itemFile && i.Kind != itemKept:
		return nil
	}
	return WriteItem(w.to, i)
}

// leave writes a directory's attributes behind what is in it.
func (w *writer) leave(e tree.Entry, fd int, err error) (again bool, stop error) {
	if err != nil || fd < 0 {
		if err = replaced(e, err); w.o.Live && errors.Is(err, ErrWritten) {
			err = nil
		}
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, about(e, err)
	}
	w.done.Directories++
	return false, about(e, w.attributed(itemOf(itemUp, e, st), attributed{fd: fd}))
}

// aclOfXFS begins the names that xfs lists for root beside the ACLs, which they are (xfs_xattr.c).
const aclOfXFS = "trusted.SGI_ACL_"

// attributed writes an item with the extended attributes of what it is of.
func (w *writer) attributed(i item, of attributed) error {
	n, err := 0, error(nil)
	err = openat.Retry(func() error { n, err = of.list(w.text); return err })
	if errors.Is(err, unix.EOPNOTSUPP) {
		n, err = 0, nil
	}
	if err != nil {
		return fmt.Errorf("listing its attributes: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(w.text[:n]), "\x00"), "\x00") {
		if name == "" || name == label || strings.HasPrefix(name, aclOfXFS) {
			continue
		}
		if !sendable(name) {
			w.done.Lost++
			continue
		}
		err = openat.Retry(func() error { n, err = of.get(name, w.text); return err })
		if err != nil {
			return fmt.Errorf("reading attribute %.100q: %w", name, err)
		}
		i.Attrs = append(i.Attrs, attribute{[]byte(name), append([]byte(nil), w.text[:n]...)})
	}
	return w.item(i)
}

// entry writes what is no directory and open by O_PATH.
func (w *writer) entry(fd int, e tree.Entry, st unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return w.file(fd, e, st)
	case unix.S_IFLNK:
		n, err := unix.Readlinkat(fd, "", w.text)
		if err != nil {
			return fmt.Errorf("reading the link: %w", err)
		}
		w.done.Symlinks++
		i := itemOf(itemSymlink, e, st)
		i.Target = append([]byte(nil), w.text[:n]...)
		return w.item(i)
	case unix.S_IFIFO:
		w.done.FIFOs++
		return w.attributed(itemOf(itemFIFO, e, st), attributed{fd: fd, path: true})
	case unix.S_IFSOCK:
		w.done.Sockets++
	default:
		w.done.Devices++
	}
	return nil
}

func (w *writer) file(fd int, e tree.Entry, st unix.Stat_t) error {
	i, key := itemOf(itemFile, e, st), w.key(st)
	i.Size, i.Key, i.Ctime = st.Size, key, [2]int64{st.Ctim.Sec, st.Ctim.Nsec}
	if st.Nlink > 1 {
		if left, is := w.linked[key]; is {
			if w.linked[key] = left - 1; left == 1 {
				delete(w.linked, key)
			}
			w.done.HardLinks++
			return w.item(item{Kind: itemLink, Name: i.Name, Key: i.Key})
		}
		if len(w.linked) == mostLinked {
			return ErrManyLinks
		}
		w.linked[key] = uint64(st.Nlink) - 1 // 32 bits on arm64
	}
	kept := older(st.Ctim, w.o.Since) && !w.behind
	w.behind = w.behind || w.o.Cut != 0 && w.o.Cut == key
	if kept {
		w.done.Files++
		i.Kind = itemKept
		return w.item(i)
	}
	from, err := w.leases.Open(w.step, func() (int, error) { return reopen(fd, unix.O_RDONLY) })
	if err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	defer unix.Close(from)
	if err := w.attributed(i, attributed{fd: from}); err != nil {
		return err
	}
	w.done.Files++
	if err := w.data(from, st); err != nil {
		return err
	}
	var now unix.Stat_t
	if err := unix.Fstat(from, &now); err != nil {
		return err
	}
	if now.Ctim != st.Ctim && !w.o.Live {
		return ErrWritten
	}
	return nil
}

// data writes a file's data without its holes: pieces of four bytes of length, eight of position,
// and the data; the last has length 0 and nothing else.
func (w *writer) data(from int, st unix.Stat_t) error {
	for at := int64(0); at < st.Size; {
		data, hole, err := dataAfter(from, at, st.Size)
		if w.o.Live && errors.Is(err, ErrWritten) {
			break
		}
		if err != nil {
			return err
		}
		if at = hole; data == hole {
			break
		}
		if w.to == nil {
			w.done.Bytes += hole - data
			continue
		}
		for data < hole {
			n, err := w.copyPiece(from, data, hole)
			if w.o.Live && errors.Is(err, ErrWritten) {
				at = st.Size
				break
			}
			if err != nil {
				return err
			}
			data += int64(n)
		}
	}
	if w.to == nil {
		return nil
	}
	_, err := w.to.Write(make([]byte, 4))
	return err
}

// dataAfter is where the next data of a file begins and ends; both are the file's end if there is
// none. It is ErrWritten for a file that was cut off meanwhile.
func dataAfter(fd int, at, size int64) (data, hole int64, err error) {
	data, err = unix.Seek(fd, at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) || err == nil && data >= size {
		return size, size, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("looking for its data: %w", err)
	}
	hole, err = unix.Seek(fd, data, unix.SEEK_HOLE)
	if err == nil && hole <= data || errors.Is(err, unix.ENXIO) {
		return 0, 0, ErrWritten
	}
	if err != nil {
		return 0, 0, fmt.Errorf("looking for its holes: %w", err)
	}
	return data, min(hole, size), nil
}

// copyPiece writes the piece of a file's data that begins at a position.
func (w *writer) copyPiece(from int, at, end int64) (n int, err error) {
	if err := w.step(); err != nil {
		return 0, err
	}
	const head = 4 + 8
	if w.piece == nil {
		w.piece = make([]byte, head+chunkMax)
	}
	part := w.piece[head:][:min(end-at, chunkMax)]
	err = openat.Retry(func() error { n, err = unix.Pread(from, part, at); return err })
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading its data: %w", err)
	case n == 0:
		return 0, ErrWritten
	}
	binary.BigEndian.PutUint32(w.piece, uint32(n))
	binary.BigEndian.PutUint64(w.piece[4:], uint64(at))
	w.done.Bytes += int64(n)
	w.o.Work.Add(0, uint64(n))
	_, err = w.to.Write(w.piece[:head+n])
	return n, err
}
