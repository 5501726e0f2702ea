package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

func TestClaimants(t *testing.T) {
	r := record.Record{PV: "pvc-u-1", Namespace: "n", Claim: "c", ClaimUID: "u-1"}
	for name, c := range map[string]struct {
		object string
		ref    *corev1.ObjectReference
		want   string
	}{
		"no claim":                         {"v", nil, ""},
		"the claim":                        {"v", &corev1.ObjectReference{Namespace: "n", Name: "c", UID: "u-1"}, "v"},
		"the claim, and the record's name": {"pvc-u-1", &corev1.ObjectReference{Namespace: "n", Name: "c", UID: "u-1"}, ""},
		"the claim's UID alone":            {"v", &corev1.ObjectReference{Namespace: "m", Name: "d", UID: "u-1"}, "v"},
		"bound by hand, without a UID":     {"v", &corev1.ObjectReference{Namespace: "n", Name: "c"}, "v"},
		"bound by hand to another claim":   {"v", &corev1.ObjectReference{Namespace: "m", Name: "c"}, ""},
		"a later claim of the same name":   {"v", &corev1.ObjectReference{Namespace: "n", Name: "c", UID: "u-2"}, ""},
	} {
		var all Claimants
		if got := all.Of(r); got != "" {
			t.Errorf("of no objects, %q", got)
		}
		all.Add(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.object}, Spec: corev1.PersistentVolumeSpec{ClaimRef: c.ref}})
		if got := all.Of(r); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
