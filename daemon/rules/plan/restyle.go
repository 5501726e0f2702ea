package plan

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Restyled reports whether a claim is bound and names a VolumeAttributesClass that its volume does
// not have: a CSI driver's external-resizer would change the volume, and write the class into the
// status (KEP-3751).
func Restyled(c *corev1.PersistentVolumeClaim) bool {
	wants, has := attributesClass(c), c.Status.CurrentVolumeAttributesClassName
	bound := c.Spec.VolumeName != "" && c.DeletionTimestamp == nil &&
		c.Status.Phase == corev1.ClaimBound
	return bound && wants != "" && (has == nil || *has != wants)
}

func attributesClass(c *corev1.PersistentVolumeClaim) string {
	if name := c.Spec.VolumeAttributesClassName; name != nil {
		return *name
	}
	return ""
}

// Asks reports whether a bound claim asks for something that it does not have: more room, or other
// attributes.
func Asks(c *corev1.PersistentVolumeClaim) bool { return Growing(c) || Restyled(c) }

// restyleRules are the specification, as expandRules.
var restyleRules = []expandRule{notRestyled, notThisVolume, expandNotLeading, restyledElsewhere}

// ForRestyled decides about a bound claim that names a VolumeAttributesClass: it is told that its
// volume stays as it is.
func ForRestyled(f ExpandFacts) Verdict {
	return Decide(restyleRules, f, Verdict{Action: Refuse, Reason: ReasonAttributesClass,
		Message: "volumeAttributesClassName " + words.Quoted(attributesClass(f.Claim)) +
			": the volume stays as it is: " + noAttributes})
}

const noAttributes = "volumes of this provisioner have no attributes that a " +
	"VolumeAttributesClass changes"

func notRestyled(f ExpandFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, !Restyled(f.Claim)
}

// restyledElsewhere: of scope every-node each node has the volume, and the one that was chosen for
// the claim tells it.
func restyledElsewhere(f ExpandFacts) (Verdict, bool) {
	chosen := Chosen(f.Claim)
	return Verdict{Action: Ignore}, f.everyNode() && chosen != "" && chosen != f.Node
}
