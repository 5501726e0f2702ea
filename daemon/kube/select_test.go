package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// An informer that selects by a label keeps what has it, follows what gets it and loses it, and has
// all again when it selects all.
func TestSelect(t *testing.T) {
	ns, d := namespace(t), &changeLog{}
	label := func(name, value string) {
		t.Helper()
		text := fmt.Sprintf(`{"metadata":{"labels":{"chosen":%s}}}`, value)
		if _, err := plane.Client().CoreV1().PersistentVolumeClaims(ns).Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	newClaim(t, plane, ns, "a", "1")
	newClaim(t, plane, ns, "b", "1")
	label("a", `"yes"`)
	c, w := newClient(t, Options{})
	s := c.Claims(in(ns), d.told)
	s.Select("chosen in (,yes)")
	running(t, s)
	d.expect(t, "+a 1")
	if n := w.count("GET /api/v1/persistentvolumeclaims limit"); n != 1 {
		t.Errorf("%d lists: %q", n, w.requests())
	}
	label("b", `""`)
	d.expect(t, "+a 1", "+b 1")
	label("a", "null")
	d.expect(t, "+a 1", "+b 1", "-a 1")
	s.Select("")
	d.expect(t, "+a 1", "+b 1", "-a 1", "+a 1")
	setMark(t, ns, "a", "2")
	d.expect(t, "+a 1", "+b 1", "-a 1", "+a 1", "~a 2")
	s.Select("chosen")
	d.expect(t, "+a 1", "+b 1", "-a 1", "+a 1", "~a 2", "-a 2")
}

// What is selected before the first list is not a reason for a second one. A daemon that finds no
// index did that, and read all claims of the cluster twice.
func TestSelectBeforeTheFirstList(t *testing.T) {
	ns, d := namespace(t), &changeLog{}
	newClaim(t, plane, ns, "a", "1")
	c, w := newClient(t, Options{})
	s := c.Claims(in(ns), d.told)
	s.Select("")
	running(t, s)
	d.expect(t, "+a 1")
	setMark(t, ns, "a", "2")
	d.expect(t, "+a 1", "~a 2")
	if n := w.count("GET /api/v1/persistentvolumeclaims"); n != 2 {
		t.Errorf("%d requests, want a list and a watch: %q", n, w.requests())
	}
}

// asked is a source that records what is asked of it, and ends each watch at once.
type asked struct{ did []string }

func (a *asked) List(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	a.did = append(a.did, "list "+o.LabelSelector)
	return &corev1.PersistentVolumeClaimList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
}

func (a *asked) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	a.did = append(a.did, "watch "+o.LabelSelector+" from "+o.ResourceVersion)
	w := watch.NewFake()
	w.Stop()
	return w, nil
}

// A watch that could be resumed is not resumed by another selector: objects that it did not bring
// would be missed.
func TestSelectResumesNothing(t *testing.T) {
	from := &asked{}
	s := NewInformer[*corev1.PersistentVolumeClaim](from, nil, nil)
	s.version = "5"
	_, _ = s.listAndWatch(t.Context(), true, func() {})
	s.mustVerify = false
	s.Select("a")
	_, _ = s.listAndWatch(t.Context(), true, func() {})
	s.mustVerify = false
	s.Select("a")
	_, _ = s.listAndWatch(t.Context(), true, func() {})
	if got := strings.Join(from.did, ", "); got != "watch  from 5, list a, watch a from 7, watch a from 7" {
		t.Errorf("did %q", got)
	}
}
