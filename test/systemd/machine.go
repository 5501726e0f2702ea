package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// machine is a container with a systemd of its own. Its disk lives as long as this process, through
// any number of boots.
type machine struct {
	name    string // of the host
	dir     string // a tmpfs of this mount namespace: the overlay and what is passed in
	root    string // its root directory, seen from outside
	shared  string // a folder that it sees, read-only, at /shared
	pods    bool   // it runs containers, and has the cgroup controllers that they need
	nspawn  *process.Child
	cgroups []string

	environment []string // of every command, besides the usual
}

// newMachine makes the disk: an overlay over the tree, on a tmpfs, which knows immutable flags and
// is gone with this mount namespace.
func newMachine(tree, dir, name string) (*machine, error) {
	m := &machine{name: name, dir: dir}
	m.root, m.shared = filepath.Join(dir, "root"), filepath.Join(dir, "shared")
	if err := syscall.Mount("machine", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return nil, err
	}
	for _, sub := range []string{"upper", "work", "root", "shared"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	layers := "lowerdir=" + tree + ",upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := syscall.Mount("machine", m.root, "overlay", 0, layers); err != nil {
		return nil, fmt.Errorf("an overlay with %s: %w", layers, err)
	}
	// mmdebstrap copied this machine's name.
	err := os.WriteFile(m.path("/etc/hostname"), []byte(name+"\n"), 0o644)
	return m, errors.Join(err, m.devices())
}

// devices are made by the container's own tmpfiles at each boot: a node that is bound from outside
// would get its mode changed there.
func (m *machine) devices() error {
	var b strings.Builder
	fmt.Fprintln(&b, "c /dev/loop-control 0600 root root - 10:237")
	for i := range 512 { // also where others have many
		fmt.Fprintf(&b, "b /dev/loop%d 0600 root root - 7:%d\n", i, i)
	}
	return os.WriteFile(filepath.Join(m.root, "etc/tmpfiles.d/loop.conf"), []byte(b.String()), 0o644)
}

// boot starts the container and waits until its systemd has reached its target.
func (m *machine) boot(ctx context.Context) error {
	enter, err := m.makeCgroups()
	if err != nil {
		return err
	}
	args := []string{
		"--quiet", "--boot", "--directory=" + m.root, "--machine=hostpath-" + m.name,
		"--register=no", "--keep-unit", "--console=pipe",
		"--capability=all", "--system-call-filter=@mount @raw-io @privileged seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self quotactl_fd add_key keyctl bpf",
		"--bind-ro=" + m.shared + ":/shared", "--resolv-conf=off", "--timezone=off",
	}
	nspawn := exec.Command("/bin/sh", append([]string{"-c", enter + `exec systemd-nspawn "$@"`, "sh"}, args...)...)
	nspawn.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY="+m.unified())
	if m.nspawn, err = process.StartLogged(nspawn, filepath.Join(m.dir, "console")); err != nil {
		return err
	}
	return m.wait(ctx)
}

// wait is over when systemd responds and has nothing left to start. No event tells that
// it does, so it is asked again.
func (m *machine) wait(ctx context.Context) error {
	for {
		out, _ := m.command(ctx, "systemctl", "is-system-running", "--wait").CombinedOutput()
		switch state := strings.TrimSpace(string(out)); state {
		case "running", "degraded":
			return nil
		}
		select {
		case <-m.nspawn.Exited():
			return errors.New("the container ended while booting")
		case <-ctx.Done():
			return fmt.Errorf("the container does not come up: %w: %s", ctx.Err(), out)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// leader is the container's first process, seen from here; 0 before it is there.
func (m *machine) leader() int {
	pid := strconv.Itoa(m.nspawn.PID())
	text, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	first, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.Atoi(first)
	return n
}

// command runs in the container.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	enter := []string{"-t", strconv.Itoa(m.leader()), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER="}
	enter = append(enter, m.environment...)
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.WaitDelay = time.Second // what it started in there may keep its output open
	return cmd
}

// path is a file of the container's root filesystem, seen from here. What is mounted in it is not.
func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

// halt shuts the container down as an administrator would, and says how long that took.
func (m *machine) halt(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	m.command(ctx, "systemctl", "poweroff").Run()
	select {
	case <-m.nspawn.Exited():
		return time.Since(began), m.dropCgroups()
	case <-ctx.Done():
		return 0, fmt.Errorf("the container does not shut down: %w", ctx.Err())
	}
}

func (m *machine) close() error {
	if m.nspawn == nil {
		return nil
	}
	if leader := m.leader(); leader > 0 {
		syscall.Kill(leader, syscall.SIGKILL)
	}
	return errors.Join(m.nspawn.Kill(), m.dropCgroups())
}

const cgroupMount = "/sys/fs/cgroup"

// unified reports whether the container gets the one hierarchy of version 2. Its controllers may be
// bound to hierarchies of version 1 on this machine, and pods need them.
func (m *machine) unified() string {
	_, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers"))
	if m.pods && err != nil {
		return "0"
	}
	return "1"
}

// hierarchies are those in which the container has a cgroup: the ones that systemd uses, and for
// pods each controller's.
func (m *machine) hierarchies() ([]string, error) {
	all := []string{cgroupMount, cgroupMount + "/systemd", cgroupMount + "/unified"}
	if m.pods {
		found, err := filepath.Glob(cgroupMount + "/*")
		if err != nil {
			return nil, err
		}
		all = append(found, cgroupMount)
	}
	var there []string
	for _, hierarchy := range all {
		if info, err := os.Lstat(hierarchy); err != nil || !info.IsDir() { // links: cpu -> cpu,cpuacct
			continue
		}
		if _, err := os.Stat(filepath.Join(hierarchy, "cgroup.procs")); err == nil {
			there = append(there, hierarchy)
		}
	}
	return there, nil
}

// makeCgroups makes a cgroup of its own for the container, in each hierarchy: with a shared one a
// few boots in a hundred come up degraded. enter is a shell's way into them.
func (m *machine) makeCgroups() (enter string, err error) {
	m.cgroups = nil
	hierarchies, err := m.hierarchies()
	if err != nil {
		return "", err
	}
	for _, hierarchy := range hierarchies {
		dir := filepath.Join(hierarchy, "hostpath-systemd-"+strconv.Itoa(os.Getpid())+"-"+m.name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		if err := hosttest.InheritCPUs(hierarchy, dir); err != nil {
			return "", err
		}
		m.cgroups = append(m.cgroups, dir)
		enter += "echo $$ >" + dir + "/cgroup.procs; "
	}
	return enter, nil
}

// dropCgroups removes them with what systemd and pods left in them. A process that was killed
// leaves its cgroup a moment after it is gone.
func (m *machine) dropCgroups() (err error) {
	for _, top := range m.cgroups {
		for range 100 {
			if err = hosttest.RemoveCgroups(top); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return err
}

// inputs are what a tree is made of; a change makes another tree.
type inputs struct {
	suite    string
	packages []string
	removed  string // by mmdebstrap, as it is not needed here
}

// base is for the packages of this project alone.
var base = inputs{
	suite: rig.Debian(),
	packages: []string{
		"systemd", "systemd-sysv", "dbus", "e2fsprogs", "util-linux", "mount", "procps", "rpm", "man-db",
	},
	removed: "/usr/share/doc/* /usr/share/locale/*",
}

// with has more packages.
func (i inputs) with(packages ...string) inputs {
	i.packages = slices.Concat(i.packages, packages)
	return i
}

// findTree returns the cached tree, and builds it where there is none: outside the repository, in
// $XDG_CACHE_HOME or /var/cache.
func findTree(say io.Writer, of inputs) (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = "/var/cache"
	}
	cache = filepath.Join(cache, "hostpath-provisioner-test")
	sum := sha256.Sum256(fmt.Append(nil, of))
	tree := filepath.Join(cache, "tree-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(tree+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(tree); err == nil {
		return tree, nil
	}
	began := time.Now()
	fmt.Fprintf(say, "building a tree of Debian %s in %s\n", of.suite, tree)
	if err := buildTree(tree, of); err != nil {
		return "", err
	}
	fmt.Fprintf(say, "built in %s\n", time.Since(began).Round(time.Second))
	return tree, nil
}

// buildTree builds aside, so that a tree is whole or not there.
func buildTree(tree string, of inputs) error {
	aside := tree + ".new"
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	args := []string{"--variant=minbase", "--quiet", "--include=" + strings.Join(of.packages, ",")}
	for _, path := range strings.Fields(of.removed) {
		args = append(args, "--dpkgopt=path-exclude="+path)
	}
	cmd := exec.Command("mmdebstrap", append(args, of.suite, aside)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mmdebstrap: %w\n%s", err, out)
	}
	return os.Rename(aside, tree)
}
