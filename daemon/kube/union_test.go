package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each object of each informer is found, and none twice.
func TestUnion(t *testing.T) {
	having := func(names ...string) *Informer[*corev1.PersistentVolume] {
		s := NewInformer[*corev1.PersistentVolume](nil, nil, nil)
		for _, name := range names {
			s.items[name] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}
		return s
	}
	u := Union[*corev1.PersistentVolume]{having("a", "b"), having(), having("c")}
	for _, name := range []string{"a", "b", "c"} {
		if v, known := u.Get(name); !known || v.Name != name {
			t.Errorf("%s: %v, %v", name, v, known)
		}
	}
	if v, known := u.Get("d"); known || v != nil {
		t.Errorf("an object that no informer has: %v", v)
	}
	var all []string
	for _, v := range u.List() {
		all = append(all, v.Name)
	}
	if slices.Sort(all); !slices.Equal(all, []string{"a", "b", "c"}) {
		t.Errorf("got %q", all)
	}
}
