package hostcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// rule finds one thing wrong. It is total: about what was not seen it says nothing, and it does not
// count on another rule having spoken.
type rule func(v view) (Finding, bool)

// rules is the specification of a good pool, the most telling reason first. First the mount, because
// nothing that is seen without it is the pool's; then the path; then what the filesystem says.
var rules = []rule{
	mountTableUnreadable,
	onMountPoint(missing), onMountPoint(notADirectory), onMountPoint(symlinkInPath), onMountPoint(unreadable),
	notAutomounted, notMounted, rootFilesystem, mountedOnItself,
	rootSquashed,
	onPath(missing), onPath(notADirectory), onPath(symlinkInPath), onPath(unreadable),
	wrongMount, mountsChanging, wrongFilesystem, deviceMissing, deviceNotUnique, wrongDevice, networkFilesystem, readOnly,
	notAnswering, failing,
	notImmutable, immutableUnknown, lookNotPermitted, lookFailed,
	notPrepared, markerMissing, markerDamaged, markerChanged, markerForeign, otherNode, otherCluster,
	writableByOthers, poolsOverlap, unknownType,
	lowSpace, lowInodes,
	modeTooOpen, plainDirectory, wrongLabel,
}

func mountTableUnreadable(v view) (Finding, bool) {
	return when(v.facts.MountError != "", Close, ReasonMountTableUnreadable, "%s", v.facts.MountError)
}

// entryRule judges a path and what was found there.
type entryRule func(path string, e Entry) (Finding, bool)

func onMountPoint(r entryRule) rule {
	return func(v view) (Finding, bool) {
		if !v.want.RequireMount {
			return Finding{}, false
		}
		return r(v.want.MountPoint, v.facts.MountPoint)
	}
}

// onPath judges the pool's path, unless that is the mount point and the same was found of it already. The
// two are opened one after the other, and the second can be refused where the first was not.
func onPath(r entryRule) rule {
	return func(v view) (Finding, bool) {
		if v.want.RequireMount && v.want.Path == v.want.MountPoint {
			if _, said := r(v.want.MountPoint, v.facts.MountPoint); said {
				return Finding{}, false
			}
		}
		return r(v.want.Path, v.facts.Path)
	}
}

func missing(path string, e Entry) (Finding, bool) {
	return when(e.Kind == Missing, Close, ReasonPathMissing, "%s does not exist", path)
}

func notADirectory(path string, e Entry) (Finding, bool) {
	return when(e.Kind == NotDir, Close, ReasonNotADirectory, "%s is not a directory", path)
}

func symlinkInPath(path string, e Entry) (Finding, bool) {
	return when(e.Kind == Symlink, Close, ReasonSymlinkInPath, "%s goes through a symbolic link", path)
}

func unreadable(path string, e Entry) (Finding, bool) {
	return when(e.Kind == Failing, Close, ReasonPathUnreadable, "%s: %s", path, e.Error)
}

// notAutomounted: an automount point whose filesystem has not come. What is seen there is the automounter's
// own empty directory, never the pool.
func notAutomounted(v view) (Finding, bool) {
	return when(v.waits && v.facts.Automount.Error != "", Close, ReasonNotAutomounted,
		"%s is an automount point, and nothing is mounted there: %s", described(v.on), v.facts.Automount.Error)
}

func notMounted(v view) (Finding, bool) {
	there := v.facts.MountPoint.Kind == Directory || v.facts.MountPoint.Kind == Unseen
	tableSeen := len(v.facts.Mounts) > 0 || v.facts.MountError == "" && v.facts.Unanswered == ""
	return when(v.want.RequireMount && tableSeen && there && !v.mounted && !v.waits, Close, ReasonNotMounted,
		"%s is not a mount point: it lies on %s", v.want.MountPoint, described(v.on))
}

// rootFilesystem is also what a service sees whose unit binds an unmounted mount point onto itself
// (systemd's ReadWritePaths=): it looks mounted, and it is the host's own disk.
func rootFilesystem(v view) (Finding, bool) {
	same := v.root.Point != "" && v.root.Major == v.on.Major && v.root.Minor == v.on.Minor
	return when(v.want.RequireMount && v.mounted && same, Close, ReasonRootFilesystem,
		"%s is the host's root filesystem (%s, %s)", v.want.MountPoint, v.on.FSType, v.on.Source)
}

// mountedOnItself is the same on any other filesystem, or over the live mount: then an unmount on
// the host would go unseen, because this mount stays.
func mountedOnItself(v view) (Finding, bool) {
	n := len(v.stack)
	twice := n > 1 && v.stack[n-1].Major == v.stack[n-2].Major && v.stack[n-1].Minor == v.stack[n-2].Minor &&
		v.stack[n-1].Root == v.stack[n-2].Root
	under, top := v.facts.Under.Identity, v.facts.MountPoint.Identity
	same := top.Inode != 0 && under.Inode == top.Inode && under.DevMajor == top.DevMajor && under.DevMinor == top.DevMinor
	return when(v.want.RequireMount && v.mounted && (twice || same), Close, ReasonMountedOnItself,
		"%s is mounted over itself, so that an unmount would not be seen", v.want.MountPoint)
}

// squashing are the filesystems whose servers can take a host's root for another user: root_squash of
// exports(5), of the capabilities of CephFS clients, server.root-squash of Gluster volumes.
var squashing = []string{"nfs", "nfs4", "ceph", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs"}

func (v view) squashed() bool {
	return v.placed && v.facts.Refused && slices.Contains(squashing, v.on.FSType)
}

func rootSquashed(v view) (Finding, bool) {
	said := v.facts.Failed
	if said == "" {
		said = v.want.Path + ": " + v.facts.Path.Error
	}
	return when(v.squashed(), Close, ReasonRootSquashed,
		"the file server of %s does not let this host's root in (root_squash): %s", v.on.Point, said)
}

func wrongMount(v view) (Finding, bool) {
	bad := v.want.RequireMount && v.mounted && v.pathOn.ID != v.on.ID
	if !bad && v.facts.Path.Kind == OtherMount {
		return when(true, Close, ReasonWrongMount, "%s does not lie on %s: another mount is between them", v.want.Path, described(v.on))
	}
	return when(bad, Close, ReasonWrongMount, "%s lies on %s, not on %s", v.want.Path, described(v.pathOn), described(v.on))
}

// mountsChanging compares what was opened with what the table says: two looks at two moments.
func mountsChanging(v view) (Finding, bool) {
	other := func(e Entry) bool { return e.Kind == Directory && e.MountID != v.on.ID }
	return when(v.placed && (v.want.RequireMount && other(v.facts.MountPoint) || other(v.facts.Path)), Close, ReasonMountsChanging,
		"the mounts at %s changed during the check", v.want.Path)
}

func wrongFilesystem(v view) (Finding, bool) {
	return when(v.placed && v.want.Filesystem != "" && v.on.FSType != v.want.Filesystem, Close, ReasonWrongFilesystem,
		"the filesystem of %s is %s, not %s", v.on.Point, v.on.FSType, v.want.Filesystem)
}

func deviceMissing(v view) (Finding, bool) {
	d := v.facts.Device
	return when(v.placed && d.Path != "" && d.UUID == "" && d.Expected == "", Close, ReasonDeviceMissing,
		"this host has no device %s (%s)", v.want.Device, d.Path)
}

func wrongDevice(v view) (Finding, bool) {
	return when(v.placed && deviceDiffers(v), Close, ReasonWrongDevice,
		"%s is a mount of %s, not of %s", v.on.Point, v.on.Source, v.want.Device)
}

// deviceNotUnique: which of them is mounted cannot be told, nor which will be after the next boot.
func deviceNotUnique(v view) (Finding, bool) {
	t := v.facts.Device.Twins
	return when(v.placed && len(t) > 1, Close, ReasonDeviceNotUnique,
		"several devices of this host are %s: %s", v.want.Device, strings.Join(t, ", "))
}

// deviceDiffers asks the filesystem itself for its UUID, where it can tell; else it compares device
// numbers: of the mount, and of the node that the mount names, because btrfs has a number of its own; a
// btrfs on several devices is as good by any of them.
func deviceDiffers(v view) bool {
	d, want := v.facts.Device, v.want.Device
	uuid, byUUID := strings.CutPrefix(tagged(want), "UUID=")
	switch {
	case want == "":
		return false
	case byUUID && d.UUID != "":
		return !strings.EqualFold(uuid, d.UUID)
	case deviceNode(want) == "":
		return strings.TrimRight(v.on.Source, "/") != strings.TrimRight(want, "/")
	case d.Expected == "":
		return false // deviceMissing speaks
	}
	return d.Expected != number(v.on.Major, v.on.Minor) && d.Expected != d.Source && !slices.Contains(d.Members, d.Expected)
}

func number(major, minor uint32) string { return fmt.Sprintf("%d:%d", major, minor) }

func readOnly(v view) (Finding, bool) {
	return when(v.placed && (v.on.ReadOnly() || v.facts.Space.ReadOnly), Close, ReasonReadOnly, "%s is read-only", described(v.on))
}

func notAnswering(v view) (Finding, bool) {
	return when(v.facts.Unanswered != "", Close, ReasonNotAnswering, "%s: no response for %s", v.facts.Unanswered, roughly(v.facts.Waited))
}

// roughly keeps a message from changing with every look.
func roughly(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(10 * time.Second)
}

func failing(v view) (Finding, bool) {
	return when(v.facts.Failed != "" && !v.squashed(), Close, ReasonUnreadable, "%s", v.facts.Failed)
}
