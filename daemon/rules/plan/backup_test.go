package plan

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What binds a volume and its claim in one cluster alone is left out, and all that a user gave
// stays.
func TestBackup(t *testing.T) {
	type volume = corev1.PersistentVolume
	type claim = corev1.PersistentVolumeClaim
	for name, c := range map[string]struct {
		change     func(*volume, *claim)
		gone       bool // the claim
		ok, bound  bool
		uid, reads string // of the volume's claimRef; a part of the JSON
	}{
		"bound":            {func(*volume, *claim) {}, false, true, true, "", `"volumeName":"pvc-u-1"`},
		"annotated":        {func(_ *volume, c *claim) { c.Annotations["mine"] = "kept" }, false, true, true, "", `"mine":"kept"`},
		"owned":            {func(_ *volume, c *claim) { owned(c, "StatefulSet") }, false, true, true, "", ""},
		"of a pod":         {func(_ *volume, c *claim) { owned(c, "Pod") }, false, false, false, "", ""},
		"another claim":    {func(v *volume, c *claim) { c.UID = "u-2"; retainOf(v) }, false, true, false, "u-1", ""},
		"released":         {func(v *volume, _ *claim) { retainOf(v) }, true, true, false, "u-1", "Retain"},
		"to be removed":    {func(*volume, *claim) {}, true, false, false, "", ""},
		"being deleted":    {func(v *volume, _ *claim) { v.DeletionTimestamp = &metav1.Time{} }, false, false, false, "", ""},
		"for anybody":      {func(v *volume, _ *claim) { v.Spec.ClaimRef = nil }, true, true, false, "", ""},
		"of other keepers": {func(v *volume, _ *claim) { v.Finalizers = append(v.Finalizers, "x/y") }, false, true, true, "", Finalizer},
	} {
		v, bound := NewVolume(ready(), "pvc-u-1"), ready().Claim.DeepCopy()
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		v.UID, v.ResourceVersion, bound.ResourceVersion, v.Spec.ClaimRef.ResourceVersion = "v", "77", "77", "77"
		for _, m := range []*metav1.ObjectMeta{&v.ObjectMeta, &bound.ObjectMeta} {
			if m.Annotations == nil {
				m.Annotations = map[string]string{}
			}
			m.Annotations[bindCompleted], m.Annotations[boundByController] = "yes", "yes"
		}
		c.change(v, bound)
		if c.gone {
			bound = nil
		}
		one, other, ok := Backup(v, bound)
		text, err := json.Marshal([]any{one, other})
		if err != nil || ok != c.ok || (other != nil) != c.bound || !strings.Contains(string(text), c.reads) {
			t.Errorf("%s: %t, %v: %s", name, ok, err, text)
		}
		for _, word := range []string{bindCompleted, boundByController, "77", "ownerReferences", "x/y", `"u-2"`} {
			if strings.Contains(string(text), word) {
				t.Errorf("%s: %s in %s", name, word, text)
			}
		}
		if ok && one.Spec.ClaimRef != nil && string(one.Spec.ClaimRef.UID) != c.uid {
			t.Errorf("%s: for the claim %q", name, one.Spec.ClaimRef.UID)
		}
	}
}

func owned(c *corev1.PersistentVolumeClaim, kind string) {
	c.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "x"}}
}

func retainOf(v *corev1.PersistentVolume) {
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
