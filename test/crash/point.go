package crash

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scope says which calls count: those on something below the pool or the state directory, and those
// on a connection to the API.
type scope struct{ pool, state string }

// process is the daemon whose thread asks.
type process struct{ pid, pidfd int }

// The two points of the API.
const (
	request  = "write to the API"
	response = "read what the API answered"
)

var pvName = regexp.MustCompile(`pvc-[0-9a-f]{8}-[0-9a-f-]{27}`)

// describe names a call that counts, in words that are the same for every volume; "" if it does not.
func (s scope) describe(p process, n *notification) string {
	a := n.args
	switch n.nr {
	case unix.SYS_READ:
		if socket := s.socket(p, n, a[0]); socket && p.readable(int(a[0])) {
			return response
		}
		return ""
	case unix.SYS_WRITE, unix.SYS_WRITEV:
		if s.socket(p, n, a[0]) {
			return request
		}
		return s.on("write", fdPath(n, a[0]))
	case unix.SYS_PWRITE64:
		return s.on("write", fdPath(n, a[0]))
	case unix.SYS_OPENAT, unix.SYS_OPENAT2:
		if openFlags(n)&(unix.O_CREAT|unix.O_TRUNC) == 0 {
			return ""
		}
		return s.on("create", at(n, a[0], a[1]))
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		from, to := s.name(at(n, a[0], a[1])), s.name(at(n, a[2], a[3]))
		if from == "" && to == "" {
			return ""
		}
		return "rename " + from + " to " + to
	case unix.SYS_LINKAT, unix.SYS_SYMLINKAT:
		return s.on("link", at(n, a[0], a[1]))
	case unix.SYS_IOCTL:
		if a[1] != unix.FS_IOC_SETFLAGS {
			return ""
		}
		return s.on("setflags", fdPath(n, a[0]))
	}
	if call, is := atCalls[n.nr]; is {
		return s.on(call, at(n, a[0], a[1]))
	}
	return s.on(fdCalls[n.nr], fdPath(n, a[0]))
}

var atCalls = map[int32]string{
	unix.SYS_MKDIRAT: "mkdir", unix.SYS_MKNODAT: "mknod", unix.SYS_UNLINKAT: "remove",
	unix.SYS_FCHOWNAT: "chown", unix.SYS_FCHMODAT: "chmod",
}

var fdCalls = map[int32]string{
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_SYNC_FILE_RANGE: "write out", unix.SYS_SYNCFS: "syncfs",
	unix.SYS_FCHOWN: "chown", unix.SYS_FCHMOD: "chmod", unix.SYS_FTRUNCATE: "truncate", unix.SYS_FALLOCATE: "allocate",
	unix.SYS_FSETXATTR: "setxattr",
}

func (s scope) on(call, path string) string {
	name := s.name(path)
	if name == "" {
		return ""
	}
	return call + " " + name
}

// name is a path as tables show it, "" if it is neither in the pool nor in the state directory.
func (s scope) name(path string) string {
	for _, root := range []struct{ path, name string }{{s.pool, "pool"}, {s.state, "state"}} {
		below, is := strings.CutPrefix(path, root.path)
		if is && (below == "" || below[0] == '/') {
			name := pvName.ReplaceAllString(root.name+below, "PV")
			return strings.Replace(name, "pool/.hostpath-provisioner/", "", 1)
		}
	}
	return ""
}

func fdPath(n *notification, fd uint64) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.thread, int32(fd)))
	if err != nil {
		return ""
	}
	return path
}

// at is the path that a directory's descriptor and a name beneath it mean.
func at(n *notification, dir, name uint64) string {
	path := text(n, name)
	if filepath.IsAbs(path) {
		return path
	}
	if int32(dir) == unix.AT_FDCWD {
		return ""
	}
	return filepath.Join(fdPath(n, dir), path)
}

func openFlags(n *notification) uint64 {
	if n.nr == unix.SYS_OPENAT {
		return n.args[2]
	}
	var how unix.OpenHow
	memory(n, n.args[2], unsafe.Slice((*byte)(unsafe.Pointer(&how)), unsafe.Sizeof(how)))
	return how.Flags
}

// text is a C string of the process that asks.
func text(n *notification, address uint64) string {
	buffer := make([]byte, unix.PathMax)
	buffer = buffer[:memory(n, address, buffer)]
	before, _, _ := bytes.Cut(buffer, []byte{0})
	return string(before)
}

// memory reads what there is, page by page: the last one may not be mapped.
func memory(n *notification, address uint64, into []byte) (read int) {
	page := uint64(os.Getpagesize())
	for read < len(into) {
		from := address + uint64(read)
		part := into[read:min(len(into), read+int(page-from%page))]
		local := unix.Iovec{Base: &part[0], Len: uint64(len(part))}
		got, err := unix.ProcessVMReadv(int(n.thread), []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(from), Len: len(part)}}, 0)
		if read += max(got, 0); err != nil || got < len(part) || bytes.IndexByte(part, 0) >= 0 {
			return read
		}
	}
	return read
}

// socket says whether a descriptor is a connection to the API: the only one over IP that there is.
func (s scope) socket(p process, n *notification, fd uint64) (is bool) {
	if !strings.HasPrefix(fdPath(n, fd), "socket:") {
		return false
	}
	p.borrow(int(fd), func(fd int) {
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		is = err == nil && (domain == unix.AF_INET || domain == unix.AF_INET6)
	})
	return is
}

// readable: a read of an empty socket is only the runtime looking, and counts for nothing.
func (p process) readable(fd int) (is bool) {
	p.borrow(fd, func(fd int) {
		n, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD, tcp(7)
		is = err == nil && n > 0
	})
	return is
}

func (p process) borrow(fd int, use func(int)) {
	if own, err := unix.PidfdGetfd(p.pidfd, fd, 0); err == nil {
		use(own)
		unix.Close(own)
	}
}
