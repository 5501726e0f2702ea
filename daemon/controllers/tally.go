package controllers

import (
	"maps"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// States that a volume is counted under, in the words of the volumes command. One is counted once.
const (
	stateMissing   = "missing"   // an object says that its data is here, and it is not
	stateDamaged   = "damaged"   // its record cannot be read
	stateOrphaned  = "orphaned"  // it has data, and no object
	stateUnwatched = "unwatched" // its object has not this node's labels
	stateRetained  = "retained"
	stateSnapshot  = "snapshot"
	stateInline    = "inline"
)

// states are all, so that each has a series from the start; the first are phases of objects.
var states = []string{
	"available", "bound", "released", "failed", "pending",
	stateMissing, stateDamaged, stateOrphaned, stateUnwatched,
	stateRetained, stateSnapshot, stateInline,
	string(record.InTrash), string(record.InArchive), string(record.InStaging),
}

// tally is what the last comparison of a pool's records found that its watched objects do not tell.
type tally struct {
	mu       sync.Mutex
	counted  bool
	round    int
	records  map[string]string // the state of each, as far as its record tells it
	damaged  map[string]bool
	archived int
	judged   map[string]judged // records without a watched object
	lost     map[string]bool   // objects without data
}

// judged is what came of a record in a round, "orphaned" or "unwatched".
type judged struct {
	state string
	round int
}

// count takes what is in the pool, and begins a round.
func (t *tally) count(inventory volume.Inventory) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counted, t.round, t.archived = true, t.round+1, len(inventory.Archived)
	t.records, t.damaged = map[string]string{}, map[string]bool{}
	for _, d := range inventory.Damaged {
		t.damaged[strings.TrimSuffix(d.File, ".json")] = true
	}
	for _, r := range inventory.Volumes {
		t.records[r.PV] = recordedState(r)
	}
}

// recordedState is what a record tells of a volume without an object, "" for nothing.
func recordedState(r record.Record) string {
	switch {
	case r.Place == record.Emptying:
		return string(record.InTrash)
	case r.Place == record.Nowhere:
		return ""
	case r.Place != record.InPool:
		return string(r.Place)
	case r.Kind == record.Inline:
		return stateInline
	case r.Retained:
		return stateRetained
	case r.Kind == record.Snapshot:
		return stateSnapshot
	}
	return ""
}

// compared ends a round in which all records were judged: what was not found again is over.
func (t *tally) compared() {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.judged, func(_ string, j judged) bool { return j.round < t.round })
}

// judge notes what a record without a watched object is.
func (t *tally) judge(pv, state string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	put(&t.judged, pv, judged{state, t.round})
}

// lack notes whether an object's data is missing.
func (t *tally) lack(pv string, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.lost, pv); is {
		put(&t.lost, pv, true)
	}
}

// only drops those of whose data nothing is missing any more.
func (t *tally) only(suspects map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.lost, func(pv string, _ bool) bool { return !suspects[pv] })
}

// place notes where a record's volume went, "" where the record is gone.
func (t *tally) place(pv, state string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.counted {
		return
	}
	delete(t.judged, pv)
	if delete(t.records, pv); state != "" {
		t.records[pv] = state
	}
}

// stop forgets all: this daemon does not work in the pool any more.
func (t *tally) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counted, t.records, t.damaged, t.judged, t.lost = false, nil, nil, nil, nil
}

// sum is how many volumes are in each state, with the objects of the pool that are watched; nil
// before the records were read.
func (t *tally) sum(objects []*corev1.PersistentVolume) map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.counted {
		return nil
	}
	n, seen := map[string]int{}, map[string]bool{}
	for _, state := range states {
		n[state] = 0
	}
	for _, v := range objects {
		seen[v.Name] = true
		switch {
		case t.lost[v.Name]:
			n[stateMissing]++
		case t.damaged[v.Name]:
			n[stateDamaged]++
		case v.Status.Phase == "":
			n["pending"]++
		default:
			n[strings.ToLower(string(v.Status.Phase))]++
		}
	}
	for pv := range t.damaged {
		if !seen[pv] {
			n[stateDamaged]++
		}
	}
	for pv, state := range t.records {
		if j, is := t.judged[pv]; is {
			state = j.state
		}
		if state != "" && !seen[pv] {
			n[state]++
		}
	}
	n[string(record.InArchive)] += t.archived
	return n
}

// States is how many volumes of a pool are in each state, nil before its records were read.
func (c *volumes) States(pool string) map[string]int {
	w := c.workers[pool]
	if w == nil || pool == "" {
		return nil
	}
	return w.tally.sum(c.volumesIn(pool))
}
