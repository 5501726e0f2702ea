package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// unbound is a control plane whose kube-controller-manager binds no claim and asks no provisioner:
// what happens to a claim follows from its node alone.
var unbound = fixture.Plane{Args: []string{"--kcm-flag=--controllers=*,-persistentvolume-binder-controller"}}

// newEnvironmentUnbound is a test's part of that.
func newEnvironmentUnbound(t *testing.T) *environment {
	t.Helper()
	t.Parallel()
	return &environment{fixture.New(t, unbound.Get(t), "e2e-")}
}

// annotateClaim writes an annotation on a claim that exists.
func (w *environment) annotateClaim(name, key, value string) {
	w.Helper()
	patchIn(w, w.pvcs(), name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

// made waits until the claim's volume object is there.
func (w *environment) made(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	w.Helper()
	return need(cluster.WaitFor(w.Soon(), w.pvs(), "pvc-"+string(c.UID), func(*corev1.PersistentVolume) bool { return true }))(w)
}

// Where the daemon was told not to act on selected-node, nothing is made before
// kube-controller-manager asks.
func TestNothingBeforeItIsAskedFor(t *testing.T) {
	w := newEnvironmentUnbound(t)
	h := w.newHost("a").configureFirst("act_on_selected_node = false").run()
	class, here := w.Class("c", wait), annotate(selectedNode, h.node)
	const asked = "volume.kubernetes.io/storage-provisioner"
	waits := w.claim("waits", class, "1Mi", here)
	for i := range 5 {
		w.made(w.claim(fmt.Sprint("asked-", i), class, "1Mi", here, annotate(asked, w.Provisioner)))
	}
	all := listIn(w, w.pvs(), metav1.ListOptions{LabelSelector: "hostpath-provisioner/node=" + h.node})
	if slices.ContainsFunc(all.Items, func(v corev1.PersistentVolume) bool { return v.Name == "pvc-"+string(waits.UID) }) {
		t.Error("a claim has a volume that no provisioner was asked for")
	}
	w.annotateClaim("waits", asked, w.Provisioner)
	w.made(waits)
}

// A pod's claim has its volume without kube-controller-manager's having asked for it, and nothing
// else has: no claim whose class binds at once or is another provisioner's, and none that names
// another provisioner, a volume, or what the volume is to have in it, whichever program wrote the
// node on it. They get theirs, or a refusal, when they are asked for.
func TestSelectedNode(t *testing.T) {
	w := newEnvironmentUnbound(t)
	h := w.newHost("a").run()
	ours, atOnce := w.Class("ours", wait), w.Class("at-once", immediate)
	others := w.ClassOf("example.com/other", "others", wait)
	replaced := w.Class("replaced", wait)
	w.claim("before", replaced, "1Mi", annotate(selectedNode, h.node))
	before := w.made(w.get("before"))
	w.Must(w.classes().Delete(w.Ctx, replaced, metav1.DeleteOptions{}))
	w.ClassOf("example.com/other", "replaced", wait)
	w.claim("seen", w.Class("seen", wait), "1Mi", annotate(selectedNode, h.node))
	seen := w.made(w.get("seen")) // the daemon has seen what became of the class before

	here := annotate(selectedNode, h.node)
	spec := func(change func(*corev1.PersistentVolumeClaimSpec)) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { change(&c.Spec) }
	}
	untouched := []*corev1.PersistentVolumeClaim{
		w.claim("at-once", atOnce, "1Mi", here),
		w.claim("others", others, "1Mi", here),
		w.claim("replaced", replaced, "1Mi", here),
		w.claim("asks-others", ours, "1Mi", here, annotate("volume.kubernetes.io/storage-provisioner", "example.com/other")),
		w.claim("asked-others", ours, "1Mi", here, annotate("volume.beta.kubernetes.io/storage-provisioner", "example.com/other")),
		w.claim("migrated", ours, "1Mi", here, annotate("pv.kubernetes.io/migrated-to", w.Provisioner)),
		w.claim("elsewhere", ours, "1Mi", annotate(selectedNode, "another-node")),
		w.claim("too-large", ours, "1Ti", here),
		w.claim("bound", ours, "1Mi", here, spec(func(s *corev1.PersistentVolumeClaimSpec) { s.VolumeName = "by-hand" })),
		w.claim("selects", ours, "1Mi", here, spec(func(s *corev1.PersistentVolumeClaimSpec) { s.Selector = &metav1.LabelSelector{} })),
		w.claim("filled", ours, "1Mi", here, spec(func(s *corev1.PersistentVolumeClaimSpec) {
			s.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "others"}
		})),
		w.claim("no-class", w.Namespace+"-late", "1Mi", here),
	}
	late := w.Class("late", wait) // the claim was seen before it
	w.wanted("data", ours, "1Mi", h.node)
	want := []string{before.Name, seen.Name, w.made(w.get("data")).Name}

	w.annotateClaim("no-class", "volume.kubernetes.io/storage-provisioner", w.Provisioner)
	w.annotateClaim("too-large", "volume.kubernetes.io/storage-provisioner", w.Provisioner)
	w.annotateClaim("selects", "volume.kubernetes.io/storage-provisioner", w.Provisioner)
	want = append(want, w.made(w.get("no-class")).Name)
	w.refused(w.get("too-large"), "NotEnoughSpace")
	w.refused(w.get("selects"), "SelectorUnsupported")
	h.stop()
	w.onlyVolumes(h, want)
	for _, c := range untouched[:7] {
		events := listIn(w, w.events(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(c.UID)})
		for _, e := range events.Items {
			t.Errorf("claim %s: event %s %q", c.Name, e.Reason, e.Message)
		}
	}
	t.Logf("class %s came after its claim", late)
}

// onlyVolumes wants these volumes and no others for the test's claims and, but for those of no
// provisioner, in the pool.
func (w *environment) onlyVolumes(h *host, want []string, byHand ...string) {
	w.Helper()
	all := listIn(w, w.pvs())
	var names, tree []string
	for _, pv := range all.Items {
		if ref := pv.Spec.ClaimRef; ref == nil || ref.Namespace == w.Namespace {
			names = append(names, pv.Name)
		}
	}
	slices.Sort(names)
	expected := slices.Sorted(slices.Values(slices.Concat(want, byHand)))
	if !slices.Equal(names, expected) {
		w.Errorf("the volumes are %q, want %q", names, expected)
	}
	for _, name := range want {
		tree = append(tree, pool.Of(name)...)
	}
	h.wantTree(tree...)
}

// get is a claim as it is now.
func (w *environment) get(claim string) *corev1.PersistentVolumeClaim {
	w.Helper()
	return getIn(w, w.pvcs(), claim)
}

// The scheduler chooses one node and then the other while both work: each claim has one volume, and
// no node keeps a directory of another one.
func TestSelectedNodeChanges(t *testing.T) {
	w := newEnvironmentUnbound(t)
	a, b := w.newHost("a").run(), w.newHost("b").run()
	class := w.Class("c", wait)
	trees := map[string][]string{}
	var claims []*corev1.PersistentVolumeClaim
	for i, name := range numbered("data", 20) {
		claims = append(claims, w.claim(name, class, "1Mi", annotate(selectedNode, a.node)))
		w.annotateClaim(name, selectedNode, b.node)
		if i%2 == 0 {
			w.annotateClaim(name, selectedNode, a.node)
		}
	}
	for _, c := range claims {
		pv := w.made(c)
		node := pv.Labels["hostpath-provisioner/node"]
		trees[node] = append(trees[node], pool.Of(pv.Name)...)
	}
	a.wantTree(trees[a.node]...)
	b.wantTree(trees[b.node]...)
}

// A claim is bound to another volume while its own is made: the volume goes with its directory,
// which no pod ever had, and the claim stays as it is. If there is data in it all the same, nothing
// is removed. What kube-controller-manager does is done by hand here.
func TestClaimBoundElsewhere(t *testing.T) {
	w := newEnvironmentUnbound(t)
	h := w.newHost("a").run()
	class := w.Class("c", wait)
	full := w.boundElsewhere(h, "full", class, func(pv *corev1.PersistentVolume) {
		w.Must(os.WriteFile(filepath.Join(h.mount, pv.Name, "data"), nil, 0o600))
	})
	w.boundElsewhere(h, "empty", class, func(*corev1.PersistentVolume) {})
	w.event(full, "ClaimStillExists")
	h.wantTree(pool.Of(full.Name)...)
	need(os.Stat(filepath.Join(h.mount, full.Name, "data")))(w)
	if c := w.get("empty"); c.Spec.VolumeName != "by-hand-empty" || c.DeletionTimestamp != nil {
		t.Errorf("the claim is %+v", c)
	}
}

// boundElsewhere makes a claim and waits for its volume, and then has the claim bound to another
// one, and this one Released.
func (w *environment) boundElsewhere(h *host, name, class string, before func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	w.Helper()
	pv := w.made(w.claim(name, class, "1Mi", annotate(selectedNode, h.node)))
	before(pv)
	claim := w.get(name)
	claim.Spec.VolumeName = "by-hand-" + name
	updateIn(w, w.pvcs(), claim)
	pv.Status.Phase = corev1.VolumeReleased
	need(w.pvs().UpdateStatus(w.Ctx, pv, metav1.UpdateOptions{}))(w)
	return pv
}

// The same by kube-controller-manager itself, which finds volumes that an administrator made for
// the claims by name: each claim has one volume, and of the daemon's only those are left that a
// claim has.
func TestPreBound(t *testing.T) {
	w, h := running(t)
	class := w.Class("c", wait)
	names := numbered("data", 12)
	for _, name := range names {
		w.claim(name, class, "1Mi", annotate(selectedNode, h.node))
		createIn(w, w.pvs(), w.handMade(w.Namespace+"-"+name, class, name))
	}
	var ours []string
	for _, name := range names {
		if pv := w.Bound(name); pv.Annotations["pv.kubernetes.io/provisioned-by"] == w.Provisioner {
			ours = append(ours, pv.Name)
		}
	}
	t.Logf("%d of 12 claims have a volume of the daemon's", len(ours))
	w.Eventually("the others are gone", func() bool {
		all := listIn(w, w.pvs(), metav1.ListOptions{LabelSelector: "hostpath-provisioner/node=" + h.node})
		return len(all.Items) == len(ours)
	})
}

// A volume is kept for a claim of a StatefulSet, on another node than the scheduler chose before
// kube-controller-manager bound the two: there is no second volume, which the claim could get in
// place of the one with its data.
func TestVolumeKeptForAClaim(t *testing.T) {
	w := newEnvironmentUnbound(t)
	h := w.newHost("a").run()
	class, here := w.Class("c", wait), annotate(selectedNode, h.node)
	var byHand []string
	var kept []*corev1.PersistentVolumeClaim
	for i, phase := range []corev1.PersistentVolumePhase{corev1.VolumePending, corev1.VolumeAvailable, corev1.VolumeReleased} {
		name := fmt.Sprint("data-", i)
		byHand = append(byHand, w.keptFor(name, class, phase).Name)
		kept = append(kept, w.claim(name, class, "1Mi", here))
	}
	first := w.made(w.claim("other", class, "1Mi", here))
	w.made(w.claim("last", class, "1Mi", here)) // what came before it was looked at
	want := []string{first.Name, w.made(w.get("last")).Name}
	h.stop()
	w.onlyVolumes(h, want, byHand...)

	h.run()
	w.made(w.claim("after", class, "1Mi", here))
	for _, c := range kept {
		if _, err := w.pvs().Get(w.Ctx, "pvc-"+string(c.UID), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("claim %s, after a start: %v", c.Name, err)
		}
	}
	w.annotateClaim("data-0", "volume.kubernetes.io/storage-provisioner", w.Provisioner) // the kept one does not fit it, say
	w.made(kept[0])
}

// keptFor makes a volume of no provisioner, on no node of the test, for the claim of this name.
func (w *environment) keptFor(claim, class string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	w.Helper()
	pv := createIn(w, w.pvs(), w.handMade(w.Namespace+"-kept-"+claim, class, claim))
	pv.Status.Phase = phase
	return need(w.pvs().UpdateStatus(w.Ctx, pv, metav1.UpdateOptions{}))(w)
}

// handMade is a volume as an administrator writes it for a claim, which has its size, not created
// yet. It has no provisioner and is on no node.
func (w *environment) handMade(name, class, claim string) *corev1.PersistentVolume {
	of := cluster.Claim(w.Namespace, claim, class, "1Mi").Spec
	source := corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/kept"}}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: of.Resources.Requests, AccessModes: of.AccessModes, StorageClassName: class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        source,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: w.Namespace, Name: claim},
		},
	}
}
