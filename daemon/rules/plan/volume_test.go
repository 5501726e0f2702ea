package plan

import (
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// released is a volume that this node deletes: Released, policy Delete, recorded, where it should
// be.
func released() VolumeFacts {
	pool := testPool("fast")
	pv := NewVolume(ready(), "pvc-u-1")
	pv.Status.Phase = corev1.VolumeReleased
	return VolumeFacts{
		Volume: pv, Self: self, Pool: &pool,
		Record: &record.Record{PV: "pvc-u-1", Directory: "pvc-u-1", OnDelete: OnDeleteDelete, Place: record.InPool},
	}
}

func keepData(f *VolumeFacts) {
	f.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}

func heldByAdopt(f *VolumeFacts) {
	f.Volume.Annotations = map[string]string{
		HeldAnnotation: "Delete", ProvisionedBy: f.Volume.Annotations[ProvisionedBy]}
}

func deleting(f *VolumeFacts) { now := metav1.Now(); f.Volume.DeletionTimestamp = &now }
func phase(p corev1.PersistentVolumePhase) func(*VolumeFacts) {
	return func(f *VolumeFacts) { f.Volume.Status.Phase = p }
}
func pointTo(path string) func(*VolumeFacts) {
	return func(f *VolumeFacts) { f.Volume.Spec.HostPath.Path = path }
}
func unrecorded(f *VolumeFacts)   { f.Record = nil }
func volumeShut(f *VolumeFacts)   { f.Closed = "/srv/fast is not mounted" }
func claimRemains(f *VolumeFacts) { f.ClaimExists = true }

func at(p record.Place) func(*VolumeFacts) { return func(f *VolumeFacts) { f.Record.Place = p } }
func unclaimed(f *VolumeFacts)             { f.Volume.Spec.ClaimRef = nil }

func unfinalized(f *VolumeFacts) { f.Volume.Finalizers = nil }
func notHeld(f *VolumeFacts)     { f.Record.Unheld = true }

// boundWithPlace is a volume that is in use, and has its directory elsewhere than in the pool.
func boundWithPlace(p record.Place) func(*VolumeFacts) {
	return func(f *VolumeFacts) {
		f.Volume.Status.Phase, f.ClaimExists, f.Record.Place = corev1.VolumeBound, true, p
	}
}

// boundElsewhere: the claim exists and has another volume.
func boundElsewhere(f *VolumeFacts) { f.ClaimExists, f.Elsewhere = true, true }

func TestVolumePrecedence(t *testing.T) {
	type change = func(*VolumeFacts)
	cases := []struct {
		name    string
		changes []change
		action  Action
		reason  string
	}{
		{"released, recorded, in place", nil, Delete, ReasonDeleted},
		{"in the trash already", []change{func(f *VolumeFacts) { f.Record.Place = record.InTrash }}, Delete, ReasonDeleted},
		{"recorded, and gone from the disk", []change{func(f *VolumeFacts) { f.Record.Place = record.Nowhere }}, LetGo, ReasonDeleted},
		{"archive", []change{func(f *VolumeFacts) { f.Record.OnDelete = OnDeleteArchive }}, Archive, ReasonArchived},
		{"its claim was bound to another volume meanwhile", []change{boundElsewhere}, Undo, ReasonUnpublishedRemoved},
		{"the same, where volumes are archived", []change{boundElsewhere, func(f *VolumeFacts) { f.Record.OnDelete = OnDeleteArchive }}, Undo, ReasonUnpublishedRemoved},
		{"the same, undone before a crash", []change{boundElsewhere, func(f *VolumeFacts) { f.Record = nil }}, LetGo, ReasonDeleted},
		{"the same, gone from the disk", []change{boundElsewhere, func(f *VolumeFacts) { f.Record.Place = record.Nowhere }}, LetGo, ReasonDeleted},
		{"the same, and it is in the trash", []change{boundElsewhere, func(f *VolumeFacts) { f.Record.Place = record.InTrash }}, Wait, ReasonClaimExists},
		{"the same, and it is to be retained", []change{boundElsewhere, keepData}, Unhold, ""},
		{"the same, before kube-controller-manager released it", []change{boundElsewhere, func(f *VolumeFacts) { f.Volume.Status.Phase = corev1.VolumePending }}, Ignore, ""},
		{"the same, and the pool is closed", []change{boundElsewhere, func(f *VolumeFacts) { f.Closed = "not mounted" }}, Wait, ReasonPoolClosed},
		{"the same, on every node", []change{boundElsewhere, func(f *VolumeFacts) {
			f.Volume.Labels, f.Pool.Scope = VolumeLabels(Pool{Name: "fast", Scope: ScopeEveryNode}, ""), ScopeEveryNode
		}}, Wait, ReasonClaimExists},
		{"another provisioner's", []change{func(f *VolumeFacts) { f.Volume.Annotations[ProvisionedBy] = "x" }}, Ignore, ""},
		{"without provisioned-by", []change{func(f *VolumeFacts) { f.Volume.Annotations = nil }}, Ignore, ""},
		{"another node's", []change{func(f *VolumeFacts) { f.Volume.Labels[NodeLabel] = them }}, Ignore, ""},
		{"bound", []change{phase(corev1.VolumeBound)}, Ignore, ""},
		{"bound, its claim there", []change{boundWithPlace(record.InPool)}, Ignore, ""},
		{"bound and in the trash: it came back", []change{boundWithPlace(record.InTrash)}, PutBack, ReasonPutBack},
		{"bound, deleted and in the trash: its claim has it still", []change{boundWithPlace(record.InTrash), deleting}, PutBack, ReasonPutBack},
		{"bound and in the trash, retained", []change{boundWithPlace(record.InTrash), keepData}, PutBack, ReasonPutBack},
		{"bound and in the trash, its claim gone", []change{boundWithPlace(record.InTrash), func(f *VolumeFacts) { f.ClaimExists = false }}, Ignore, ""},
		{"bound and in the trash, another node's", []change{boundWithPlace(record.InTrash), func(f *VolumeFacts) { f.Volume.Labels[NodeLabel] = them }}, Ignore, ""},
		{"bound and in the trash, and it points elsewhere", []change{boundWithPlace(record.InTrash), pointTo("/etc")}, Ignore, ""},
		{"bound and in the trash, pool closed", []change{boundWithPlace(record.InTrash), volumeShut}, Ignore, ""},
		{"bound and half emptied", []change{boundWithPlace(record.Emptying)}, Wait, ReasonVolumeLost},
		{"bound and gone", []change{boundWithPlace(record.Nowhere)}, Wait, ReasonVolumeLost},
		{"bound and in the archive: it came back", []change{boundWithPlace(record.InArchive)}, PutBack, ReasonPutBack},
		{"bound, and in the archive with its record", []change{boundWithPlace(record.InArchive), func(f *VolumeFacts) { f.Record.Archived = true }}, PutBack, ReasonPutBack},
		{"bound to another claim, and in the trash", []change{boundWithPlace(record.InTrash), func(f *VolumeFacts) { f.Volume.Spec.ClaimRef.UID = "u-9" }}, PutBack, ReasonPutBack},
		{"released and in the trash, retained", []change{at(record.InTrash), keepData}, PutBack, ReasonPutBack},
		{"released and in the archive, retained", []change{at(record.InArchive), keepData}, PutBack, ReasonPutBack},
		{"in the trash, retained, deleted by a user", []change{at(record.InTrash), keepData, deleting}, PutBack, ReasonPutBack},
		{"in the trash, retained, and it points elsewhere", []change{at(record.InTrash), keepData, deleting, pointTo("/etc")}, Retain, ReasonRetained},
		{"in the trash, retained, deleted, pool closed", []change{at(record.InTrash), keepData, deleting, volumeShut}, Wait, ReasonPoolClosed},
		{"half emptied, retained, deleted: what is left stays", []change{at(record.Emptying), keepData, deleting}, Retain, ReasonRetained},
		{"retain, deleted, record damaged: it must learn it first", []change{keepData, deleting, unrecorded, func(f *VolumeFacts) { f.Unreadable = "torn" }}, Wait, ReasonRecordDamaged},
		{"its claim taken out, still released", []change{unclaimed}, Ignore, ""},
		{"its claim taken out, still released, in the trash", []change{at(record.InTrash), unclaimed}, PutBack, ReasonPutBack},
		{"its claim taken out, available, in the trash", []change{at(record.InTrash), unclaimed, phase(corev1.VolumeAvailable)}, PutBack, ReasonPutBack},
		{"its claim taken out, in the trash, deleted by a user", []change{at(record.InTrash), unclaimed, deleting}, Delete, ReasonDeleted},
		{"available for another claim, in the trash", []change{at(record.InTrash), phase(corev1.VolumeAvailable)}, PutBack, ReasonPutBack},
		{"bound, neither recorded nor there", []change{boundWithPlace(record.Nowhere), unrecorded}, Wait, ReasonVolumeLost},
		{"bound, not recorded, and there", []change{boundWithPlace(record.Nowhere), unrecorded, func(f *VolumeFacts) { f.Foreign = true }}, Ignore, ""},
		{"bound, its record damaged", []change{boundWithPlace(record.Nowhere), unrecorded, func(f *VolumeFacts) { f.Unreadable = "torn" }}, Ignore, ""},
		{"released, claim there, in the trash: nothing", []change{boundWithPlace(record.InTrash), phase(corev1.VolumeReleased)}, Wait, ReasonClaimExists},
		{"deleted before its claim: wait for the claim", []change{phase(corev1.VolumeBound), deleting}, Ignore, ""},
		{"deleted while pending: its claim may come", []change{phase(corev1.VolumePending), deleting}, Ignore, ""},
		{"deleted, available, claimRef cleared by a user", []change{phase(corev1.VolumeAvailable), deleting, func(f *VolumeFacts) { f.Volume.Spec.ClaimRef = nil }}, Delete, ReasonDeleted},
		{"deleted, available, on its way to its claim", []change{phase(corev1.VolumeAvailable), deleting}, Ignore, ""},
		{"deleted by us, and others hold it", []change{deleting, func(f *VolumeFacts) { f.Volume.Finalizers = []string{"kubernetes.io/pv-protection"} }}, Ignore, ""},
		{"released, our finalizer off: a crash came before the delete", []change{func(f *VolumeFacts) { f.Volume.Finalizers = nil }}, Delete, ReasonDeleted},
		{"retain, deleted by a user", []change{keepData, deleting}, Retain, ReasonRetained},
		{"retain, deleted, pool closed: the record must learn it first", []change{keepData, deleting, volumeShut}, Wait, ReasonPoolClosed},
		{"retain, deleted, still bound", []change{keepData, deleting, phase(corev1.VolumeBound)}, Ignore, ""},
		{"held by adopt, deleted, not bound yet",
			[]change{keepData, heldByAdopt, claimRemains, deleting, phase(corev1.VolumePending)}, Ignore, ""},
		{"held by adopt, deleted, and its claim is gone", []change{keepData, heldByAdopt, deleting}, Retain, ReasonRetained},
		{"retain, deleted, pool no longer configured", []change{keepData, deleting, func(f *VolumeFacts) { f.Pool, f.Record = nil, nil }}, Retain, ReasonRetained},
		{"retain before path mismatch", []change{keepData, deleting, pointTo("/etc")}, Retain, ReasonRetained},
		{"released, yet its claim exists", []change{claimRemains}, Wait, ReasonClaimExists},
		{"claim exists before closed", []change{claimRemains, volumeShut}, Wait, ReasonClaimExists},
		{"pool no longer configured", []change{func(f *VolumeFacts) { f.Pool, f.Record = nil, nil }}, Wait, ReasonUnknownPool},
		{"closed before everything on the disk", []change{volumeShut, unrecorded, pointTo("/etc")}, Wait, ReasonPoolClosed},
		{"record damaged", []change{unrecorded, func(f *VolumeFacts) { f.Unreadable = "volumes/pvc-u-1.json: truncated" }}, Wait, ReasonRecordDamaged},
		{"no record, a directory there", []change{unrecorded, func(f *VolumeFacts) { f.Foreign = true }}, Refuse, ReasonNotRecorded},
		{"no record, no directory, derived path", []change{unrecorded}, LetGo, ReasonDeleted},
		{"no record, and it points elsewhere", []change{unrecorded, pointTo("/etc")}, Refuse, ReasonPathMismatch},
		{"points to /etc", []change{pointTo("/etc")}, Refuse, ReasonPathMismatch},
		{"points out with ..", []change{pointTo("/srv/fast/pvc-u-1/../../../etc")}, Refuse, ReasonPathMismatch},
		{"points to another spelling of the same path", []change{pointTo("/srv/fast//pvc-u-1")}, Refuse, ReasonPathMismatch},
		{"points to the pool itself", []change{pointTo("/srv/fast")}, Refuse, ReasonPathMismatch},
		{"points to another pool", []change{pointTo("/srv/slow/pvc-u-1")}, Refuse, ReasonPathMismatch},
		{"points to another volume", []change{pointTo("/srv/fast/pvc-u-2")}, Refuse, ReasonPathMismatch},
		{"has no path at all", []change{func(f *VolumeFacts) { f.Volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{} }}, Refuse, ReasonPathMismatch},
		{"path mismatch before gone", []change{pointTo("/etc"), func(f *VolumeFacts) { f.Record.Place = record.Nowhere }}, Refuse, ReasonPathMismatch},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := changed(released(), c.changes)
			got := ForVolume(f)
			if got.Action != c.action || got.Reason != c.reason {
				t.Errorf("got %s %s %q, want %s %s", got.Action, got.Reason, got.Message, c.action, c.reason)
			}
			if got.Reason == ReasonPathMismatch && !strings.Contains(got.Message, "nothing is removed") {
				t.Errorf("a refusal that does not say that nothing is removed: %q", got.Message)
			}
		})
	}
}

// TestHeld: our finalizer is off where the policy keeps the data, and nowhere else.
func TestHeld(t *testing.T) {
	type change = func(*VolumeFacts)
	bound := phase(corev1.VolumeBound)
	replaced := func(f *VolumeFacts) { f.Record.Replaced = "{}" }
	standby := func(f *VolumeFacts) { f.Silent = true }
	everyNode := func(f *VolumeFacts) {
		f.Pool.Scope = ScopeEveryNode
		f.Volume.Labels = VolumeLabels(*f.Pool, "")
	}
	for name, c := range map[string]struct {
		changes []change
		want    Action
	}{
		"kept, released":                      {[]change{keepData}, Unhold},
		"kept, bound":                         {[]change{keepData, bound}, Unhold},
		"kept, off already":                   {[]change{keepData, unfinalized}, Ignore},
		"kept, available":                     {[]change{keepData, phase(corev1.VolumeAvailable)}, Ignore},
		"kept, pool closed":                   {[]change{keepData, bound, volumeShut}, Ignore},
		"kept, points elsewhere":              {[]change{keepData, bound, pointTo("/etc")}, Ignore},
		"kept, not recorded":                  {[]change{keepData, bound, unrecorded}, Ignore},
		"kept, another daemon works there":    {[]change{keepData, bound, standby}, Ignore},
		"kept, in place of a CSI driver's":    {[]change{keepData, bound, replaced}, Ignore},
		"kept, on every node":                 {[]change{keepData, bound, everyNode}, Ignore},
		"goes, off":                           {[]change{unfinalized, bound, notHeld}, Hold},
		"goes, on, and not noted":             {[]change{bound, notHeld}, Hold},
		"goes, on":                            {[]change{bound}, Ignore},
		"goes, off by people's hand":          {[]change{unfinalized, bound}, Ignore},
		"goes, off, being deleted":            {[]change{unfinalized, bound, notHeld, deleting}, Ignore},
		"goes, off, and its claim went first": {[]change{unfinalized, notHeld}, Delete},
	} {
		if got := ForVolume(changed(released(), c.changes)); got.Action != c.want {
			t.Errorf("%s: %s %q, want %s", name, got.Action, got.Message, c.want)
		}
	}
}

func TestForRecord(t *testing.T) {
	here := NewVolume(ready(), "pvc-u-1")
	elsewhere, unlabelled, bound := here.DeepCopy(), here.DeepCopy(), ready().Claim
	elsewhere.Labels[NodeLabel] = them
	unlabelled.Labels = nil
	theirs := elsewhere.DeepCopy()
	theirs.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"host-of-them"}
	adopted := theirs.DeepCopy()
	adopted.Annotations[AdoptedAnnotation] = "without-finalizer"
	labels := ready().NodeLabels
	givenUp, goes, goneElsewhere, otherClaim := unlabelled.DeepCopy(), unlabelled.DeepCopy(), unlabelled.DeepCopy(), unlabelled.DeepCopy()
	givenUp.Status.Phase, goes.Status.Phase = corev1.VolumeBound, corev1.VolumeReleased
	goes.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	retained := goes.DeepCopy()
	retained.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	goneElsewhere.Spec.HostPath.Path, goneElsewhere.Status.Phase = "/srv/fast/other", corev1.VolumeBound
	otherClaim.Spec.ClaimRef.UID, otherClaim.Status.Phase = "u-2", corev1.VolumeBound
	another := elsewhere.DeepCopy()
	another.Spec.ClaimRef.UID = "u-2"
	bound.Spec.VolumeName = "pvc-u-1"
	moved, recreated := ready().Claim, ready().Claim
	moved.Annotations[SelectedNode] = them
	recreated.UID = "u-2"
	leaving, leavingRetained, leavingFinalizer := goes.DeepCopy(), retained.DeepCopy(), goes.DeepCopy()
	for _, one := range []*corev1.PersistentVolume{leaving, leavingRetained, leavingFinalizer} {
		one.DeletionTimestamp, one.Finalizers = &metav1.Time{}, []string{"kubernetes.io/pv-protection"}
	}
	leavingFinalizer.Finalizers = append(leavingFinalizer.Finalizers, Finalizer)
	leavingOther := leaving.DeepCopy()
	leavingOther.Spec.ClaimRef.UID = "u-2"
	notHeld := record.Record{Unheld: true}
	sent := record.Record{Node: us, Sent: "s"}
	sentKept := record.Record{Node: us, Sent: "s", Retained: true}
	sentUnheld := record.Record{Node: us, Sent: "s", Unheld: true}
	received := record.Record{Node: us, Moving: "{}",
		Origin: record.Origin{Kind: record.Stream, Name: "x"}}
	moving, movingUnheld := record.Record{Moving: "{}"}, record.Record{Moving: "{}", Unheld: true}
	cases := []struct {
		name  string
		f     RecordFacts
		place record.Place
		want  Action
	}{
		{"published", RecordFacts{Volume: here}, record.InPool, Keep},
		{"published, its label taken off", RecordFacts{Volume: unlabelled}, record.InPool, Keep},
		{"in the trash, and its object is bound and no daemon's", RecordFacts{Volume: givenUp}, record.InTrash, PutBack},
		{"the same, half archived", RecordFacts{Volume: givenUp}, record.InArchive, PutBack},
		{"the same, and half emptied", RecordFacts{Volume: givenUp}, record.Emptying, Keep},
		{"the same, and it is released and retained", RecordFacts{Volume: retained}, record.InTrash, PutBack},
		{"the same, and it is to go", RecordFacts{Volume: goes}, record.InTrash, Keep},
		{"the same, and it lies elsewhere", RecordFacts{Volume: goneElsewhere}, record.InTrash, Keep},
		{"the same, and it is another claim's", RecordFacts{Volume: otherClaim}, record.InTrash, Keep},
		{"the same, and another node made it", RecordFacts{Record: record.Record{Node: them}, Volume: givenUp}, record.InTrash, Keep},
		{"the same, of scope every-node", RecordFacts{Record: record.Record{Scope: ScopeEveryNode}, Scope: ScopeEveryNode, Volume: givenUp}, record.InTrash, Keep},
		{"in the trash, and its object is bound and labelled", RecordFacts{Volume: here}, record.InTrash, Keep},
		{"wanted", RecordFacts{Claim: ready().Claim}, record.InPool, Keep},
		{"wanted, and in the trash: its object is not gone for good", RecordFacts{Claim: ready().Claim}, record.InTrash, Keep},
		{"wanted, and half emptied: it is made anew", RecordFacts{Claim: ready().Claim}, record.Emptying, Finish},
		{"half emptied, and the claim is bound to the lost object", RecordFacts{Claim: bound}, record.Emptying, Keep},
		{"half emptied, its object is back", RecordFacts{Volume: here}, record.Emptying, Keep},
		{"half emptied", RecordFacts{}, record.Emptying, Finish},
		{"half emptied, and its object was let go", RecordFacts{Volume: leaving}, record.Emptying, Finish},
		{"the same, and half archived", RecordFacts{Volume: leaving}, record.InArchive, Finish},
		{"the same, and whole in the trash", RecordFacts{Volume: leaving}, record.InTrash, Keep},
		{"the same, and in its place", RecordFacts{Volume: leaving}, record.InPool, Keep},
		{"half emptied, and its object was let go, and is retained", RecordFacts{Volume: leavingRetained}, record.Emptying, Keep},
		{"half emptied, and its object has the finalizer", RecordFacts{Volume: leavingFinalizer}, record.Emptying, Keep},
		{"half emptied, and the object that was let go is another claim's", RecordFacts{Volume: leavingOther}, record.Emptying, Keep},
		{"half emptied, and its object was let go, and the claim has another one", RecordFacts{Volume: leaving, Object: "pv-by-hand"}, record.Emptying, Keep},
		{"half emptied, its object was let go, and another node made it", RecordFacts{Record: record.Record{Node: them}, Volume: leaving}, record.Emptying, Keep},
		{"the same, retained by an operator", RecordFacts{Record: record.Record{Retained: true}, Volume: leaving}, record.Emptying, Keep},
		{"the same, of scope every-node", RecordFacts{Record: record.Record{Scope: ScopeEveryNode}, Scope: ScopeEveryNode, Volume: leaving}, record.Emptying, Keep},
		{"retained by an operator", RecordFacts{Record: record.Record{Retained: true}}, record.InPool, Keep},
		{"never published, no claim wants it", RecordFacts{}, record.InPool, Undo},
		{"not held, object gone", RecordFacts{Record: notHeld}, record.InPool, Retain},
		{"the same, another cluster", RecordFacts{Record: notHeld, Unsure: true}, record.InPool, Keep},
		{"the same, its claim there", RecordFacts{Record: notHeld, Claim: bound}, record.InPool, Keep},
		{"not held, object there", RecordFacts{Record: notHeld, Volume: here}, record.InPool, Keep},
		{"in the place of a CSI driver's, whose object is gone", RecordFacts{Record: record.Record{Replaced: "{}"}}, record.InPool, Keep},
		{"the same, in the trash, and half emptied", RecordFacts{Record: record.Record{Replaced: "{}"}}, record.Emptying, Finish},
		{"its object is about to be made again", RecordFacts{Record: moving}, record.InPool, Keep},
		{"the same, half emptied", RecordFacts{Record: moving}, record.Emptying, Keep},
		{"the same, archived", RecordFacts{Record: moving}, record.InArchive, Keep},
		{"the same, not held", RecordFacts{Record: movingUnheld}, record.InPool, Keep},
		{"never published, the claim went to another node", RecordFacts{Claim: moved}, record.InPool, Undo},
		{"the claim has its volume under another node's name, which may be this node's former one", RecordFacts{Claim: bound, Volume: elsewhere}, record.InPool, Keep},
		{"in the trash, and its object bears another node's name", RecordFacts{Volume: elsewhere}, record.InTrash, Keep},
		{"half emptied, and its object bears another node's name", RecordFacts{Volume: elsewhere}, record.Emptying, Keep},
		{"made here, and made and bound on another node", RecordFacts{Record: record.Record{Node: us}, Volume: theirs, NodeLabels: labels}, record.InPool, Undo},
		{"the same, and it was adopted there: a call here lost", RecordFacts{Record: record.Record{Node: us}, Volume: adopted, NodeLabels: labels}, record.InPool, Keep},
		{"the same, and only the label says so", RecordFacts{Record: record.Record{Node: us}, Volume: elsewhere, NodeLabels: labels}, record.InPool, Keep},
		{"the same, and the record names another node", RecordFacts{Record: record.Record{Node: them}, Volume: theirs, NodeLabels: labels}, record.InPool, Keep},
		{"the same, and the record names none", RecordFacts{Volume: theirs, NodeLabels: labels}, record.InPool, Keep},
		{"the same, and the other name was this node's", RecordFacts{Record: record.Record{Node: us}, Former: []string{them}, Volume: theirs, NodeLabels: labels}, record.InPool, Keep},
		{"the same, and the Node is not known", RecordFacts{Record: record.Record{Node: us}, Volume: theirs}, record.InPool, Keep},
		{"the same, and there is one of another name, too", RecordFacts{Record: record.Record{Node: us}, Volume: theirs, NodeLabels: labels, Object: "pv-by-hand"}, record.InPool, Keep},
		{"its object is for another claim", RecordFacts{Volume: another}, record.InPool, Keep},
		{"sent to the other node, and its object is that one's",
			RecordFacts{Record: sent, Volume: theirs, NodeLabels: labels}, record.InPool, Retain},
		{"the same, and retained by now",
			RecordFacts{Record: sentKept, Volume: theirs, NodeLabels: labels}, record.InPool, Keep},
		{"the same, perhaps another cluster's",
			RecordFacts{Record: sent, Volume: theirs, NodeLabels: labels, Unsure: true},
			record.InPool, Keep},
		{"the same, being dropped",
			RecordFacts{Record: sent, Volume: theirs, NodeLabels: labels}, record.Emptying, Finish},
		{"sent to another pool of this node",
			RecordFacts{Record: sent, Volume: here, Beside: true}, record.InPool, Retain},
		{"sent, and its object is about to be made",
			RecordFacts{Record: sent, Claim: bound}, record.InPool, Keep},
		{"sent, its object deleted, and not held",
			RecordFacts{Record: sentUnheld}, record.InPool, Retain},
		{"sent, and still here",
			RecordFacts{Record: sent, Volume: here}, record.InPool, Keep},
		{"received by half",
			RecordFacts{Record: received}, record.InStaging, Keep},
		{"received, its object is about to be made",
			RecordFacts{Record: received}, record.InPool, Keep},
		{"received by half, and discarded",
			RecordFacts{Record: received}, record.Emptying, Finish},
		{"the same, beside the other node's object",
			RecordFacts{Record: received, Volume: theirs, NodeLabels: labels},
			record.Emptying, Finish},
		{"the same, and emptied",
			RecordFacts{Record: received, Volume: theirs, NodeLabels: labels},
			record.Nowhere, Undo},
		{"its claim has an object of another name", RecordFacts{Object: "pv-by-hand"}, record.InPool, Keep},
		{"its claim has an object of another name, and it is in the trash", RecordFacts{Object: "pv-by-hand"}, record.InTrash, Keep},
		{"perhaps another cluster's", RecordFacts{Unsure: true}, record.InPool, Keep},
		{"perhaps another cluster's, in the trash", RecordFacts{Unsure: true}, record.InTrash, Keep},
		{"made by another node", RecordFacts{Record: record.Record{Node: them}}, record.InPool, Keep},
		{"made by another node, in staging", RecordFacts{Record: record.Record{Node: them}}, record.InStaging, Keep},
		{"made by another node, never made", RecordFacts{Record: record.Record{Node: them}}, record.Nowhere, Keep},
		{"made by another node, in the trash", RecordFacts{Record: record.Record{Node: them}}, record.InTrash, Keep},
		{"made by another node, half emptied", RecordFacts{Record: record.Record{Node: them}}, record.Emptying, Keep},
		{"made by another node, archived", RecordFacts{Record: record.Record{Node: them}}, record.InArchive, Keep},
		{"made by this node", RecordFacts{Record: record.Record{Node: us}}, record.InPool, Undo},
		{"made by this node under its former name", RecordFacts{Record: record.Record{Node: them}, Former: []string{"c", them}}, record.InPool, Undo},
		{"never published, the claim was made again by the same name", RecordFacts{Claim: recreated}, record.InPool, Undo},
		{"the object was lost, the claim is bound to it", RecordFacts{Claim: bound}, record.InPool, Keep},
		{"recorded, never made", RecordFacts{}, record.Nowhere, Undo},
		{"its object is gone, for an unknown reason", RecordFacts{}, record.InTrash, Keep},
		{"its object is gone, archived", RecordFacts{}, record.InArchive, Finish},
	}
	for _, c := range cases {
		c.f.Record.Place, c.f.Record.ClaimUID, c.f.Record.PV, c.f.Record.Directory = c.place, "u-1", "pvc-u-1", path.Base(PathOf(here))
		c.f.Node, c.f.Provisioner = us, DefaultProvisioner
		if got := ForRecord(c.f).Action; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestNewer(t *testing.T) {
	for _, c := range []struct {
		a, b          string
		newer, unsure bool
	}{{"10", "9", true, true}, {"9", "10", false, false}, {"9", "9", false, false},
		{"9", "", false, true}, {"x", "9", false, true}} {
		if Newer(c.a, c.b, false) != c.newer || Newer(c.a, c.b, true) != c.unsure {
			t.Errorf("%q and %q: not %t and %t", c.a, c.b, c.newer, c.unsure)
		}
	}
}
