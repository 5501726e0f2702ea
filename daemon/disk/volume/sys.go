package volume

import (
	"errors"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// beneath is how everything below the pool's descriptor is opened. What may stand at a name, and
// what refuses it:
//
//	a symbolic link           RESOLVE_NO_SYMLINKS, O_NOFOLLOW: ELOOP, with O_DIRECTORY ENOTDIR   TestForeign, TestSwapped
//	a mount (also a bind)     RESOLVE_NO_XDEV: EXDEV                                             TestSwapped, TestPurgeMountInside
//	".." or an absolute path  RESOLVE_BENEATH: EXDEV; record.CheckDirectory refuses them before  TestNames
//	a FIFO, socket or device  O_DIRECTORY, or O_NONBLOCK and a look at the type                  TestForeign, TestRecordIsNoFile, TestPurgeOpensNoDevice
//	another directory         the inode is compared after the rename, which is undone            TestSwappedMeanwhile
//
// The pool itself may be replaced or unmounted: its identity is compared after it was opened
// (Pool.begin, TestMoved), and its own directories must be root's (session.dir, TestNotPrepared).
const beneath = openat.Beneath

func openDir(dir int, path string) (int, error) {
	return openat.Open(dir, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, beneath)
}

func fsync(fd int) error { return openat.Retry(func() error { return unix.Fsync(fd) }) }

// exists reports whether dir has an entry of this name, of whatever kind.
func exists(dir int, name string) (bool, error) {
	_, err := lstat(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

func lstat(dir int, name string) (st unix.Stat_t, err error) {
	err = openat.Retry(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

// remove unlinks a file (flags 0) or an empty directory (AT_REMOVEDIR); one that is gone is fine.
func remove(dir int, name string, flags int) error {
	err := openat.Retry(func() error { return unix.Unlinkat(dir, name, flags) })
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// move renames without ever replacing anything (EEXIST). Filesystems without RENAME_NOREPLACE (NFS,
// old FUSE) return EINVAL; there the name is looked at first, and only a process of root's that
// makes an empty directory of that name in the same microsecond would lose it.
func move(from int, name string, to int, newName string) error {
	err := openat.Retry(func() error { return unix.Renameat2(from, name, to, newName, unix.RENAME_NOREPLACE) })
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if taken, err := exists(to, newName); taken || err != nil {
		return errors.Join(err, unix.EEXIST)
	}
	return openat.Retry(func() error { return unix.Renameat(from, name, to, newName) })
}

// openFile opens what should be a regular file. O_NONBLOCK: a FIFO in its place may not hang the
// daemon.
func openFile(dir int, name string, flags int) (int, error) {
	return openat.Open(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0, beneath)
}

var errNotAFile = errors.New("not a regular file, or too large")

// readFile reads a regular file of at most limit bytes.
func readFile(dir int, name string, limit int64) ([]byte, error) {
	fd, err := openFile(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > limit {
		return nil, errNotAFile
	}
	text, err := io.ReadAll(io.LimitReader(reader(fd), limit))
	return text, err
}

// writeNew is createFile for a file that replaces one of the same name.
func writeNew(dir int, name string, text []byte) (fd int, err error) {
	fd, err = createFile(dir, name, text)
	if errors.Is(err, unix.EEXIST) {
		if err = remove(dir, name, 0); err == nil {
			fd, err = createFile(dir, name, text)
		}
	}
	return fd, err
}

// createFile writes a file that was not there (EEXIST), and leaves it open: not yet durable.
func createFile(dir int, name string, text []byte) (fd int, err error) {
	fd, err = openat.Open(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600, beneath)
	if err != nil {
		return -1, err
	}
	if err := writeAll(fd, text); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func writeAll(fd int, text []byte) error {
	for len(text) > 0 {
		n := 0
		if err := openat.Retry(func() (err error) { n, err = unix.Write(fd, text); return err }); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// reader reads a descriptor without giving it to package os, which would add it to its poller.
type reader int

func (r reader) Read(p []byte) (n int, err error) {
	err = openat.Retry(func() (err error) { n, err = unix.Read(int(r), p); return err })
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// unixMode is a mode as chmod(2) wants it: the permissions with set-id and sticky bits.
func unixMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	for bit, value := range map[fs.FileMode]uint32{
		fs.ModeSetuid: unix.S_ISUID, fs.ModeSetgid: unix.S_ISGID, fs.ModeSticky: unix.S_ISVTX,
	} {
		if m&bit != 0 {
			mode |= value
		}
	}
	return mode
}

// names lists a directory, without "." and "..".
func names(fd int) (all []string, err error) {
	buffer := make([]byte, 32<<10)
	for more := true; more; {
		if all, more, err = tree.Read(fd, buffer, all); err != nil {
			return all, err
		}
	}
	return all, nil
}
