package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// machine is a container with a systemd of its own. Its disk lives as long as this process, through
// any number of boots.
type machine struct {
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
func newMachine(tree, dir string) (*machine, error) {
	m := &machine{dir: dir, root: filepath.Join(dir, "root"), shared: filepath.Join(dir, "shared")}
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
	return m, errors.Join(os.WriteFile(m.path("/etc/hostname"), []byte(node+"\n"), 0o644), m.devices())
}

// devices are made by the container's own tmpfiles at each boot: a node that is bound from outside
// would get its mode changed there.
func (m *machine) devices() error {
	var b strings.Builder
	fmt.Fprintln(&b, "c /dev/loop-control 0600 root root - 10:237")
	for i := range 64 {
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
		"--quiet", "--boot", "--directory=" + m.root, "--machine=hostpath-test", "--register=no", "--keep-unit", "--console=pipe",
		"--capability=all", "--system-call-filter=@mount @raw-io @privileged seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self quotactl_fd add_key keyctl bpf",
		"--bind-ro=" + m.shared + ":/shared", "--resolv-conf=off", "--timezone=off",
	}
	log, err := os.OpenFile(filepath.Join(m.dir, "console"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	nspawn := exec.Command("/bin/sh", append([]string{"-c", enter + `exec systemd-nspawn "$@"`, "sh"}, args...)...)
	nspawn.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY="+m.unified())
	nspawn.Stdout, nspawn.Stderr = log, log
	if m.nspawn, err = process.Start(nspawn); err != nil {
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
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
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
