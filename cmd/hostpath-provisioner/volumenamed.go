package main

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// named is the object of a record's name. A label is easily lost (a backup program, a hand), and a
// volume in use is not orphaned for that.
type named struct {
	volume *corev1.PersistentVolume // nil: the API server has none
	err    error                    // why it was not asked
}

// objectOf is the object, if it is the record's: for its claim, or with its directory. In the place
// of one that adopt replaces another provisioner's may be there.
func (n named) objectOf(r record.Record) *corev1.PersistentVolume {
	if n.volume == nil {
		return nil
	}
	ref := n.volume.Spec.ClaimRef
	ofClaim := r.Replaced == "" && ref != nil && ref.UID != "" && string(ref.UID) == r.ClaimUID
	if ofClaim || path.Base(plan.PathOf(n.volume)) == r.Directory {
		return n.volume
	}
	return nil
}

// listedThough are reasons for which a pool of the right storage is closed: what is left there is
// to be seen.
var listedThough = []string{plan.ReasonScopeChanged, plan.ReasonOtherNode}

// lookUpAtOnce bounds how many requests are in flight.
const lookUpAtOnce = 16

// lookUp reads the objects of records that none of those that were listed is of.
func (p *program) lookUp(ctx context.Context, disks []disk, all *objects) {
	if all.err != nil {
		return
	}
	late := fmt.Errorf("no response within %s", apiDeadline)
	ctx, cancel := context.WithTimeoutCause(ctx, apiDeadline, late)
	defer cancel()
	all.named = map[string]named{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, lookUpAtOnce)
	for _, pv := range withoutObject(disks, *all) {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			object, err := all.client.GetVolume(ctx, pv)
			mu.Lock()
			defer mu.Unlock()
			all.named[pv] = named{object, err}
		})
	}
	asking.Wait()
	for pv, n := range all.named {
		if n.err != nil {
			fmt.Fprintf(p.stderr, "%s: warning: whether volume %s has a PersistentVolume is not known: %v\n",
				name, printable(pv), n.err)
			return // of the rest the states tell
		}
	}
}

func withoutObject(disks []disk, all objects) (names []string) {
	for _, d := range disks {
		if d.stranger != nil {
			continue
		}
		known, others := ofPool(d.pool, all.volumes), ofPool(d.pool, all.others)
		for _, v := range d.inventory.Volumes {
			if v.Kind == record.Volume && known[v.PV] == nil && others[v.PV] == nil {
				names = append(names, v.PV)
			}
		}
	}
	return names
}

// warnUnwatched says once what may be done about volumes that no daemon of this node watches.
func (p *program) warnUnwatched(volumes []volumeRow) {
	n, elsewhere := 0, map[string]int{}
	for _, v := range volumes {
		switch {
		case v.Node != "":
			elsewhere[v.Pool+" --from-node "+printable(v.Node)]++
		case v.Unwatched:
			n++
		}
	}
	for _, of := range slices.Sorted(maps.Keys(elsewhere)) {
		fmt.Fprintf(p.stderr, "%s: warning: volumes that are here, "+
			"and whose PersistentVolume is another node's: %d; "+
			"if their disk was moved to this node for good, run: hostpath-provisioner import %s\n",
			name, elsewhere[of], of)
	}
	if n > 0 {
		fmt.Fprintf(p.stderr, "%s: warning: volumes whose PersistentVolume has not the labels "+
			"by which this node's daemon finds it: %d; see LabelsMissing in troubleshooting.md\n", name, n)
	}
}
