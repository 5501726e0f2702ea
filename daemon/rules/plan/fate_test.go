package plan

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// state is what the API has of a volume.
type state struct {
	phase                                             corev1.PersistentVolumePhase
	policy                                            corev1.PersistentVolumeReclaimPolicy
	deleted, finalizer, claimRef, claimExists, closed bool
	scope                                             string
}

// eachState visits every combination, also those that no API server should show.
func eachState(visit func(state)) {
	both := []bool{false, true}
	for _, phase := range []corev1.PersistentVolumePhase{"", corev1.VolumePending, corev1.VolumeAvailable, corev1.VolumeBound, corev1.VolumeReleased, corev1.VolumeFailed} {
		for _, policy := range []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimRecycle, ""} {
			for _, scope := range []string{ScopeNode, ScopeShared, ScopeEveryNode} {
				for n := range 1 << 5 {
					bit := func(i int) bool { return both[n>>i&1] }
					visit(state{phase, policy, bit(0), bit(1), bit(2), bit(2) && bit(3), bit(4), scope})
				}
			}
		}
	}
}

// eachRecord visits every record that a disk can have of it, nil among them.
func eachRecord(visit func(r *record.Record, unreadable string, foreign bool)) {
	visit(nil, "", false)
	visit(nil, "", true)
	visit(nil, "torn", false)
	for _, place := range []record.Place{record.InPool, record.InStaging, record.InTrash, record.Emptying, record.InArchive, record.Nowhere} {
		for _, onDelete := range []string{OnDeleteDelete, OnDeleteArchive} {
			for n := range 4 {
				visit(&record.Record{PV: "pvc-u-1", ClaimUID: "u-1", Directory: "pvc-u-1",
					OnDelete: onDelete, Place: place, Retained: n&1 > 0, Unheld: n&2 > 0}, "", false)
			}
		}
	}
	visit(&record.Record{PV: "pvc-u-1", ClaimUID: "u-1", Directory: "pvc-u-1", Place: record.InArchive, Archived: true}, "", false)
}

func (s state) facts(r *record.Record, unreadable string, foreign bool) VolumeFacts {
	f := released()
	f.Volume.Status.Phase, f.Volume.Spec.PersistentVolumeReclaimPolicy = s.phase, s.policy
	f.Volume.Labels[ScopeLabel], f.Pool.Scope = s.scope, s.scope
	f.Record, f.Unreadable, f.Foreign, f.ClaimExists = r, unreadable, foreign, s.claimExists
	if s.scope != ScopeNode {
		delete(f.Volume.Labels, NodeLabel)
	}
	if s.deleted {
		now := metav1.Now()
		f.Volume.DeletionTimestamp = &now
	}
	if !s.finalizer {
		f.Volume.Finalizers = nil
	}
	if !s.claimRef {
		f.Volume.Spec.ClaimRef = nil
	}
	if s.closed {
		f.Closed, f.Record, f.Unreadable, f.Foreign = "/srv/fast is not mounted", nil, "", false
	}
	return f
}

// What may never be destroyed, over every state of the object and every place of the directory:
// data goes only with an object that is to go, by a policy that says so, and is not forgotten while
// it is elsewhere.
func TestNothingIsDestroyedThatIsKept(t *testing.T) {
	n := 0
	eachState(func(s state) {
		eachRecord(func(r *record.Record, unreadable string, foreign bool) {
			f := s.facts(r, unreadable, foreign)
			got := ForVolume(f)
			n++
			for _, fault := range volumeFaults(s, f, got) {
				t.Errorf("%s: %+v, record %+v %q: %s %s %q", fault, s, r, unreadable, got.Action, got.Reason, got.Message)
			}
		})
	})
	if n < 10_000 {
		t.Errorf("only %d combinations", n)
	}
}

func volumeFaults(s state, f VolumeFacts, got Verdict) (all []string) {
	moves := []Action{Delete, Archive, LetGo, Retain, PutBack}
	removes := got.Action == Delete || got.Action == Archive || got.Action == LetGo
	whole := f.Record != nil && (f.Record.Place == record.InTrash || f.Record.Place == record.InArchive)
	for fault, is := range map[string]bool{
		"removed, and the policy does not say so":        removes && s.policy != corev1.PersistentVolumeReclaimDelete,
		"removed, and its claim exists":                  removes && s.claimExists,
		"removed, and it may be in a pod":                removes && (s.phase == corev1.VolumeBound || s.phase == corev1.VolumePending || s.phase == ""),
		"removed, and waits for another claim":           removes && !s.claimRef && !s.deleted,
		"something is done in a closed pool":             slices.Contains(moves, got.Action) && s.closed,
		"something is done with a record unread":         slices.Contains(moves, got.Action) && f.Unreadable != "",
		"deleted without a record":                       (got.Action == Delete || got.Action == Archive) && f.Record == nil,
		"a stranger's directory is removed or forgotten": removes && f.Foreign,
		"the object goes and its directory is forgotten": got.Action == LetGo && f.Record != nil && f.Record.Place != record.Nowhere,
		"retained, and its directory stays elsewhere":    got.Action == Retain && whole,
		"retained, and not put back": whole && s.policy != corev1.PersistentVolumeReclaimDelete && s.phase == corev1.VolumeReleased &&
			!s.closed && got.Action != PutBack && (s.claimRef || s.scope != ScopeEveryNode),
		"in use, and not put back": whole && s.phase == corev1.VolumeBound && s.claimExists && s.scope != ScopeEveryNode && !s.closed && got.Action != PutBack,
		"put back, and nothing is": got.Action == PutBack && !whole,
		"the advice destroys":      strings.Contains(got.Message, "delete the claim"),
	} {
		if is {
			all = append(all, fault)
		}
	}
	hold, unhold := got.Action == Hold, got.Action == Unhold
	goes := s.policy == corev1.PersistentVolumeReclaimDelete
	if hold && !goes || unhold && goes {
		all = append(all, "held, and the policy does not say so")
	}
	inPlace := f.Record != nil && f.Record.Place == record.InPool
	if (hold || unhold) && (s.closed || !inPlace) {
		all = append(all, "nothing notes that it is not held")
	}
	if hold && !f.Record.Unheld {
		all = append(all, "held against the administrator")
	}
	return all
}

// The same without an object: nothing whole goes on the word of its absence.
func TestNothingWholeGoesWithoutItsObject(t *testing.T) {
	pv, bound, waits := NewVolume(ready(), "pvc-u-1"), ready().Claim, ready().Claim
	bound.Spec.VolumeName = "pvc-u-1"
	recreated, elsewhere := ready().Claim, pv.DeepCopy()
	recreated.UID, elsewhere.Labels[NodeLabel] = "u-2", them
	n := 0
	for _, object := range []*corev1.PersistentVolume{nil, pv, elsewhere} {
		for _, claim := range []*corev1.PersistentVolumeClaim{nil, bound, waits, recreated} {
			for _, scope := range []string{ScopeNode, ScopeShared, ScopeEveryNode} {
				for _, tombstone := range []*Tombstone{nil, {PV: "pvc-u-1", ClaimUID: "u-1", Data: Delete}, {PV: "pvc-u-1", ClaimUID: "u-1", Data: Retain}} {
					eachRecord(func(r *record.Record, _ string, _ bool) {
						if r == nil {
							return
						}
						n++
						r.Scope = scope
						f := RecordFacts{Record: *r, Volume: object, Claim: claim, Tombstone: tombstone, Self: self, Scope: scope}
						got := ForRecord(f)
						for _, fault := range recordFaults(f, got) {
							t.Errorf("%s: %s %s of %+v, object %v, claim %v, tombstone %+v", fault, got.Action, got.Reason, *r, object != nil, claim != nil, tombstone)
						}
					})
				}
			}
		}
	}
	if n < 1000 {
		t.Errorf("only %d combinations", n)
	}
}

func recordFaults(f RecordFacts, got Verdict) (all []string) {
	r, touched := f.Record, got.Action != Keep
	buried := f.Record.Scope == ScopeEveryNode && f.Tombstone != nil && f.Volume == nil
	alive := f.Claim != nil && string(f.Claim.UID) == r.ClaimUID
	ours := f.Volume != nil && (f.Volume.Labels[NodeLabel] == NodeLabelValue(us) || f.Scope == ScopeShared)
	for fault, is := range map[string]bool{
		"touched, and retained":                 touched && r.Retained,
		"touched, and its object is there":      touched && ours,
		"whole, and its files go":               got.Action == Finish && r.Place == record.InTrash,
		"whole, and gone without a word for it": touched && r.Place == record.InTrash && !buried,
		"kept without an object, and not told":  r.Place == record.InTrash && !touched && !r.Retained && f.Volume == nil && !alive && got.Reason != ReasonOrphaned,
		"taken back, and it was in a pod":       got.Action == Undo && (r.Place == record.InTrash || r.Place == record.Emptying || r.Place == record.InArchive),
		"deleted, and its claim is there":       got.Action == Delete && alive,
		"deleted, and the word is to retain it": (got.Action == Delete || got.Action == Finish && r.Place != record.InArchive) && buried && !alive && f.Tombstone.Data == Retain,
	} {
		if is {
			all = append(all, fault)
		}
	}
	return all
}
