package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// podOn creates a Pod that names its node itself.
func (w *environment) podOn(node, name string, claims ...string) {
	w.Helper()
	p := cluster.Pod(w.Namespace, name, claims...)
	p.Spec.NodeName = node
	createIn(w, w.pods(), p)
}

// The claims of a pod that names its node get their volumes there, also those of an alias's class;
// the scheduler never sees such a pod. One that is another node's stays, and what cannot be made
// is told, and no node is written then.
func TestPodThatNamesItsNode(t *testing.T) {
	w := newEnvironment(t)
	class, small := w.Class("c", wait), w.Class("small", wait, fixture.Parameters("mode", "700"))
	alias := w.ClassOf(w.Namespace+".example/x", "alias", wait)
	h := w.newHost("a").aliased(w.Namespace + ".example/x").run()
	w.claim("data", class, "1Mi")
	w.claim("old", alias, "1Mi")
	began := time.Now()
	w.podOn(h.node, "direct", "data", "old")
	for _, name := range []string{"data", "old"} {
		w.boundOn(name, h)
	}
	t.Logf("bound after %s", time.Since(began))

	w.podOn(h.node, "early", "late") // its claim comes later
	other := w.newHost("b").node     // a claim of a node that does not exist would be given back
	taken := w.claim("taken", class, "1Mi", annotate(selectedNode, other))
	w.podOn(h.node, "second", "taken")
	one, two := w.claim("one", class, "40Mi"), w.claim("two", small, "50Mi")
	w.podOn(h.node, "large", "one", "two")
	for _, c := range []*corev1.PersistentVolumeClaim{one, two} {
		w.refused(c, "NotEnoughSpace", "the claims of pod large request 90.0 MiB together (one 40Mi, two 50Mi), and ")
		if node := w.get(c.Name).Annotations[selectedNode]; node != "" {
			t.Errorf("claim %s has node %q", c.Name, node)
		}
	}
	w.bound("late", class, "1Mi")
	if node := w.get(taken.Name).Annotations[selectedNode]; node != other {
		t.Errorf("a claim of another node has node %q now", node)
	}
}

// The scheduler compares each claim of a pod alone. Where they do not fit together none is made,
// they are told so, and another node gets them.
func TestClaimsOfAPod(t *testing.T) {
	w := newEnvironment(t)
	class := w.Class("c", wait)
	small := w.newHost("small").run()
	large := w.newHostOn(hosttest.Mkfs(t, "ext4", 192), "large").run()
	data, wal := w.claim("data", class, "45Mi"), w.claim("wal", class, "45Mi")
	w.pod("db", []string{small.node}, "data", "wal")
	for _, c := range []*corev1.PersistentVolumeClaim{data, wal} {
		w.refused(c, "NotEnoughSpace",
			"the claims of pod db request 90.0 MiB together (data 45Mi, wal 45Mi), and ")
	}
	small.wantTree()
	w.deletePod("db")
	w.pod("again", []string{small.node, large.node}, "data", "wal")
	for _, name := range []string{"data", "wal"} {
		// The scheduler draws one of both nodes each time, and waits longer after each.
		need(w.WaitClaimBound(w.unhurried(), w.Namespace, name))(w)
		w.boundOn(name, large)
	}

	// What no node can provide keeps the others waiting.
	fine := w.claim("fine", class, "1Mi")
	w.claim("block", class, "1Mi", func(c *corev1.PersistentVolumeClaim) {
		mode := corev1.PersistentVolumeBlock
		c.Spec.VolumeMode = &mode
	})
	w.pod("raw", []string{large.node}, "fine", "block")
	w.refused(fine, "BlockModeUnsupported", "claim block of pod raw, which uses this one, too, cannot have its volume: volumeMode Block")
	large.wantPromised(90 << 20)
}

// The claims of a pod that fit on no single disk of a class are spread over several, and those that
// do not fit there together are given back.
func TestClaimsOfAPodOnSeveralDisks(t *testing.T) {
	w := newEnvironment(t)
	w.newHost("b") // where it is the only node nothing is given back
	s := w.newDisks("", 32, 32, 32)
	s.run()
	class, names := w.Class("c", wait, fixture.Parameters("pool", "fast")), numbered("data", 4)
	for _, name := range names {
		w.claim(name, class, "20Mi")
	}
	w.pod("four", []string{s.node}, names...)
	w.refused(w.get("data-3"), "NotEnoughSpace", "the claims of pod four request 80.0 MiB together")
	if made := s.holding("pvc-"); len(made) > 0 {
		t.Errorf("made: %q", made)
	}
	w.deletePod("four")
	w.pod("three", []string{s.node}, names[:3]...)
	on := map[string]bool{}
	for _, name := range names[:3] {
		on[s.on(w.Bound(name))] = true
	}
	if len(on) != 3 {
		t.Errorf("three volumes are on %v", on)
	}
}

// Twelve pods with three claims each race for two nodes that have room for two pods and one claim
// each: four run, and no other one has a volume. With HOSTPATH_RACE=full they are fifty and four nodes,
// on a control plane with the limits of Kubernetes.
func TestPodsRaceForTheLastSpace(t *testing.T) {
	if os.Getenv("HOSTPATH_RACE") == "full" {
		w := ownEnvironment(t, "--kcm-qps=0", "--kcm-burst=0", "--scheduler-qps=0")
		w.driver()
		w.podsOfThree(4, 10, 50, "2400Ki")
		return
	}
	w := withDriver(t)
	w.podsOfThree(2, 2, 12, "10Mi")
}

// podsOfThree makes pods with three claims each on nodes with a disk of 96 MiB that hold so many of
// them. Those that fit are scheduled, and no claim of the others gets a volume.
func (w *environment) podsOfThree(nodes, fit, pods int, size string) {
	w.Helper()
	class := w.Class("three", wait)
	var hosts []*host
	var names []string
	for i := range nodes {
		h := w.newHost(fmt.Sprint("n", i)).run()
		hosts, names = append(hosts, h), append(names, h.node)
	}
	w.awaitPublished(class, func(all map[string]int64) bool { return len(all) == nodes })
	w.Eventually("the scheduler compares", w.compared)
	began := time.Now()
	for i := range pods {
		var claims []string
		for k := range 3 {
			claims = append(claims, fmt.Sprintf("c%d-%d", i, k))
			w.claim(claims[k], class, size)
		}
		w.pod(fmt.Sprint("p", i), names, claims...)
	}
	w.Eventually("the pods that fit are scheduled", func() bool { return w.scheduled() == nodes*fit })
	w.Logf("%d pods are scheduled after %s", nodes*fit, time.Since(began))
	told := map[string]bool{}
	w.Eventually("each pod that waits is told why", func() bool {
		events := listIn(w, w.events())
		for _, e := range events.Items {
			if e.Reason == "NotEnoughSpace" || e.Reason == "NoNodeFits" {
				told[strings.Split(e.InvolvedObject.Name, "-")[0][1:]] = true
			}
		}
		return w.eachWaits(func(pod string) bool { return told[pod[1:]] })
	})
	w.Logf("all are told after %s", time.Since(began))
	bound := map[string]int{}
	list := listIn(w, w.pvcs())
	for _, c := range list.Items {
		if c.Status.Phase == corev1.ClaimBound {
			bound[strings.Split(c.Name, "-")[0]]++
		}
	}
	for pod, n := range bound {
		if n != 3 {
			w.Errorf("%d claims of pod %s are bound", n, pod)
		}
	}
	if len(bound) != nodes*fit {
		w.Errorf("%d pods have volumes, want %d", len(bound), nodes*fit)
	}
	each := cluster.Claim("", "", "", size).Spec.Resources.Requests.Storage().Value()
	for _, h := range hosts {
		h.wantPromised(uint64(3 * int64(fit) * each))
	}
}

// scheduled is how many pods have a node.
func (w *environment) scheduled() (n int) {
	w.Helper()
	waiting := 0
	w.eachWaits(func(string) bool { waiting++; return true })
	list := listIn(w, w.pods())
	return len(list.Items) - waiting
}

// eachWaits reports whether something is so of each pod without a node.
func (w *environment) eachWaits(is func(pod string) bool) bool {
	w.Helper()
	list := listIn(w, w.pods())
	for _, p := range list.Items {
		if p.Spec.NodeName == "" && !is(p.Name) {
			return false
		}
	}
	return true
}
