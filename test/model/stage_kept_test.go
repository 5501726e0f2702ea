package model

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
)

// What the stage has for volumes that are kept for claims. The real kube-controller-manager binds,
// or asks a provisioner, as soon as there is a claim: here its controller of volumes is off, and
// the stage does its steps when the order comes to them.

// planes are the control planes of a test, each started when it is needed.
type planes struct {
	*testing.T
	whole, unbound *cluster.Cluster
}

// of is the control plane that a world is played on.
func (p *planes) of(w world) *cluster.Cluster {
	p.Helper()
	if w.unasked {
		if p.unbound == nil {
			p.unbound = fixture.OwnPlane(p.T, "--kcm-flag=--controllers=*,-persistentvolume-binder-controller")
		}
		return p.unbound
	}
	if p.whole == nil {
		p.whole = fixture.OwnPlane(p.T)
	}
	return p.whole
}

// waitsAs is the name under which a request waits. The daemon reads few volume objects by the same
// request as all of them.
func waitsAs(o op) string {
	if o.kind == fewVolumes {
		o.kind = eachVolume
	}
	return o.String()
}

// claimOf is the claim of a name that there is.
func (st *stage) claimOf(slot int) (*corev1.PersistentVolumeClaim, error) {
	claims := st.Client().CoreV1().PersistentVolumeClaims(st.Namespace)
	return claims.Get(st.Ctx, slotName(slot), metav1.GetOptions{})
}

func (st *stage) claimIs(slot int, patch string, subresource ...string) error {
	_, err := st.Client().CoreV1().PersistentVolumeClaims(st.Namespace).Patch(st.Ctx, slotName(slot), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
	return err
}

func (st *stage) volumeIs(name, patch string, subresource ...string) error {
	_, err := st.Client().CoreV1().PersistentVolumes().Patch(st.Ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
	return err
}

// bindsTo has a claim have a volume.
func (st *stage) bindsTo(slot int, volume string) error {
	return errors.Join(
		st.volumeIs(volume, `{"status":{"phase":"Bound"}}`, "status"),
		st.claimIs(slot, fmt.Sprintf(`{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":%q}}`, volume)),
		st.claimIs(slot, `{"status":{"phase":"Bound","accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Mi"}}}`, "status"))
}

func (st *stage) binds(_ state, cell int) error {
	if !st.first.unasked {
		return nil // the real one has done it already, or does
	}
	return st.bindsTo(cell/lives, st.real(cell))
}

func (st *stage) releases(_ state, cell int) error {
	if !st.first.unasked {
		return nil
	}
	return st.volumeIs(st.real(cell), `{"status":{"phase":"Released"}}`, "status")
}

func (st *stage) bindsKept(before state, slot int) error {
	uid := st.real(cellOf(slot, before.api.claims[slot]))[len("pvc-"):]
	return errors.Join(st.volumeIs(st.kept(slot), fmt.Sprintf(`{"spec":{"claimRef":{"uid":%q}}}`, uid)), st.bindsTo(slot, st.kept(slot)))
}

func (st *stage) asks(_ state, slot int) error {
	return st.claimIs(slot, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, plan.StorageProvisioner, st.Provisioner))
}

// kept is the name of the volume that is kept for the claims of a name.
func (st *stage) kept(slot int) string { return st.Namespace + "-" + keptName(slot) }

// volumeKept makes a volume for the claims of a name, or for the one of them that there is.
func keepsVolume(as keeping) func(*stage, state, int) error {
	return func(st *stage, before state, slot int) error {
		v := keptObject(slot, kept{keeping: byName})
		v.ObjectMeta = metav1.ObjectMeta{Name: st.kept(slot)}
		v.Spec.StorageClassName, v.Spec.ClaimRef.Namespace = st.class, st.Namespace
		v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		v.Spec.Capacity = more(0).list()
		if as == byUID {
			v.Spec.ClaimRef.UID = types.UID(st.real(cellOf(slot, before.api.claims[slot]))[len("pvc-"):])
		}
		_, err := st.Client().CoreV1().PersistentVolumes().Create(st.Ctx, v, metav1.CreateOptions{})
		return err
	}
}

func (st *stage) keptDeleted(_ state, slot int) error {
	return st.Client().CoreV1().PersistentVolumes().Delete(st.Ctx, st.kept(slot), metav1.DeleteOptions{})
}

// seenKept notes the volumes that are kept.
func (st *stage) seenKept(s *state) error {
	for slot := range int(st.first.names) {
		v, err := st.Client().CoreV1().PersistentVolumes().Get(st.Ctx, st.kept(slot), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		k := &s.api.kept[slot]
		if k.keeping = byName; v.Spec.ClaimRef.UID == "" {
			continue
		}
		if k.keeping = byUID; v.Status.Phase == corev1.VolumeBound {
			k.keeping = boundToIt
		}
		for cell, name := range st.known() {
			if name == "pvc-"+string(v.Spec.ClaimRef.UID) {
				k.life = uint8(cell % lives)
			}
		}
	}
	return nil
}

// keptClaim notes of a claim whether a provisioner was asked for it, and whether it has the volume
// that was kept for it.
func (st *stage) keptClaim(c *claim, slot int, of *corev1.PersistentVolumeClaim) {
	c.unasked = of.Annotations[plan.StorageProvisioner] == ""
	c.elsewhere = of.Spec.VolumeName == st.kept(slot)
}

// binderSettles is what the controller of volumes goes on to do by itself. What it meant to change
// may have gone meanwhile.
func (st *stage) binderSettles(seen state) {
	st.Helper()
	if !st.first.unasked {
		return
	}
	for _, e := range events {
		for i := range e.objects(&st.first) {
			then, binders := seen, strings.HasPrefix(e.name, "kube-controller-manager ")
			if !binders || !e.apply(st.worker, &then, i) {
				continue
			}
			err := happenings[e.name](st, seen, i)
			if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				st.Must(err)
			}
			return // and looks again
		}
	}
}
