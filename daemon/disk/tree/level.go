package tree

import (
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// pieceSize is how much of a directory is read at a time, in bytes.
const pieceSize = 8 << 10

// level is a directory on the way, and how far its entries were visited.
type level struct {
	name  string
	leave Leave
	fd    int             // -1 while it is closed
	id    mounts.Identity // of one that was closed

	from    int64    // the position of the piece that was read last
	after   int64    // the position behind it
	piece   []string // the names in it
	visited int      // how many of them

	twice bool // it, or one that it lies below, was entered before

	seen int    // how many had been visited when the directory was closed
	last string // the last of them
}

// next returns the name of the next entry, "" at the end.
func (l *level) next(buffer []byte) (string, error) {
	for l.visited == len(l.piece) {
		if more, err := l.read(buffer); !more {
			return "", err
		}
	}
	l.visited++
	return l.piece[l.visited-1], nil
}

// read reads the next piece. After resume that is the last one once more, at least as much of it as
// was visited: a signal cuts what getdents(2) returns. The position is taken from the entries:
// btrfs ends a directory where it ended when it was opened, or when its position was last asked for
// (TestGrowing).
func (l *level) read(buffer []byte) (more bool, err error) {
	l.piece, l.visited, l.from = l.piece[:0], 0, l.after
	for more = true; more && len(l.piece) < max(1, l.seen); {
		n, err := getdents(l.fd, buffer)
		if more = n > 0; err != nil {
			return false, err
		}
		if more {
			l.after = behind(buffer[:n])
			_, _, l.piece = unix.ParseDirent(buffer[:n], -1, l.piece)
		}
	}
	if l.seen > 0 { // if the last one is gone, the piece is visited from its beginning
		l.visited, l.seen = slices.Index(l.piece, l.last)+1, 0
	}
	return len(l.piece) > 0, nil
}

// rewind begins anew.
func (l *level) rewind() error {
	_, err := unix.Seek(l.fd, 0, unix.SEEK_SET)
	l.piece, l.visited, l.seen, l.after = l.piece[:0], 0, 0, 0
	return err
}

// suspend closes a directory, and remembers what resume needs.
func (l *level) suspend() (err error) {
	if l.id, err = mounts.IdentityOf(l.fd); err != nil {
		return err
	}
	if l.visited > 0 {
		l.seen, l.last = l.visited, l.piece[l.visited-1]
	}
	l.piece, l.visited = nil, 0
	l.close()
	return nil
}

var errOther = errors.New("another directory is above")

// resume goes on with the directory, which was opened again: it has to be the one that was closed.
// A position means the same to another descriptor (NFS is built on that), but two names of ext4 may
// have one: so the piece is read again, and visited from the last name on.
func (l *level) resume(fd int) error {
	id, err := mounts.IdentityOf(fd)
	if err == nil && id != l.id {
		err = errOther
	}
	if err == nil {
		_, err = unix.Seek(fd, l.from, unix.SEEK_SET)
	}
	if err == nil {
		l.fd, l.after = fd, l.from
	}
	return err
}

func (l *level) close() {
	if l.fd >= 0 {
		unix.Close(l.fd)
	}
	l.fd = -1
}

// Read reads the next piece of an open directory, as much as the buffer takes, and appends the
// names in it, without "." and "..". more is false at the end, and after an error.
func Read(dir int, buffer []byte, names []string) (all []string, more bool, err error) {
	n, err := getdents(dir, buffer)
	if n <= 0 || err != nil {
		return names, false, err
	}
	_, _, all = unix.ParseDirent(buffer[:n], -1, names)
	return all, true, nil
}

func getdents(dir int, buffer []byte) (n int, err error) {
	err = openat.Retry(func() (err error) { n, err = unix.Getdents(dir, buffer); return err })
	return n, err
}

// behind is the position behind the last entry of a piece (d_off of getdents64(2)).
func behind(piece []byte) (at int64) {
	const off, length = 8, 16 // in struct linux_dirent64
	for len(piece) > 0 {
		at = int64(binary.NativeEndian.Uint64(piece[off:]))
		piece = piece[binary.NativeEndian.Uint16(piece[length:]):]
	}
	return at
}
