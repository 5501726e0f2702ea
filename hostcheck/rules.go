package hostcheck

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// rule is one thing that can be wrong with a pool.
type rule struct {
	when     condition
	severity Severity
	reason   string
	sentence string // which the operator reads, with the nouns of the condition
}

// condition reports whether something is wrong, with the nouns that the rule's sentence names. It
// is total: about what was not seen it says nothing, and it does not count on the condition of
// another rule.
type condition func(v view) (bad bool, nouns []any)

func about(nouns ...any) []any { return nouns }

// rules is the specification of a good pool, the most telling reason first. First the mount,
// because nothing that is seen without it is the pool's; then the path; then what the filesystem
// says.
var rules = []rule{
	{mountTableUnreadable, Close, ReasonMountTableUnreadable, "%s"},
	{onMountPoint(missing), Close, ReasonPathMissing, "%s does not exist"},
	{onMountPoint(notADirectory), Close, ReasonNotADirectory, "%s is not a directory"},
	{onMountPoint(symlinkInPath), Close, ReasonSymlinkInPath, "%s goes through a symbolic link"},
	{onMountPoint(unreadable), Close, ReasonPathUnreadable, "%s: %s"},
	{notAutomounted, Close, ReasonNotAutomounted, "%s is an automount point, and nothing is mounted there: %s"},
	{notMounted, Close, ReasonNotMounted, "%s is not a mount point: it lies on %s"},
	{rootFilesystem, Close, ReasonRootFilesystem, "%s is the host's root filesystem (%s, %s)"},
	{mountedOnItself, Close, ReasonMountedOnItself, "%s is mounted over itself, so that an unmount would not be seen"},
	{rootSquashed, Close, ReasonRootSquashed, "the file server of %s does not let this host's root in (root_squash): %s"},
	{onPath(missing), Close, ReasonPathMissing, "%s does not exist"},
	{onPath(notADirectory), Close, ReasonNotADirectory, "%s is not a directory"},
	{onPath(symlinkInPath), Close, ReasonSymlinkInPath, "%s goes through a symbolic link"},
	{onPath(unreadable), Close, ReasonPathUnreadable, "%s: %s"},
	{wrongMount, Close, ReasonWrongMount, "%s lies on %s, not on %s"},
	{mountBetween, Close, ReasonWrongMount, "%s does not lie on %s: another mount is between them"},
	{mountsChanging, Close, ReasonMountsChanging, "the mounts at %s changed during the check"},
	{wrongFilesystem, Close, ReasonWrongFilesystem, "the filesystem of %s is %s, not %s"},
	{deviceMissing, Close, ReasonDeviceMissing, "this host has no device %s (%s)"},
	{deviceNotUnique, Close, ReasonDeviceNotUnique, "several devices of this host are %s: %s"},
	{wrongDevice, Close, ReasonWrongDevice, "%s is a mount of %s, not of %s"},
	{networkFilesystem, Close, ReasonNetworkFilesystem, "%s can be mounted on other nodes, too, and the pool has scope node"},
	{readOnly, Close, ReasonReadOnly, "%s is read-only"},
	{notAnswering, Close, ReasonNotAnswering, "%s: no response for %s"},
	{failing, Close, ReasonUnreadable, "%s"},
	{notImmutable, asImmutable, ReasonNotImmutable, "%s is not immutable"},
	{immutableUnknown, asImmutable, ReasonImmutableUnknown, "%s is on a filesystem that cannot tell whether it is immutable"},
	{lookNotPermitted, asImmutable, ReasonLookNotPermitted, "%s cannot be seen: %s"},
	{lookFailed, asImmutable, ReasonLookFailed, "%s cannot be seen: %s"},
	{notPrepared, Close, ReasonNotPrepared, "%s was never prepared as a pool: it has no %s"},
	{markerMissing, Close, ReasonMarkerMissing, "%s has no %s, but this pool had marker %s: another filesystem is in its place"},
	{markerDamaged, Close, ReasonMarkerDamaged, "%s/%s: %s"},
	{markerChanged, Close, ReasonMarkerChanged, "%s has marker %s, but this pool had %s: another filesystem is in its place"},
	{markerForeign, Close, ReasonMarkerForeign, "%s was prepared as pool %q, not %q"},
	{otherNode, Close, ReasonOtherNode, "%s is a pool of node %q, and this node's name is %q"},
	{otherCluster, Close, ReasonOtherCluster, "%s is a pool of the cluster with the UID %s, and the kubeconfig leads to the cluster with the UID %s"},
	{writableByOthers, Close, ReasonWritableByOthers, "%s has mode %04o, so that other users of this host can put other directories in the places of volumes"},
	{poolsOverlap, Close, ReasonPoolsOverlap, "%s and pool %q (%s) share directories of one filesystem by a bind mount"},
	{unknownType, Close, ReasonUnknownType, "the SELinux policy of this host has no type %s, which volumes of this pool are to have"},
	{quotaUnsupported, Close, ReasonQuotaUnavailable, "%s has no project quotas, by which volumes are to be limited: only ext4 and xfs have"},
	{quotaUnknown, Close, ReasonQuotaUnknown, "whether %s keeps volumes to their limits cannot be seen: %s"},
	{quotaOff, Close, ReasonQuotaUnavailable, "%s does not keep volumes to their limits: %s"},
	{projectInherited, Close, ReasonProjectInherited, "%s hands project %d down to what is made in it, so that no volume can have a project of its own: clear that with: chattr -P -p 0 %s"},
	{noSubvolumes, Close, ReasonNoSubvolumes, "%s has no subvolumes, which snapshots need: only btrfs has them"},
	{lowSpace, Full, ReasonLowSpace, "%s of %s are available, less than the reserve of %s"},
	{lowInodes, Full, ReasonLowInodes, "%d of %d inodes are free, less than %d"},
	{modeTooOpen, Warn, ReasonModeTooOpen, "%s has mode %04o, which lets other users of this host into it"},
	{plainDirectory, Warn, ReasonPlainDirectory, "%s is a plain directory on %s: it cannot be told from the host's own disk"},
	{wrongLabel, Warn, ReasonWrongLabel, "%s has %s, not type %s"},
}

// asImmutable is the severity that the pool's key for the immutable flag wants (view.immutable).
const asImmutable Severity = -1

func (r rule) find(v view) (Finding, bool) {
	bad, nouns := r.when(v)
	if !bad {
		return Finding{}, false
	}
	severity := r.severity
	if severity == asImmutable {
		severity = v.immutable()
	}
	return Finding{Reason: r.reason, Severity: severity, Message: fmt.Sprintf(r.sentence, nouns...)}, true
}

func mountTableUnreadable(v view) (bool, []any) {
	return v.facts.MountError != "", about(v.facts.MountError)
}

// entryCondition judges a path and what was found there.
type entryCondition func(path string, e Entry) (bad bool, nouns []any)

func onMountPoint(c entryCondition) condition {
	return func(v view) (bool, []any) {
		if !v.want.RequireMount {
			return false, nil
		}
		return c(v.want.MountPoint, v.facts.MountPoint)
	}
}

// onPath judges the pool's path, unless that is the mount point and the same was found of it
// already. The two are opened one after the other, and the second can be refused where the first
// was not.
func onPath(c entryCondition) condition {
	return func(v view) (bool, []any) {
		if v.want.RequireMount && v.want.Path == v.want.MountPoint {
			if said, _ := c(v.want.MountPoint, v.facts.MountPoint); said {
				return false, nil
			}
		}
		return c(v.want.Path, v.facts.Path)
	}
}

func missing(path string, e Entry) (bool, []any) {
	return e.Kind == Missing, about(path)
}

func notADirectory(path string, e Entry) (bool, []any) {
	return e.Kind == NotDir, about(path)
}

func symlinkInPath(path string, e Entry) (bool, []any) {
	return e.Kind == Symlink, about(path)
}

func unreadable(path string, e Entry) (bool, []any) {
	return e.Kind == Failing, about(path, e.Error)
}

// notAutomounted: an automount point whose filesystem has not come. What is seen there is the
// automounter's own empty directory, never the pool.
func notAutomounted(v view) (bool, []any) {
	return v.waits && v.facts.Automount.Error != "", about(described(v.on), v.facts.Automount.Error)
}

func notMounted(v view) (bool, []any) {
	there := v.facts.MountPoint.Kind == Directory || v.facts.MountPoint.Kind == Unseen
	tableSeen := len(v.facts.Mounts) > 0 || v.facts.MountError == "" && v.facts.Unanswered == ""
	return v.want.RequireMount && tableSeen && there && !v.mounted && !v.waits, about(v.want.MountPoint, described(v.on))
}

// rootFilesystem is also what a service sees whose unit binds an unmounted mount point onto itself
// (systemd's ReadWritePaths=): it looks mounted, and it is the host's own disk.
func rootFilesystem(v view) (bool, []any) {
	same := v.root.Point != "" && v.root.Major == v.on.Major && v.root.Minor == v.on.Minor
	return v.want.RequireMount && v.mounted && same, about(v.want.MountPoint, v.on.FSType, v.on.Source)
}

// mountedOnItself is the same on any other filesystem, or over the live mount: then an unmount on
// the host would go unseen, because this mount stays.
func mountedOnItself(v view) (bool, []any) {
	n := len(v.stack)
	twice := n > 1 && v.stack[n-1].Major == v.stack[n-2].Major && v.stack[n-1].Minor == v.stack[n-2].Minor &&
		v.stack[n-1].Root == v.stack[n-2].Root
	under, top := v.facts.Under.Identity, v.facts.MountPoint.Identity
	same := top.Inode != 0 && under.Inode == top.Inode && under.DevMajor == top.DevMajor && under.DevMinor == top.DevMinor
	return v.want.RequireMount && v.mounted && (twice || same), about(v.want.MountPoint)
}

// squashing are the filesystems whose servers can take a host's root for another user: root_squash
// of exports(5), of the capabilities of CephFS clients, server.root-squash of Gluster volumes.
var squashing = []string{"nfs", "nfs4", "ceph", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs"}

func (v view) squashed() bool {
	return v.placed && v.facts.Refused && slices.Contains(squashing, v.on.FSType)
}

func rootSquashed(v view) (bool, []any) {
	said := v.facts.Failed
	if said == "" {
		said = v.want.Path + ": " + v.facts.Path.Error
	}
	return v.squashed(), about(v.on.Point, said)
}

func wrongMount(v view) (bool, []any) {
	return v.want.RequireMount && v.mounted && v.pathOn.ID != v.on.ID, about(v.want.Path, described(v.pathOn), described(v.on))
}

// mountBetween is the same at the moment of opening, when the table that was read does not show it.
func mountBetween(v view) (bool, []any) {
	shown, _ := wrongMount(v)
	return !shown && v.facts.Path.Kind == OtherMount, about(v.want.Path, described(v.on))
}

// mountsChanging compares what was opened with what the table says: two looks at two moments.
func mountsChanging(v view) (bool, []any) {
	other := func(e Entry) bool { return e.Kind == Directory && e.MountID != v.on.ID }
	return v.placed && (v.want.RequireMount && other(v.facts.MountPoint) || other(v.facts.Path)), about(v.want.Path)
}

func wrongFilesystem(v view) (bool, []any) {
	return v.placed && v.want.Filesystem != "" && v.on.FSType != v.want.Filesystem, about(v.on.Point, v.on.FSType, v.want.Filesystem)
}

func deviceMissing(v view) (bool, []any) {
	d := v.facts.Device
	return v.placed && d.Path != "" && d.UUID == "" && d.Expected == "", about(v.want.Device, d.Path)
}

func wrongDevice(v view) (bool, []any) {
	return v.placed && deviceDiffers(v), about(v.on.Point, v.on.Source, v.want.Device)
}

// deviceNotUnique: which of them is mounted cannot be told, nor which will be after the next boot.
func deviceNotUnique(v view) (bool, []any) {
	t := v.facts.Device.Twins
	return v.placed && len(t) > 1, about(v.want.Device, strings.Join(t, ", "))
}

// deviceDiffers asks the filesystem itself for its UUID, where it can tell; else it compares device
// numbers: of the mount, and of the node that the mount names, because btrfs has a number of its
// own; a btrfs on several devices is as good by any of them.
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

func readOnly(v view) (bool, []any) {
	return v.placed && (v.on.ReadOnly() || v.facts.Space.ReadOnly), about(described(v.on))
}

func notAnswering(v view) (bool, []any) {
	return v.facts.Unanswered != "", about(v.facts.Unanswered, roughly(v.facts.Waited))
}

// roughly keeps a message from changing with every look.
func roughly(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(10 * time.Second)
}

func failing(v view) (bool, []any) {
	return v.facts.Failed != "" && !v.squashed(), about(v.facts.Failed)
}

// networked are the filesystems that several hosts can have mounted at once: from a server, from
// the host of a virtual machine, or from a disk that several hosts reach.
var networked = []string{
	"9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "mmfs", "ncp", "ncpfs",
	"nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "sshfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs",
}

// networkedFUSE are those of FUSE; the mount table shows them as "fuse.NAME".
var networkedFUSE = []string{
	"alluxio-fuse", "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "curlftpfs", "cvmfs2", "davfs", "gcsfuse", "glusterfs", "goofys", "hdfs", "httpfs",
	"juicefs", "JuiceFS", "lizardfs", "mfs", "mfsmount", "moosefs", "mount-s3", "mountpoint-s3", "nfs", "ossfs", "quobyte", "rclone", "s3fs", "saunafs",
	"seaweedfs", "smbnetfs", "sshfs", "vmhgfs-fuse", "weed", "xtreemfs",
}

// onNetwork reports whether other hosts can have the same filesystem mounted. A FUSE filesystem
// that is not known by its name is told by a source that names a server.
func onNetwork(fsType, source string) bool {
	name, fuse := strings.CutPrefix(fsType, "fuse.")
	if !fuse {
		return slices.Contains(networked, fsType) || fsType == "fuse" && namesServer(source)
	}
	return slices.Contains(networkedFUSE, name) || slices.Contains(networked, name) || namesServer(source)
}

// namesServer knows "server:/export", "user@server:", "//server/share" and "scheme://server".
func namesServer(source string) bool {
	if strings.HasPrefix(source, "//") || strings.Contains(source, "://") {
		return true
	}
	server, _, found := strings.Cut(source, ":")
	return found && server != "" && !strings.Contains(server, "/")
}

// networkFilesystem: two nodes that both take the same directory for their own disk would each undo
// what the other makes.
func networkFilesystem(v view) (bool, []any) {
	bad := v.placed && v.want.Node != "" && !v.want.Exclusive && onNetwork(v.on.FSType, v.on.Source)
	return bad, about(described(v.on))
}

func otherNode(v view) (bool, []any) {
	m := v.facts.Marker.Marker
	return v.markerLooked() && v.want.Node != "" && m.Node != "" && m.Node != v.want.Node, about(v.want.Path, m.Node, v.want.Node)
}

func otherCluster(v view) (bool, []any) {
	m := v.facts.Marker.Marker
	bad := v.markerLooked() && v.want.Cluster != "" && m.Cluster != "" && m.Cluster != ClusterAny && m.Cluster != v.want.Cluster
	return bad, about(v.want.Path, m.Cluster, v.want.Cluster)
}

// noSubvolumes: the filesystem's type is known, and it need not be asked.
func noSubvolumes(v view) (bool, []any) {
	return v.placed && v.want.Subvolumes && v.pathOn.FSType != "btrfs", about(described(v.pathOn))
}
