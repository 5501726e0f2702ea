package selinux

import (
	"errors"
	"fmt"
	"strings"

	lib "github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"
)

// Types of our own policy module (hostpath_provisioner.te).
const (
	DomainType = "hostpath_provisioner_t"            // of the daemon
	PoolType   = "hostpath_provisioner_pool_t"       // of a pool's own directory and of what the daemon keeps there
	SocketType = "hostpath_provisioner_csi_socket_t" // of the CSI drivers' sockets
)

const (
	user, role = "system_u", "object_r" // of every file that a system service makes
	level      = "s0"                   // the lowest: a container of any categories may use it
	attribute  = "security.selinux"
)

// ErrNoLabels says that a filesystem keeps no labels.
var ErrNoLabels = errors.New("the filesystem keeps no SELinux labels")

// Label is a label with this type, as a volume is born with it.
func Label(fileType string) string { return strings.Join([]string{user, role, fileType, level}, ":") }

// Type is a label's type, "" if it is none.
func Type(label string) string {
	if parts := strings.SplitN(label, ":", 4); len(parts) >= 3 {
		return parts[2]
	}
	return ""
}

// Want is what the label of a volume and of everything in it has to be. User and role are not
// looked at, as restorecon(8) does not without -F: no policy for containers asks for them.
type Want struct {
	Type string
	// AnyLevel: categories are not the daemon's. kubelet gives a volume of source "local" those
	// of its pod; of source "hostPath" no program does, and other levels than s0 keep pods out.
	AnyLevel bool
}

// For is what is wanted of a volume with this source, w if that is "".
func (w Want) For(source string) Want {
	if source != "" {
		w.AnyLevel = source != "hostPath"
	}
	return w
}

// Fits reports whether a label is good enough. A file without a label has none that is.
func (w Want) Fits(label string) bool {
	if Type(label) != w.Type {
		return false
	}
	l := levelOf(label)
	return w.AnyLevel || l == "" || l == level
}

// Mended is the label in the place of one that does not fit.
func (w Want) Mended(label string) string {
	if l := levelOf(label); w.AnyLevel && l != "" {
		return strings.Join([]string{user, role, w.Type, l}, ":")
	}
	return Label(w.Type)
}

func levelOf(label string) string {
	if parts := strings.SplitN(label, ":", 4); len(parts) == 4 {
		return parts[3]
	}
	return ""
}

// Mode is "enforcing", "permissive" or "disabled".
func Mode() string {
	switch {
	case !Enabled():
		return "disabled"
	case lib.EnforceMode() == lib.Enforcing:
		return "enforcing"
	default:
		return "permissive"
	}
}

// Knows reports whether the kernel's policy has this file type. Without SELinux it has none.
//
// The library's call, where SELinux is off, writes a file named "context" into the working
// directory and reports success: it is made only when SELinux is on.
func Knows(fileType string) bool {
	return Enabled() && lib.SecurityCheckContext(Label(fileType)) == nil
}

// Lacks reports whether the kernel's policy is sure not to have this file type. It is not the
// opposite of Knows: in a service whose /sys is read-only (ProtectKernelTunables=) the kernel
// cannot be asked, and neither holds.
func Lacks(fileType string) bool {
	return Enabled() && errors.Is(lib.SecurityCheckContext(Label(fileType)), unix.EINVAL)
}

// Of is the label of what is open at fd, O_PATH too; "" if it has none.
func Of(fd int) (string, error) { return read(at(fd)) }

func read(path string) (string, error) {
	buffer := make([]byte, 512)
	for {
		n, err := unix.Getxattr(path, attribute, buffer)
		switch {
		case err == nil:
			return strings.TrimRight(string(buffer[:n]), "\x00"), nil // the kernel's own have a NUL
		case errors.Is(err, unix.ENODATA):
			return "", nil
		case errors.Is(err, unix.ENOTSUP):
			return "", ErrNoLabels
		case errors.Is(err, unix.ERANGE) && len(buffer) < 64<<10:
			buffer = make([]byte, 8*len(buffer))
		case !errors.Is(err, unix.EINTR):
			return "", fmt.Errorf("reading its label: %w", err)
		}
	}
}

// Set gives what is open at fd this label, and never anything else: the magic link leads to the
// very inode (proc(5)), also to a symbolic link's that was opened with O_PATH and O_NOFOLLOW.
// (fsetxattr(2) refuses O_PATH descriptors, and opening a FIFO or a device for more would wake it.)
func Set(fd int, label string) error {
	for {
		err := unix.Setxattr(at(fd), attribute, []byte(label), 0)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.ENOTSUP):
			return ErrNoLabels
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("setting label %s: %w", label, err)
		}
	}
}

// at names the calling thread's descriptor: /proc/self is the process's first thread, which has a
// table of descriptors of its own once unshare(CLONE_FILES) was called on it.
func at(fd int) string { return fmt.Sprintf("/proc/thread-self/fd/%d", fd) }
