package volume

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// A file of xfs and ext4 has a project, a number by which quotas count. A directory can hand its own down
// to what is made in it, and what is renamed into such a directory must have its project already: rename(2)
// says EXDEV else, as for another filesystem (xfs_rename, ext4_rename). Administrators set both on a pool
// for a limit of the whole, or on a volume for a limit of its own; so can the owner of a volume's directory.
type project struct {
	id       uint32
	inherits bool // what is made in the directory has its project
}

// fsxattr is struct fsxattr of linux/fs.h.
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

const (
	fsGetXattr    = 0x801c581f // FS_IOC_FSGETXATTR
	fsSetXattr    = 0x401c5820 // FS_IOC_FSSETXATTR
	xflagProjects = 0x00000200 // FS_XFLAG_PROJINHERIT
)

func (x *fsxattr) call(fd int, request uintptr) error {
	return openat.Retry(func() error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(x)))
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// projectOf is a directory's project; none where the filesystem has no projects.
func projectOf(fd int) project {
	var x fsxattr
	if x.call(fd, fsGetXattr) != nil {
		return project{}
	}
	return project{x.projid, x.xflags&xflagProjects != 0}
}

func setProject(fd int, p project) error {
	var x fsxattr
	if err := x.call(fd, fsGetXattr); err != nil {
		return err
	}
	if x.projid, x.xflags = p.id, x.xflags&^xflagProjects; p.inherits {
		x.xflags |= xflagProjects
	}
	return x.call(fd, fsSetXattr)
}

// inherit gives a directory that was made in staging the project that it would have if it had been made in
// the pool itself.
func (s *session) inherit(dir int) error {
	of := projectOf(s.root)
	if !of.inherits {
		of = project{}
	}
	if projectOf(dir) == of {
		return nil
	}
	err := setProject(dir, of)
	s.pool.crashPoint("project set")
	return wrap("setting the project", err)
}

// moveOut is move into a directory of our own, or into one that is being emptied. That one's project
// limits no volume: it is handed down no more, and what comes keeps its own.
func moveOut(from int, name string, to int, newName string) error {
	err := move(from, name, to, newName)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	of := projectOf(to)
	if !of.inherits || setProject(to, project{id: of.id}) != nil {
		return err
	}
	return move(from, name, to, newName)
}

// moveBack is move of a volume's directory into the pool. If it has another project than the pool hands
// down, it has the pool's for the moment of the rename. A crash in that moment leaves it with the pool's:
// its files keep theirs, and the administrator sets the directory's again.
func moveBack(from int, name string, root int, newName string) error {
	err := move(from, name, root, newName)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	fd, openErr := openDir(from, name)
	if openErr != nil {
		return err
	}
	defer unix.Close(fd)
	own, pools := projectOf(fd), projectOf(root)
	if !pools.inherits || own.id == pools.id {
		return err
	}
	if err := setProject(fd, project{pools.id, own.inherits}); err != nil {
		return wrap("setting the project", err)
	}
	err = move(from, name, root, newName)
	return errors.Join(err, wrap("setting the project back", setProject(fd, own)))
}
