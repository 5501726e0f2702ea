package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// So many volumes as a page may have are all read by one request, with what was written just
// before. Of more only some are, and that is told.
func TestFewVolumes(t *testing.T) {
	c, w := newClient(t, Options{})
	volumes := plane.Client().CoreV1().PersistentVolumes()
	ns := namespace(t)
	ours := []string{ns + "-a", ns + "-b"}
	for _, name := range ours {
		if _, err := volumes.Create(t.Context(), volume(name, name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := volumes.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	count := len(page.Items)
	for limit, want := range map[int]bool{count + 1: true, count: true, count - 1: false} {
		var names []string
		before := w.count("GET /api/v1/persistentvolumes")
		all, err := c.FewVolumes(t.Context(), int64(limit), func(v *corev1.PersistentVolume) { names = append(names, v.Name) })
		if err != nil || all != want || len(names) != min(limit, count) || w.count("GET /api/v1/persistentvolumes") != before+1 {
			t.Errorf("at most %d of %d: %q, all %t, %v; %q", limit, count, names, all, err, w.requests())
		}
		if all && !(slices.Contains(names, ours[0]) && slices.Contains(names, ours[1])) {
			t.Errorf("%q", names)
		}
	}
}
