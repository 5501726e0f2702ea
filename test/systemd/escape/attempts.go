package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
)

// pool is one that test/systemd has: /srv/fast, and what is around it.
const pool = "/srv/fast"

// attempt is one thing that is tried; allowed are those that the daemon itself lives by, without
// which the others would prove nothing.
type attempt struct {
	what    string
	try     func() error
	allowed bool
}

var attempts = []attempt{
	{"work in a pool", inPool, true},
	{"read the configuration", read(configuration), true},
	{"ask what lies under a pool's mount point", asked(pool, true), true},

	{"write a unit for systemd to run as root", write("/run/systemd/system/escape.service"), false},
	{"write a generator's directory", write("/run/systemd/generator/escape.service"), false},
	{"write the crontabs", write("/var/spool/cron/crontabs/root"), false},
	{"write /etc/cron.d", write("/etc/cron.d/escape"), false},
	{"write dpkg's postinst scripts", write("/var/lib/dpkg/info/escape.postinst"), false},
	{"write kubelet's directory", write("/var/lib/kubelet/escape"), false},
	{"write root's authorized keys", write("/root/.ssh/authorized_keys"), false},
	{"write a library's path", write("/etc/ld.so.preload"), false},
	{"write the configuration", write("/etc/hostpath-provisioner/conf.d/escape.toml"), false},
	{"write a static pod", write("/etc/kubernetes/manifests/escape.yaml"), false},
	{"write another's temporary file", write("/var/tmp/escape"), false},
	{"write the system's binaries", write("/usr/bin/escape"), false},
	{"read /etc/shadow", read("/etc/shadow"), false},
	{"read the cluster administrator's kubeconfig", read("/etc/kubernetes/admin.conf"), false},
	{"read root's kubeconfig", read("/root/.kube/config"), false},
	{"read another process's memory", read("/proc/1/mem"), false},
	{"reach another process's files", read("/proc/1/root/etc/shadow"), false},
	{"read the kernel's memory", read("/proc/kcore"), false},
	{"open a raw disk", func() error { return opened("/dev/loop0", unix.O_RDWR) }, false},
	{"open a raw disk where the host's /dev is shown", func() error { return opened("/run/hostpath-provisioner/dev/loop0", unix.O_RDWR) }, false},
	{"make a device in a pool", func() error { return unix.Mknod(pool+"/escape-disk", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))) }, false},
	{"connect to containerd's socket", connect("/run/containerd/containerd.sock"), false},
	{"connect to another root's socket", connect("/run/escape-root.sock"), false},
	{"connect to the system bus", connect("/run/dbus/system_bus_socket"), false},
	{"connect to systemd's own socket", connect("/run/systemd/private"), false},
	{"make a set-uid root file in a pool", setUID, false},
	{"give a user's set-uid bit to a file that is root's", setUIDOfRoot, false},
	{"freeze a pool's filesystem", func() error { return freeze(pool) }, false},
	{"freeze the host's filesystem", func() error { return freeze(os.Getenv("STATE_DIRECTORY")) }, false},
	{"mount a filesystem", func() error { return unix.Mount("tmpfs", pool, "tmpfs", 0, "") }, false},
	{"clone a mount", clone, false},
	{"move a mount that was cloned", moveMount, false},
	{"read a file in a clone of the root", readInClone, false},
	{"ask what lies at a path that is no pool's", asked("/etc", false), false},
	{"ask for a path above a pool by ..", asked(pool+"/../fast", false), false},
	{"ask through a symbolic link", askedThroughLink, false},
	{"have the one that looks open a file by its path", asked("/etc/shadow", false), false},
	{"have it respond on a connection to another service", respondElsewhere, false},
	{"get a descriptor from it", descriptorBack, false},
	{"flood it until it responds no more", flood, false},
	{"put another socket in the place of its own", func() error { return os.Remove(mountpoint.Socket) }, false},
	{"unmount a pool", func() error { return unix.Unmount(pool, unix.MNT_DETACH) }, false},
	{"make a user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }, false},
	{"enter the host's namespaces", func() error { return setns("/proc/1/ns/mnt") }, false},
	{"change the root", func() error { return unix.Chroot(pool) }, false},
	{"trace process 1", func() error { return unix.PtraceAttach(1) }, false},
	{"kill a process of root", func() error { return unix.Kill(1, unix.SIGWINCH) }, false},
	{"load a BPF program", func() error { return raw(unix.SYS_BPF, 0, 0, 0) }, false},
	{"load a module", func() error { return raw(unix.SYS_INIT_MODULE, 0, 0, 0) }, false},
	{"read the kernel's keys", func() error { return raw(unix.SYS_KEYCTL, 0, ^uintptr(0)-2, 0) }, false},
	{"open a file by its handle", func() error { return raw(unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0) }, false},
	{"use io_uring past the filter", func() error { return raw(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&[256]byte{})), 0) }, false},
	{"change the owner of a file outside", func() error { return os.Lchown("/var/lib/dpkg/status", os.Getuid(), -1) }, false},
	{"change the mode of a file outside", func() error { return os.Chmod("/var/lib/dpkg/status", 0o666) }, false},
	{"link a file of the host into a pool", func() error { return os.Link("/var/lib/dpkg/status", pool+"/escape-link") }, false},
	{"change a mode by an attribute", func() error {
		return unix.Setxattr("/run/escape-bait/file", "system.posix_acl_access", acl, 0)
	}, false},
	{"run a program in memory", inMemory, false},
	{"run a program", func() error { return exec.Command("/bin/true").Run() }, false},
	{"set the host's name", func() error { return unix.Sethostname([]byte("escaped")) }, false},
	{"write a sysctl", func() error { return opened("/proc/sys/kernel/core_pattern", unix.O_WRONLY) }, false},
	{"write a cgroup", func() error { return opened("/sys/fs/cgroup/cgroup.procs", unix.O_WRONLY) }, false},
	{"limit a filesystem's users", func() error { return raw(unix.SYS_QUOTACTL, 0, 0, 0) }, false},
	{"open a raw network socket", func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW) }, false},
	{"speak netlink", func() error { return socket(unix.AF_NETLINK, unix.SOCK_RAW) }, false},
	{"gain capabilities", func() error { return capset() }, false},
}

func opened(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	return unix.Close(fd)
}

// read wants a byte: /proc has files that open and give none.
func read(path string) func() error {
	return func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.Read(make([]byte, 1))
		return err
	}
}

func write(path string) func() error {
	return func() error { return opened(path, unix.O_CREAT|unix.O_WRONLY) }
}

func inPool() error {
	dir, err := os.MkdirTemp(pool, "escape-")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600), os.Rename(filepath.Join(dir, "file"), pool+"/escape-file"),
		os.Remove(pool+"/escape-file"), os.Remove(dir))
}

func connect(path string) func() error {
	return func() error {
		c, err := net.Dial("unix", path)
		if err == nil {
			c.Close()
		}
		return err
	}
}

func socket(family, kind int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// setUID makes a file, gives it to root, and sets the bit, which chown(2) would take off again.
func setUID() error {
	f, err := made("escape-suid", 0o755)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := f.Chown(0, 0); err != nil {
		return err
	}
	return unix.Fchmod(int(f.Fd()), 0o4755)
}

func setUIDOfRoot() error {
	if err := unix.Fchmodat(unix.AT_FDCWD, "/var/lib/dpkg/status", 0o4755, 0); err == nil {
		return nil
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, pool+"/escape-suid2", &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY | unix.O_CLOEXEC, Mode: 0o4755})
	if err != nil {
		return err
	}
	defer os.Remove(pool + "/escape-suid2")
	defer unix.Close(fd)
	if err := unix.Fchown(fd, 0, 0); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_ISUID == 0 || st.Uid != 0 {
		return errors.New("the bit went with the owner")
	}
	return nil
}

const fiFreeze = 0xC0045877

func freeze(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := raw(unix.SYS_IOCTL, d.Fd(), fiFreeze, 0); err != nil {
		return err
	}
	raw(unix.SYS_IOCTL, d.Fd(), fiFreeze+1, 0) // thaw it: the machine goes on
	return nil
}

func clone() error {
	fd, err := tree("/srv")
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func tree(path string) (int, error) {
	return unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

func moveMount() error {
	fd, err := tree("/")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.MoveMount(fd, "", unix.AT_FDCWD, pool, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

func readInClone() error {
	root, err := tree("/")
	if err != nil {
		return err
	}
	defer unix.Close(root)
	fd, err := unix.Openat(root, "etc/shadow", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func setns(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return unix.Setns(fd, 0)
}

func raw(number, a, b, c uintptr) error {
	if _, _, errno := unix.Syscall(number, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

func capset() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	all := [2]unix.CapUserData{{Effective: ^uint32(0), Permitted: ^uint32(0)}, {}}
	return unix.Capset(&header, &all[0])
}

// acl is rw-rw-rw-, as setfacl(1) writes it (linux/posix_acl_xattr.h).
var acl = []byte{
	2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 6, 0, 255, 255, 255, 255,
	32, 0, 6, 0, 255, 255, 255, 255,
}

func inMemory() error {
	fd, err := unix.MemfdCreate("escape", 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
