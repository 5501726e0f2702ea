package hostcheck

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/words"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// looked is how serious it is that the directory under the mount point is not known to be
// immutable, and whether that was looked at.
func (v view) looked() (Severity, bool) {
	if !v.want.RequireMount || v.want.Immutable == ImmutableOff || !v.facts.Under.Looked {
		return 0, false
	}
	if v.want.Immutable == ImmutableWarn {
		return Warn, true
	}
	return Close, true
}

// bare names the directory that should be immutable.
func (v view) bare() string {
	if v.mounted {
		return "the directory under the mount point " + v.want.MountPoint
	}
	return "the bare directory " + v.want.MountPoint
}

func notImmutable(v view) (Finding, bool) {
	s, asked := v.looked()
	return when(asked && v.facts.Under.Trouble == "" && !v.facts.Under.Immutable, s, ReasonNotImmutable, "%s is not immutable", v.bare())
}

func immutableUnknown(v view) (Finding, bool) {
	s, asked := v.looked()
	return when(asked && v.facts.Under.Trouble == CannotTell, s, ReasonImmutableUnknown,
		"%s is on a filesystem that cannot tell whether it is immutable", v.bare())
}

func lookNotPermitted(v view) (Finding, bool) {
	s, asked := v.looked()
	return when(asked && v.facts.Under.Trouble == NotPermitted, s, ReasonLookNotPermitted,
		"%s cannot be seen: %s", v.bare(), v.facts.Under.Error)
}

func lookFailed(v view) (Finding, bool) {
	s, asked := v.looked()
	return when(asked && v.facts.Under.Trouble == LookFailed, s, ReasonLookFailed, "%s cannot be seen: %s", v.bare(), v.facts.Under.Error)
}

func (v view) markerLooked() bool { return v.placed && v.facts.Marker.Looked }

// unmarked is a pool in which there is no marker at all.
func (v view) unmarked() bool {
	return v.markerLooked() && v.facts.Marker.Error == "" && v.facts.Marker.Marker.ID == ""
}

func notPrepared(v view) (Finding, bool) {
	return when(v.unmarked() && v.want.Remembered == "", Close, ReasonNotPrepared,
		"%s was never prepared as a pool: it has no %s", v.want.Path, MarkerPath)
}

func markerMissing(v view) (Finding, bool) {
	return when(v.unmarked() && v.want.Remembered != "", Close, ReasonMarkerMissing,
		"%s has no %s, but this pool had marker %s: another filesystem is in its place", v.want.Path, MarkerPath, v.want.Remembered)
}

func markerDamaged(v view) (Finding, bool) {
	return when(v.markerLooked() && v.facts.Marker.Error != "", Close, ReasonMarkerDamaged,
		"%s/%s: %s", v.want.Path, MarkerPath, v.facts.Marker.Error)
}

func markerChanged(v view) (Finding, bool) {
	id := v.facts.Marker.Marker.ID
	return when(v.markerLooked() && id != "" && v.want.Remembered != "" && id != v.want.Remembered, Close, ReasonMarkerChanged,
		"%s has marker %s, but this pool had %s: another filesystem is in its place", v.want.Path, id, v.want.Remembered)
}

func markerForeign(v view) (Finding, bool) {
	m := v.facts.Marker.Marker
	return when(v.markerLooked() && m.ID != "" && m.Pool != v.want.Pool, Close, ReasonMarkerForeign,
		"%s was prepared as pool %q, not %q", v.want.Path, m.Pool, v.want.Pool)
}

func lowSpace(v view) (Finding, bool) {
	return when(v.placed && v.facts.Space.Asked && v.facts.Space.Available < v.reserve, Full, ReasonLowSpace,
		"%s of %s are available, less than the reserve of %s", words.Size(v.facts.Space.Available), words.Size(v.facts.Space.Size), words.Size(v.reserve))
}

// inodesMin is how many inodes must be free: each volume takes three, and what tenants need is
// theirs to measure. A filesystem that does not count inodes says that it has none.
func inodesMin(inodes uint64) uint64 { return max(1, min(inodes/100, 1000)) }

func lowInodes(v view) (Finding, bool) {
	s := v.facts.Space
	return when(v.placed && s.Asked && s.Inodes > 0 && s.InodesFree < inodesMin(s.Inodes), Full, ReasonLowInodes,
		"%d of %d inodes are free, less than %d", s.InodesFree, s.Inodes, inodesMin(s.Inodes))
}

// writable: who can write to the directory renames volumes and puts others in their places, and the record
// of the one is then the leave to empty the other. The bits of the group count for any group: where the
// directory has an access list (acl(5)), they are its mask, and may be another user's.
func (v view) writable() bool {
	return v.placed && v.facts.Path.Kind == Directory && v.facts.Path.Mode&0o022 != 0
}

func writableByOthers(v view) (Finding, bool) {
	return when(v.writable(), Close, ReasonWritableByOthers,
		"%s has mode %04o, so that other users of this host can put other directories in the places of volumes", v.want.Path, v.facts.Path.Mode)
}

// poolsOverlap compares what the two paths mean on the filesystem; that they differ as paths is the
// configuration's affair. The pool that comes first keeps working.
func poolsOverlap(v view) (Finding, bool) {
	here, known := mounts.Locate(v.facts.Mounts, v.want.Path)
	for _, other := range v.want.Before {
		there, has := mounts.Locate(v.facts.Mounts, other.Path)
		if v.placed && known && has && (here.In(there) || there.In(here)) {
			return when(true, Close, ReasonPoolsOverlap,
				"%s and pool %q (%s) share directories of one filesystem by a bind mount", v.want.Path, other.Pool, other.Path)
		}
	}
	return Finding{}, false
}

func modeTooOpen(v view) (Finding, bool) {
	return when(v.placed && v.facts.Path.Kind == Directory && v.facts.Path.Mode&0o077 != 0 && !v.writable(), Warn, ReasonModeTooOpen,
		"%s has mode %04o, which lets other users of this host into it", v.want.Path, v.facts.Path.Mode)
}

func plainDirectory(v view) (Finding, bool) {
	return when(!v.want.RequireMount, Warn, ReasonPlainDirectory,
		"%s is a plain directory on %s: it cannot be told from the host's own disk", v.want.Path, described(v.on))
}

// unknownType closes: with a label that the policy does not have nothing can be made (EINVAL).
func unknownType(v view) (Finding, bool) {
	l := v.facts.Label
	return when(v.placed && l.Looked && l.Unknown, Close, ReasonUnknownType,
		"the SELinux policy of this host has no type %s, which volumes of this pool are to have", v.want.SELinuxType)
}

// wrongLabel looks at the pool's own directory. Where our module is loaded, the daemon may work in its
// own type of directory and in no other; where it is not, any will do.
func wrongLabel(v view) (Finding, bool) {
	l, has := v.facts.Label, "type "+v.facts.Label.Type
	if l.Type == "" {
		has = "no label"
	}
	return when(v.placed && l.Looked && l.PoolKnown && l.Type != selinux.PoolType, Warn, ReasonWrongLabel,
		"%s has %s, not type %s", v.want.Path, has, selinux.PoolType)
}
