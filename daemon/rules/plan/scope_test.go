package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// shared is a claim of a pool that all nodes share, given to another node by the scheduler; this
// daemon is the one that works in the pool.
func shared() ClaimFacts {
	f := ready()
	f.Pool.Scope = ScopeShared
	f.Claim.Annotations[SelectedNode] = them
	f.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	return f
}

// The whole metadata and all that could bind it to a node.
func TestNewVolumeShared(t *testing.T) {
	pv := NewVolume(shared(), "pvc-u-1")
	got, err := yaml.Marshal(map[string]any{"labels": pv.Labels, "affinity": pv.Spec.NodeAffinity, "modes": pv.Spec.AccessModes, "path": pv.Spec.HostPath.Path})
	if err != nil {
		t.Fatal(err)
	}
	const want = `affinity: null
labels:
  hostpath-provisioner/pool: fast
  hostpath-provisioner/scope: shared
modes:
- ReadWriteMany
path: /srv/fast/pvc-u-1
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestSameOfAnotherScope(t *testing.T) {
	one, all := NewVolume(ready(), "pvc-u-1"), NewVolume(shared(), "pvc-u-1")
	if d := Same(one, all); !strings.Contains(d, `of scope "node"`) {
		t.Errorf("got %q", d)
	}
	if d := Same(all.DeepCopy(), all); d != "" {
		t.Errorf("the same object differs: %s", d)
	}
}

// Who looks after a volume follows from its labels and the pool's scope here.
func TestHome(t *testing.T) {
	one, all := NewVolume(ready(), "pvc-u-1"), NewVolume(shared(), "pvc-u-1")
	for _, c := range []struct {
		name  string
		v     *corev1.PersistentVolume
		scope string
		node  string
		want  bool
	}{
		{"this node's", one, ScopeNode, us, true},
		{"another node's", one, ScopeNode, them, false},
		{"another node's, in a pool that is shared now", one, ScopeShared, them, false},
		{"of all nodes", all, ScopeShared, them, true},
		{"of all nodes, and the pool is not shared here", all, ScopeNode, us, false},
		{"of all nodes, and the pool is not configured here", all, "", us, false},
	} {
		if got := home(c.v, c.scope, c.node); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// A volume of one node in a pool that is shared by now is the lease holder's to remove, if its disk
// has the record.
func TestInherited(t *testing.T) {
	f := released()
	pool := *f.Pool
	pool.Scope, f.Pool, f.Node = ScopeShared, &pool, them
	if v := ForVolume(f); v.Action != Delete {
		t.Errorf("the holder does %q with it", v.Action)
	}
	for name, change := range map[string]func(*VolumeFacts){
		"not the holder":        func(f *VolumeFacts) { f.Silent = true },
		"no record":             unrecorded,
		"not shared":            func(f *VolumeFacts) { one := pool; one.Scope, f.Pool = ScopeNode, &one },
		"another provisioner's": func(f *VolumeFacts) { f.Volume.Annotations = nil },
		"the claim has it":      phase(corev1.VolumeBound),
		"a volume of all nodes": func(f *VolumeFacts) {
			f.Volume.Labels = map[string]string{ScopeLabel: ScopeEveryNode, PoolLabel: "fast"}
		},
		"kept by the policy":      keepData,
		"of a pool not had there": func(f *VolumeFacts) { f.Pool = nil },
	} {
		g := f
		g.Volume = f.Volume.DeepCopy()
		change(&g)
		if v := ForVolume(g); v.Action != Ignore {
			t.Errorf("%s: %s %s", name, v.Action, v.Message)
		}
	}
	bound := f.Volume.DeepCopy()
	bound.Status.Phase = corev1.VolumeBound
	for name, c := range map[string]struct {
		v     *corev1.PersistentVolume
		scope string
		place record.Place
		want  bool
	}{
		"released":         {f.Volume, ScopeShared, record.InPool, true},
		"in use":           {bound, ScopeShared, record.InPool, false},
		"in use and away":  {bound, ScopeShared, record.InTrash, true},
		"no object":        {nil, ScopeShared, record.InPool, false},
		"in a node's pool": {f.Volume, ScopeNode, record.InPool, false},
		"of all nodes":     {NewVolume(shared(), "pvc-u-1"), ScopeShared, record.InTrash, false},
	} {
		if got := Inherits(c.v, c.scope, c.place); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestKeepClaimOfAll(t *testing.T) {
	f := shared()
	if !self.KeepClaimOfAll(f.Claim) || self.KeepClaim(f.Claim) {
		t.Error("a claim that was given to another node concerns all, if its pool does, and else not us")
	}
	f.Claim.Spec.VolumeName = "pvc-u-1"
	if self.KeepClaimOfAll(f.Claim) || (Self{Provisioner: "x"}).KeepClaimOfAll(shared().Claim) {
		t.Error("a claim that has its volume, or is another provisioner's, does not concern this node")
	}
}

// A record in a pool that is shared: what other nodes have to do with the volume changes nothing.
func TestForRecordShared(t *testing.T) {
	claim, one := shared().Claim, NewVolume(ready(), "pvc-u-1")
	one.Labels[NodeLabel] = them
	for name, c := range map[string]struct {
		f    RecordFacts
		want Action
	}{
		"wanted, on another node":                     {RecordFacts{Claim: claim}, Keep},
		"published, by another node before":           {RecordFacts{Volume: one}, Keep},
		"no claim wants it":                           {RecordFacts{}, Undo},
		"its object is gone, the purge was cut short": {RecordFacts{Record: record.Record{Place: record.Emptying}}, Finish},
		"its object is gone, for an unknown reason":   {RecordFacts{Record: record.Record{Place: record.InTrash}}, Keep},
		"no claim wants it, made by another node":     {RecordFacts{Record: record.Record{Node: them}}, Undo},
	} {
		c.f.Record.ClaimUID, c.f.Record.PV, c.f.Scope = "u-1", "pvc-u-1", ScopeShared
		c.f.Node, c.f.Provisioner = us, DefaultProvisioner
		if got := ForRecord(c.f).Action; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
