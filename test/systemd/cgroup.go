package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

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
		dir := filepath.Join(hierarchy, "hostpath-systemd-"+strconv.Itoa(os.Getpid()))
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
			if err = removeCgroups(top); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return err
}

// removeCgroups removes a tree of cgroups, from its leaves.
func removeCgroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeCgroups(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, syscall.Rmdir(dir))
}
