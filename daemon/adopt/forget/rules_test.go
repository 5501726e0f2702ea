package forget

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

var ours = plan.Self{Provisioner: "ours", Aliases: []string{"alias"}, Node: "node-a"}

// A node that shows any sign of life is not forgotten, whatever the clocks say; that its name was
// typed once more comes before all of them.
func TestNodeInOrder(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	node := func(ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
			{Type: corev1.NodeReady, Status: ready},
		}}}
	}
	sign := func(version string, ago time.Duration) []Sign {
		return []Sign{{What: "lease x", Version: version, Written: now.Add(-ago), Renewed: true}}
	}
	ready, old := node(corev1.ConditionTrue), sign("1", time.Hour)
	for name, c := range map[string]struct {
		f    NodeFacts
		want string
	}{
		"gone, and silent":         {NodeFacts{}, ""},
		"not Ready":                {NodeFacts{Node: node(corev1.ConditionUnknown)}, ""},
		"without conditions":       {NodeFacts{Node: &corev1.Node{}}, ""},
		"Ready":                    {NodeFacts{Node: ready}, ReasonNodeReady},
		"Ready before fresh":       {NodeFacts{Node: ready, Signs: sign("1", 0)}, ReasonNodeReady},
		"fresh":                    {NodeFacts{Signs: sign("1", FreshFor-1)}, ReasonDaemonFresh},
		"fresh, from the future":   {NodeFacts{Signs: sign("1", -time.Hour)}, ReasonDaemonFresh},
		"old":                      {NodeFacts{Signs: sign("1", FreshFor)}, ""},
		"old, and not renewed":     {NodeFacts{Signs: old, Later: old}, ""},
		"old, and renewed since":   {NodeFacts{Signs: old, Later: sign("2", 0)}, ReasonDaemonFresh},
		"new since the first look": {NodeFacts{Later: old}, ReasonDaemonFresh},
		"forced": {NodeFacts{Node: ready, Signs: sign("1", 0),
			Later: sign("2", 0), Forced: true}, ""},
	} {
		c.f.Name, c.f.Now = "node-a", now
		v := ForNode(c.f)
		may := c.want == ""
		if v.Reason != c.want || (v.Action == Forget) != may || (v.Message == "") != may {
			t.Errorf("%s: %+v, want %q", name, v, c.want)
		}
	}
}

// What is another node's, what nodes share, and what another provisioner made stays.
func TestVolumeInOrder(t *testing.T) {
	type volume = corev1.PersistentVolume
	pv := func(labels map[string]string, by string, finalizers ...string) *volume {
		return &volume{ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: labels,
			Annotations: map[string]string{plan.ProvisionedBy: by}, Finalizers: finalizers}}
	}
	on := func(node string) map[string]string {
		return map[string]string{plan.NodeLabel: node, plan.PoolLabel: "fast"}
	}
	scope := func(s string) map[string]string {
		return map[string]string{plan.ScopeLabel: s, plan.PoolLabel: "fast"}
	}
	for name, c := range map[string]struct {
		v      *corev1.PersistentVolume
		shared bool
		want   plan.Action
	}{
		"ours":                         {pv(on("node-a"), "ours", plan.Finalizer), false, Forget},
		"of an alias":                  {pv(on("node-a"), "alias"), false, Forget},
		"of another node":              {pv(on("node-b"), "ours"), false, plan.Ignore},
		"without a label":              {pv(nil, "ours"), false, plan.Ignore},
		"of another, and shared":       {pv(scope(plan.ScopeShared), "other"), false, plan.Ignore},
		"on shared storage":            {pv(scope(plan.ScopeShared), "ours"), true, plan.Keep},
		"on every node":                {pv(scope(plan.ScopeEveryNode), "ours"), false, plan.Keep},
		"of no provisioner":            {pv(on("node-a"), ""), false, plan.Keep},
		"of another installation":      {pv(on("node-a"), "other"), false, plan.Keep},
		"in a pool that is shared now": {pv(on("node-a"), "ours"), true, plan.Keep},
		"held by another program":      {pv(on("node-a"), "ours", "a/held"), false, plan.Refuse},
		"held, and not ours":           {pv(on("node-a"), "other", "a.com/held"), false, plan.Keep},
	} {
		f := VolumeFacts{Self: ours, Volume: c.v, SharedPools: map[string]bool{"fast": c.shared}}
		v := ForVolume(f)
		if v.Action != c.want || (v.Message == "") != (c.want == plan.Ignore) {
			t.Errorf("%s: %+v, want %s", name, v, c.want)
		}
		f.Forced = true
		alone := c.v.Labels[plan.ScopeLabel] == ""
		if v := ForVolume(f); c.shared && alone && v.Action != Forget {
			t.Errorf("%s, forced: %+v", name, v)
		}
	}
}

func TestContentInOrder(t *testing.T) {
	content := func(driver, node, of string, finalizers ...string) *snapshotapi.Content {
		c := &snapshotapi.Content{Spec: snapshotapi.ContentSpec{Driver: driver}}
		c.Annotations, c.Finalizers = map[string]string{plan.NodeLabel: node}, finalizers
		if of != "" {
			c.Spec.Source.VolumeHandle = &of
		}
		return c
	}
	const bound = snapshotapi.Finalizer
	for name, c := range map[string]struct {
		c    *snapshotapi.Content
		want plan.Action
	}{
		"taken":                       {content("ours", "node-a", "v", bound), Forget},
		"of an alias":                 {content("alias", "node-a", ""), Forget},
		"of a volume that goes":       {content("ours", "", "gone"), Forget},
		"of another volume":           {content("ours", "", "v"), plan.Ignore},
		"of nothing that is known":    {content("ours", "", ""), plan.Ignore},
		"taken by another node":       {content("ours", "node-b", "gone"), plan.Ignore},
		"another driver's":            {content("other", "node-a", "gone"), plan.Ignore},
		"held by another program":     {content("ours", "node-a", "v", "a.com/held"), plan.Refuse},
		"another's, and held by that": {content("other", "node-a", "v", "a.com/held"), plan.Ignore},
	} {
		f := ContentFacts{Self: ours, Content: c.c, Volumes: map[string]bool{"gone": true}}
		if v := ForContent(f); v.Action != c.want {
			t.Errorf("%s: %+v, want %s", name, v, c.want)
		}
	}
}

func TestClaimAndPod(t *testing.T) {
	claim := func(mark, volume string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Spec.VolumeName = volume
		c.Annotations = map[string]string{Annotation: mark}
		return c
	}
	there := &corev1.PersistentVolume{}
	for name, c := range map[string]struct {
		f    ClaimFacts
		want plan.Action
	}{
		"lost":                 {ClaimFacts{Claim: claim("node-a", "v")}, Forget},
		"not marked":           {ClaimFacts{Claim: claim("", "v")}, plan.Ignore},
		"another node's":       {ClaimFacts{Claim: claim("node-b", "v")}, plan.Ignore},
		"never bound":          {ClaimFacts{Claim: claim("node-a", "")}, plan.Ignore},
		"its volume came back": {ClaimFacts{Claim: claim("node-a", "v"), Volume: there}, plan.Keep},
	} {
		c.f.Node = "node-a"
		if v := ForClaim(c.f); v.Action != c.want {
			t.Errorf("%s: %+v, want %s", name, v, c.want)
		}
	}
	pod := func(node string, phase corev1.PodPhase, owned bool) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
		p.Status.Phase = phase
		if owned {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Controller: &owned}}
		}
		return p
	}
	for name, c := range map[string]struct {
		p    *corev1.Pod
		want plan.Action
	}{
		"on the node":                     {pod("node-a", corev1.PodRunning, false), Forget},
		"ended there":                     {pod("node-a", corev1.PodFailed, true), plan.Ignore},
		"waits, and is made again":        {pod("", corev1.PodPending, true), Forget},
		"waits, and is not made again":    {pod("", corev1.PodPending, false), plan.Keep},
		"on another node":                 {pod("node-b", corev1.PodRunning, true), plan.Keep},
		"ended, and nobody had chosen it": {pod("", corev1.PodSucceeded, true), plan.Ignore},
	} {
		if v := ForPod(c.p, "node-a"); v.Action != c.want {
			t.Errorf("%s: %+v, want %s", name, v, c.want)
		}
	}
}
