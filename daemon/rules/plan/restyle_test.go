package plan

import "testing"

// A bound claim that names a VolumeAttributesClass is told once by the node that has its volume.
func TestForRestyled(t *testing.T) {
	has := func(class string) func(*ExpandFacts) {
		return func(f *ExpandFacts) { f.Claim.Status.CurrentVolumeAttributesClassName = &class }
	}
	names := func(class *string) func(*ExpandFacts) {
		return func(f *ExpandFacts) { f.Claim.Spec.VolumeAttributesClassName = class }
	}
	for name, c := range map[string]struct {
		change func(*ExpandFacts)
		want   Action
	}{
		"named":           {func(*ExpandFacts) {}, Refuse},
		"another is had":  {has("silver"), Refuse},
		"had":             {has("gold"), Ignore},
		"none":            {names(nil), Ignore},
		"empty":           {names(new("")), Ignore},
		"not bound yet":   {func(f *ExpandFacts) { f.Claim.Status.Phase = "Pending" }, Ignore},
		"another's":       {func(f *ExpandFacts) { f.Volume.Labels[NodeLabel] = "node-b" }, Ignore},
		"not its volume":  {func(f *ExpandFacts) { f.Volume.Spec.ClaimRef.UID = "other" }, Ignore},
		"unknown volume":  {func(f *ExpandFacts) { f.Volume = nil }, Ignore},
		"another program": {func(f *ExpandFacts) { delete(f.Volume.Annotations, ProvisionedBy) }, Ignore},
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
