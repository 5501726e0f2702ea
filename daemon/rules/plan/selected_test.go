package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// unasked is a claim whose node the scheduler chose, and for which kube-controller-manager has
// asked no provisioner yet.
func unasked(f *ClaimFacts) { f.Claim.Annotations = map[string]string{SelectedNode: us} }

func ofProvisioner(name string) func(*ClaimFacts) {
	return func(f *ClaimFacts) { f.Class.Provisioner = name }
}

func inScope(scope string) func(*ClaimFacts) { return func(f *ClaimFacts) { f.Pool.Scope = scope } }

func selected(node string) func(*ClaimFacts) {
	return func(f *ClaimFacts) { f.Claim.Annotations[SelectedNode] = node }
}

// A claim for which no provisioner was asked is provisioned, or left alone without a word: whatever
// else is to be done or said about it is done when one was asked.
func TestSelectedClaims(t *testing.T) {
	type change = func(*ClaimFacts)
	immediately := func(f *ClaimFacts) { mode := storagev1.VolumeBindingImmediate; f.Class.VolumeBindingMode = &mode }
	for _, c := range []struct {
		name    string
		changes []change
		want    Action
	}{
		{"selected here", nil, Provision},
		{"selected here, and that is not to be acted on", []change{func(f *ClaimFacts) { f.AwaitRequest = true }}, Ignore},
		{"selected elsewhere", []change{selected(them)}, Ignore},
		{"no node selected", []change{selected("")}, Ignore},
		{"the class binds at once, and the author wrote the annotation", []change{immediately}, Ignore},
		{"the class says nothing of when it binds", []change{func(f *ClaimFacts) { f.Class.VolumeBindingMode = nil }}, Ignore},
		{"the class is another provisioner's", []change{ofProvisioner("x.example/y")}, Ignore},
		{"the class is not known, or was deleted", []change{func(f *ClaimFacts) { f.Class = nil }}, Ignore},
		{"the class of that name is another provisioner's now", []change{func(f *ClaimFacts) { f.Class, f.ClassOf = nil, "x.example/y" }}, Ignore},
		{"the class is an alias's", []change{func(f *ClaimFacts) { f.Aliases = []string{"x.example/y"} }, ofProvisioner("x.example/y")}, Provision},
		{"the class is of kube-controller-manager's own plugin", []change{func(f *ClaimFacts) { f.Aliases = []string{"kubernetes.io/x"} }, ofProvisioner("kubernetes.io/x")}, Ignore},
		{"handed to a CSI driver", []change{func(f *ClaimFacts) { f.Claim.Annotations[MigratedTo] = DefaultProvisioner }}, Ignore},
		{"another provisioner was asked", []change{func(f *ClaimFacts) { f.Claim.Annotations[StorageProvisioner] = "x.example/y" }}, Ignore},
		{"the older annotation names another one", []change{func(f *ClaimFacts) { f.Claim.Annotations[StorageProvisionerBeta] = "x.example/y" }}, Ignore},
		{"a volume was named for it", []change{func(f *ClaimFacts) { f.Claim.Spec.VolumeName = "pv" }}, Ignore},
		{"being deleted", []change{func(f *ClaimFacts) { now := metav1.Now(); f.Claim.DeletionTimestamp = &now }}, Ignore},
		{"a selector", []change{func(f *ClaimFacts) { f.Claim.Spec.Selector = &metav1.LabelSelector{} }}, Ignore},
		{"a data source", []change{from("", "PersistentVolumeClaim")}, Ignore},
		{"a populator's", []change{from("example.com", "Populator")}, Ignore},
		{"block mode", []change{block}, Ignore},
		{"a closed pool, with other nodes: it is given back later", []change{others, closed}, Ignore},
		{"too large", []change{others, large}, Ignore},
		{"shared, selected here", []change{inScope(ScopeShared)}, Provision},
		{"shared, selected elsewhere", []change{others, inScope(ScopeShared), selected(them)}, Provision},
		{"shared, and another daemon leads", []change{others, inScope(ScopeShared), func(f *ClaimFacts) { f.Silent = true }}, Ignore},
		{"every-node, selected here", []change{others, inScope(ScopeEveryNode)}, Provision},
		{"every-node, selected elsewhere: that node publishes it", []change{others, inScope(ScopeEveryNode), selected(them)}, Ignore},
		{"every-node, no node selected", []change{inScope(ScopeEveryNode), selected("")}, Ignore},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := ready()
			unasked(&f)
			for _, change := range c.changes {
				change(&f)
			}
			got := ForClaim(f)
			if got.Action != c.want || got.Reason != "" || got.After != 0 {
				t.Errorf("got %+v, want %s and no word", got, c.want)
			}
		})
	}
}

// In a pool of all nodes a claim is held by every daemon once its node is selected, and no claim
// that is another provisioner's.
func TestKeepSelectedOfAll(t *testing.T) {
	for _, c := range []struct {
		name        string
		annotations map[string]string
		keep        bool
	}{
		{"selected elsewhere", map[string]string{SelectedNode: them}, true},
		{"asked of us", map[string]string{StorageProvisioner: DefaultProvisioner}, true},
		{"no node selected", nil, false},
		{"asked of another", map[string]string{SelectedNode: them, StorageProvisioner: "x.example/y"}, false},
		{"handed to a CSI driver", map[string]string{SelectedNode: them, MigratedTo: "x.example/y"}, false},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
		if got := self.KeepClaimOfAll(claim); got != c.keep {
			t.Errorf("%s: keep is %v, want %v", c.name, got, c.keep)
		}
	}
}

// A directory that a daemon made for such a claim before it died is not undone, whatever its class:
// the next start may be about to publish it.
func TestRecordOfSelectedClaim(t *testing.T) {
	for node, want := range map[string]Action{us: Keep, them: Undo} {
		f := RecordFacts{Self: self, Claim: ready().Claim, NodeLabels: ready().NodeLabels,
			Record: record.Record{PV: "pvc-u-1", Directory: "pvc-u-1", ClaimUID: "u-1", Node: us, Place: record.InPool}}
		f.Claim.Annotations = map[string]string{SelectedNode: node}
		if got := ForRecord(f); got.Action != want {
			t.Errorf("selected on %s: %s, want %s", node, got.Action, want)
		}
	}
}
