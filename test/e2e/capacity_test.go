package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// driver makes the CSIDriver that the manifests have, and the right to it, for the test's own
// provisioner.
func (w *environment) driver() {
	w.Helper()
	no := false
	createIn(w, w.Client().StorageV1().CSIDrivers(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: w.Provisioner, Labels: map[string]string{"app.kubernetes.io/managed-by": "hostpath-provisioner"}},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: &no, PodInfoOnMount: &no},
	})
	w.mayWriteDriver(w.Provisioner)
}

// mayWriteDriver gives the daemons the right to a CSIDriver, as the manifests do to that of the
// test's own provisioner.
func (w *environment) mayWriteDriver(driver string) {
	w.Helper()
	name := "csidriver-" + driver
	createIn(w, w.Client().RbacV1().ClusterRoles(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csidrivers"},
			ResourceNames: []string{driver}, Verbs: fixture.Kept("csidrivers", "get", "patch"),
		}},
	})
	const daemons = "hostpath-provisioner"
	w.granted(name, name, rbacv1.Subject{Kind: "ServiceAccount", Namespace: daemons, Name: daemons})
}

// quiet has the daemon publish nothing.
func (h *host) quiet() *host { return h.configureFirst("publish_capacity = false") }

// configureFirst writes a line before the tables of the configuration.
func (h *host) configureFirst(line string) *host {
	h.w.Helper()
	h.w.Must(h.Configure(line + "\n" + h.config()))
	return h
}

// compared reports whether the scheduler compares the provisioner's capacities.
func (w *environment) compared() bool { return w.comparedOf(w.Provisioner) }

func (w *environment) comparedOf(driver string) bool {
	w.Helper()
	d := getIn(w, w.Client().StorageV1().CSIDrivers(), driver)
	return d.Spec.StorageCapacity != nil && *d.Spec.StorageCapacity
}

// published are the sizes in MiB that are published for a class, by node; those of the nodes that
// publish nothing are "".
func (w *environment) published(class string) map[string]int64 {
	w.Helper()
	list := listIn(w, w.Client().StorageV1().CSIStorageCapacities("hostpath-provisioner"))
	all := map[string]int64{}
	for _, o := range list.Items {
		if o.StorageClassName == class {
			if o.Capacity == nil || o.MaximumVolumeSize == nil || o.NodeTopology == nil {
				w.Errorf("%s lacks a field: %+v", o.Name, o)
			}
			all[o.Labels["hostpath-provisioner/node"]] = o.MaximumVolumeSize.Value() >> 20
		}
	}
	return all
}

func (w *environment) awaitPublished(class string, is func(map[string]int64) bool) {
	w.Helper()
	defer func() {
		if w.Failed() {
			w.Logf("published for %s: %v", class, w.published(class))
		}
	}()
	w.Eventually("the capacities are published", func() bool { return is(w.published(class)) })
}

// largerThanAny is the claim of awaitCompared.
const largerThanAny = "larger-than-any"

// awaitCompared waits until the scheduler itself compares a class's capacities, which it learns
// after the API server: it refuses a pod whose claim is larger than what these nodes have.
func (w *environment) awaitCompared(class string, nodes ...string) {
	w.Helper()
	w.Eventually("the driver has the scheduler compare", w.compared)
	w.wanted(largerThanAny, class, "1Pi", nodes...)
	w.awaitNoStorage(largerThanAny)
	w.deletePod(largerThanAny)
	w.DeleteClaim(largerThanAny)
}

// The scheduler chooses the node that has the room, and does not try the one without. A node whose
// disk is not mounted is not chosen either. A node whose daemon publishes nothing can be chosen as
// before. Without the driver nothing is compared.
func TestSchedulerKnowsTheCapacity(t *testing.T) {
	w := withDriver(t)
	class, now := w.Class("c", wait), w.Class("now", immediate)
	small := w.newHost("small").run()
	large := w.newHostOn(hosttest.Mkfs(t, "ext4", 256), "large").run()
	w.awaitPublished(class, func(all map[string]int64) bool { return all[small.node] > 60 && all[large.node] > 180 })
	w.awaitCompared(class, small.node, large.node)
	w.wanted("data", class, "120Mi", small.node, large.node)
	w.boundOn("data", large)
	for line := range strings.Lines(small.Log()) {
		if strings.Contains(line, "NotEnoughSpace") && strings.Contains(line, "claim="+w.Namespace+"/data ") {
			t.Errorf("the node without room was tried: %s", line)
		}
	}
	w.awaitPublished(class, func(all map[string]int64) bool { return all[large.node] < 120 })

	hosttest.Unmount(t, large.mount)
	w.awaitPublished(class, func(all map[string]int64) bool { return all[large.node] == 0 && all[small.node] > 60 })
	w.wanted("other", class, "10Mi", small.node, large.node)
	w.boundOn("other", small)

	// A pod that waits for space is woken when there is some.
	w.wanted("waits", class, "65Mi", small.node)
	w.deletePod("other")
	w.DeleteClaim("other")
	w.Bound("waits")
	if all := w.published(now); len(all) > 0 {
		t.Errorf("published for a class whose claims the scheduler chooses no nodes for: %v", all)
	}
}

// A node of an earlier version, or one that does not publish, gets volumes as before; and when no
// node publishes any more nothing is compared.
func TestNodeThatPublishesNothing(t *testing.T) {
	w := withDriver(t)
	class, silent := w.Class("c", wait), w.newHost("silent").quiet().run()
	speaks := w.newHost("speaks").run()
	w.Eventually("the scheduler compares", w.compared)
	w.awaitPublished(class, func(all map[string]int64) bool { return len(all) == 2 && all[""] > 1<<40 && all[speaks.node] > 0 })
	w.wanted("data", class, "10Mi", silent.node)
	w.Bound("data")
	speaks.Kill()
	speaks.quiet().run()
	w.Eventually("the scheduler compares nothing any more", func() bool { return !w.compared() })
	w.awaitPublished(class, func(all map[string]int64) bool { return len(all) == 0 })
	w.wanted("later", class, "10Mi", speaks.node)
	w.Bound("later")
}

// Thirty claims race for the last space of three nodes: each is bound, or it and its pod wait for a
// reason, and no node is promised more than it has.
func TestRaceForTheLastSpace(t *testing.T) { newEnvironment(t).raceForTheLastSpace() }

// It is the same where the scheduler scores nodes by their capacity. The plane is the next test's,
// too: a CSI driver in whose place daemons are is the whole cluster's.
func TestRaceWhereCapacityScores(t *testing.T) {
	own := scoringPlane(t)
	(&environment{fixture.New(t, own, "scoring-race-")}).raceForTheLastSpace()
	(&environment{fixture.New(t, own, "in-place-")}).capacityInPlaceOfADriver()
}

// scoringPlane is a control plane whose scheduler scores nodes by their capacity.
func scoringPlane(t *testing.T) *cluster.Cluster {
	t.Helper()
	newEnvironment(t).Since(cluster.CapacityScoring, "the gate StorageCapacityScoring")
	return fixture.OwnPlane(t, "--apiserver-flag=--feature-gates=StorageCapacityScoring=true")
}

func (w *environment) raceForTheLastSpace() {
	w.Helper()
	w.driver()
	class := w.Class("c", wait)
	var hosts []*host
	var nodes []string
	for _, name := range []string{"a", "b", "c"} {
		h := w.newHost(name).run()
		hosts, nodes = append(hosts, h), append(nodes, h.node)
	}
	w.awaitPublished(class, func(all map[string]int64) bool { return all[nodes[0]] > 0 && all[nodes[1]] > 0 && all[nodes[2]] > 0 })
	w.Eventually("the scheduler compares", w.compared)
	for _, name := range numbered("data", 30) {
		w.wanted(name, class, "20Mi", nodes...)
	}
	bound := func() (n int) {
		list := listIn(w, w.pvcs())
		for _, c := range list.Items {
			if c.Status.Phase == corev1.ClaimBound {
				n++
			}
		}
		return n
	}
	w.Eventually("each node has three volumes of 20 MiB in its 73 MiB", func() bool { return bound() == 9 })
	w.Eventually("the other pods wait for storage", func() bool {
		list := listIn(w, w.pods())
		waiting := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
			return !refusedPod(&p, noStorage)
		})
		return len(waiting) == 21
	})
	all := listIn(w, w.pvcs())
	for _, c := range all.Items {
		if c.Status.Phase != corev1.ClaimBound {
			need(w.WaitEvent(w.unhurried(), &c, "NoNodeFits"))(w)
		}
	}
	if n := bound(); n != 9 {
		w.Errorf("%d claims are bound", n)
	}
	for _, h := range hosts {
		h.wantPromised(60 << 20)
	}
}

// A claim that fits on no node is refused by the scheduler, on its pod. One of the daemons says so
// on the claim, once; again when a node's pool is closed, by whichever of them looks first. The
// other daemon, which stands still until it was said, does not say the same. A claim that fits
// somewhere, or that may, is told nothing.
func TestFitsOnNoNode(t *testing.T) {
	w := withDriver(t)
	class := w.Class("c", wait)
	a, b := w.newHost("a").run(), w.newHostOn(hosttest.Mkfs(t, "ext4", 192), "b").run()
	w.awaitPublished(class, func(all map[string]int64) bool { return all[a.node] > 60 && all[b.node] > 120 })
	w.awaitCompared(class, a.node, b.node)
	w.Must(b.Signal(syscall.SIGSTOP))
	fits := w.claim("fits", class, "100Mi")
	huge := w.wanted("huge", class, "1Gi", a.node, b.node)
	w.warned(w.unhurried(), huge, "NoNodeFits", "it requests 1Gi, and of 2 nodes that publish",
		"to a volume of class "+class+" is 1", " MiB, on "+b.node)
	event := w.event(huge, "NoNodeFits")
	w.Must(b.Signal(syscall.SIGCONT))
	w.awaitNoStorage("huge")

	hosttest.Unmount(t, a.mount)
	need(cluster.WaitFor(w.unhurried(), w.events(), event.Name, func(e *corev1.Event) bool {
		return strings.Contains(e.Message, " nothing can be had on "+a.node+" (NotMounted); open the closed pools, ")
	}))(w)
	// Node b, which stood still, may tell it of the claim by which it was compared, too.
	told := listIn(w, w.events(), metav1.ListOptions{
		FieldSelector: "reason=NoNodeFits,involvedObject.name!=" + largerThanAny})
	if len(told.Items) != 1 || told.Items[0].Count != 2 {
		t.Errorf("told: %+v; claim fits is %s", told.Items, fits.UID)
	}
	said := func(h *host) int { return strings.Count(h.Log(), "reason=NoNodeFits claim="+w.Namespace+"/huge") }
	if said(a)+said(b) != 2 || said(a) == 0 {
		t.Errorf("node a told it %d times, node b %d times", said(a), said(b))
	}
}

// A mistake in a class that waits for its consumer is told as what it is, and not as a lack of
// room.
func TestMistakenClassThatWaits(t *testing.T) {
	w := withDriver(t)
	h, class := w.newHost("a").run(), w.Class("right", wait)
	w.awaitPublished(class, func(all map[string]int64) bool { return all[h.node] > 60 })
	w.awaitCompared(class, h.node)
	for key, told := range map[string]struct{ value, reason, says string }{
		"pool": {"fats", "UnknownPool", `has no pool "fats"; it has fast (`},
		"mode": {"999", "BadParameter", `"999" is not an octal mode`},
		"pol":  {"fast", "UnknownParameter", `unknown parameter "pol"; known are`},
	} {
		wrong := w.Class(key, wait, func(c *storagev1.StorageClass) {
			c.Parameters = map[string]string{key: told.value}
		})
		claim := w.wanted(key, wrong, "1Mi", h.node)
		w.warned(w.unhurried(), claim, told.reason, told.says).Lacks("storage")
	}
}

const noStorage = "did not have enough free storage"

// refusedFor reports whether the scheduler says this of a pod.
func (w *environment) refusedFor(pod, message string) bool {
	w.Helper()
	return refusedPod(getIn(w, w.pods(), pod), message)
}

// awaitNoStorage waits until the scheduler compares, and finds no room for a pod's claim.
func (w *environment) awaitNoStorage(pod string) {
	w.Helper()
	w.Eventually("pod "+pod+" has no room", func() bool { return w.refusedFor(pod, noStorage) })
}

func refusedPod(p *corev1.Pod, message string) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			strings.Contains(c.Message, message)
	})
}

// With the gate StorageCapacityScoring, which 1.37 has on, the scheduler takes a node that
// publishes nothing last. Which one it takes of those that publish is its own.
func TestSchedulerScoresByCapacity(t *testing.T) {
	own := scoringPlane(t)
	w := &environment{fixture.New(t, own, "scoring-")}
	w.driver()
	class := w.Class("c", wait)
	silent := w.newHostOn(hosttest.Mkfs(t, "ext4", 256), "silent").quiet().run()
	small := w.newHost("small").run()
	large := w.newHostOn(hosttest.Mkfs(t, "ext4", 192), "large").run()
	nodes := []string{silent.node, small.node, large.node}
	w.awaitPublished(class, func(all map[string]int64) bool {
		return all[small.node] > 60 && all[large.node] > 120 && all[""] > 1<<40
	})
	w.awaitCompared(class, small.node, large.node)
	for _, name := range numbered("data", 3) {
		w.wanted(name, class, "10Mi", nodes...)
		if pv := w.Bound(name); pv.Labels["hostpath-provisioner/node"] == silent.node {
			t.Errorf("%s is on %s, which publishes nothing", name, silent.node)
		}
	}
}

// What `manifests --delete` prints takes everything out of the cluster: where the scheduler
// compared a moment ago it compares nothing, and what another driver has is as it was.
func TestManifestsDelete(t *testing.T) {
	t.Parallel()
	own := fixture.OwnPlane(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	w := &environment{&fixture.Environment{T: t, Cluster: own, Ctx: ctx, Namespace: "default", Provisioner: "hostpath-provisioner"}}
	h := w.newHost("a").run()
	class, foreign := w.Class("c", wait), w.foreignDriver(h)
	w.Eventually("the scheduler compares", w.compared)
	w.awaitPublished(class, func(all map[string]int64) bool { return all[h.node] > 60 })
	w.wanted("data", class, "1Gi")
	w.awaitNoStorage("data")
	h.Kill()
	w.kubectl(rig.Binary() + " manifests --delete | kubectl delete --ignore-not-found -f -")

	_, err := w.Client().StorageV1().CSIDrivers().Get(ctx, w.Provisioner, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the CSIDriver: %v", err)
	}
	all := need(w.Client().StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{}))(w)
	if len(all.Items) != 1 || all.Items[0].Namespace != "default" || all.Items[0].StorageClassName != foreign {
		t.Errorf("published: %+v", all.Items)
	}
	w.wanted("foreign", foreign, "10Mi")
	w.wanted("foreign-huge", foreign, "1Gi")
	given := func(c *corev1.PersistentVolumeClaim) bool { return c.Annotations[selectedNode] == h.node }
	need(w.WaitClaim(w.Soon(), "default", "foreign", given))(w)
	// The scheduler learns it after the API server, and tries a pod that it refused again after
	// minutes, as the one of data.
	for i, refused := 0, true; refused; i++ {
		later := fmt.Sprint("later-", i)
		w.wanted(later, class, "1Gi")
		w.Eventually("the scheduler decides about "+later, func() bool {
			refused = w.refusedFor(later, noStorage)
			return refused || given(w.get(later))
		})
	}
	w.awaitNoStorage("foreign-huge") // what the other driver published is compared
}

// foreignDriver is another driver, which publishes 100 MiB for its class on the node of h. It
// returns the class.
func (w *environment) foreignDriver(h *host) string {
	w.Helper()
	yes := true
	createIn(w, w.Client().StorageV1().CSIDrivers(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign.example"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &yes},
	})
	class := w.ClassOf("foreign.example", "foreign", wait)
	size := resource.MustParse("100Mi")
	createIn(w, w.Client().StorageV1().CSIStorageCapacities(w.Namespace), &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, StorageClassName: class, Capacity: &size, MaximumVolumeSize: &size,
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "host-of-" + h.node}},
	})
	return class
}
