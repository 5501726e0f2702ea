package state

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// The directories of the daemon belong to the user that it runs as, and root's commands read and
// write in them: every name there may be a link, a FIFO or something else that this user put in the
// place of a file. Each is opened beneath a descriptor of its directory, without links and without
// waiting, and used once it is known to be a plain file with this one name. The directory that is
// given is root's word.
//
// What that user may put in the place of a file, what refuses it, and the test that puts it there:
//
//	symbolic link           O_NOFOLLOW, RESOLVE_NO_SYMLINKS: ELOOP       TestHostileRead, TestHostileWrite, TestHostileLocks
//	the same for pools/     O_DIRECTORY, O_NOFOLLOW: ENOTDIR             TestHostileDirectory
//	FIFO, device, socket    O_NONBLOCK, O_NOCTTY, and S_IFREG after it   TestHostileRead, TestHostileWrite, TestHostileLocks
//	directory               S_IFREG                                      TestHostileRead, TestHostileLocks
//	hard link               st_nlink is 1 (what is written in place)     TestHostileLocks
//	huge file               fileMax                                      TestHostileRead
//	a file aside (.new)     removed, then O_CREAT|O_EXCL                 TestHostileWrite
//	".." in a pool's name   RESOLVE_BENEATH, and fileOf before it        TestNamesThatAreNone
//	replaced parent         every call is relative to one descriptor     none: there is no second lookup to come between
//
// A bind mount in its place is followed: who may mount is root.

// fileMax bounds what is read: the largest of these files is a status, of a few hundred bytes a
// pool.
const fileMax = 4 << 20

// ErrNotPlain is wrapped where something else than a plain file has a file's name.
var ErrNotPlain = errors.New("not a plain file")

// openDir opens a directory; below, if it is not empty, is one right in it. With make both are
// made.
func openDir(dir, below string, mode os.FileMode, make bool) (*os.File, error) {
	if make {
		if err := os.MkdirAll(dir, mode); err != nil {
			return nil, err
		}
	}
	// As a place for names only: a confined daemon may not list what is above its locks.
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	top := os.NewFile(uintptr(fd), dir)
	if below == "" {
		return top, nil
	}
	defer top.Close()
	if make {
		err := unix.Mkdirat(fd, below, uint32(mode.Perm()))
		if err == nil {
			err = syncDir(dir)
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, &os.PathError{Op: "mkdir", Path: filepath.Join(dir, below), Err: err}
		}
	}
	fd, err = beneath(top, below, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir, below)), nil
}

// beneath opens a name of dir itself.
func beneath(dir *os.File, name string, flags int, mode uint32) (int, error) {
	fd, err := openat.Open(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, mode,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EISDIR):
		err = ErrNotPlain // a link; a socket or a device without a driver; a directory
	}
	return -1, &os.PathError{Op: "open", Path: filepath.Join(dir.Name(), name), Err: err}
}

// openPlain opens a file of dir that is plain, and with only this name: another user's hard link to
// a file of root's has two (link(2); who may, is fs.protected_hardlinks' to say, and CAP_FOWNER's).
// The name is looked at after the open, so that a link which was removed in between is not taken
// for the only name. One whose name is of another file by then, as after a removal, is opened
// again.
func openPlain(dir *os.File, name string, flags int, mode uint32) (f *os.File, err error) {
	for range 100 {
		if f, err = openOnce(dir, name, flags, mode); !errors.Is(err, unix.ESTALE) {
			break
		}
	}
	return f, err
}

func openOnce(dir *os.File, name string, flags int, mode uint32) (*os.File, error) {
	fd, err := beneath(dir, name, flags, mode)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name))
	var is, there unix.Stat_t
	err = unix.Fstat(fd, &is)
	if err == nil {
		err = unix.Fstatat(int(dir.Fd()), name, &there, unix.AT_SYMLINK_NOFOLLOW)
	}
	switch {
	case errors.Is(err, unix.ENOENT), err == nil && (is.Ino != there.Ino || is.Dev != there.Dev):
		err = unix.ESTALE
	case err == nil && (is.Mode&unix.S_IFMT != unix.S_IFREG || there.Nlink != 1):
		err = ErrNotPlain
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "open", Path: f.Name(), Err: err}
	}
	return f, nil
}

// ReadFile reads a file of a directory that another user may write to. Without one the error is
// fs.ErrNotExist. That its name is replaced meanwhile is no error: whatever it is, is read whole.
func ReadFile(dir, name string) ([]byte, error) { return read(dir, "", name) }

// read is ReadFile in a directory that may be right below the one that is given.
func read(dir, below, name string) ([]byte, error) {
	d, err := openDir(dir, below, 0, false)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := beneath(d, name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), filepath.Join(d.Name(), name))
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &os.PathError{Op: "open", Path: f.Name(), Err: ErrNotPlain}
	}
	text, err := io.ReadAll(io.LimitReader(f, fileMax+1))
	if err == nil && len(text) > fileMax {
		err = &os.PathError{Op: "read", Path: f.Name(), Err: unix.EFBIG}
	}
	return text, err
}

// WriteFile replaces a file of a directory that another user may write to, as a whole, with this
// mode whatever the umask. It is not made durable.
func WriteFile(dir, name string, text []byte, mode os.FileMode) error {
	d, err := openDir(dir, "", 0, false)
	if err != nil {
		return err
	}
	defer d.Close()
	return replaceIn(d, name, text, mode, false)
}

// WriteFileDurable is WriteFile, and a power cut leaves the old file or the new one.
func WriteFileDurable(dir, name string, text []byte, mode os.FileMode) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // fsync takes no O_PATH
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	d := os.NewFile(uintptr(fd), dir)
	defer d.Close()
	return replaceIn(d, name, text, mode, true)
}

// replaceIn writes a file aside and renames it into place. A crash before the rename leaves the old
// file and a .new that the next call removes; after it, the new file.
func replaceIn(dir *os.File, name string, text []byte, mode os.FileMode, durable bool) error {
	at := int(dir.Fd())
	aside := name + ".new"
	if err := unlink(dir, aside); err != nil {
		return err
	}
	fd, err := beneath(dir, aside, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), filepath.Join(dir.Name(), aside))
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if durable && err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := unix.Renameat(at, aside, at, name); err != nil {
		return &os.PathError{Op: "rename to", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	if durable {
		return dir.Sync()
	}
	return nil
}

// Printable is text of a file that another user could write, fit for a terminal and one line: what
// is not a printable character is written as Go's literals have it.
func Printable(text string) string {
	plain := func(r rune) bool { return r != unicode.ReplacementChar && unicode.IsPrint(r) }
	if strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// unlink removes a name, which may be gone already.
func unlink(dir *os.File, name string) error {
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
