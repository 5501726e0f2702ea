package hostcheck

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

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
