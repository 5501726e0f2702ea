package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

// ofPod is a claim of a pod whose node the scheduler chose, with what decides about it.
func ofPod(name string, changes ...func(*ClaimFacts)) ClaimFacts {
	f := ready()
	f.Claim.Name = name
	for _, change := range changes {
		change(&f)
	}
	return f
}

// Which claims get their volumes together.
func TestPodClaim(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ClaimFacts)
		want   bool
	}{
		"chosen here":      {func(*ClaimFacts) {}, true},
		"no node yet":      {selected(""), true},
		"another node":     {selected(them), false},
		"names its node":   {func(f *ClaimFacts) { f.Claim.Annotations[ProvisionOnNode] = us }, false},
		"binds at once":    {func(f *ClaimFacts) { f.Class.VolumeBindingMode = nil }, false},
		"of all nodes":     {inScope(ScopeShared), false},
		"has its volume":   {func(f *ClaimFacts) { f.Claim.Spec.VolumeName = "pv" }, false},
		"asked of another": {func(f *ClaimFacts) { f.Claim.Annotations[StorageProvisioner] = "x.example/y" }, false},
	} {
		f := ofPod("data", c.change)
		if got := self.PodClaim(f.Claim, f.Class, f.Pool); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Claims that are refused together are given back where another node may have room, and wait where
// none has, or where the pod cannot go anywhere else.
func TestTogether(t *testing.T) {
	data, wal := ofPod("data", others), ofPod("wal", others, block)
	together := func() *Together { return &Together{Pod: "db", Claims: []ClaimFacts{data, wal}} }
	full := together()
	full.Full(data, capacity.Room{Free: 5 << 20, Available: 5 << 20})
	want := "the claims of pod db request "
	if v := full.Verdict(data); v.Action != Release || v.Reason != ReasonNotEnoughSpace || !strings.Contains(v.Message, want) ||
		!strings.Contains(v.Message, "together (data ") || !strings.Contains(v.Message, ", wal ") {
		t.Errorf("full: %+v", v)
	}
	full.Stays = "logs"
	if v := full.Verdict(data); v.Action != Wait || v.After == 0 || !strings.HasSuffix(v.Message,
		"; claim logs of the pod has its volume on this node, so that the pod can run on no other") {
		t.Errorf("full, and the pod cannot go: %+v", v)
	}
	r, impossible := wal.Impossible()
	if _, possible := data.Impossible(); !impossible || possible {
		t.Fatal("a block volume is possible, or an ordinary one is not")
	}
	refused := together()
	refused.Refusal, refused.By = &r, "wal"
	if v := refused.Verdict(data); v.Action != Wait || v.Reason != ReasonBlockMode || v.After == 0 || !strings.Contains(v.Message,
		"claim wal of pod db, which uses this one, too, cannot have its volume: volumeMode Block") {
		t.Errorf("beside a block volume: %+v", v)
	}
	if v := refused.Verdict(wal); v.Reason != ReasonBlockMode || strings.Contains(v.Message, "too, cannot") {
		t.Errorf("the block volume: %+v", v)
	}
	if v := refused.Verdict(ofPod("open", others, selected("")).Placed()); v.Message == "" {
		t.Error("a claim without a node is told nothing")
	}
}

// What a pod may choose its own node for.
func TestPlaceable(t *testing.T) {
	open := ofPod("data", selected(""))
	if !Placeable(open.Claim, open.Class) || Placeable(ofPod("data").Claim, open.Class) || Placeable(open.Claim, nil) {
		t.Error("a claim without a node of a class that waits, and no other")
	}
	open.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
	if Placeable(open.Claim, open.Class) {
		t.Error("a clone is made where its source is")
	}
}
