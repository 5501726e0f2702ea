package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

func everyPool(name string) Pool {
	p := testPool(name)
	p.Scope = ScopeEveryNode
	return p
}

func every(f *ClaimFacts) { f.Pool = everyPool(f.Pool.Name) }

// wanted is a bound volume of scope every-node of which this node has nothing yet.
func wanted() PartFacts {
	f := ready()
	every(&f)
	pv := NewVolume(f, "pvc-u-1")
	pv.Status.Phase = corev1.VolumeBound
	return PartFacts{Volume: pv, Self: self, Pool: f.Pool, Room: f.Room}
}

func TestPartPrecedence(t *testing.T) {
	type change = func(*PartFacts)
	shut := func(f *PartFacts) { f.Closed, f.Full = "not mounted", "not mounted" }
	elsewhere := func(f *PartFacts) { f.Pool.Path = "/srv/other" }
	full := func(f *PartFacts) { f.Full, f.Room.Free = "full", 0 }
	at := func(p record.Place) change {
		return func(f *PartFacts) { f.Record = &record.Record{PV: "pvc-u-1", Place: p} }
	}
	has := func(bytes int64, unpublished bool) change {
		return func(f *PartFacts) {
			f.Record = &record.Record{PV: "pvc-u-1", Place: record.InPool, Requested: bytes, Unpublished: unpublished}
		}
	}
	is := func(p corev1.PersistentVolumePhase) change {
		return func(f *PartFacts) { f.Volume.Status.Phase = p }
	}
	for _, c := range []struct {
		name    string
		changes []change
		action  Action
		reason  string
	}{
		{"nothing in the way", nil, Provision, ""},
		{"expanded by another node", []change{has(1<<20, false)}, Expand, ""},
		{"expanded by another node, in a full pool", []change{full, has(1<<30-1, false)}, Wait, ReasonNotEnoughSpace},
		{"expanded by another node, in a pool that is closed", []change{shut, has(1<<20, false)}, Wait, ReasonPoolClosed},
		{"expanded by another node, and not noted yet that it has its object", []change{has(1<<20, true)}, Note, ""},
		{"as large as the object", []change{full, has(1<<30, false)}, Ignore, ""},
		{"larger than the object", []change{full, has(2<<30, false)}, Ignore, ""},
		{"recorded without a size", []change{full, has(0, false)}, Ignore, ""},
		{"before its claim is bound", []change{is(corev1.VolumePending)}, Provision, ""},
		{"available, on its way to its claim", []change{is(corev1.VolumeAvailable)}, Provision, ""},
		{"another provisioner's before closed", []change{shut, func(f *PartFacts) { f.Volume.Annotations[ProvisionedBy] = "x" }}, Ignore, ""},
		{"one node's", []change{func(f *PartFacts) { delete(f.Volume.Labels, ScopeLabel) }}, Ignore, ""},
		{"retained, and bound to another claim by hand", []change{func(f *PartFacts) { f.Volume.Spec.ClaimRef.UID = "u-2" }}, Provision, ""},
		{"for a claim that it did not meet yet", []change{func(f *PartFacts) { f.Volume.Spec.ClaimRef.UID = "" }}, Ignore, ""},
		{"for no claim", []change{func(f *PartFacts) { f.Volume.Spec.ClaimRef = nil }}, Ignore, ""},
		{"released before closed: that is a removal", []change{shut, is(corev1.VolumeReleased)}, Ignore, ""},
		{"the pool has another scope here, before closed", []change{shut, func(f *PartFacts) { f.Pool.Scope = ScopeNode }}, Wait, ReasonPathMismatch},
		{"a name that cannot be", []change{shut, func(f *PartFacts) {
			f.Pool.Directory = func(_, _, _ string) (string, error) { return "", errors.New("too long") }
		}}, Wait, ReasonBadName},
		{"another path before closed", []change{shut, elsewhere}, Wait, ReasonPathMismatch},
		{"another path, even if recorded", []change{elsewhere, at(record.InPool)}, Wait, ReasonPathMismatch},
		{"closed before anything on the disk", []change{shut, at(record.InPool)}, Wait, ReasonPoolClosed},
		{"record damaged before full", []change{full, func(f *PartFacts) { f.Unreadable = "torn" }}, Wait, ReasonRecordDamaged},
		{"there already, before full", []change{full, at(record.InPool)}, Ignore, ""},
		{"there already, and said to be without an object", []change{full, at(record.InPool), func(f *PartFacts) { f.Record.Unpublished = true }}, Note, ""},
		{"recorded, and gone from the disk", []change{at(record.Nowhere)}, Provision, ""},
		{"recorded, half made", []change{at(record.InStaging)}, Provision, ""},
		{"in the trash, before full", []change{full, at(record.InTrash)}, PutBack, ReasonPutBack},
		{"half emptied, before full", []change{full, at(record.Emptying)}, Wait, ReasonPartRemoved},
		{"in the archive, before full", []change{full, at(record.InArchive)}, PutBack, ReasonPutBack},
		{"full", []change{full}, Wait, ReasonPoolClosed},
		{"too large", []change{func(f *PartFacts) { f.Room.Free = 1 << 20 }}, Wait, ReasonNotEnoughSpace},
	} {
		f := changed(wanted(), c.changes)
		got := ForPart(f)
		if got.Action != c.action || got.Reason != c.reason {
			t.Errorf("%s: %s %s %q, want %s %s", c.name, got.Action, got.Reason, got.Message, c.action, c.reason)
		}
		if got.Action == Wait && (!strings.Contains(got.Message, us) || got.After == 0) {
			t.Errorf("%s: %q after %s: want the node's name, and another try", c.name, got.Message, got.After)
		}
	}
}

// The whole object, and that it is found to be the same again, whichever node made it.
func TestEveryNodeVolume(t *testing.T) {
	f := ready()
	every(&f)
	f.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	pv := NewVolume(f, "pvc-u-1")
	text, err := yaml.Marshal(pv)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hostpath-provisioner/scope: every-node", "hostpath-provisioner/pool: fast", "type: Directory", "path: /srv/fast/pvc-u-1", "- ReadWriteMany", Finalizer} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the volume lacks %q:\n%s", want, text)
		}
	}
	for _, not := range []string{"nodeAffinity", NodeLabel + ":"} {
		if strings.Contains(string(text), not) {
			t.Errorf("the volume has %q:\n%s", not, text)
		}
	}
	f.Node, f.NodeLabels = them, map[string]string{HostnameLabel: "host-b"}
	if difference := Same(pv, NewVolume(f, "pvc-u-1")); difference != "" {
		t.Errorf("made on another node it differs: %s", difference)
	}
	f.Pool.Path = "/srv/other"
	if difference := Same(pv, NewVolume(f, "pvc-u-1")); difference == "" {
		t.Error("another path is no difference")
	}
	g := ready()
	if difference := Same(pv, NewVolume(g, "pvc-u-1")); difference == "" {
		t.Error("another scope is no difference")
	}
}

// Who makes the object, and when.
func TestEveryNodeClaims(t *testing.T) {
	type change = func(*ClaimFacts)
	many := func(f *ClaimFacts) { f.Nodes = 50 }
	old := func(f *ClaimFacts) { f.Age = time.Hour }
	theirs := func(f *ClaimFacts) { f.Claim.Annotations[SelectedNode] = them }
	for _, c := range []struct {
		name    string
		changes []change
		action  Action
		waits   bool
		reason  string
	}{
		{"chosen by the scheduler", []change{many}, Provision, false, ""},
		{"any access mode", []change{func(f *ClaimFacts) {
			f.Claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOncePod}
		}}, Provision, false, ""},
		{"another was chosen", []change{many, theirs}, Wait, true, ""},
		{"another was chosen long ago", []change{many, theirs, old}, Provision, false, ""},
		{"another was chosen long ago, and we cannot: he says so", []change{many, theirs, old, closed}, Wait, true, ""},
		{"Immediate, on the only node", []change{immediate, func(f *ClaimFacts) { f.Nodes = 1 }}, Provision, false, ""},
		{"Immediate, after the turns of all nodes", []change{immediate, many, old}, Provision, false, ""},
		{"chosen, and closed: the pod cannot run here", []change{many, closed}, Release, false, ReasonPoolClosed},
		{"no node chosen", []change{many, old, func(f *ClaimFacts) { delete(f.Claim.Annotations, SelectedNode) }}, Ignore, false, ""},
	} {
		f := changed(ready(), append([]change{every}, c.changes...))
		if got := ForClaim(f); got.Action != c.action || got.After > 0 != c.waits || got.Reason != c.reason {
			t.Errorf("%s: %+v, want %s %s", c.name, got, c.action, c.reason)
		}
	}
	// Of many nodes that see an Immediate claim at the same moment, few go on at once.
	at := 0
	for n := range 50 {
		f := ready()
		every(&f)
		immediate(&f)
		many(&f)
		f.Node = us + string(rune('a'+n))
		if ForClaim(f).Action == Provision {
			at++
		}
	}
	if at > 5 {
		t.Errorf("%d of 50 nodes publish at once", at)
	}
}

// What a node does with the record of a volume whose object is gone: nothing without a tombstone.
func TestTombstones(t *testing.T) {
	tombstone := func(data Action) *Tombstone { return &Tombstone{PV: "pvc-u-1", ClaimUID: "u-1", Data: data} }
	recreated, alive := ready().Claim, ready().Claim
	recreated.UID = "u-2"
	alive.Spec.VolumeName = "pvc-u-1"
	elsewhere := ready().Claim
	elsewhere.Annotations[SelectedNode] = them
	pv := wanted().Volume
	for _, c := range []struct {
		name string
		f    RecordFacts
		want Action
	}{
		{"no tombstone: restored, another cluster, or forced", RecordFacts{}, Keep},
		{"no tombstone, and this node never published it", RecordFacts{Record: record.Record{Unpublished: true}}, Undo},
		{"never published, and the claim waits", RecordFacts{Record: record.Record{Unpublished: true}, Claim: alive}, Keep},
		{"never published, and yet the object is there", RecordFacts{Record: record.Record{Unpublished: true}, Volume: pv}, Keep},
		{"never published, and yet deleted", RecordFacts{Record: record.Record{Unpublished: true}, Tombstone: tombstone(Delete)}, Delete},
		{"never made", RecordFacts{Record: record.Record{Place: record.Nowhere}}, Undo},
		{"deleted", RecordFacts{Tombstone: tombstone(Delete)}, Delete},
		{"deleted, and nothing but the tombstone shows that this is the cluster", RecordFacts{Tombstone: tombstone(Delete), Unsure: true}, Delete},
		{"never published, perhaps another cluster's", RecordFacts{Record: record.Record{Unpublished: true}, Unsure: true}, Keep},
		{"deleted, archived here", RecordFacts{Tombstone: tombstone(Delete), Record: record.Record{OnDelete: OnDeleteArchive}}, Archive},
		{"retained", RecordFacts{Tombstone: tombstone(Retain)}, Retain},
		{"retained here already", RecordFacts{Tombstone: tombstone(Delete), Record: record.Record{Retained: true}}, Keep},
		{"the object is there", RecordFacts{Tombstone: tombstone(Delete), Volume: pv}, Keep},
		{"the claim is there", RecordFacts{Tombstone: tombstone(Delete), Claim: alive}, Keep},
		{"the claim is there, and waits for another node", RecordFacts{Tombstone: tombstone(Delete), Claim: elsewhere}, Keep},
		{"the claim was made again by the same name", RecordFacts{Tombstone: tombstone(Delete), Claim: recreated}, Delete},
		{"for another claim", RecordFacts{Tombstone: &Tombstone{PV: "pvc-u-1", ClaimUID: "u-2", Data: Delete}}, Keep},
		{"for another volume", RecordFacts{Tombstone: &Tombstone{PV: "pvc-u-2", ClaimUID: "u-1", Data: Delete}}, Keep},
		{"an unknown word", RecordFacts{Tombstone: tombstone("burn")}, Keep},
		{"in the trash already", RecordFacts{Tombstone: tombstone(Delete), Record: record.Record{Place: record.InTrash}}, Delete},
		{"in the trash, archived elsewhere", RecordFacts{Tombstone: tombstone(Delete), Record: record.Record{Place: record.InTrash, OnDelete: OnDeleteArchive}}, Delete},
		{"in the trash, and retained after all", RecordFacts{Tombstone: tombstone(Retain), Record: record.Record{Place: record.InTrash}}, PutBack},
		{"in the archive, and retained after all", RecordFacts{Tombstone: tombstone(Retain), Record: record.Record{Place: record.InArchive}}, PutBack},
		{"half emptied, and retained after all: what is left stays", RecordFacts{Tombstone: tombstone(Retain), Record: record.Record{Place: record.Emptying}}, Retain},
		{"half emptied", RecordFacts{Tombstone: tombstone(Delete), Record: record.Record{Place: record.Emptying}}, Finish},
		{"in the trash, and no word that it may go", RecordFacts{Record: record.Record{Place: record.InTrash}}, Keep},
	} {
		if c.f.Record.Place == "" {
			c.f.Record.Place = record.InPool
		}
		c.f.Record.ClaimUID, c.f.Record.PV, c.f.Record.Scope = "u-1", "pvc-u-1", ScopeEveryNode
		c.f.Node, c.f.Provisioner = us, DefaultProvisioner
		if got := ForRecord(c.f).Action; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	for action, want := range map[Action]Action{Delete: Delete, Archive: Delete, LetGo: Delete, Retain: Retain} {
		if got := NewTombstone(pv, "", us, action); got.Data != want || got.ClaimUID != "u-1" ||
			got.Claim != "default/data" || got.PV != pv.Name {
			t.Errorf("after %s the tombstone is %+v", action, got)
		}
	}
}

// A tombstone is for the claim that the records have: the object's name may be any once it is
// adopted, and its claim another one.
func TestTombstoneClaim(t *testing.T) {
	for _, c := range []struct {
		name, recorded, adopted, claim, want string
	}{
		{"pvc-u-1", "", "", "u-1", "u-1"}, {"pvc-u-1", "", "", "u-2", "u-1"}, {"pvc-u-1", "", "",
			"", "u-1"}, {"pvc-u-1", "u-1", "", "u-2", "u-1"},
		{"data", "", "yes", "u-2", "u-2"}, {"pvc-u-1", "", "yes", "u-2", "u-2"}, {"data", "u-1",
			"yes", "u-2", "u-1"}, {"pvc-u-1", "", "yes", "", "u-1"},
		{"data", "", "", "u-2", "u-2"},
	} {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.name,
			Annotations: map[string]string{AdoptedAnnotation: c.adopted}}}
		if c.claim != "" {
			v.Spec.ClaimRef = &corev1.ObjectReference{UID: types.UID(c.claim)}
		}
		if got := NewTombstone(v, c.recorded, us, Delete); got.ClaimUID != c.want {
			t.Errorf("%+v: %q", c, got.ClaimUID)
		}
	}
}

// A released volume of scope every-node concerns each node that has, or could have, a directory of
// it.
func TestEveryNodeReleased(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*VolumeFacts)
		want   Action
	}{
		{"recorded", func(*VolumeFacts) {}, Delete},
		{"nothing here, the path is ours", func(f *VolumeFacts) { f.Record = nil }, LetGo},
		{"nothing here, the pool is elsewhere", func(f *VolumeFacts) { f.Record, f.Pool.Path = nil, "/srv/other" }, Ignore},
		{"recorded, the pool was moved", func(f *VolumeFacts) { f.Pool.Path = "/srv/other" }, Refuse},
		{"no such pool", func(f *VolumeFacts) { f.Record, f.Pool = nil, nil }, Ignore},
		{"a pool of one node", func(f *VolumeFacts) { f.Record, f.Pool.Scope = nil, ScopeNode }, Ignore},
		{"closed", func(f *VolumeFacts) { f.Record, f.Closed = nil, "not mounted" }, Wait},
		{"a directory that is not recorded", func(f *VolumeFacts) { f.Record, f.Foreign = nil, true }, Refuse},
	} {
		f := released()
		pool := everyPool("fast")
		f.Pool, f.Volume = &pool, wanted().Volume
		f.Volume.Status.Phase = corev1.VolumeReleased
		c.change(&f)
		if got := ForVolume(f); got.Action != c.want {
			t.Errorf("%s: %s %s, want %s", c.name, got.Action, got.Message, c.want)
		}
	}
}
