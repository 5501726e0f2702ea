package hosttest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// InheritCPUs gives a new cgroup its parent's processors and memory nodes: in version 1 a cpuset has none
// at first and takes no process, until it has (cpuset(7)). Of another controller, and of version 2, there
// is nothing to do.
func InheritCPUs(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) { // another controller, or version 2, which inherits
			continue
		}
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, file), value, 0)); err != nil {
			return err
		}
	}
	return nil
}

// Cgroup makes a cgroup of version 2 with this path below the root of its hierarchy. What is in it is killed, and it removed,
// when the test has ended; so are those above it that were made with it.
func Cgroup(t testing.TB, name string) string {
	t.Helper()
	at := CgroupRoot()
	for part := range strings.SplitSeq(name, "/") {
		dir := filepath.Join(at, part)
		at = dir
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeCgroup(t, dir) })
	}
	return at
}

// CgroupRoot is where the hierarchy of version 2 is mounted, also beside those of version 1.
func CgroupRoot() string {
	const mount = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return mount
	}
	return filepath.Join(mount, "unified")
}

func removeCgroup(t testing.TB, dir string) {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
		t.Error(err)
	}
	err := syscall.Rmdir(dir)
	for end := time.Now().Add(time.Minute); errors.Is(err, syscall.EBUSY) && time.Now().Before(end); err = syscall.Rmdir(dir) {
		time.Sleep(time.Millisecond) // a process that was killed leaves a moment later
	}
	if err != nil {
		t.Errorf("%s: %v", dir, err)
	}
}

// InCgroup has a command start in a cgroup.
func InCgroup(t testing.TB, dir string, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	return cmd
}
