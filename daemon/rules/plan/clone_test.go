package plan

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// toClone is a clone that this node can make: its source is here.
func toClone() ClaimFacts {
	f := ready()
	f.Nodes = 3
	f.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "origin"}
	f.Pool.Clones = ClonesReflink
	source := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-origin"}}
	source.UID, source.Status.Phase = "uid-of-origin", corev1.ClaimBound
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{UID: source.UID}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
	}}
	volume.Name = "pvc-origin"
	volume.Labels = map[string]string{NodeLabel: f.Node, PoolLabel: f.Pool.Name}
	volume.Annotations = map[string]string{ProvisionedBy: f.Class.Provisioner}
	f.From = &SourceFacts{Claim: source, Volume: volume, Asked: true}
	return f
}

// TestCloneRules breaks two rules or more in each case, and names the one that decides.
func TestCloneRules(t *testing.T) {
	type change = func(*ClaimFacts)
	unknown := func(f *ClaimFacts) { f.From = nil }
	missing := func(f *ClaimFacts) { f.From.Claim = nil }
	going := func(f *ClaimFacts) { f.From.Claim.DeletionTimestamp = &metav1.Time{} }
	unbound := func(f *ClaimFacts) { f.From.Claim.Status.Phase = corev1.ClaimPending }
	lost := func(f *ClaimFacts) { f.From.Volume = nil }
	unasked := func(f *ClaimFacts) { f.From.Volume, f.From.Asked = nil, false }
	elsewhere := func(f *ClaimFacts) { f.From.Volume.Labels[NodeLabel] = "node-b" }
	foreign := func(f *ClaimFacts) { delete(f.From.Volume.Labels, PoolLabel) }
	shared := func(f *ClaimFacts) {
		delete(f.From.Volume.Labels, NodeLabel)
		f.From.Volume.Labels[ScopeLabel] = ScopeShared
	}
	others := func(f *ClaimFacts) { f.From.Volume.Annotations[ProvisionedBy] = "example.com/other" }
	rebound := func(f *ClaimFacts) { f.From.Volume.Spec.ClaimRef.UID = "another" }
	pool := func(f *ClaimFacts) { f.From.Volume.Labels[PoolLabel] = "bulk" }
	huge := func(f *ClaimFacts) { ask(f.Claim, "1e999999999") }
	small := func(f *ClaimFacts) { ask(f.Claim, "1Mi") }
	off := func(f *ClaimFacts) { f.Pool.Clones = ClonesOff }
	scope := func(f *ClaimFacts) { f.Pool.Scope = ScopeEveryNode }
	namespace := func(f *ClaimFacts) {
		other := "other"
		f.Claim.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "origin", Namespace: &other}
	}
	for _, c := range []struct {
		name    string
		changes []change
		action  Action
		reason  string
		message string
	}{
		{"nothing speaks against it", nil, Provision, "", ""},
		{"the namespace before the scope", []change{namespace, scope}, Refuse, ReasonDataSource, "of the same namespace"},
		{"the scope before the pool's key", []change{scope, off}, Refuse, ReasonDataSource, "scope every-node"},
		{"the pool's key before what is not known", []change{off, unknown}, Refuse, ReasonDataSource, "makes no clones"},
		{"not known", []change{unknown}, Release, ReasonSource, "not this node's"},
		{"no claim", []change{missing, lost}, Wait, ReasonSource, "no claim of this name"},
		{"a claim that goes before one that is not bound", []change{going, unbound}, Wait, ReasonSource, "being deleted"},
		{"not bound before its volume is lost", []change{unbound, lost}, Wait, ReasonSource, "no volume yet"},
		{"lost", []change{lost, small}, Wait, ReasonSource, "does not exist"},
		{"not asked for", []change{unasked, small}, Release, ReasonSource, "not this node's"},
		{"elsewhere before another pool", []change{elsewhere, pool}, Release, ReasonSource, "on node node-b"},
		{"foreign before its size", []change{foreign, small}, Refuse, ReasonSource, "not made by this provisioner"},
		{"of all nodes", []change{shared, small}, Refuse, ReasonSource, "not made by this provisioner for one node"},
		{"another provisioner's", []change{others, small}, Refuse, ReasonSource, "not made by this provisioner"},
		{"of another claim", []change{rebound, pool}, Refuse, ReasonSource, "not made by this provisioner"},
		{"another pool before its size", []change{pool, small}, Refuse, ReasonSource, "in pool bulk"},
		{"no number that is written out", []change{huge}, Release, ReasonNotEnoughSpace, "requests 1e999"},
		{"too small before a closed pool", []change{small, func(f *ClaimFacts) { f.Closed = "it is away" }}, Refuse, ReasonSource, "has 1Gi, and the clone requests 1Mi"},
	} {
		f := changed(toClone(), c.changes)
		v := ForClaim(f)
		if v.Action != c.action || v.Reason != c.reason || !strings.Contains(v.Message, c.message) {
			t.Errorf("%s: got %s %s %q, want %s %s %q", c.name, v.Action, v.Reason, v.Message, c.action, c.reason, c.message)
		}
	}
}

// A clone without a node is taken by the node that has its source, whether or not its class waits
// for a consumer, and left alone by all others. It is held before a provisioner was asked for it.
func TestCloneIsTaken(t *testing.T) {
	for _, mode := range []storagev1.VolumeBindingMode{storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate} {
		f := toClone()
		f.Class.VolumeBindingMode = &mode
		f.Self.AwaitRequest = true
		delete(f.Claim.Annotations, SelectedNode)
		if mode == storagev1.VolumeBindingWaitForFirstConsumer {
			delete(f.Claim.Annotations, StorageProvisioner)
		}
		if !f.KeepClaim(f.Claim) || Unasked(f.Claim) || !SourceMatters(f) {
			t.Errorf("%s: it is not looked at", mode)
		}
		if v := ForClaim(f); v.Action != Assign {
			t.Errorf("%s: got %+v, want it taken", mode, v)
		}
		f.From.Volume.Labels[NodeLabel] = "node-b"
		if v := ForClaim(f); v.Action == Assign || v.Action == Provision || v.Message != "" {
			t.Errorf("%s, of another node's source: %+v", mode, v)
		}
		f.Class.Provisioner = "example.com/other"
		f.From.Volume.Labels[NodeLabel] = f.Node
		if f.Claim.Annotations[StorageProvisioner] == "" && ForClaim(f).Action != Ignore {
			t.Errorf("%s: a clone of another provisioner's class is taken", mode)
		}
	}
}

// That a copy takes long does not make its node a silent one.
func TestCloneTakesLong(t *testing.T) {
	f := toClone()
	f.Claim.Annotations[SelectedNode] = "node-b"
	f.Age = inquireAgain - 1
	if v := ForClaim(f); v.Action != Wait || v.Message != "" || v.After != 1 {
		t.Errorf("got %+v", v)
	}
	f.Age = 2 * inquireAgain
	if v := ForClaim(f); v.Action != Inquire {
		t.Errorf("later: %+v", v)
	}
}

// The lean claim still tells which claim is its source, and of which namespace.
func TestLeanSource(t *testing.T) {
	other := "other"
	c := &corev1.PersistentVolumeClaim{}
	c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "origin", Namespace: &other}
	lean := LeanClaim(c)
	if from := lean.Spec.DataSourceRef; !IsClone(lean) || SourceOfCopy(lean) != "origin" || from.Namespace == nil || *from.Namespace != other {
		t.Errorf("%+v", from)
	}
}

// A clone whose source does not come is looked at less and less often.
func TestSourceAfter(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{0: sourceAgain, 40 * time.Second: sourceAgain, 5 * time.Minute: 30 * time.Second, time.Hour: sourceRarely} {
		f := toClone()
		f.From.Claim.Status.Phase, f.Age = corev1.ClaimPending, age
		if v := ForClaim(f); v.After != want {
			t.Errorf("after %s: again after %s, want %s", age, v.After, want)
		}
	}
}
