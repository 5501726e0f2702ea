package nodes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

const (
	cgroupMount  = "/sys/fs/cgroup"
	cgroupPrefix = "hostpath-nodes-"
)

// cgroupName is the cgroup that all of a node's pods are in, in every hierarchy, as kubelet's
// cgroupRoot wants it.
func cgroupName(run, node string) string { return cgroupPrefix + run + "-" + node }

// hierarchies are the cgroup hierarchies that a kubelet uses: the one of version 2 if it has the
// controllers, else each of version 1.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "unified" { // others are links such as cpu -> cpu,cpuacct
			all = append(all, filepath.Join(cgroupMount, e.Name()))
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no cgroup hierarchy is mounted below %s", cgroupMount)
	}
	return all, nil
}

// makeCgroup makes the cgroup in each hierarchy. In version 1 a new cpuset has no processor and
// takes no process, until it has its parent's (cpuset(7)).
func makeCgroup(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, hierarchy := range all {
		dir := filepath.Join(hierarchy, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := hosttest.InheritCPUs(hierarchy, dir); err != nil {
			return err
		}
	}
	return nil
}

// sweepCgroups removes the cgroups of this run, and those of runs that have ended.
func sweepCgroups(own int) error {
	var errs []error
	// Version 2's mount, or each of version 1's; runc makes them also where no controller is.
	for _, hierarchy := range []string{cgroupMount, cgroupMount + "/*"} {
		found, err := filepath.Glob(filepath.Join(hierarchy, cgroupPrefix+"*"))
		errs = append(errs, err)
		for _, dir := range found {
			if mayRemove(filepath.Base(dir), own, alive) {
				errs = append(errs, hosttest.RemoveCgroups(dir))
			}
		}
	}
	return errors.Join(errs...)
}

// mayRemove reports whether the cgroup is of a run that has ended, or of our own.
func mayRemove(name string, own int, alive func(pid int) bool) bool {
	rest, ours := strings.CutPrefix(name, cgroupPrefix)
	run, _, complete := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(run)
	return ours && complete && err == nil && pid > 0 && (pid == own || !alive(pid))
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
