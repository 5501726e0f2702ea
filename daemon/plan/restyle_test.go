package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A bound claim that names a VolumeAttributesClass is told once by the node that has its volume.
func TestForRestyled(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ExpandFacts)
		want   Action
	}{
		"named":           {func(*ExpandFacts) {}, Refuse},
		"another is had":  {func(f *ExpandFacts) { f.Claim.Status.CurrentVolumeAttributesClassName = new("silver") }, Refuse},
		"had":             {func(f *ExpandFacts) { f.Claim.Status.CurrentVolumeAttributesClassName = new("gold") }, Ignore},
		"none":            {func(f *ExpandFacts) { f.Claim.Spec.VolumeAttributesClassName = nil }, Ignore},
		"empty":           {func(f *ExpandFacts) { f.Claim.Spec.VolumeAttributesClassName = new("") }, Ignore},
		"not bound yet":   {func(f *ExpandFacts) { f.Claim.Status.Phase = corev1.ClaimPending }, Ignore},
		"another's":       {func(f *ExpandFacts) { f.Volume.Labels[NodeLabel] = "node-b" }, Ignore},
		"not its volume":  {func(f *ExpandFacts) { f.Volume.Spec.ClaimRef.UID = "other" }, Ignore},
		"unknown volume":  {func(f *ExpandFacts) { f.Volume = nil }, Ignore},
		"another program": {func(f *ExpandFacts) { f.Volume.Annotations[ProvisionedBy] = "other" }, Ignore},
		"not the leader":  {func(f *ExpandFacts) { f.Silent = true }, Ignore},
	} {
		f := growing()
		f.Claim.Spec.VolumeAttributesClassName = new("gold")
		c.change(&f)
		if got := ForRestyled(f); got.Action != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}
