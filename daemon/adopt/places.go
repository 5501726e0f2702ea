package adopt

import (
	"context"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// seen is a volume of a CSI driver whose directories are known as what it is on this host, and any
// other as it is.
func (o Options) seen(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	if adoptrules.OfDriver(v, o.Driver) || adoptrules.OfDriver(v, plan.KubevirtCSI) {
		return adoptrules.OfHost(v, o.Pool)
	}
	return v
}

// served is a volume of a CSI driver that this node's own service is as what it is on this host,
// and any other as it is. A handle that begins with "csi" is one of an inline volume.
func (o Options) served(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	if v.Spec.CSI == nil || !slices.Contains(o.Served, v.Spec.CSI.Driver) || v.Spec.CSI.VolumeHandle != v.Name || strings.HasPrefix(v.Name, "csi") {
		return v
	}
	return adoptrules.OfHost(v, o.Pool)
}

// has reports whether the pool has the directory of a CSI driver's volume, of which only that tells
// where its data is. Of others the path does.
func (o Options) has(ctx context.Context, v *corev1.PersistentVolume) bool {
	if v.Spec.CSI == nil {
		return true
	}
	directory := adoptrules.DirectoryOf(o.Pool, adoptrules.OfHost(v, o.Pool))
	return directory != "" && o.Store.Usable(ctx, o.Identity, directory) == nil
}

// entries are the entries of the pool in which a volume's data lies: by its path as it is written,
// and by what that path means on the filesystem, which a bind mount may show elsewhere. Paths are
// compared with the table of mounts; none is opened.
func (o Options) entries(v *corev1.PersistentVolume) []string {
	v = o.seen(v)
	var all []string
	written := adoptrules.EntryOf(o.Pool, v)
	if written != "" {
		all = append(all, written)
	}
	at := path.Clean(plan.PathOf(v))
	if !path.IsAbs(at) {
		return all
	}
	pool, known := mounts.Locate(o.Mounts, o.Pool.Path)
	there, has := mounts.Locate(o.Mounts, at)
	if !known || !has || there == pool || !there.In(pool) {
		return all
	}
	entry, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(there.Path, pool.Path), "/"), "/")
	if entry != written {
		all = append(all, entry)
	}
	return all
}

// shown is where else a directory of the pool, or a part of it, is mounted. What shows more than
// the directory, the whole filesystem for instance, is no sign that this one is used there, nor is
// a mount point that is told to be usual.
func (o Options) shown(directory string, usual func(point string) bool) string {
	here, known := mounts.Locate(o.Mounts, o.Pool.Path+"/"+directory)
	if !known {
		return ""
	}
	i := slices.IndexFunc(o.Mounts, func(m mounts.Mount) bool {
		return mounts.Location{Major: m.Major, Minor: m.Minor, Path: m.Root}.In(here) && !usual(m.Point)
	})
	if i < 0 {
		return ""
	}
	return o.Mounts[i].Point
}

// kubelets: kubelet mounts volumes of source local, and parts of any volume (subPath), where the
// volume's own pods have them (pkg/volume/local, pkg/volume/util/subpath).
func kubelets(point string) bool {
	_, pod, found := strings.Cut(point, "/pods/")
	return found && (strings.Contains(pod, "/volumes/kubernetes.io~") || strings.Contains(pod, "/volume-subpaths/"))
}
