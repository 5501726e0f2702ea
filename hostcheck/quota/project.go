package quota

import (
	"unsafe"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Project is what a file has of project quotas.
type Project struct {
	ID       uint32
	Inherits bool // what is made in the directory has its project
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
	return openat.Ioctl(fd, request, unsafe.Pointer(x))
}

// ProjectOf returns a file's project; the zero one where the filesystem has no projects.
func ProjectOf(fd int) Project {
	var x fsxattr
	if x.call(fd, fsGetXattr) != nil {
		return Project{}
	}
	return Project{x.projid, x.xflags&xflagProjects != 0}
}

// SetProject gives a file its project. It takes the file's owner or CAP_FOWNER, and the initial
// user namespace.
func SetProject(fd int, p Project) error {
	var x fsxattr
	if err := x.call(fd, fsGetXattr); err != nil {
		return err
	}
	if x.projid, x.xflags = p.ID, x.xflags&^xflagProjects; p.Inherits {
		x.xflags |= xflagProjects
	}
	return x.call(fd, fsSetXattr)
}
