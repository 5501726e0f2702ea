package model

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A volume of others can be kept for the claims of a name (spec.claimRef). kube-controller-manager
// binds such a claim to it and asks no provisioner. With act_on_selected_node a daemon does not
// wait until a provisioner is asked for.

// keeping is for which claim a volume is kept.
type keeping uint8

const (
	forNone   keeping = iota // there is no such volume
	byName                   // for each claim of the name
	byUID                    // for one of them
	boundToIt                // that one has it
)

// kept is the volume object that is kept for the claims of a name.
type kept struct {
	keeping
	life uint8 // of the claim, if it is kept for one of them
}

// free reports whether a claim without a volume can have it.
func (k kept) free(c claim) bool {
	return k.keeping == byName || k.keeping == byUID && k.life == c.life
}

func keptName(slot int) string { return "kept-" + slotName(slot) }

// keptObject is the volume object as the API server returns it. Its path is in no pool.
func keptObject(slot int, k kept) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: keptName(slot), UID: types.UID(keptName(slot)), ResourceVersion: "1"}}
	v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/srv/others/" + slotName(slot)}
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: slotName(slot)}
	v.Status.Phase = corev1.VolumeAvailable
	if k.keeping != byName {
		v.Spec.ClaimRef.UID = types.UID(uidOf(slot*lives + int(k.life)))
	}
	if k.keeping == boundToIt {
		v.Status.Phase = corev1.VolumeBound
	}
	return v
}

// ownClaim is claimOf where that claim has, or can have, the volume that is made for it: it was not
// bound to one that was kept.
func (e *etcd) ownClaim(cell int) (claim, bool) {
	c, exists := e.claimOf(cell)
	return c, exists && !c.elsewhere
}

// keepsData reports whether a volume stays, as is told, though its claim is bound to another one: a
// restored etcd had unbound the claim when the volume had data, or people had set Retain before it
// was made again.
func (s *state) keepsData(on onFile, cell int) bool {
	c, exists := s.api.claimOf(cell)
	return exists && c.elsewhere && (on.data != "" || on.retained)
}

// FewVolumes is part of controller.API. Volumes that are kept for no claim make no difference.
func (s server) FewVolumes(_ context.Context, _ int64, visit func(*corev1.PersistentVolume)) (all bool, err error) {
	a, err := s.ask(op{kind: fewVolumes})
	if err != nil {
		return false, err
	}
	s.visitKept(a.etcd, visit)
	return true, nil
}

// visitKept visits the volumes that are kept for claims.
func (s server) visitKept(id uint32, visit func(*corev1.PersistentVolume)) {
	for slot, k := range s.p.tree.etcds.value(id).kept {
		if k.keeping != forNone {
			visit(keptObject(slot, k))
		}
	}
}

// volumeKept: people make a volume, or the scheduler chose one that is there, for a claim that has
// none.
func volumeKept(as keeping) func(*worker, *state, int) bool {
	return func(_ *worker, s *state, slot int) bool {
		c, k := s.api.claims[slot], &s.api.kept[slot]
		if slot >= int(s.names) || k.keeping != forNone || c.bound || as == byUID && !c.exists || !s.spend(keeps) {
			return false
		}
		*k = kept{keeping: as}
		if as == byUID {
			k.life = c.life
		}
		return true
	}
}

func keptDeleted(_ *worker, s *state, slot int) bool {
	k := &s.api.kept[slot]
	if k.keeping == forNone || k.keeping == boundToIt || !s.spend(keeps) {
		return false
	}
	*k = kept{}
	return true
}

// bindsKept: kube-controller-manager finds the volume before, or in place of, the one that is made
// for the claim (syncUnboundClaim).
func bindsKept(_ *worker, s *state, slot int) bool {
	c, k := &s.api.claims[slot], &s.api.kept[slot]
	if !c.exists || c.bound || !k.free(*c) {
		return false
	}
	c.bound, c.elsewhere, *k = true, true, kept{boundToIt, c.life}
	return true
}

// asksFor: kube-controller-manager has found no volume for a claim, and asks its provisioner for
// one.
func asksFor(_ *worker, s *state, slot int) bool {
	c := &s.api.claims[slot]
	if !c.exists || c.bound || c.open || !c.unasked || s.api.kept[slot].free(*c) ||
		s.api.volumes[cellOf(slot, *c)].exists {
		return false
	}
	if c.unasked = false; s.ofPods() {
		c.turn = next(c.turn)
	}
	return true
}

// bars notes, when a daemon begins a piece of work, the claims for which nothing is to be made in
// it, as long as the volumes that are kept for them are there: those of which it knows that no
// provisioner was asked.
func (w *worker) bars(s *state, node int) (barred uint8) {
	known, now := w.view(s, node), s.reached()
	for slot, c := range known.claims {
		if c.exists && c.unasked && now.kept[slot].free(c) {
			barred |= 1 << slot
		}
	}
	return barred
}

// hastens notes that a daemon makes a directory for such a claim.
func (s *state) hastens(node int, o op) {
	if o.kind != onDisk || o.disk.name != "Create" || o.disk.cell < 0 {
		return
	}
	slot := o.disk.cell / lives
	c := claim{life: uint8(o.disk.cell % lives)}
	s.hasty = s.hasty || s.daemons[node].barred>>slot&1 == 1 && s.api.kept[slot].free(c)
}

func keptFirst(s *state, _ onFile, _ int) string {
	if s.hasty {
		return "no provisioner was asked for its claim, and a volume was kept for that before"
	}
	return ""
}
