package tree

import (
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
	piece   []string // the names in it
	visited int      // how many of them

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

// read reads the next piece. After resume that is the last one once more, at least as much of it as was visited: a
// signal cuts what getdents(2) returns.
func (l *level) read(buffer []byte) (more bool, err error) {
	if l.from, err = unix.Seek(l.fd, 0, unix.SEEK_CUR); err != nil {
		return false, err
	}
	l.piece, l.visited = l.piece[:0], 0
	for more = true; more && len(l.piece) < max(1, l.seen); {
		if l.piece, more, err = Read(l.fd, buffer, l.piece); err != nil {
			return false, err
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
	l.piece, l.visited, l.seen = l.piece[:0], 0, 0
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

// resume goes on with the directory, which was opened again: it has to be the one that was closed. A position means the
// same to another descriptor (NFS is built on that), but two names of ext4 may have one: so the piece is read again, and
// visited from the last name on.
func (l *level) resume(fd int) error {
	id, err := mounts.IdentityOf(fd)
	if err == nil && id != l.id {
		err = errOther
	}
	if err == nil {
		_, err = unix.Seek(fd, l.from, unix.SEEK_SET)
	}
	if err == nil {
		l.fd = fd
	}
	return err
}

func (l *level) close() {
	if l.fd >= 0 {
		unix.Close(l.fd)
	}
	l.fd = -1
}

// Read reads the next piece of an open directory, as much as the buffer takes, and appends the names in it, without "."
// and "..". more is false at the end, and after an error.
func Read(dir int, buffer []byte, names []string) (all []string, more bool, err error) {
	n := 0
	err = openat.Retry(func() (err error) { n, err = unix.Getdents(dir, buffer); return err })
	if n <= 0 || err != nil {
		return names, false, err
	}
	_, _, all = unix.ParseDirent(buffer[:n], -1, names)
	return all, true, nil
}
