package volume

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/subvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// A volume that is a subvolume is made, moved and removed as a directory is: rename(2) moves a
// subvolume, also into a directory of another one, and rmdir(2) removes an empty one. A copy of it
// is a snapshot, which the kernel makes at once:
//
//	record durable   a record of a copy, and no directory: the claim still wants it, or Undo
//	copied           and staging/<pv>, whole: discarded, as any copy in staging is
//
// From there on it is as with other copies. A snapshot is not made read-only: the kernel refuses to
// move such a subvolume from one directory to another (TestReadOnlySubvolumes).

// ofOneMoment reports whether a copy is to be made as a snapshot of its origin, which is open. That
// of a volume from before its pool had subvolumes is refused, as it would not be of one moment; a
// volume that is made from one is a copy file by file.
func ofOneMoment(from int, spec Spec) (bool, error) {
	if !spec.Subvolume || spec.Full {
		return false, nil
	}
	is, err := subvolume.Is(from)
	if err == nil && !is && spec.Kind == record.Snapshot {
		err = subvolume.ErrNone
	}
	return is, err
}

// snapshot makes the directory of a copy in staging, with everything that the origin has.
func (s *session) snapshot(from int, spec Spec) (dir int, err error) {
	nested, err := subvolume.Nested(from)
	if err != nil {
		return -1, wrap("counting the subvolumes in it", err)
	}
	if err := subvolume.Snapshot(s.dirs[stagingDir], spec.PV, from); err != nil {
		return -1, wrap("making the snapshot", err)
	}
	if spec.Copied != nil {
		spec.Copied(treecopy.Copied{Atomic: true, Subvolumes: nested})
	}
	dir, err = openDir(s.dirs[stagingDir], spec.PV)
	return dir, wrap("opening the snapshot", err)
}

// labelled reports, as an error, that a new subvolume has another label than it was to be born
// with: not every kernel gives subvolumes one, and the daemon may not relabel.
func labelled(fd int, want string) error {
	if want == "" {
		return nil
	}
	label, err := selinux.Of(fd)
	if errors.Is(err, selinux.ErrNoLabels) {
		return nil
	}
	if err == nil && label != want {
		err = fmt.Errorf("this kernel gave the subvolume label %q, not %q", label, want)
	}
	return err
}

// kept reports whether what a tenant may do to its own directory keeps an entry from being moved or
// removed: flags, or a subvolume that is read-only.
func kept(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) }
