package treecopy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// linkStore is a directory in the destination with a name for each file that has further names in
// the source: so memory does not grow with them. It is made for the first of them, with a name that
// the source's owner cannot guess.
type linkStore struct {
	top, dir int
	name     string
	stays    bool // it is the caller's
}

// keyOf tells an inode from all others, also from one that was removed and whose number is another
// file's by now.
func keyOf(fd int) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", fmt.Errorf("asking for its birth: %w", err)
	}
	return fmt.Sprintf("%d-%d-%d-%d-%d", st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec, st.Btime.Nsec), nil
}

// link gives a file that was copied a further name, false if none was copied under this key. One
// that cannot have more names gets its last one; the next is a copy of its own.
func (l *linkStore) link(key string, dir int, name string) (bool, error) {
	if l.dir < 0 {
		return false, nil
	}
	err := openat.Retry(func() error { return unix.Linkat(l.dir, key, dir, name, 0) })
	if errors.Is(err, unix.EMLINK) {
		err = openat.Retry(func() error { return unix.Renameat2(l.dir, key, dir, name, unix.RENAME_NOREPLACE) })
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// keep notes the copy of a file that has further names.
func (l *linkStore) keep(key string, dir int, name string) error {
	if l.dir < 0 {
		if err := l.make(); err != nil {
			return err
		}
	}
	err := openat.Retry(func() error { return unix.Linkat(dir, name, l.dir, key, 0) })
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EMLINK) {
		return nil
	}
	return err
}

// replace is keep, in place of an earlier file of the key.
func (l *linkStore) replace(key string, dir int, name string) error {
	if l.dir >= 0 {
		if err := unix.Unlinkat(l.dir, key, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return l.keep(key, dir, name)
}

// open has it use a directory that is there, and which stays.
func (l *linkStore) open(name string) (err error) {
	l.stays = true
	return l.enter(name)
}

func (l *linkStore) enter(name string) (err error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	l.dir, err = openat.Open(l.top, name, flags, 0, openat.Beneath)
	return err
}

// Store makes the directory of Options.Store in a tree, and returns its name, which nobody can
// guess.
func Store(top int) (name string, err error) {
	l := linkStore{top: top, dir: -1}
	err = l.make()
	l.close()
	return l.name, err
}

// Unstore removes that directory from a tree that is whole.
func Unstore(top int, name string) error {
	var st unix.Stat_t
	l := linkStore{top: top, dir: -1}
	err := errors.Join(unix.Fstat(top, &st), l.open(name))
	if l.name, l.stays = name, false; err == nil {
		err = l.remove()
	}
	if err != nil {
		return err
	}
	return setTimes(top, ".", st)
}

// Emptied removes what is in a tree, but for the directory of Options.Store.
func Emptied(ctx context.Context, top int, store string) error {
	return tree.Walk(ctx, top, ".", func(e tree.Entry) (tree.Leave, error) {
		if e.Depth() == 0 {
			return func(_ tree.Entry, _ int, err error) (bool, error) { return false, err }, nil
		}
		if e.Depth() == 1 && e.Name == store {
			return nil, nil
		}
		return unlink(e)
	})
}

func (l *linkStore) make() error {
	l.name = ".links-" + rand.Text()
	if err := unix.Mkdirat(l.top, l.name, 0o700); err != nil {
		return err
	}
	return l.enter(l.name)
}

// remove removes the directory and the names in it.
func (l *linkStore) remove() error {
	if l.dir < 0 || l.stays {
		return nil
	}
	buffer := make([]byte, 32<<10)
	for {
		// btrfs shows an open directory as it was when it was opened, or read from the beginning.
		if _, err := unix.Seek(l.dir, 0, unix.SEEK_SET); err != nil {
			return err
		}
		names, _, err := tree.Read(l.dir, buffer, nil)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			break
		}
		for _, name := range names {
			if err := unix.Unlinkat(l.dir, name, 0); err != nil {
				return err
			}
		}
	}
	l.close()
	return unix.Unlinkat(l.top, l.name, unix.AT_REMOVEDIR)
}

func (l *linkStore) close() {
	if l.dir >= 0 {
		unix.Close(l.dir)
	}
	l.dir = -1
}
