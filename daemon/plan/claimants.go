package plan

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// Claimants finds the volume objects that are for a claim, whatever their names and labels are. An
// administrator who restores objects by hand may give them other names.
type Claimants struct {
	byUID, byName map[string][]string
}

// Add takes note of an object.
func (c *Claimants) Add(v *corev1.PersistentVolume) {
	if c.byUID == nil {
		c.byUID, c.byName = map[string][]string{}, map[string][]string{}
	}
	switch ref := v.Spec.ClaimRef; {
	case ref == nil:
	case ref.UID == "": // bound by hand, and not yet by kube-controller-manager
		key := ref.Namespace + "/" + ref.Name
		c.byName[key] = append(c.byName[key], v.Name)
	default:
		c.byUID[string(ref.UID)] = append(c.byUID[string(ref.UID)], v.Name)
	}
}

// Of is an object for the record's claim that has another name than the record's, "" if there is none.
func (c *Claimants) Of(r record.Record) string {
	for _, name := range append(c.byUID[r.ClaimUID], c.byName[r.Namespace+"/"+r.Claim]...) {
		if name != r.PV {
			return name
		}
	}
	return ""
}
