package plan

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Claimants finds the volume objects that are for a claim, whatever their names and labels are. An
// administrator who restores objects by hand may give them other names.
type Claimants struct {
	byUID, byName map[string][]claimant
}

// claimant is a volume object, and the last elements of the paths or handles to which it points.
type claimant struct {
	name   string
	points []string
}

// Add takes note of an object.
func (c *Claimants) Add(v *corev1.PersistentVolume) {
	if c.byUID == nil {
		c.byUID, c.byName = map[string][]claimant{}, map[string][]claimant{}
	}
	one := claimant{v.Name, pointsTo(v)}
	switch ref := v.Spec.ClaimRef; {
	case ref == nil:
	case ref.UID == "": // bound by hand, and not yet by kube-controller-manager
		key := ref.Namespace + "/" + ref.Name
		c.byName[key] = append(c.byName[key], one)
	default:
		c.byUID[string(ref.UID)] = append(c.byUID[string(ref.UID)], one)
	}
}

// Of is an object for the record's claim that has another name than the record's and may be of its
// directory, "" if there is none. One that points to something of another name is another volume:
// it was kept for the claim, and the two were bound while the daemon made the directory.
func (c *Claimants) Of(r record.Record) string {
	for _, one := range slices.Concat(c.byUID[r.ClaimUID], c.byName[r.Namespace+"/"+r.Claim]) {
		if one.name != r.PV && (slices.Contains(one.points, path.Base(r.Directory)) || slices.Contains(one.points, r.PV)) {
			return one.name
		}
	}
	return ""
}

// pointsTo is where an object's data is, by the last elements of what its source says: a directory
// of this pool can be reached by another path, or over NFS. A volume of another source is no
// directory.
func pointsTo(v *corev1.PersistentVolume) (last []string) {
	all := []string{PathOf(v)}
	if v.Spec.CSI != nil {
		all = append(all, v.Spec.CSI.VolumeHandle, v.Spec.CSI.VolumeAttributes[AttributePath])
	}
	if v.Spec.NFS != nil {
		all = append(all, v.Spec.NFS.Path)
	}
	for _, one := range all {
		if one != "" {
			last = append(last, path.Base(one))
		}
	}
	return last
}
