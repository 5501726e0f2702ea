package model

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// unit is the size of a claim that is made, in bytes. Sizes are whole units.
const unit = 1 << 30

// more is how many units a size has beside the first one.
type more uint8

// most is what a claim requests at most.
const most more = 2

func (m more) bytes() int64 { return unit * (1 + int64(m)) }

func (m more) quantity() resource.Quantity {
	return *resource.NewQuantity(m.bytes(), resource.BinarySI)
}

func (m more) list() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: m.quantity()}
}

// moreThanOne is the opposite of more.bytes. What is less than a unit is one.
func moreThanOne(bytes int64) more { return more(max(bytes/unit, 1) - 1) }

func moreOf(of corev1.ResourceList) more {
	size := of[corev1.ResourceStorage]
	return moreThanOne(size.Value())
}

// resizing is the state of an expansion in a claim's status.
type resizing uint8

const (
	noGrowth resizing = iota
	inProgress
	infeasible
)

var resizings = []corev1.ClaimResourceStatus{"", corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible}

// growth is what a claim requests, what it has, and what becomes of the difference.
type growth struct {
	asks, has more
	allocated more
	state     resizing
	version   uint8 // since it was bound
}

func (g growth) status() corev1.PersistentVolumeClaimStatus {
	s := corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: g.has.list()}
	if g.state != noGrowth || g.allocated > 0 {
		s.AllocatedResources = g.allocated.list()
	}
	if g.state != noGrowth {
		s.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: resizings[g.state]}
	}
	return s
}

// growthOf is what the world keeps of a claim's sizes.
func growthOf(c *corev1.PersistentVolumeClaim) (g growth) {
	g.asks, g.has, g.allocated = moreOf(c.Spec.Resources.Requests), moreOf(c.Status.Capacity), moreOf(c.Status.AllocatedResources)
	g.state = resizing(max(slices.Index(resizings, c.Status.AllocatedResourceStatuses[corev1.ResourceStorage]), 0))
	if version, err := strconv.Atoi(c.ResourceVersion); err == nil {
		g.version = uint8(version - 2)
	}
	return g
}

// patched is what a claim has after a change of its status.
func (g growth) patched(s plan.ClaimStatus) growth {
	if s.Capacity != nil {
		g.has = moreThanOne(s.Capacity.Value())
	}
	if s.Allocated != nil {
		g.allocated = moreThanOne(s.Allocated.Value())
	}
	g.state = resizing(slices.Index(resizings, s.State))
	return g
}

// PatchClaimStatus is part of controller.API.
func (s server) PatchClaimStatus(_ context.Context, c *corev1.PersistentVolumeClaim, status plan.ClaimStatus) (*corev1.PersistentVolumeClaim, error) {
	cell := numberOf(c.Spec.VolumeName)
	a, err := s.ask(op{kind: writeStatus, at: cell, grow: growthOf(c).patched(status)})
	if err != nil {
		return nil, err
	}
	return claimObject(cell/lives, a.claim), nil
}

// SetCapacity is part of controller.API.
func (s server) SetCapacity(_ context.Context, pv *corev1.PersistentVolume, size resource.Quantity) error {
	given := volumeOf(pv)
	given.size = moreThanOne(size.Value())
	_, err := s.ask(op{kind: writeCapacity, at: numberOf(pv.Name), with: given})
	return err
}

// grow is Client.PatchClaimStatus (daemon/kube) and what the API server does with its patch. One of
// a claim that is gone is not told from one that was changed: the product does the same.
func (e *etcd) grow(cell int, to growth) response {
	c, exists := e.claimOf(cell)
	if !exists || !c.bound || c.version != to.version {
		return response{fault: conflict}
	}
	to.asks, to.version = c.asks, next(c.version)
	c.growth = to
	e.claims[cell/lives] = c
	return response{claim: c}
}

// enlarge is Client.SetCapacity (daemon/kube) and what the API server does with its patch.
func (e *etcd) enlarge(cell int, given object) response {
	now := e.volumes[cell]
	if !now.exists || now.version != given.version {
		return response{fault: conflict}
	}
	if now.size != given.size { // else nothing is written
		now.size, now.version = given.size, next(now.version)
		e.volumes[cell] = now
	}
	return response{}
}

// requested is a change of what a claim requests by people. The API server takes more, and less as
// long as that is more than the claim has (pkg/apis/core/validation,
// ValidatePersistentVolumeClaimUpdate).
func requested(asks func(more) more) func(*worker, *state, int) bool {
	return func(_ *worker, s *state, slot int) bool {
		c := &s.api.claims[slot]
		to := asks(c.asks)
		if !c.exists || !c.bound || to <= c.has || to > most || to == c.asks || !s.spend(sizes) {
			return false
		}
		c.asks, c.version = to, next(c.version)
		return true
	}
}

var (
	moreRequested = requested(func(asks more) more { return asks + 1 })
	lessRequested = requested(func(asks more) more { return asks - min(asks, 1) })
)

// recordIn is what the text of a record says, nothing if it was not written yet.
func recordIn(text string) (r record.Record) {
	_ = json.Unmarshal([]byte(text), &r)
	return r
}

func sizeIn(r record.Record) more { return moreThanOne(r.Requested) }

// promised is what the pool keeps for a volume, in units: as its account counts it (daemon/disk,
// promises).
func (f files) promised(pv string, at record.Place) (sum uint8) {
	text := cmp.Or(f[own+"/volumes/"+pv+".json"], f[own+"/volumes/"+pv+".json.new"])
	if text != "" && at != nowhere {
		sum = 1 + uint8(sizeIn(recordIn(text)))
	}
	for path, text := range f {
		if strings.HasPrefix(path, own+"/archive/"+pv) && strings.HasSuffix(path, ".json") {
			sum += 1 + uint8(sizeIn(recordIn(text)))
		}
	}
	return sum
}

// total notes what the pool keeps for all its volumes.
func (m *image) total() {
	all := m.snapshot.promised
	for _, c := range m.cells {
		all += c.promised
	}
	for cell := range m.cells {
		m.cells[cell].all = all
	}
}

// fits reports whether a pool has room for one more unit.
func (s *state) fits(on onFile) bool {
	room := s.daemons[0].room
	return room == 0 || on.all < room
}

func sizeKept(s *state, on onFile, cell int) string {
	c, exists := s.api.claimOf(cell)
	v := s.api.volumes[cell]
	switch {
	case !exists || !c.bound || !v.exists || v.phase != bound || on.place != inPool:
	case c.has > v.size:
		return "its claim has more than its volume object says"
	case s.poolOf(cell) != sharedPool: // of that see recordKeepsUp
		return sizeInRecordKept(s, on, cell)
	}
	return ""
}

// sizesRestored: a claim that is as it was when etcd was saved has the version of then, and every
// other one a version that nothing in flight has.
func (e *etcd) sizesRestored(was *etcd) {
	for slot := range e.claims {
		before, now := was.claims[slot], &e.claims[slot]
		if now.version = before.version; *now != before {
			now.version = (before.version + 8) % 16
		}
		if !now.exists || now.growth == (growth{version: now.version}) && before.growth == (growth{version: before.version}) {
			now.version = 0 // it never grew
		}
	}
}

func growthSettles(s *state, on onFile, cell int) string {
	c, exists := s.api.claimOf(cell)
	v := s.api.volumes[cell]
	if !exists || !c.bound || c.asks <= c.has || !v.exists || v.phase != bound || v.deleting || on.place != inPool {
		return ""
	}
	room := s.daemons[0].room
	switch {
	case c.asks <= on.size || on.all+uint8(c.asks-on.size) <= room:
		return "its claim has not what it requests, and there is room"
	case c.state != infeasible || c.allocated != c.asks:
		return "its claim is not told that there is no room"
	}
	return ""
}

// Who takes a lease over counts what the pool has promised: others changed that meanwhile.

// recounts has a daemon forget what it knows of the shared pool's promises, also in the middle of
// its work.
func (w *worker) recounts(s *state, node int) {
	d := &s.daemons[node]
	if d.room == 0 {
		return
	}
	forget := func(id uint32) uint32 {
		m := w.tree.memories.value(id)
		m.Promised = maps.Clone(m.Promised)
		delete(m.Promised, poolNames[sharedPool])
		return w.tree.remember(m)
	}
	if at := w.tree.place(d.task); at == nil {
		d.memory = forget(d.memory)
	} else if d.beside == 0 {
		d.beside = forget(at.memory)
	} else {
		d.beside = forget(d.beside)
	}
}

// counts reports whether a daemon's account of a pool can be compared with the records: of a shared
// pool that of the daemon that works there, once another one has ended what it was paused in and
// the records were looked at.
func (s *state) counts(node, pool int) bool {
	e := s.daemons[node].elector
	return pool != sharedPool || e.role() == leading && e.term == s.lease.token
}

// recordKeepsUp: a daemon of a shared pool that was paused in the middle of an expansion writes its
// size after the next daemon's.
func recordKeepsUp(s *state, on onFile, cell int) string {
	if s.poolOf(cell) != sharedPool {
		return ""
	}
	return sizeInRecordKept(s, on, cell)
}

// sizeInRecordKept compares the size that a volume object says with the record's.
func sizeInRecordKept(s *state, on onFile, cell int) string {
	c, exists := s.api.claimOf(cell)
	v := s.api.volumes[cell]
	if exists && c.bound && v.exists && v.phase == bound && on.place == inPool && v.size > on.size {
		return "its volume object says more than its record"
	}
	return ""
}

// A clone is a claim with the second name, of the claim with the first one. Its copy is a part of
// the work on its claim: the model plays it to its end before the daemon does anything else.

// origin is what a volume's record says of the claim that it was copied from, and whether its
// object was not to be made yet.
func (f files) origin(pv string) (uid string, half bool) {
	volumes, archive := own+"/volumes/"+pv, own+"/archive/"+pv
	r := recordIn(cmp.Or(f[volumes+".json"], f[volumes+".json.new"], f[archive+".json"]))
	return r.Origin.UID, r.Origin.UID != "" && r.Unpublished
}

// cloneable reports whether there is a claim that can be cloned.
func (s *state) cloneable() bool {
	c := s.api.claims[0]
	cell := cellOf(0, c)
	v := s.api.volumes[cell]
	return c.exists && c.bound && v.exists && v.ref && !s.consent[chosen][cell]
}
