// Package freeze stops all processes of pods for a moment, and has them go on. It writes
// cgroup.freeze of the cgroups that kubelet made for the pods (cgroup v2,
// Documentation/admin-guide/cgroup-v2.rst), and nothing else.
//
// A process that ends leaves no pod frozen: which cgroups it freezes is in a file before they are,
// and Recover, which the unit runs when the process has ended (ExecStopPost=) and which the next
// process runs before all else, thaws them.
//
//	list written       Recover thaws what is not frozen
//	cgroups frozen     Recover thaws them
//	cgroups thawed     the same as the first
//	list removed       nothing is to be done
//
// A cgroup that was frozen before, by another program, is left frozen. The package does not decide
// which pods, nor for how long.
package freeze

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Hierarchy is where systemd mounts cgroups, each hierarchy in a directory of its own on a host
// that has version 1, alone or beside version 2.
const Hierarchy = "/sys/fs/cgroup"

// Cgroups are the cgroups of a host.
type Cgroups struct {
	Root string // where the hierarchy of version 2 is mounted, or where all are
	List string // file in which is what this process froze, in a directory that goes with a reboot
}

// Errors of Freeze, wrapped.
var (
	// ErrTime: not all processes stopped before the context ended. One that waits for its storage
	// does not.
	ErrTime = errors.New("did not stop in time")
	// ErrUnknown: a pod has no cgroup with a process in it.
	ErrUnknown = errors.New("has no process that could be stopped")
)

// Frozen are the cgroups that were frozen.
type Frozen struct {
	of   Cgroups
	dirs []string // relative to the root
}

// Freeze freezes the cgroups of all processes of these pods, which are named by their UIDs, and
// waits until no process runs. After an error none is frozen. Before all else it thaws what an
// earlier call could not: the list has room for one call's.
func (c Cgroups) Freeze(ctx context.Context, pods []string) (*Frozen, error) {
	if _, err := c.Recover(); err != nil {
		return nil, err
	}
	dirs, others, err := c.find(pods)
	if err != nil {
		return nil, err
	}
	f := &Frozen{of: c}
	for _, dir := range dirs {
		set, err := c.value(dir, "cgroup.freeze", "")
		if err != nil {
			return nil, err
		}
		if set == "0" {
			f.dirs = append(f.dirs, dir)
		}
	}
	if err := c.write(f.dirs); err != nil {
		return nil, err
	}
	for _, dir := range f.dirs {
		err = errors.Join(err, c.set(dir, "1"))
	}
	for _, dir := range dirs {
		if err == nil {
			err = c.await(ctx, dir)
		}
	}
	if err == nil {
		err = c.outside(ctx, dirs, others)
	}
	if err != nil {
		return nil, errors.Join(err, f.Thaw())
	}
	return f, nil
}

// Thaw has the processes go on.
func (f *Frozen) Thaw() error { return f.of.thaw(f.dirs) }

// Recover thaws what a process froze that ended without doing so. Nothing in the file is used that
// is no pod's cgroup.
func (c Cgroups) Recover() (thawed []string, err error) {
	text, err := os.ReadFile(c.List)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var dirs []string
	if err == nil {
		err = json.Unmarshal(text, &dirs)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, the list of paused pods: %w", c.List, err)
	}
	for _, dir := range dirs {
		if filepath.IsLocal(dir) && isPod(filepath.Base(dir)) {
			thawed = append(thawed, dir)
		}
	}
	return thawed, c.thaw(thawed)
}

// thaw tries each of them. The list stays if one of them could not be thawed.
func (c Cgroups) thaw(dirs []string) (err error) {
	for _, dir := range dirs {
		if wrong := c.set(dir, "0"); !errors.Is(wrong, fs.ErrNotExist) && !errors.Is(wrong, unix.ENODEV) { // its pod is gone
			err = errors.Join(err, wrong)
		}
	}
	if err != nil {
		return err
	}
	return os.Remove(c.List)
}

// write writes the list as a whole: what is read is never a part of it.
func (c Cgroups) write(dirs []string) error {
	text, err := json.Marshal(dirs)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.List+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(c.List+".new", c.List)
}

func (c Cgroups) set(dir, value string) error {
	file, err := os.OpenFile(filepath.Join(c.Root, dir, "cgroup.freeze"), os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}

// value is that of a key in a file of a cgroup, of a file without keys all of it.
func (c Cgroups) value(dir, file, key string) (string, error) {
	text, err := os.ReadFile(filepath.Join(c.Root, dir, file))
	if err != nil {
		return "", err
	}
	return valueOf(text, key), nil
}

func valueOf(text []byte, key string) string {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if value, found := bytes.CutPrefix(line, []byte(key+" ")); found {
			return string(value)
		}
		if key == "" {
			return string(line)
		}
	}
	return ""
}

// await waits until all processes in a cgroup stand still. The kernel wakes who polls
// cgroup.events.
func (c Cgroups) await(ctx context.Context, dir string) error {
	fd, err := unix.Open(filepath.Join(c.Root, dir, "cgroup.events"), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer unix.Close(fd)
	buffer := make([]byte, 256)
	for {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", dir, ErrTime)
		}
		n, err := unix.Pread(fd, buffer, 0)
		switch {
		case err == nil && valueOf(buffer[:n], "frozen") == "1":
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("%s: %w", dir, err)
		}
		// At most so long, as ctx may end meanwhile.
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, 10); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// deepest is how far below the root a pod's cgroup may be: kubelet.slice/kubelet-kubepods.slice/...
// of a kubelet in a container is one of the deeper ones.
const deepest = 10

// find returns the cgroups of pods that can be frozen, and the others that are theirs, relative to
// the root.
func (c Cgroups) find(pods []string) (found, others []string, err error) {
	if len(pods) == 0 {
		return nil, nil, nil
	}
	all, err := c.ofPods(".", 0)
	if err != nil {
		return nil, nil, err
	}
	for _, pod := range pods {
		has := false
		for _, dir := range all {
			if !isOf(filepath.Base(dir), pod) {
				continue
			}
			populated, err := c.value(dir, "cgroup.events", "populated")
			switch {
			case errors.Is(err, fs.ErrNotExist): // version 1
				others = append(others, dir)
			case err != nil:
				return nil, nil, err
			case populated == "1":
				found, has = append(found, dir), true
			}
		}
		if !has {
			return nil, nil, fmt.Errorf("pod %s %w", pod, ErrUnknown)
		}
	}
	return found, others, nil
}

// ofPods are the cgroups of all pods. What pods and users make in their own is not looked at.
func (c Cgroups) ofPods(dir string, depth int) (all []string, err error) {
	entries, err := os.ReadDir(filepath.Join(c.Root, dir))
	if errors.Is(err, fs.ErrNotExist) && depth > 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		switch {
		case !e.IsDir() || e.Name() == "user.slice":
		case isPod(e.Name()):
			all = append(all, at)
		case depth < deepest:
			below, err := c.ofPods(at, depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
		}
	}
	return all, nil
}

// isPod reports whether kubelet gives a pod's cgroup such a name: podUID, and with the driver
// systemd kubepods-burstable-podUID.slice (pkg/kubelet/cm, GetPodContainerName and ToSystemd).
func isPod(name string) bool {
	return strings.HasPrefix(name, "pod") || strings.Contains(name, "-pod") && strings.HasSuffix(name, ".slice")
}

// isOf reports whether the name of a pod's cgroup is that of a pod with this UID. systemd's has _
// for -.
func isOf(name, uid string) bool {
	slice, is := strings.CutSuffix(name, ".slice")
	if !is {
		return name == "pod"+uid
	}
	parts := strings.Split(slice, "-")
	return slices.Contains(parts[len(parts)-1:], "pod"+strings.ReplaceAll(uid, "-", "_"))
}
