package killer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/subvolume"
)

// Scope says which calls count: those on something below one of these directories, and those on a
// connection to the API. What else a daemon writes (its log, its status file) is not read by the
// next one.
type Scope struct {
	Pool, State, Locks string
	Kubelet            string // kubelet's directory, in which volumes are mounted
	Runtime, Cgroup    string // the node service's runtime directory, and the cgroup of the pod that it stops
	Exact              bool   // names of volumes are told as they are, not as PV
	// Local: messages between the daemon and the node service count, and the connection to the API
	// does not: for what they do without it.
	Local bool
}

// process is the daemon whose thread asks.
type process struct{ pid, pidfd int }

// Request and Response are the two points of the API. The connection is encrypted, so that they are
// told apart by their number.
const (
	Request  = "write to the API"
	Response = "read what the API sent"
)

// Message is the point of the pairs of sockets between the daemon and the node service. Dying at it
// is dying before the other side knows.
const Message = "tell the other process"

// VolumeName is the name of a volume of a claim, of a snapshot, or of an inline volume.
var VolumeName = regexp.MustCompile(`(?:pvc|snapshot)-[0-9a-f]{8}-[0-9a-f-]{27}|csi-[0-9a-f]{64}`)

// markerID is the name of a pool's lock (hostcheck, NewMarker: rand.Text), and the end of another
// name of a tree that is copied.
var markerID = regexp.MustCompile(`[A-Z2-7]{26}`)

// linkKey is the name of a file with several names while a tree is copied (daemon/disk/treecopy,
// keyOf).
var linkKey = regexp.MustCompile(`/\d+(-\d+){4,}$`)

// staleNumber is the end of the name of an entry that another pass of a copy found changed
// (daemon/disk/treecopy, Seen): it tells how many were before.
var staleNumber = regexp.MustCompile(`(/\.stale-ID)/\d+$`)

// call names what a system call is about to do, in words that are the same for every volume; "" if
// that does not count.
type call func(s Scope, p process, n *notification) string

// calls are the system calls that this program understands. One that is stopped and is not here
// makes the program fail in the end.
var calls = map[int32]call{
	unix.SYS_READ:      Scope.read,
	unix.SYS_WRITE:     Scope.write,
	unix.SYS_WRITEV:    Scope.write,
	unix.SYS_PWRITE64:  Scope.write,
	unix.SYS_SENDTO:    Scope.write,
	unix.SYS_SENDMSG:   Scope.write,
	unix.SYS_SHUTDOWN:  func(Scope, process, *notification) string { return "" },
	unix.SYS_OPENAT:    Scope.open,
	unix.SYS_OPENAT2:   Scope.open,
	unix.SYS_RENAMEAT:  Scope.rename,
	unix.SYS_RENAMEAT2: Scope.rename,
	unix.SYS_IOCTL:     Scope.ioctl,

	unix.SYS_MKDIRAT: onName("mkdir"), unix.SYS_MKNODAT: onName("mknod"), unix.SYS_UNLINKAT: onName("remove"),
	unix.SYS_FCHOWNAT: onName("chown"), unix.SYS_FCHMODAT: onName("chmod"), unix.SYS_UTIMENSAT: onName("utimes"),
	unix.SYS_LINKAT: onName("link"), unix.SYS_SYMLINKAT: onOther("symlink"), unix.SYS_COPY_FILE_RANGE: Scope.copyRange,

	unix.SYS_FSYNC: onFile("fsync"), unix.SYS_FDATASYNC: onFile("fdatasync"), unix.SYS_SYNC_FILE_RANGE: onFile("write out"),
	unix.SYS_SYNCFS: onFile("syncfs"), unix.SYS_FCHOWN: onFile("chown"), unix.SYS_FCHMOD: onFile("chmod"),
	unix.SYS_FTRUNCATE: onFile("truncate"), unix.SYS_FALLOCATE: onFile("allocate"), unix.SYS_FSETXATTR: onFile("setxattr"),
	unix.SYS_QUOTACTL_FD: Scope.quota,

	unix.SYS_MOUNT_SETATTR: func(Scope, process, *notification) string { return "change a detached mount" },
	unix.SYS_MOVE_MOUNT:    Scope.moveMount, unix.SYS_UMOUNT2: Scope.unmount,
}

// describe is what a call is about to do. known is false for one that this program does not know.
func (s Scope) describe(p process, n *notification) (what string, known bool) {
	c, known := calls[n.nr]
	if !known {
		return "", false
	}
	return c(s, p, n), true
}

func (s Scope) read(p process, n *notification) string {
	if s.socket(p, n, n.args[0]) == Request && p.readable(int(n.args[0])) {
		return Response
	}
	return ""
}

func (s Scope) write(p process, n *notification) string {
	if to := s.socket(p, n, n.args[0]); to != "" {
		return to
	}
	return s.on("write", fdPath(n, n.args[0]))
}

func (s Scope) open(_ process, n *notification) string {
	if openFlags(n)&(unix.O_CREAT|unix.O_TRUNC) == 0 {
		return ""
	}
	return s.on("create", at(n, n.args[0], n.args[1]))
}

func (s Scope) rename(_ process, n *notification) string {
	from, to := s.name(at(n, n.args[0], n.args[1])), s.name(at(n, n.args[2], n.args[3]))
	if from == "" && to == "" {
		return ""
	}
	return "rename " + from + " to " + to
}

func (s Scope) ioctl(_ process, n *notification) string {
	switch n.args[1] {
	case unix.FS_IOC_SETFLAGS:
		return s.on("setflags", fdPath(n, n.args[0]))
	case unix.FICLONE:
		return s.on("share blocks with", fdPath(n, n.args[0]))
	case subvolume.RequestCreate:
		return s.on("make a subvolume in", fdPath(n, n.args[0]))
	case subvolume.RequestSnapshot:
		return s.on("make a snapshot in", fdPath(n, n.args[0]))
	case subvolume.RequestSetFlags:
		return s.on("set flags of subvolume", fdPath(n, n.args[0]))
	case fsSetXattr:
		return s.on("set project of", fdPath(n, n.args[0]))
	default:
		return ""
	}
}

// quota is a change of a project's limit; all other commands of quotactl_fd(2) that the daemon may
// use ask.
func (s Scope) quota(_ process, n *notification) string {
	if uint32(n.args[1]) != quota.CommandSet {
		return ""
	}
	return s.on("set limit in", fdPath(n, n.args[0]))
}

// moveMount attaches a detached mount to what its second descriptor is.
func (s Scope) moveMount(_ process, n *notification) string {
	return s.on("mount on", fdPath(n, n.args[2]))
}

// unmount has a path through a directory's descriptor: umount2(2) takes none.
func (s Scope) unmount(_ process, n *notification) string {
	path := text(n, n.args[0])
	rest, through := strings.CutPrefix(path, "/proc/thread-self/fd/")
	if fd, name, both := strings.Cut(rest, "/"); through && both {
		number, err := strconv.ParseUint(fd, 10, 31)
		if err != nil {
			return ""
		}
		path = filepath.Join(fdPath(n, number), name)
	}
	return s.on("unmount", path)
}

// fsSetXattr is FS_IOC_FSSETXATTR, linux/fs.h: _IOW('X', 32, struct fsxattr).
const fsSetXattr = 0x401c5820

// onName is a call with a directory's descriptor and a name.
func onName(does string) call {
	return func(s Scope, _ process, n *notification) string { return s.on(does, at(n, n.args[0], n.args[1])) }
}

// onOther is a call with a text, a directory's descriptor and a name.
func onOther(does string) call {
	return func(s Scope, _ process, n *notification) string { return s.on(does, at(n, n.args[1], n.args[2])) }
}

// copyRange writes to its second descriptor.
func (s Scope) copyRange(_ process, n *notification) string {
	return s.on("copy data to", fdPath(n, n.args[2]))
}

// onFile is a call with a file's descriptor.
func onFile(does string) call {
	return func(s Scope, _ process, n *notification) string { return s.on(does, fdPath(n, n.args[0])) }
}

func (s Scope) on(call, path string) string {
	name := s.name(path)
	if name == "" {
		return ""
	}
	return call + " " + name
}

// name is a path as tables show it, "" if it is not in scope.
func (s Scope) name(path string) string {
	for _, root := range []struct{ path, name string }{
		{s.Pool, "pool"}, {s.State, "state"}, {s.Locks, "locks"}, {s.Kubelet, "kubelet"},
		{s.Runtime, "run"}, {s.Cgroup, "cgroup"},
	} {
		below, is := strings.CutPrefix(path, root.path)
		if is && root.path != "" && (below == "" || below[0] == '/') {
			name := linkKey.ReplaceAllString(markerID.ReplaceAllString(root.name+below, "ID"), "/KEY")
			name = staleNumber.ReplaceAllString(name, "$1/N")
			if !s.Exact {
				name = VolumeName.ReplaceAllString(name, "PV")
			}
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

// socket is what writing to a socket is: Request on a connection to the API, the only one over IP
// that there is, or Message on one of a pair. It is "" for what does not count, and for what is no
// socket.
func (s Scope) socket(p process, n *notification, fd uint64) (to string) {
	if !strings.HasPrefix(fdPath(n, fd), "socket:") {
		return ""
	}
	p.borrow(int(fd), func(fd int) {
		domain, noDomain := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		kind, noKind := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		switch {
		case noDomain != nil || noKind != nil:
		case !s.Local && (domain == unix.AF_INET || domain == unix.AF_INET6):
			to = Request
		case s.Local && domain == unix.AF_UNIX && kind == unix.SOCK_SEQPACKET:
			to = Message
		}
	})
	return to
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
