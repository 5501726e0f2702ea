package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// One write to the lease of a shared pool, by a client that may write leases, costs seconds: a
// daemon that has the storage works again, the lease is what it should be, and a Node's event tells
// what was wrong.
func TestSharedForgedLease(t *testing.T) {
	w, nodes := twoNodes(t)
	runAll(nodes)
	w.holder(nodes, anyNode)
	class, right := w.Class("c", immediate), w.lease().Annotations["hostpath-provisioner/marker"]
	w.bound("before", class, "1Mi")
	for _, c := range []struct{ name, patch, told string }{
		{"marker", `{"metadata":{"annotations":{"hostpath-provisioner/marker":"forged"}}}`, "its marker is forged"},
		{"holder", `{"spec":{"holderIdentity":"x\u001b[2J_y"}}`, `its holder is "x\x1b[2J_y"`},
		{"overflow", `{"spec":{"holderIdentity":"x","leaseTransitions":2147483647},"metadata":{"annotations":{"hostpath-provisioner/marker":"no"}}}`, "its marker is no"},
		{"rubbish", `{"spec":{"leaseDurationSeconds":2147483647,"renewTime":"2999-01-01T00:00:00.000000Z"},"metadata":{"annotations":{"a":"b"},"finalizers":["a.example/b"]}}`,
			"it has an annotation, a finalizer, another duration, a renewal time more than 24 hours ahead of this node's clock"},
		{"nobody", `{"spec":{"holderIdentity":null},"metadata":{"annotations":{"hostpath-provisioner/marker":"none"}}}`, "it has no holder"},
		{"speaker", `{"metadata":{"annotations":{"hostpath-provisioner/speaks":"true"}}}`, "was overwritten while this node held it"},
		{"label", `{"metadata":{"labels":{"hostpath-provisioner/pool":"another"}}}`, "it was deleted"},
	} {
		w.forge(c.patch)
		w.bound(c.name, class, "1Mi")
		w.wantLease(nodes, right)
		w.toldNode(nodes, c.told)
	}
	for _, n := range nodes {
		n.stop()
	}
	w.forge(`{"metadata":{"annotations":{"hostpath-provisioner/marker":"meanwhile"}}}`)
	nodes[0].run()
	w.bound("later", class, "1Mi") // the pool's volumes are on this disk
	w.wantLease(nodes, right)
	w.toldNode(nodes, "its marker is meanwhile")
}

// The marker of another storage, in a lease without a holder, does not give the pool to the node
// that has it.
func TestSharedForgedForAnother(t *testing.T) {
	w, nodes := twoNodes(t)
	wrong := nodes[1]
	nodes[0].run()
	w.holder(nodes, anyNode)
	marker := w.lease().Annotations["hostpath-provisioner/marker"]
	class := w.Class("c", immediate)
	w.bound("before", class, "1Mi")
	wrong.runOnOtherStorage()
	w.forge(`{"spec":{"holderIdentity":null},"metadata":{"annotations":{"hostpath-provisioner/marker":"` + wrong.marker() + `"}}}`)
	w.bound("after", class, "1Mi")
	w.wantLease(nodes[:1], marker)
	wrong.do("sh", "-c", "! ls "+wrong.mount+" | grep pvc-")
}

// marker is that of the storage that this node has.
func (n *node) marker() string {
	n.w.Helper()
	text := need(n.namespace.Command("cat", filepath.Join(n.mount, ".hostpath-provisioner", "pool.json")).Output())(n.w)
	_, id, _ := strings.Cut(string(text), `"id":`)
	id, _, _ = strings.Cut(strings.TrimLeft(id, ` "`), `"`)
	if id == "" {
		n.w.Fatal(string(text))
	}
	return id
}

func (w *environment) lease() *coordinationv1.Lease {
	w.Helper()
	return getIn(w, w.leases(), "fast."+w.Provisioner)
}

func (w *environment) forge(patch string) {
	w.Helper()
	patchIn(w, w.leases(), "fast."+w.Provisioner, patch)
}

// wantLease waits until the lease is one that a daemon wrote which works.
func (w *environment) wantLease(nodes []*node, marker string) {
	w.Helper()
	w.holder(nodes, anyNode)
	w.Eventually("the lease is as it should be", func() bool {
		l := w.lease()
		return l.Annotations["hostpath-provisioner/marker"] == marker && len(l.Annotations) == 2 && len(l.Labels) == 1 && len(l.Finalizers) == 0 &&
			*l.Spec.LeaseDurationSeconds == 12 && *l.Spec.LeaseTransitions >= 0 && l.Spec.RenewTime.Year() < 2999
	})
}

// toldNode waits for an event about the lease, on one of these nodes, with these words.
func (w *environment) toldNode(nodes []*node, words string) {
	w.Helper()
	w.Eventually("a node is told: "+words, func() bool {
		events := listIn(w, w.Client().CoreV1().Events(""), metav1.ListOptions{FieldSelector: "reason=LeaseOverwritten"})
		for _, e := range events.Items {
			for _, n := range nodes {
				if e.InvolvedObject.Name == n.node && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, words) {
					return true
				}
			}
		}
		return false
	})
}
