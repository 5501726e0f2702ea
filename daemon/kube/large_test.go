package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// largeClaim makes a claim as large as the API server takes it.
func largeClaim(t *testing.T, ns, name string) {
	t.Helper()
	class := "none"
	_, err := plane.Client().CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"label": strings.Repeat("l", 63)},
			Annotations: map[string]string{markKey: "1", "large": strings.Repeat("x", 250<<10)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Selector:  &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// Claims that are much larger than others are read in smaller pages, and little of them is held,
// whether they came with a page or with an event.
func TestLargeClaims(t *testing.T) {
	ns, d := namespace(t), &changeLog{}
	const n = 3 * pageBytes / (250 << 10)
	var want []string
	for i := range n {
		largeClaim(t, ns, fmt.Sprintf("c%02d", i))
		want = append(want, fmt.Sprintf("+c%02d 1", i))
	}
	c, w := newClient(t, Options{})
	server := claimKind.source(c, selection{})
	server.namespace = ns // those that earlier tests left make further pages, and smaller ones
	s := running(t, newInformer(c, server, in(ns), plan.LeanClaim, d.told))
	d.expect(t, want...)
	// 500, 125 and 31 at once are too large. 7 are not, and fill more than a quarter of what a page
	// may have: no more are asked for.
	if got, want := w.count("limit"), 3+(n+6)/7; got != want {
		t.Errorf("%d requests for a list of three pages, want %d: %q", got, want, w.requests())
	}
	largeClaim(t, ns, "late")
	d.expect(t, append(want, "+late 1")...)
	for _, claim := range s.List() {
		if size := claim.Size(); size > 1<<10 {
			t.Errorf("%s is held with %d bytes", claim.Name, size)
		}
		if claim.Spec.Selector == nil || claim.UID == "" || plan.ClassName(claim) != "none" {
			t.Errorf("held: %+v", claim)
		}
	}
	// With them every list of claims is a long one, for the tests that come.
	claims := plane.Client().CoreV1().PersistentVolumeClaims(ns)
	if err := claims.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the large claims are gone", func() bool {
		list, err := claims.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}
