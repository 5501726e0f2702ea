package hosttest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// InheritCPUs gives a new cgroup its parent's processors and memory nodes: in version 1 a cpuset
// has none at first and takes no process, until it has (cpuset(7)). Of another controller, and of
// version 2, there is nothing to do.
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

// Cgroup is MakeCgroup for a test, with whose end the cgroup is removed.
func Cgroup(t testing.TB, name string) string {
	t.Helper()
	at, remove, err := MakeCgroup(name)
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	Check(t, err)
	return at
}

// MakeCgroup makes a cgroup of version 2 with this path below the root of its hierarchy. remove
// kills what is in it, and removes it and those above it that were made with it, also after an
// error.
func MakeCgroup(name string) (at string, remove func() error, err error) {
	var made []string
	remove = func() (err error) {
		for _, dir := range slices.Backward(made) {
			err = errors.Join(err, removeCgroup(dir))
		}
		return err
	}
	at = CgroupRoot()
	for part := range strings.SplitSeq(name, "/") {
		at = filepath.Join(at, part)
		switch err := os.Mkdir(at, 0o755); {
		case err == nil:
			made = append(made, at)
		case !errors.Is(err, fs.ErrExist):
			return "", remove, err
		}
	}
	return at, remove, nil
}

// CgroupRoot is where the hierarchy of version 2 is mounted, also beside those of version 1.
func CgroupRoot() string {
	const mount = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return mount
	}
	return filepath.Join(mount, "unified")
}

// RemoveCgroups removes a cgroup and those below it, which have no process. One that is gone is no
// error: a hierarchy may have two names, such as cpu and cpu,cpuacct.
func RemoveCgroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, RemoveCgroups(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, syscall.Rmdir(dir))
}

func removeCgroup(dir string) error {
	killed := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	err := syscall.Rmdir(dir)
	for end := time.Now().Add(time.Minute); errors.Is(err, syscall.EBUSY) && time.Now().Before(end); err = syscall.Rmdir(dir) {
		time.Sleep(time.Millisecond) // a process that was killed leaves a moment later
	}
	if err != nil {
		err = fmt.Errorf("removing cgroup %s: %w", dir, err)
	}
	return errors.Join(killed, err)
}

// InCgroup is PutInCgroup for a test, with whose end the descriptor is closed.
func InCgroup(t testing.TB, dir string, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	done, err := PutInCgroup(dir, cmd)
	Check(t, err)
	t.Cleanup(done)
	return cmd
}

// PutInCgroup has a command start in a cgroup. done is to be called when it has started.
func PutInCgroup(dir string, cmd *exec.Cmd) (done func(), err error) {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening cgroup %s: %w", dir, err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	return func() { syscall.Close(fd) }, nil
}
