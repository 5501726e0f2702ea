package plan

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What each step writes, as the API has it.
func TestClaimStatus(t *testing.T) {
	f, now := growing(), time.Unix(1e9, 0)
	two := resource.MustParse("2Gi")
	all := []corev1.PersistentVolumeClaimConditionType{"Resizing", "ControllerResizeError", "NodeResizeError", "FileSystemResizePending"}
	for name, c := range map[string]struct {
		got       ClaimStatus
		state     corev1.ClaimResourceStatus
		set       []corev1.PersistentVolumeClaimConditionType
		capacity  bool
		resizer   string
		untouched int // of the conditions that tell of an expansion
	}{
		"begun":      {BegunStatus(f, now), "ControllerResizeInProgress", all[:1], false, DefaultProvisioner, 0},
		"infeasible": {InfeasibleStatus(f, "no room", now), "ControllerResizeInfeasible", all[:2], false, DefaultProvisioner, 2},
		"done":       {DoneStatus(two), "", nil, true, "", 0},
	} {
		var set []corev1.PersistentVolumeClaimConditionType
		for _, condition := range c.got.Set {
			set = append(set, condition.Type)
			if condition.Status != corev1.ConditionTrue || !condition.LastTransitionTime.Time.Equal(now) || (condition.Message == "no room") != (condition.Type == "ControllerResizeError") {
				t.Errorf("%s: condition %+v", name, condition)
			}
		}
		if !slices.Equal(set, c.set) || c.got.State != c.state || c.got.Resizer != c.resizer || c.got.Allocated.Cmp(two) != 0 || (c.got.Capacity != nil) != c.capacity {
			t.Errorf("%s: %+v", name, c.got)
		}
		if named := slices.Concat(set, c.got.Remove); len(named) != len(all)-c.untouched || slices.ContainsFunc(named, func(k corev1.PersistentVolumeClaimConditionType) bool { return !slices.Contains(all, k) }) {
			t.Errorf("%s: conditions %v are set, %v removed", name, set, c.got.Remove)
		}
	}
	f.Volume.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("100Gi") // by hand
	infeasible := InfeasibleStatus(f, "", now)
	f.Claim.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: two}
	f.Claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
		corev1.ResourceStorage: infeasible.State}
	if infeasible.Allocated.Cmp(two) != 0 || !f.Noted(infeasible.State) {
		t.Errorf("allocated is %s, of a claim that requests %s", infeasible.Allocated, &two)
	}
	ask(f.Claim, "100E")
	if got := InfeasibleStatus(f, "", now); got.Allocated != nil {
		t.Errorf("%s is written, which is no number of bytes", got.Allocated)
	}
}

// A step that the claim's status has already costs no request.
func TestNoted(t *testing.T) {
	const state = corev1.PersistentVolumeClaimControllerResizeInProgress
	for name, c := range map[string]struct {
		state     corev1.ClaimResourceStatus
		allocated string
		request   string
		want      bool
	}{
		"nothing yet":               {"", "", "2Gi", false},
		"the same":                  {state, "2Gi", "2Gi", true},
		"the same, written alike":   {state, "2048Mi", "2Gi", true},
		"another state":             {corev1.PersistentVolumeClaimControllerResizeInfeasible, "2Gi", "2Gi", false},
		"another size":              {state, "2Gi", "3Gi", false},
		"a smaller size":            {state, "4Gi", "3Gi", false},
		"without a size":            {state, "", "2Gi", false},
		"for no number of bytes":    {state, "", "100E", true},
		"as the last expansion was": {"", "2Gi", "2Gi", false},
	} {
		f := growing()
		ask(f.Claim, c.request)
		if c.state != "" {
			f.Claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: c.state}
		}
		if c.allocated != "" {
			f.Claim.Status.AllocatedResources = sizeOf(c.allocated)
		}
		lean := f
		lean.Claim = LeanClaim(f.Claim)
		if f.Noted(state) != c.want || lean.Noted(state) != c.want {
			t.Errorf("%s: %t, and of what is held of the claim %t, want %t", name, f.Noted(state), lean.Noted(state), c.want)
		}
	}
}
