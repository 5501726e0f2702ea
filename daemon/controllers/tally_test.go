package controllers

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Each volume is counted once, by its object where it has one, and every state has a number from
// the start.
func TestTally(t *testing.T) {
	var tally tally
	if tally.place("pvc-early", "trash"); tally.sum(nil) != nil {
		t.Error("something is counted before the records were read")
	}
	object := func(name string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		v.Status.Phase = phase
		return v
	}
	tally.count(volume.Inventory{
		Volumes: []record.Record{
			{PV: "pvc-bound", Place: record.InPool}, {PV: "pvc-gone", Place: record.Nowhere},
			{PV: "pvc-orphan", Place: record.InPool}, {PV: "pvc-foreign", Place: record.InPool},
			{PV: "pvc-kept", Place: record.InPool, Retained: true},
			{PV: "pvc-trash", Place: record.InTrash}, {PV: "pvc-emptying", Place: record.Emptying},
			{PV: "pvc-released", Place: record.InTrash},
			{PV: "snapshot-a", Place: record.InPool, Kind: record.Snapshot},
			{PV: "csi-a", Place: record.InPool, Kind: record.Inline},
		},
		Archived: []record.Record{{PV: "pvc-0", Place: record.InArchive}},
		Damaged:  []volume.Damaged{{File: "pvc-broken.json"}, {File: "pvc-lone.json"}},
	})
	objects := []*corev1.PersistentVolume{
		object("pvc-bound", "Bound"), object("pvc-gone", "Bound"), object("pvc-new", ""),
		object("pvc-broken", "Bound"), object("pvc-released", "Released")}
	tally.lack("pvc-gone", true)
	tally.judge("pvc-orphan", stateOrphaned)
	tally.judge("pvc-foreign", stateUnwatched)
	tally.compared()
	want := map[string]int{
		"bound": 1, "missing": 1, "pending": 1, "damaged": 2, "released": 1, "orphaned": 1,
		"unwatched": 1, "retained": 1, "trash": 2, "archive": 1, "snapshot": 1, "inline": 1, "available": 0, "failed": 0, "staging": 0}
	if got := tally.sum(objects); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	// What is in its place again, purged, or has its object again is counted as that at once.
	tally.only(map[string]bool{})
	tally.place("pvc-emptying", "")
	tally.place("pvc-orphan", "trash")
	objects = append(objects, object("pvc-foreign", "Bound"))
	want["missing"], want["bound"], want["orphaned"], want["unwatched"] = 0, 3, 0, 0
	if got := tally.sum(objects); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	// What a later round does not find again is over.
	tally.judge("pvc-x", stateOrphaned)
	tally.count(volume.Inventory{Volumes: []record.Record{{PV: "pvc-x", Place: record.InPool}}})
	if got := tally.sum(nil); got["orphaned"] != 1 {
		t.Errorf("while the round lasts: %v", got)
	}
	if tally.compared(); tally.sum(nil)["orphaned"] != 0 {
		t.Error("after the round it is still counted")
	}
	if tally.stop(); tally.sum(nil) != nil {
		t.Error("a daemon that does not work in the pool counts")
	}
}
