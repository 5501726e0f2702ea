package inline

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Host is where pods have their volumes.
type Host struct {
	Kubelet string // its root directory
}

// Mounted reports whether a directory, by its absolute path without links, is mounted elsewhere.
// Nothing but the mount table is looked at.
func (Host) Mounted(directory string) (bool, error) {
	table, err := mounts.Read()
	if err != nil {
		return true, err
	}
	at, known := mounts.Locate(table, directory)
	if !known {
		return true, fmt.Errorf("%q: nothing is mounted above it", directory)
	}
	for _, m := range table {
		if m.Point != directory && m.Locate(m.Point).In(at) { // also a part of it (subPath)
			return true, nil
		}
	}
	return false, nil
}

// Pod reports whether kubelet has a directory of the pod with this UID. It makes one before it has
// volumes mounted, and removes it when they are unmounted (pkg/kubelet, cleanupOrphanedPodDirs).
// That it has not is only known while its directory of all pods is there.
func (h Host) Pod(uid string) (bool, error) {
	if uid == "" || uid == "." || uid == ".." || strings.ContainsAny(uid, "/\x00") {
		return true, fmt.Errorf("%q is no pod's UID", uid)
	}
	pods := path.Join(h.Kubelet, "pods")
	if there, err := exists(pods); err != nil || !there {
		return true, errors.Join(err, fmt.Errorf("%q: kubelet's directory of pods is not there", pods))
	}
	there, err := exists(path.Join(pods, uid))
	return there || err != nil, err
}

func exists(at string) (bool, error) {
	var st unix.Stat_t
	err := openat.Retry(func() error { return unix.Lstat(at, &st) })
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("looking at %q: %w", at, err)
	}
	return true, nil
}
