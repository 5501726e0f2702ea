package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

func sizeOf(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// growing is a bound claim of 1Gi that requests 2Gi, whose volume is this node's.
func growing() ExpandFacts {
	made, pool := ready(), testPool("fast")
	pv := NewVolume(made, "pvc-u-1")
	pv.Status.Phase = corev1.VolumeBound
	c := made.Claim
	c.Spec.VolumeName, c.Status.Phase, c.Status.Capacity = pv.Name, corev1.ClaimBound, sizeOf("1Gi")
	ask(c, "2Gi")
	return ExpandFacts{
		Self: self, Claim: c, Volume: pv, Pool: &pool, Room: capacity.Room{Free: 10 << 30, Available: 12 << 30, Promised: 3 << 30},
		Record: &record.Record{PV: "pvc-u-1", Directory: "pvc-u-1", Place: record.InPool, Requested: 1 << 30},
	}
}

// growingEverywhere is the same of scope every-node, in a cluster of three nodes.
func growingEverywhere(f *ExpandFacts) {
	every := everyPool("fast")
	f.Pool, f.Volume.Labels, f.Nodes, f.Age = &every, VolumeLabels(every, us), 3, time.Minute
}

func TestExpandPrecedence(t *testing.T) {
	type change = func(*ExpandFacts)
	wants := func(size string) change { return func(f *ExpandFacts) { ask(f.Claim, size) } }
	recorded := func(requested, promised int64) change {
		return func(f *ExpandFacts) { f.Record.Requested, f.Record.Promised = requested, promised }
	}
	has := func(size string) change { return func(f *ExpandFacts) { f.Volume.Spec.Capacity = sizeOf(size) } }
	shut := func(f *ExpandFacts) { f.Closed = "not mounted" }
	full := func(f *ExpandFacts) { f.Room.Free = 0 }
	away := func(f *ExpandFacts) { f.Record.Place = record.InTrash }
	none := func(f *ExpandFacts) { f.Record = nil }
	nowhere := func(f *ExpandFacts) { f.Pool, f.Record = nil, nil }
	shared := func(f *ExpandFacts) {
		f.Pool.Scope = ScopeShared
		f.Volume.Labels = VolumeLabels(*f.Pool, us)
	}
	for _, c := range []struct {
		name    string
		changes []change
		action  Action
		reason  string
	}{
		{"nothing in the way", nil, Expand, ReasonExpanded},
		{"has what it requests", []change{wants("1Gi")}, Ignore, ""},
		{"requests less than it has, as the API allows to none", []change{wants("1Mi")}, Ignore, ""},
		{"not bound yet", []change{func(f *ExpandFacts) { f.Claim.Status.Phase = corev1.ClaimPending }}, Ignore, ""},
		{"its capacity is not written yet", []change{func(f *ExpandFacts) { f.Claim.Status.Capacity = nil }}, Ignore, ""},
		{"being deleted", []change{func(f *ExpandFacts) { now := metav1.Now(); f.Claim.DeletionTimestamp = &now }}, Ignore, ""},
		{"no volume", []change{func(f *ExpandFacts) { f.Volume = nil }}, Ignore, ""},
		{"another claim's volume", []change{func(f *ExpandFacts) { f.Volume.Spec.ClaimRef.UID = "u-2" }}, Ignore, ""},
		{"no claim's volume", []change{func(f *ExpandFacts) { f.Volume.Spec.ClaimRef = nil }}, Ignore, ""},
		{"another volume", []change{func(f *ExpandFacts) { f.Claim.Spec.VolumeName = "pvc-u-2" }}, Ignore, ""},
		{"another provisioner's, before closed", []change{shut, func(f *ExpandFacts) { f.Volume.Annotations[ProvisionedBy] = "x" }}, Ignore, ""},
		{"another node's, before closed", []change{shut, func(f *ExpandFacts) { f.Volume.Labels[NodeLabel] = them }}, Ignore, ""},
		{"another node's, in a pool that is shared by now", []change{func(f *ExpandFacts) { f.Pool.Scope, f.Volume.Labels[NodeLabel] = ScopeShared, them }}, Expand, ReasonExpanded},
		{"adopted", []change{recorded(0, 0), func(f *ExpandFacts) { f.Volume.Annotations[AdoptedAnnotation] = "yes" }}, Expand, ReasonExpanded},
		{"shared", []change{shared}, Expand, ReasonExpanded},
		{"shared, and another daemon works there, before closed", []change{shared, shut, func(f *ExpandFacts) { f.Silent = true }}, Ignore, ""},
		{"no pool of the name", []change{nowhere}, Wait, ReasonUnknownPool},
		{"closed before not recorded", []change{shut, none}, Wait, ReasonPoolClosed},
		{"closed before too large", []change{shut, wants("1Ti")}, Wait, ReasonPoolClosed},
		{"record damaged", []change{none, func(f *ExpandFacts) { f.Unreadable = "torn" }}, Wait, ReasonRecordDamaged},
		{"not recorded", []change{none}, Infeasible, ReasonNotRecorded},
		{"points elsewhere, before too large", []change{wants("1Ti"), func(f *ExpandFacts) { f.Volume.Spec.HostPath.Path = "/etc" }}, Infeasible, ReasonPathMismatch},
		{"on its way out", []change{away}, Wait, ""},
		{"too large", []change{wants("11Gi"), full}, Infeasible, ReasonNotEnoughSpace},
		{"one byte too large", []change{wants("11811160065")}, Infeasible, ReasonNotEnoughSpace},
		{"as large as there is room", []change{wants("11Gi")}, Expand, ReasonExpanded},
		{"no room, and it was reserved before a crash", []change{full, recorded(2<<30, 0)}, Expand, ReasonExpanded},
		{"no room, and lowered after a failed attempt", []change{full, recorded(5<<30, 0)}, Expand, ReasonExpanded},
		{"no room, and more is kept than was requested", []change{full, recorded(1<<30, 2<<30)}, Expand, ReasonExpanded},
		{"no room, adopted without a size", []change{full, recorded(0, 0)}, Infeasible, ReasonNotEnoughSpace},
		{"no number of bytes", []change{wants("100E")}, Infeasible, ReasonNotEnoughSpace},
		{"no number at all", []change{wants("1e999999999")}, Infeasible, ReasonNotEnoughSpace},
		{"the volume has it already", []change{has("2Gi"), recorded(2<<30, 0), full}, Expand, ReasonExpanded},
		{"the volume has more, as the request was lowered", []change{has("3Gi"), recorded(3<<30, 0), full}, Expand, ReasonExpanded},
		{"on every node", []change{growingEverywhere}, Expand, ReasonExpanded},
		{"on every node, not its turn", []change{growingEverywhere, func(f *ExpandFacts) { f.Nodes, f.Age = 1<<40, 0 }}, Wait, ""},
		{"on every node, closed here", []change{growingEverywhere, shut}, Wait, ""},
		{"on every node, no directory here", []change{growingEverywhere, none}, Wait, ""},
		{"on every node, no pool here", []change{growingEverywhere, nowhere}, Ignore, ""},
		{"on every node, no room here", []change{growingEverywhere, full, func(f *ExpandFacts) { f.Age = 10 * time.Second }}, Wait, ""},
		{"on every node, no room anywhere", []change{growingEverywhere, full}, Infeasible, ReasonNotEnoughSpace},
	} {
		f := changed(growing(), c.changes)
		v := ForExpansion(f)
		if v.Action != c.action || v.Reason != c.reason {
			t.Errorf("%s: %s %s %q, want %s %s", c.name, v.Action, v.Reason, v.Message, c.action, c.reason)
		}
		if (v.Action == Wait || v.Action == Infeasible) && v.After <= 0 {
			t.Errorf("%s: it is never looked at again", c.name)
		}
		if (v.Action != Expand && v.Reason != "") != strings.HasPrefix(v.Message, "node node-a: the volume is not expanded: ") {
			t.Errorf("%s: message %q", c.name, v.Message)
		}
	}
}

func TestExpandMessage(t *testing.T) {
	f := growing()
	ask(f.Claim, "1Ti")
	want := "node node-a: the volume is not expanded: pool fast: the claim requests 1Ti, and 10.0 GiB is available for new volumes: " +
		"12.0 GiB is free, and 3.0 GiB is promised to volumes, including 1.0 GiB to this one"
	if v := ForExpansion(f); v.Message != want {
		t.Errorf("got %q", v.Message)
	}
}

// Of the claims that request more than they have a node keeps those that were given to it, and
// looks at those that may be any node's.
func TestKeepGrowing(t *testing.T) {
	on := func(node string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Annotations[SelectedNode] = node }
	}
	of := func(provisioner string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Annotations[StorageProvisioner] = provisioner }
	}
	for _, c := range []struct {
		name    string
		changes []func(*corev1.PersistentVolumeClaim)
		want    string // given, of any node's, of any node's where its class leads to a pool of all nodes
	}{
		{"given to this node", nil, "true false true"},
		{"given to another node", []func(*corev1.PersistentVolumeClaim){on(them)}, "false false true"},
		{"given to no node", []func(*corev1.PersistentVolumeClaim){on("")}, "false true true"},
		{"bound by hand", []func(*corev1.PersistentVolumeClaim){on(""), of("")}, "false true true"},
		{"another provisioner's", []func(*corev1.PersistentVolumeClaim){of("x")}, "false false false"},
		{"has what it requests", []func(*corev1.PersistentVolumeClaim){func(c *corev1.PersistentVolumeClaim) { ask(c, "1Gi") }}, "false false false"},
	} {
		claim := growing().Claim
		for _, change := range c.changes {
			change(claim)
		}
		lean := LeanClaim(claim)
		for _, seen := range []*corev1.PersistentVolumeClaim{claim, lean} {
			if got := fmt.Sprint(self.KeepGrowing(seen), self.KeepGrowingOfAll(seen, false), self.KeepGrowingOfAll(seen, true)); got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		}
		if self.KeepClaim(claim) || self.KeepClaimOfAll(claim) || self.KeepClaimOfOther(claim) {
			t.Errorf("%s: it is kept as one that waits for a volume", c.name)
		}
	}
}

// The size is the one that is requested now, and never less than the volume object says.
func TestExpandTarget(t *testing.T) {
	for _, c := range []struct {
		request, volume, target string
	}{
		{"2Gi", "1Gi", "2Gi"}, {"2Gi", "2Gi", "2Gi"}, {"2Gi", "3Gi", "3Gi"}, {"1500m", "1", "1500m"}, {"1e999999999", "1Gi", "1e999999999"},
	} {
		f := growing()
		ask(f.Claim, c.request)
		f.Volume.Spec.Capacity = sizeOf(c.volume)
		if got := f.Target(); got.String() != c.target {
			t.Errorf("%+v: %s", c, got.String())
		}
	}
}

func TestSmaller(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ExpandFacts)
		want   bool
	}{
		"as its object":             {func(*ExpandFacts) {}, false},
		"smaller":                   {func(f *ExpandFacts) { f.Record.Requested = 1 }, true},
		"larger":                    {func(f *ExpandFacts) { f.Record.Requested = 5 << 30 }, false},
		"smaller, and more is kept": {func(f *ExpandFacts) { f.Record.Requested, f.Record.Promised = 1, 1<<30 }, false},
		"without a size":            {func(f *ExpandFacts) { f.Record.Requested = 0 }, false},
		"smaller, in the trash":     {func(f *ExpandFacts) { f.Record.Requested, f.Record.Place = 1, record.InTrash }, false},
		"smaller, of another path":  {func(f *ExpandFacts) { f.Record.Requested, f.Record.Directory = 1, "other" }, false},
		"smaller, on every node":    {func(f *ExpandFacts) { growingEverywhere(f); f.Record.Requested = 1 }, false},
	} {
		f := growing()
		c.change(&f)
		if got := Smaller(*f.Pool, *f.Record, f.Volume); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
