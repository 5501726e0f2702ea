package prepare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// automount has an automounter mount the pool's storage: a look does it. Where nothing comes, what
// is there is the automounter's, and nothing is prepared there.
func (o Options) automount(ctx context.Context) error {
	point := o.Pool.Path
	if o.Pool.RequireMount {
		point = o.Pool.MountPoint
	}
	table, err := mounts.Read()
	if err != nil {
		return err
	}
	if on, _ := mounts.Covering(table, point); on.FSType != autofs {
		return nil
	}
	report := o.Check(ctx)
	for _, f := range report.Findings {
		if f.Reason == hostcheck.ReasonNotAutomounted || f.Reason == hostcheck.ReasonNotAnswering {
			return &UnfitError{o.Pool, f}
		}
	}
	return nil
}

const autofs = "autofs"

// mountPoint makes the mount point and its immutable flag, and reports whether something is mounted
// there. Where it is, the bare directory below is reached without unmounting (mounts.Under).
func (o Options) mountPoint(r *Result) (mounted bool, err error) {
	point := o.Pool.MountPoint
	table, err := mounts.Read()
	if err != nil {
		return false, err
	}
	stack, parent, mounted := mounts.At(table, point)
	if mounted && parent.FSType == autofs { // of an indirect map: its directories have no flags
		return true, o.noFlag(r, point, unix.ENOTTY)
	}
	var bare *os.File
	if mounted {
		bare, err = under(stack[0], parent)
	} else {
		bare, err = o.makeDir(r, point)
	}
	if errors.Is(err, mounts.ErrNotPermitted) && o.Pool.Immutable != config.ImmutableRequire {
		r.note("the directory under the mount at %s was not inspected: it takes CAP_SYS_ADMIN", point)
		return mounted, nil
	}
	if err != nil {
		return mounted, err
	}
	defer bare.Close()
	return mounted, o.flag(r, bare)
}

func under(m, parent mounts.Mount) (*os.File, error) {
	fd, err := mounts.Under(m, parent)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// The descriptor is O_PATH, with which nothing can be listed or flagged.
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "under " + m.Point, Err: err}
	}
	return os.NewFile(uintptr(again), m.Point), nil
}

// makeDir opens a directory, and makes it with mode 0700 if only it is missing. What is mounted
// there since the table was read is refused (EXDEV), or its root would get the flag.
//
// What may be in the way, what refuses it, and the test that puts it there:
//
//	symbolic link, also above   RESOLVE_NO_SYMLINKS: ELOOP                         TestSurprisesUnmounted
//	FIFO or file, also above    O_DIRECTORY: ENOTDIR, before an open could wait    TestSurprisesUnmounted
//	mount, also a bind mount    RESOLVE_NO_XDEV for the last name: EXDEV           TestOpenRefuses (hostcheck/mounts)
//	".."                        RESOLVE_BENEATH for the last name: EXDEV           TestBeneath (hostcheck/openat)
//	replaced parent             mkdirat and openat2 are relative to one descriptor none: there is no second lookup to come between
//	another's files             notEmpty, before the flag is set                   TestSurprisesUnmounted, TestFilesUnderTheMount
func (o Options) makeDir(r *Result, name string) (*os.File, error) {
	dir, base := path.Split(name)
	up, err := mounts.Open(path.Clean(dir), unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%s: %w", name, ErrNoParent)
	}
	if err != nil {
		return nil, surprise(name, err)
	}
	defer unix.Close(up)
	err = unix.Mkdirat(up, base, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	made := err == nil
	fd, err := mounts.OpenBeneath(up, base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, surprise(name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if made {
		r.did("made %s with mode 0700", name)
		err = errors.Join(f.Chmod(0o700), syncAbove(up)) // whatever the umask
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func syncAbove(up int) error {
	fd, err := unix.Openat(up, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fsync(fd), unix.Close(fd))
}

// surprise gives the kernel's refusals their names. O_DIRECTORY on a symbolic link is ENOTDIR or
// ELOOP, depending on what is asked first.
func surprise(name string, err error) error {
	if link, _ := os.Lstat(name); link != nil && link.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s: %w", name, ErrSymlink)
	}
	for errno, is := range map[error]error{unix.ELOOP: ErrSymlink, unix.ENOTDIR: ErrNotDirectory, unix.EXDEV: ErrMounted} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%s: %w", name, is)
		}
	}
	return fmt.Errorf("%s: %w", name, err)
}

// flag sets chattr +i on the bare directory. One that has the flag already may hold something: an
// administrator's note for those who find it unmounted.
func (o Options) flag(r *Result, bare *os.File) error {
	if o.Pool.Immutable == config.ImmutableOff {
		return nil
	}
	flags, err := unix.IoctlGetInt(int(bare.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return o.noFlag(r, bare.Name(), err)
	}
	if flags&unix.STATX_ATTR_IMMUTABLE != 0 { // FS_IMMUTABLE_FL has the same value, linux/fs.h
		return nil
	}
	if there, err := contents(bare); err != nil || len(there) > 0 {
		return errors.Join(err, notEmpty(bare.Name(), there))
	}
	if err := unix.IoctlSetPointerInt(int(bare.Fd()), unix.FS_IOC_SETFLAGS, flags|unix.STATX_ATTR_IMMUTABLE); err != nil {
		return o.noFlag(r, bare.Name(), err)
	}
	r.did("made the directory %s itself immutable (chattr +i)", bare.Name())
	return bare.Sync()
}

func (o Options) noFlag(r *Result, name string, err error) error {
	if !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("the immutable flag of %s: %w", name, err)
	}
	if o.Pool.Immutable == config.ImmutableRequire {
		return fmt.Errorf("%s: %w", name, ErrNoFlag)
	}
	r.note("the filesystem of %s has no immutable flag", name)
	return nil
}

// ours are the entries of a pool's directory that do not make it a used one.
var ours = []string{"lost+found", hostcheck.PrivateDir}

// contents are the names in a directory, the first few of them.
func contents(dir *os.File, except ...string) ([]string, error) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(except, n) })
	slices.Sort(names)
	return names, nil
}

func notEmpty(name string, there []string) error {
	if len(there) == 0 {
		return nil
	}
	shown := make([]string, 0, 4)
	for _, n := range there[:min(len(there), 3)] {
		shown = append(shown, fmt.Sprintf("%q", n))
	}
	if len(there) > 3 {
		shown = append(shown, fmt.Sprintf("%d more", len(there)-3))
	}
	return fmt.Errorf("%s has %s: %w", name, strings.Join(shown, ", "), ErrNotEmpty)
}

// poolDir makes the pool's own directory and closes it to other users, if it is new or not in use;
// where it is, they can no longer write to it.
func (o Options) poolDir(r *Result) error {
	dir, err := o.openPool(r)
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil || info.Mode().Perm() == 0o700 {
		return err
	}
	there, err := contents(dir, ours...)
	if err != nil {
		return err
	}
	if len(there) == 0 {
		return chmod(r, dir, info.Mode(), 0o700)
	}
	mode := info.Mode()
	if mode&0o022 != 0 {
		// Who gets in may be meant, and pods that run reach their volumes through mounts. Who
		// writes is not.
		if err := chmod(r, dir, mode, mode&^0o022); err != nil {
			return err
		}
		mode &^= 0o022
	}
	if mode.Perm() != 0o700 {
		r.note("the mode of %s is %04o and was left, because the directory is in use", dir.Name(), mode.Perm())
	}
	return nil
}

func chmod(r *Result, dir *os.File, from, to fs.FileMode) error {
	if err := dir.Chmod(to); err != nil {
		return err
	}
	r.did("changed the mode of %s from %04o to %04o", dir.Name(), from.Perm(), to.Perm())
	return dir.Sync()
}

func (o Options) openPool(r *Result) (*os.File, error) {
	if o.Pool.RequireMount && o.Pool.Path == o.Pool.MountPoint {
		return open(o.Pool.Path)
	}
	return o.makeDir(r, o.Pool.Path)
}

func open(name string) (*os.File, error) {
	fd, err := mounts.Open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, surprise(name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
