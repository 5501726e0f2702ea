package hostcheck

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// immutable is how serious it is that the directory under the mount point is not known to be
// immutable.
func (v view) immutable() Severity {
	if v.want.Immutable == ImmutableWarn {
		return Warn
	}
	return Close
}

// looked reports whether that directory was to be looked at, and was.
func (v view) looked() bool {
	return v.want.RequireMount && v.want.Immutable != ImmutableOff && v.facts.Under.Looked
}

// bare names the directory that should be immutable.
func (v view) bare() string {
	if v.mounted {
		return "the directory under the mount point " + v.want.MountPoint
	}
	return "the bare directory " + v.want.MountPoint
}

func notImmutable(v view) (bool, []any) {
	return v.looked() && v.facts.Under.Trouble == "" && !v.facts.Under.Immutable, about(v.bare())
}

func immutableUnknown(v view) (bool, []any) {
	return v.looked() && v.facts.Under.Trouble == CannotTell, about(v.bare())
}

func lookNotPermitted(v view) (bool, []any) {
	return v.looked() && v.facts.Under.Trouble == NotPermitted, about(v.bare(), v.facts.Under.Error)
}

func lookFailed(v view) (bool, []any) {
	return v.looked() && v.facts.Under.Trouble == LookFailed, about(v.bare(), v.facts.Under.Error)
}

func (v view) markerLooked() bool { return v.placed && v.facts.Marker.Looked }

// unmarked is a pool in which there is no marker at all.
func (v view) unmarked() bool {
	return v.markerLooked() && v.facts.Marker.Error == "" && v.facts.Marker.Marker.ID == ""
}

func notPrepared(v view) (bool, []any) {
	return v.unmarked() && v.want.Remembered == "", about(v.want.Path, MarkerPath)
}

func markerMissing(v view) (bool, []any) {
	return v.unmarked() && v.want.Remembered != "", about(v.want.Path, MarkerPath, v.want.Remembered)
}

func markerDamaged(v view) (bool, []any) {
	return v.markerLooked() && v.facts.Marker.Error != "", about(v.want.Path, MarkerPath, v.facts.Marker.Error)
}

func markerChanged(v view) (bool, []any) {
	id := v.facts.Marker.Marker.ID
	return v.markerLooked() && id != "" && v.want.Remembered != "" && id != v.want.Remembered, about(v.want.Path, id, v.want.Remembered)
}

func markerForeign(v view) (bool, []any) {
	m := v.facts.Marker.Marker
	return v.markerLooked() && m.ID != "" && m.Pool != v.want.Pool, about(v.want.Path, m.Pool, v.want.Pool)
}

func lowSpace(v view) (bool, []any) {
	return v.placed && v.facts.Space.Asked && v.facts.Space.Available < v.reserve, about(words.Size(v.facts.Space.Available), words.Size(v.facts.Space.Size), words.Size(v.reserve))
}

// inodesMin is how many inodes must be free: each volume takes three, and what tenants need is
// theirs to measure. A filesystem that does not count inodes says that it has none.
func inodesMin(inodes uint64) uint64 { return max(1, min(inodes/100, 1000)) }

func lowInodes(v view) (bool, []any) {
	s := v.facts.Space
	return v.placed && s.Asked && s.Inodes > 0 && s.InodesFree < inodesMin(s.Inodes), about(s.InodesFree, s.Inodes, inodesMin(s.Inodes))
}

// writable: who can write to the directory renames volumes and puts others in their places, and the
// record of the one is then the leave to empty the other. The bits of the group count for any
// group: where the directory has an access list (acl(5)), they are its mask, and may be another
// user's.
func (v view) writable() bool {
	return v.placed && v.facts.Path.Kind == Directory && v.facts.Path.Mode&0o022 != 0
}

func writableByOthers(v view) (bool, []any) {
	return v.writable(), about(v.want.Path, v.facts.Path.Mode)
}

// poolsOverlap compares what the two paths mean on the filesystem; that they differ as paths is the
// configuration's affair. The pool that comes first keeps working.
func poolsOverlap(v view) (bool, []any) {
	here, known := mounts.Locate(v.facts.Mounts, v.want.Path)
	for _, other := range v.want.Before {
		there, has := mounts.Locate(v.facts.Mounts, other.Path)
		if v.placed && known && has && (here.In(there) || there.In(here)) {
			return true, about(v.want.Path, other.Pool, other.Path)
		}
	}
	return false, nil
}

func modeTooOpen(v view) (bool, []any) {
	return v.placed && v.facts.Path.Kind == Directory && v.facts.Path.Mode&0o077 != 0 && !v.writable(), about(v.want.Path, v.facts.Path.Mode)
}

func plainDirectory(v view) (bool, []any) {
	return !v.want.RequireMount, about(v.want.Path, described(v.on))
}

// unknownType closes: with a label that the policy does not have nothing can be made (EINVAL).
func unknownType(v view) (bool, []any) {
	l := v.facts.Label
	return v.placed && l.Looked && l.Unknown, about(v.want.SELinuxType)
}

// wrongLabel looks at the pool's own directory. Where our module is loaded, the daemon may work in
// its own type of directory and in no other; where it is not, any will do.
func wrongLabel(v view) (bool, []any) {
	l, has := v.facts.Label, "type "+v.facts.Label.Type
	if l.Type == "" {
		has = "no label"
	}
	return v.placed && l.Looked && l.PoolKnown && l.Type != selinux.PoolType, about(v.want.Path, has, selinux.PoolType)
}

// QuotaFact is what the filesystem says of project quotas. It is looked at where volumes are
// limited by them.
type QuotaFact struct {
	Looked bool `json:"looked,omitempty"`
	quota.State
	Project  uint32 `json:"project,omitempty"`  // of the pool's own directory
	Inherits bool   `json:"inherits,omitempty"` // what is made in the pool's own directory has its project
	Error    string `json:"error,omitempty"`    // why the filesystem could not be asked
}

// quotaOf asks the filesystem of the pool's directory, which is open with O_PATH.
func quotaOf(fd int) QuotaFact {
	state, err := quota.StateOf(fd)
	f := QuotaFact{Looked: true, State: state}
	if err == nil {
		var dir int
		if dir, err = mounts.OpenBeneath(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
			defer unix.Close(dir)
			p := quota.ProjectOf(dir)
			f.Project, f.Inherits = p.ID, p.Inherits
		}
	}
	if err != nil {
		f.Error = cause(err)
	}
	return f
}

// limited are the filesystems whose project quotas are used: the others have none, or none that was
// tried.
var limited = []string{"ext4", "xfs"}

func (v view) quotaLooked() bool { return v.placed && v.want.Quota && v.facts.Quota.Looked }

func (v view) canLimit() bool { return slices.Contains(limited, v.pathOn.FSType) }

// quotaUnsupported: the filesystem's type is known before it is asked.
func quotaUnsupported(v view) (bool, []any) {
	return v.placed && v.want.Quota && !v.canLimit(), about(described(v.pathOn))
}

func quotaUnknown(v view) (bool, []any) {
	return v.quotaLooked() && v.canLimit() && v.facts.Quota.Error != "", about(described(v.pathOn), v.facts.Quota.Error)
}

func quotaOff(v view) (bool, []any) {
	f := v.facts.Quota
	return v.quotaLooked() && v.canLimit() && f.Error == "" && !f.Enforced, about(described(v.pathOn), v.turnsOn())
}

// turnsOn is what turns quotas on. A mounted filesystem cannot be told, so it is mounted again.
func (v view) turnsOn() string {
	on := v.pathOn
	switch {
	case on.FSType == "ext4" && !v.facts.Quota.Counted && on.Point == "/":
		return "turn its project quotas on with: tune2fs -O project,quota " + on.Source + ", from another system; then boot with rootflags=prjquota"
	case on.FSType == "ext4" && !v.facts.Quota.Counted:
		return "turn its project quotas on with: umount " + on.Point + " && tune2fs -O project,quota " + on.Source + " && mount -o prjquota " + on.Source + " " + on.Point + "; and write prjquota into its options in /etc/fstab"
	case on.Point == "/":
		return "boot with rootflags=prjquota"
	}
	return "mount it with: umount " + on.Point + " && mount -o prjquota " + on.Source + " " + on.Point + "; and write prjquota into its options in /etc/fstab"
}

// projectInherited: volumes are renamed into the pool, which the kernel refuses where the pool's
// directory hands another project down than they have.
func projectInherited(v view) (bool, []any) {
	f := v.facts.Quota
	return v.quotaLooked() && f.Inherits, about(v.want.Path, f.Project, v.want.Path)
}
