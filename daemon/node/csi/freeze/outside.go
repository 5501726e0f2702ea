package freeze

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrOutside: a process of a pod is not in the cgroup of version 2 that was frozen, and goes on.
// Only a host that has cgroups of version 1 as well can have one: which of them a process is in, of
// each hierarchy, is what its container runtime did.
var ErrOutside = errors.New("has a process that cannot be stopped: it is in a cgroup of version 1 alone")

const (
	// looks is how often is looked for processes outside: one that begins may be on its way into
	// its cgroups.
	looks = 10
	// lookAgain is when.
	lookAgain = 5 * time.Millisecond
)

// outside returns an error if a process in one of the other cgroups of the pods, those of version
// 1, is in none that is frozen. It asks the kernel who is in a cgroup, and not /proc of each
// process: that takes no right over other processes, shows them with hidepid= too, and takes as
// long as the pods have processes, not the host. Processes in frozen cgroups start no others.
func (c Cgroups) outside(ctx context.Context, frozen, others []string) error {
	if len(others) == 0 {
		return nil
	}
	for look := 0; ; look++ {
		dir, pid, err := c.stray(frozen, others)
		if err != nil || pid == 0 {
			return err
		}
		if look == looks || ctx.Err() != nil {
			return fmt.Errorf("%s: the pod %w (%d)", dir, ErrOutside, pid)
		}
		time.Sleep(lookAgain)
	}
}

// stray returns a process that is in one of the other cgroups and in no frozen one, and where it
// is; 0 if there is none.
func (c Cgroups) stray(frozen, others []string) (dir string, pid int, err error) {
	in := map[int]string{}
	for _, dir := range others {
		if err := c.processes(dir, func(pid int) { in[pid] = dir }); err != nil {
			return "", 0, err
		}
	}
	for _, dir := range frozen { // afterwards: who began meanwhile is in both or in neither
		if err := c.processes(dir, func(pid int) { delete(in, pid) }); err != nil {
			return "", 0, err
		}
	}
	for pid, dir := range in {
		return dir, pid, nil
	}
	return "", 0, nil
}

// processes calls found with each process in a cgroup, and in those below it. What is removed
// meanwhile has none.
func (c Cgroups) processes(dir string, found func(pid int)) error {
	return filepath.WalkDir(filepath.Join(c.Root, dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			return nil
		}
		var text []byte
		if err == nil {
			text, err = os.ReadFile(filepath.Join(path, "cgroup.procs"))
		}
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
			return nil
		case errors.Is(err, unix.EOPNOTSUPP): // of threads, whose processes are in one above
			return nil
		case err != nil:
			return err
		}
		for line := range strings.Lines(string(text)) {
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			found(pid)
		}
		return nil
	})
}
