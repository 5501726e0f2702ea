package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is followed is told when it changes, and read without a request.
func TestFollowed(t *testing.T) {
	c, w := newClient(t, Options{})
	changed := make(chan struct{}, 1)
	all := c.Follow(t.Context(), func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	nodes := func() (names []string) {
		t.Helper()
		if err := all.EachNode(t.Context(), func(n *corev1.Node) { names = append(names, n.Name) }); err != nil {
			t.Fatal(err)
		}
		return names
	}
	first := "first-of-" + namespace(t)
	addNode(t, first)
	if !slices.Contains(nodes(), first) {
		t.Error("before the watch it is not listed")
	}
	eventually(t, "a watch", all.nodes.held.Watched)
	lists := w.count("GET /api/v1/nodes")
	<-changed // by the first list
	second := "second-of-" + first
	addNode(t, second)
	eventually(t, "the second", func() bool { return slices.Contains(nodes(), second) })
	eventually(t, "that something changed", func() bool { return len(changed) == 1 })
	if got := nodes(); !slices.Contains(got, first) || w.count("GET /api/v1/nodes") != lists {
		t.Errorf("%q after %q", got, w.requests())
	}
	if n := w.count("GET /api/v1/persistentvolumes"); n != 0 {
		t.Errorf("%d requests for what was not asked for", n)
	}
}

func addNode(t *testing.T, name string) {
	t.Helper()
	nodes := plane.Client().CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
