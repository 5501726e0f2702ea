package claimfilter

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// self is a daemon whose node no claim of these tests has selected.
var self = plan.Self{Provisioner: plan.DefaultProvisioner, Node: "node-a"}

// elsewhere is a claim for which another node was selected.
func elsewhere(namespace string, i int) *corev1.PersistentVolumeClaim {
	name := fmt.Sprint(namespace, "-", i)
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Annotations: map[string]string{
		plan.StorageProvisioner: plan.DefaultProvisioner, plan.SelectedNode: "node-b",
	}}}
}

func class(name, pool string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: plan.DefaultProvisioner, Parameters: map[string]string{"pool": pool}}
}

// withClasses is a filter of a pool for each scope, and a class of the same name for each pool.
func withClasses(scopes ...string) *Filter {
	var pools []plan.Pool
	classes := map[string]*storagev1.StorageClass{}
	for _, scope := range scopes {
		pools = append(pools, plan.Pool{Name: scope, Path: "/srv/" + scope, Scope: scope, Source: plan.SourceHostPath})
		classes[scope] = class(scope, scope)
	}
	return New(self, pools, func(name string) (*storagev1.StorageClass, bool) { c, known := classes[name]; return c, known }, func(name string) bool { return name == "ours" })
}

// Of a pool that is not one node's each claim is held, however many there are: it concerns every
// daemon until it has its volume.
func TestClaimsOfAllNodesAreHeld(t *testing.T) {
	for _, c := range []struct {
		name, class string
		scopes      []string
		want        int // of more claims than are held of other nodes
	}{
		{"shared", plan.ScopeShared, []string{plan.ScopeNode, plan.ScopeShared}, mostOfNamespace + 1},
		{"every-node", plan.ScopeEveryNode, []string{plan.ScopeEveryNode}, mostOfNamespace + 1},
		{"node", plan.ScopeNode, []string{plan.ScopeNode, plan.ScopeShared}, mostOfNamespace},
		{"no such class", "unknown", []string{plan.ScopeShared}, mostOfNamespace},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := withClasses(c.scopes...)
			held := 0
			for i := range mostOfNamespace + 1 {
				claim := elsewhere("a", i)
				claim.Spec.StorageClassName = &c.class
				if f.Keep(claim) {
					held++
				}
			}
			if held != c.want {
				t.Errorf("%d are held, want %d", held, c.want)
			}
		})
	}
}

// A claim of this node is held, one that has its volume is not.
func TestOwnClaimsAreHeld(t *testing.T) {
	f := withClasses(plan.ScopeNode)
	own := elsewhere("a", 0)
	own.Annotations[plan.SelectedNode] = self.Node
	if !f.Keep(own) || len(f.others.held) != 0 {
		t.Errorf("not held, or counted as another node's: %v", f.others.held)
	}
	own.Spec.VolumeName = "pv"
	if f.Keep(own) {
		t.Error("held with its volume")
	}
}

// Of the claims whose node was selected and for which no provisioner was asked, only those of known
// classes that wait for a consumer are held: each provisioner's are like that for a moment, and
// a user who may make claims can write the annotation.
func TestSelectedClaimsAreHeldByTheirClass(t *testing.T) {
	for _, c := range []struct {
		name  string
		scope string // of the pools; "" is a class that is not known
		mode  storagev1.VolumeBindingMode
		node  string
		held  bool
	}{
		{"waits, here", plan.ScopeNode, storagev1.VolumeBindingWaitForFirstConsumer, self.Node, true},
		{"waits, elsewhere", plan.ScopeNode, storagev1.VolumeBindingWaitForFirstConsumer, "node-b", false},
		{"waits, shared, elsewhere", plan.ScopeShared, storagev1.VolumeBindingWaitForFirstConsumer, "node-b", true},
		{"at once, here", plan.ScopeNode, storagev1.VolumeBindingImmediate, self.Node, false},
		{"not known, here", "", storagev1.VolumeBindingWaitForFirstConsumer, self.Node, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := withClasses(plan.ScopeNode, plan.ScopeShared)
			if class, known := f.classes(c.scope); known {
				class.VolumeBindingMode = &c.mode
			}
			for i := range 2 * mostInAll {
				claim := elsewhere("a", i)
				claim.Annotations, claim.Spec.StorageClassName = map[string]string{plan.SelectedNode: c.node}, &c.scope
				if held := f.Keep(claim); held != c.held {
					t.Fatalf("claim %d is held: %t", i, held)
				}
				claim.Annotations[plan.StorageProvisioner] = plan.DefaultProvisioner
				if c.node == self.Node && !f.Keep(claim) {
					t.Fatal("it is not held when it was asked for")
				}
			}
			if f.unknown.Load() != (c.scope == "") {
				t.Error("the claims are read again when a class comes, or are not")
			}
			if len(f.others.held)+len(f.growing.held) > 0 {
				t.Errorf("they take the room of others: %d, %d", len(f.others.held), len(f.growing.held))
			}
		})
	}
}

// Claims were dropped before their class was known: they are read again when it comes, if that can
// change something.
func TestClassChanged(t *testing.T) {
	for _, c := range []struct {
		name   string
		scopes []string
		now    *storagev1.StorageClass
		want   bool
	}{
		{"of a shared pool", []string{plan.ScopeNode, plan.ScopeShared}, class("new", plan.ScopeShared), true},
		{"of a node's pool", []string{plan.ScopeNode, plan.ScopeShared}, class("new", plan.ScopeNode), false},
		{"of an unknown pool", []string{plan.ScopeShared}, class("new", "none"), false},
		{"deleted", []string{plan.ScopeShared}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := withClasses(c.scopes...).ClassChanged(c.now); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// What one namespace has does not use up the room of the others, and all is read again when there
// is room.
func TestClaimsOfOthersAreBounded(t *testing.T) {
	f := withClasses(plan.ScopeNode)
	for i := range mostOfNamespace {
		if !f.Keep(elsewhere("a", i)) || !f.Keep(elsewhere("a", i)) {
			t.Fatalf("claim %d is not held", i)
		}
	}
	if f.Keep(elsewhere("a", mostOfNamespace)) || !f.Keep(elsewhere("b", 0)) {
		t.Error("one namespace has more than its part, or another one has none")
	}
	again := 0
	for i := range mostOfNamespace {
		bound := elsewhere("a", i)
		bound.Spec.VolumeName = "pv"
		if f.Changed(elsewhere("a", i), bound) {
			again++
		}
	}
	if again != 1 || len(f.others.held) != 1 || len(f.others.spaces) != 1 {
		t.Errorf("read again %d times; %d claims of %d namespaces are held", again, len(f.others.held), len(f.others.spaces))
	}
	for i := range 2 * mostInAll {
		f.Keep(elsewhere(fmt.Sprint("n", i/100), i))
	}
	if len(f.others.held) != mostInAll {
		t.Errorf("%d claims are held", len(f.others.held))
	}
}

// grows is a claim that has its volume and requests more than it has. No node was selected for it.
func grows(namespace string, i int) *corev1.PersistentVolumeClaim {
	c := elsewhere(namespace, i)
	delete(c.Annotations, plan.SelectedNode)
	c.Spec.VolumeName, c.Status.Phase = "pv", corev1.ClaimBound
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	return c
}

// Claims that request more than they have are held, without a limit those that were given to this
// node. They take no room of those that wait for a volume, and give theirs back when they have what
// they request.
func TestGrowingClaims(t *testing.T) {
	f := withClasses(plan.ScopeNode)
	for i := range 2 * mostOfNamespace {
		own := grows("own", i)
		own.Annotations[plan.SelectedNode] = self.Node
		if held := f.Keep(grows("a", i)); held != (i < mostOfNamespace) || !f.Keep(own) {
			t.Fatalf("claim %d of any node is held: %t", i, held)
		}
	}
	if len(f.growing.held) != mostOfNamespace || !f.Keep(elsewhere("a", 0)) {
		t.Errorf("%d are counted, or there is no room for a claim without a volume", len(f.growing.held))
	}
	given := grows("a", 0)
	given.Annotations[plan.SelectedNode] = "node-b"
	if f.Keep(given) {
		t.Error("one that was given to another node is held")
	}
	again := 0
	for i := range mostOfNamespace {
		done := grows("a", i)
		done.Status.Capacity = done.Spec.Resources.Requests
		if f.Keep(done) {
			t.Fatal("one is held that has what it requests")
		}
		if f.Changed(grows("a", i), nil) {
			again++
		}
	}
	if again != 1 || len(f.growing.held) != 0 {
		t.Errorf("read again %d times, %d are held", again, len(f.growing.held))
	}
}

// A claim that grows is held if its volume is this node's, whichever node it names. If that was not
// known yet, the claims are to be read again.
func TestGrowingClaimOfOwnVolume(t *testing.T) {
	f := withClasses(plan.ScopeNode)
	claim := grows("a", 0)
	claim.Annotations[plan.SelectedNode] = "another-name"
	if f.Keep(claim) || !f.Early() || f.Early() {
		t.Error("a claim of another node's volume is held, or not looked for again, or again and again")
	}
	claim.Spec.VolumeName = "ours"
	if !f.Keep(claim) || f.Early() {
		t.Error("the claim of an own volume is not held")
	}
	claim.Status.Capacity = claim.Spec.Resources.Requests
	if f.Keep(claim) {
		t.Error("one is held that has what it requests")
	}
}

// withoutNode is a claim for which no node was chosen.
func withoutNode(namespace string, i int, class string) *corev1.PersistentVolumeClaim {
	claim := elsewhere(namespace, i)
	claim.Annotations, claim.Spec.StorageClassName = nil, &class
	return claim
}

// Claims that wait for the scheduler are held, a bounded number, if they are of a class that waits
// and is ours; and as long as they wait.
func TestClaimsWithoutNode(t *testing.T) {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	classes := map[string]*storagev1.StorageClass{}
	for _, name := range []string{"later", "now", "alias"} {
		classes[name] = class(name, "fast")
	}
	classes["later"].VolumeBindingMode, classes["alias"].VolumeBindingMode = &wait, &wait
	classes["alias"].Provisioner = plan.Rancher
	f := New(self, []plan.Pool{{Name: "fast"}}, func(name string) (*storagev1.StorageClass, bool) { c, known := classes[name]; return c, known }, nil)
	for _, name := range []string{"now", "alias", "unknown"} {
		if f.Keep(withoutNode("a", 0, name)) {
			t.Errorf("of class %s it is held", name)
		}
	}
	for i := range 2 * mostOfNamespace {
		if held := f.Keep(withoutNode("a", i, "later")); held != (i < mostOfNamespace) {
			t.Fatalf("claim %d is held: %t", i, held)
		}
	}
	if !f.Keep(withoutNode("b", 0, "later")) {
		t.Error("one namespace uses up the room of the others")
	}
	again := 0
	for i := range mostOfNamespace {
		given := withoutNode("a", i, "later")
		given.Annotations = map[string]string{plan.SelectedNode: "node-b"}
		if f.Keep(given) {
			t.Fatal("held although the scheduler chose another node")
		}
		if f.Changed(withoutNode("a", i, "later"), nil) {
			again++
		}
	}
	if again != 1 || len(f.unplaced.held) != 1 {
		t.Errorf("read again %d times, %d are held", again, len(f.unplaced.held))
	}
}

// A claim came before its class: the claims are read again when it comes, once.
func TestClaimBeforeItsClass(t *testing.T) {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	f := withClasses(plan.ScopeNode)
	later, now, other := class("later", plan.ScopeNode), class("now", plan.ScopeNode), class("other", plan.ScopeNode)
	later.VolumeBindingMode, other.VolumeBindingMode, other.Provisioner = &wait, &wait, "other"
	if f.ClassChanged(later) {
		t.Error("read again although no claim was dropped")
	}
	f.Keep(withoutNode("a", 0, "later"))
	if f.ClassChanged(now) || f.ClassChanged(other) || !f.ClassChanged(later) || f.ClassChanged(later) {
		t.Error("not read again, or for another class, or more than once")
	}
}

// Whether a claim's pod has others can be told from what is held, as long as there was room for all
// that wait; and also where claims are not provisioned before they are asked for.
func TestAllHeld(t *testing.T) {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	f := withClasses(plan.ScopeNode)
	f.self.AwaitRequest = true
	later, _ := f.classes(plan.ScopeNode)
	later.VolumeBindingMode = &wait
	given := withoutNode("a", 0, plan.ScopeNode)
	given.Annotations = map[string]string{plan.SelectedNode: self.Node}
	if !f.Keep(given) {
		t.Error("a claim is not held for which a provisioner will be asked")
	}
	for i := range mostOfNamespace {
		if !f.AllHeld("a") {
			t.Fatalf("%d claims are not all", i)
		}
		f.Keep(withoutNode("a", i, plan.ScopeNode))
	}
	if f.AllHeld("a") || !f.AllHeld("b") {
		t.Error("there is room where there is none, or none where there is")
	}
}

// Of the pods that name this node those with claims are held, a bounded number of each namespace.
func TestPods(t *testing.T) {
	f := withClasses(plan.ScopeNode)
	pod := func(i int) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", UID: types.UID(fmt.Sprint(i))}}
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		return p
	}
	bare := pod(0)
	bare.Spec.Volumes = nil
	if f.KeepPod(bare) {
		t.Error("a pod without claims is held")
	}
	for i := range 2 * mostOfNamespace {
		if held := f.KeepPod(pod(i)); held != (i < mostOfNamespace) {
			t.Fatalf("pod %d is held: %t", i, held)
		}
	}
	again := 0
	for i := range mostOfNamespace {
		if f.PodChanged(pod(i), nil) {
			again++
		}
	}
	if again != 1 || len(f.pods.held) != 0 {
		t.Errorf("read again %d times, %d are held", again, len(f.pods.held))
	}
}
