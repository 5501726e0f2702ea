package target

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Errors, wrapped. Those of the kernel are wrapped as well.
var (
	// ErrForm: the path is none that kubelet gives to a CSI driver.
	ErrForm = errors.New("not a target path of kubelet's")
	// ErrAbsent: a directory that kubelet makes above the target is not there.
	ErrAbsent = errors.New("the pod's directory is not there")
	// ErrOccupied: something else is mounted on the target.
	ErrOccupied = errors.New("something else is mounted there")
	// ErrChanged: what the volume lies on was unmounted, or covered, while it was being mounted for
	// the pod.
	ErrChanged = errors.New("its storage was unmounted or covered meanwhile")
	// ErrContent: the target's own directory, beneath what is mounted on it, is not empty.
	ErrContent = errors.New("the directory itself has files, which are not the volume's; move them")
	// ErrInUse: the volume is mounted for another pod, and may be for one alone.
	ErrInUse = errors.New("the volume is mounted for another pod")
)

// Root is kubelet's root directory. Links in its path are followed: they are the administrator's.
type Root string

const (
	pods    = "pods"
	volumes = "volumes/kubernetes.io~csi"
)

// Target is an open directory above a target. Close ends it.
type Target struct {
	parent int
	name   string
	at     string // of the target, without links, as the mount table has it
	pods   string // of the directory of all pods, in the same way
}

// Open opens the directory above a target.
func (r Root) Open(target string) (*Target, error) {
	above, name, err := r.parse(target)
	if err != nil {
		return nil, err
	}
	all, err := r.openPods()
	if err != nil {
		return nil, absent(err)
	}
	defer unix.Close(all)
	parent, err := openat.Open(all, above, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, openat.Beneath)
	if err != nil {
		return nil, absent(fmt.Errorf("opening %q: %w", above, err))
	}
	t := &Target{parent: parent, name: name}
	at, err := pathOf(parent)
	if err == nil {
		t.pods, err = pathOf(all)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	t.at = path.Join(at, name)
	return t, nil
}

// parse cuts a target into the path of the directory above it, from the directory of all pods on,
// and its name.
func (r Root) parse(target string) (above, name string, err error) {
	rest, below := strings.CutPrefix(target, path.Join(string(r), pods)+"/")
	parts := strings.Split(rest, "/")
	switch {
	case !below || path.Clean(target) != target || strings.ContainsRune(target, 0):
		return "", "", fmt.Errorf("%q: %w: it is not below %s/%s", target, ErrForm, r, pods)
	case len(parts) != 5 || path.Join(parts[1], parts[2]) != volumes:
		return "", "", fmt.Errorf("%q: %w: want %s/%s/POD/%s/VOLUME/NAME", target, ErrForm, r, pods, volumes)
	}
	return path.Dir(rest), parts[4], nil
}

// openPods opens the directory of all pods, which may be a mount.
func (r Root) openPods() (int, error) {
	root, err := openat.Open(unix.AT_FDCWD, string(r), unix.O_PATH|unix.O_DIRECTORY, 0, 0)
	if err != nil {
		return -1, fmt.Errorf("opening %q: %w", string(r), err)
	}
	defer unix.Close(root)
	fd, err := openat.Open(root, pods, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return -1, fmt.Errorf("opening %q: %w", path.Join(string(r), pods), err)
	}
	return fd, nil
}

func absent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	return err
}

// pathOf is where an open directory is, by the kernel.
func pathOf(fd int) (string, error) {
	name, err := readlink(fmt.Sprintf("/proc/thread-self/fd/%d", fd))
	if err != nil {
		return "", fmt.Errorf("path of a descriptor: %w", err)
	}
	return name, nil
}

func readlink(name string) (string, error) {
	buffer := make([]byte, unix.PathMax)
	var n int
	err := openat.Retry(func() (err error) { n, err = unix.Readlink(name, buffer); return err })
	return string(buffer[:max(n, 0)]), err
}

// Close closes the directory.
func (t *Target) Close() { unix.Close(t.parent) }

// Pod is the UID of the pod whose the target is.
func (t *Target) Pod() string {
	uid, _, _ := strings.Cut(strings.TrimPrefix(t.at, t.pods+"/"), "/")
	return uid
}

// Mounted returns what is mounted on the target, by the mount table; ok is false if nothing is. No
// filesystem is touched.
func (t *Target) Mounted() (m mounts.Mount, ok bool, err error) {
	table, err := mounts.Read()
	if err != nil {
		return m, false, err
	}
	m, ok = on(table, t.at)
	return m, ok, nil
}

// on is the topmost mount at a point.
func on(table []mounts.Mount, point string) (mounts.Mount, bool) {
	stack, _, ok := mounts.At(table, point)
	if !ok {
		return mounts.Mount{}, false
	}
	return stack[len(stack)-1], true
}

// others returns where else than on the target this directory is mounted for a pod.
func (t *Target) others(table []mounts.Mount, source mounts.Location) string {
	i := slices.IndexFunc(table, func(m mounts.Mount) bool {
		_, pod := podOf(m, t.pods)
		return pod && m.Point != t.at && m.Locate(m.Point) == source
	})
	if i < 0 {
		return ""
	}
	return table[i].Point
}

// podOf is the UID of the pod that a CSI volume is mounted for, by the mount point.
func podOf(m mounts.Mount, pods string) (uid string, ok bool) {
	rest, below := strings.CutPrefix(m.Point, pods+"/")
	parts := strings.Split(rest, "/")
	return parts[0], below && len(parts) == 5 && path.Join(parts[1], parts[2]) == volumes
}

// Writers returns the UIDs of the pods for which an open directory is mounted, and not read-only.
func (r Root) Writers(dir int) (uids []string, err error) {
	table, err := mounts.Read()
	if err != nil {
		return nil, err
	}
	source, err := locate(table, dir)
	if err != nil {
		return nil, err
	}
	all, err := r.openPods()
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(all)
	at, err := pathOf(all)
	if err != nil {
		return nil, err
	}
	for _, m := range table {
		uid, pod := podOf(m, at)
		own := m
		own.SuperOptions = ""
		if pod && m.Locate(m.Point) == source && !own.ReadOnly() && !slices.Contains(uids, uid) {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}
