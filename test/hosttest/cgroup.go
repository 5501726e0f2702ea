package hosttest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
