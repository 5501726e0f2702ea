package why

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

func sized(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// pending is a claim of a class that waits for pods, with a pod that is not scheduled.
func pending() claimFacts {
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "data", Annotations: map[string]string{}}}
	c.Status.Phase = corev1.ClaimPending
	c.Spec.Resources.Requests = sized("2Gi")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled,
		Status: corev1.ConditionFalse, Message: "no node has it all"}}
	return claimFacts{PersistentVolumeClaim: c, class: "fast", ours: true,
		is:   &storagev1.StorageClass{Provisioner: "ours", VolumeBindingMode: &waits},
		pods: []*corev1.Pod{pod}}
}

// Each rule counts before those below it: a case has what would make all of them apply.
func TestClaimInOrder(t *testing.T) {
	f := pending()
	first := func() string {
		w := plan.Decide(claimRules, f, waits{})
		return w.what + "; " + w.help
	}
	steps := []struct {
		what string
		set  func()
		want string
	}{
		{"a pod is not scheduled", func() {},
			"the scheduler, which chooses a node for pod db-0: no node has it all"},
		{"it is gated", func() {
			f.pods[0].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
		},
			"once its scheduling gates are gone"},
		{"it names its node", func() { f.pods[0].Spec.NodeName = "node-a" },
			"the daemon of node node-a, which pod db-0 names itself"},
		{"there is no pod", func() { f.pods = nil }, "a pod that uses it"},
		{"pods may not be read", func() { f.alone = true }, "this user may not read pods"},
		{"the class binds at once", func() { f.is.VolumeBindingMode = nil },
			"a node with room for it"},
		{"it was refused", func() { f.refusal = "volumeMode Block" }, "said: volumeMode Block"},
		{"the class may not be read", func() { f.blind = true }, "what its class says"},
		{"a node was chosen", func() { f.node = node{name: "node-a", ready: true} },
			"the daemon of node node-a; on node"},
		{"which is not Ready", func() { f.node.ready = false },
			"which is not Ready; wait for node node-a; or"},
		{"which is gone", func() { f.node.gone = true },
			"which does not exist; the daemons of other nodes"},
		{"which the claim names", func() { f.Annotations[plan.ProvisionOnNode] = "node-a" },
			"forget-node node-a"},
		{"it names its volume", func() { f.Spec.VolumeName = "pv" },
			"kube-controller-manager, which binds it to volume pv"},
		{"which an earlier one has", func() {
			f.volume, f.UID = &corev1.PersistentVolume{}, "new"
			f.volume.Spec.ClaimRef = &corev1.ObjectReference{
				Namespace: "shop", Name: "data", UID: "old"}
		}, "volume pv, which an earlier claim of this name has; docs/operation.md"},
		{"which another one has", func() { f.volume.Spec.ClaimRef.Name = "log" },
			"volume pv, which claim shop/log has"},
		{"which does not exist", func() { f.volume, f.gone = nil, true },
			"volume pv, which does not exist; make the volume"},
		{"the class is another's", func() { f.ours = false },
			`provisioner "ours", which is none of ours`},
		{"the class is gone", func() { f.is, f.blind = nil, false },
			`its class "fast", which does not exist`},
		{"it has no class", func() { f.class, f.Spec.VolumeName = "", "" },
			"a volume that a person makes"},
		{"it is bound", func() {
			f.Status.Phase, f.Status.Capacity = corev1.ClaimBound, f.Spec.Resources.Requests
		},
			"; "},
		{"it grows", func() {
			f.Status.Capacity = sized("1Gi")
			f.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimUnused, Message: "no pod uses it"},
				{Message: "it is too much"},
			}
		}, "its expansion: it has 1Gi: it is too much"},
		{"it is lost", func() { f.Status.Phase, f.Spec.VolumeName = corev1.ClaimLost, "pv" },
			"its volume pv, which does not exist any more"},
		{"it is deleted", func() {
			f.DeletionTimestamp, f.Finalizers = &metav1.Time{}, []string{"x/y"}
		},
			"its deletion: it has x/y"},
	}
	for _, step := range steps {
		step.set()
		if got := first(); !strings.Contains(got, step.want) {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}

func TestVolumeInOrder(t *testing.T) {
	v := &corev1.PersistentVolume{}
	v.Name, v.Annotations = "pv", map[string]string{}
	v.Status.Phase = corev1.VolumeReleased
	f := volumeFacts{PersistentVolume: v, ours: true, node: node{name: "node-a", ready: true}}
	steps := []struct {
		what string
		set  func()
		want string
	}{
		{"released", func() {},
			"the daemon of node node-a: its claim is gone; on node node-a: hostpath-provisioner"},
		{"kept", func() {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		},
			"nobody: its claim is gone"},
		{"deleted", func() {
			v.DeletionTimestamp, v.Finalizers = &metav1.Time{}, []string{"x/y"}
		},
			"the daemon of node node-a: it has x/y"},
		{"its claim exists", func() {
			f.claim = &corev1.PersistentVolumeClaim{}
			f.claim.Namespace, f.claim.Name = "shop", "data"
		}, "its claim shop/data, which still exists"},
		{"its node is not Ready", func() { f.node.ready = false },
			"which is not Ready; wait for node node-a"},
		{"its node is gone", func() { f.node.gone = true },
			"which does not exist; wait for node node-a"},
		{"it is another's", func() { f.ours, v.Annotations[plan.ProvisionedBy] = false, "x" },
			`provisioner "x", which is none of ours`},
	}
	for _, step := range steps {
		step.set()
		w := plan.Decide(volumeRules, f, waits{})
		got := w.what + "; " + w.help
		if !strings.Contains(strings.ReplaceAll(got, ", and it must be removed", ""), step.want) {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}

// Of claims on two nodes the pod is told; of one that waits its name.
func TestPodWaits(t *testing.T) {
	p := &corev1.Pod{}
	what, help := podWaits(p, nil, map[string][]string{"b": {"log"}, "a": {"data"}})
	want := "claims that are on different nodes, and a pod runs on one: " +
		"data on node a; log on node b"
	if what != want || !strings.Contains(help, "WaitForFirstConsumer") {
		t.Errorf("%q, %q", what, help)
	}
	what, _ = podWaits(p, []Page{{Object: "claim a"}, {Object: "claim b", Waits: "x"}}, nil)
	if what != "claim b" {
		t.Error(what)
	}
	what, _ = podWaits(p, []Page{{Object: "claim a", on: "node-a"}, {Object: "claim b", Waits: "x"}}, nil)
	if what != "claim b; claim a has its volume on node node-a, so that the pod can run on no other" {
		t.Error(what)
	}
}

func TestSnapshotInOrder(t *testing.T) {
	text, yes := "it fails", true
	f := snapshotFacts{Snapshot: &snapshotapi.Snapshot{}, bound: "c", ours: true, volume: true}
	f.node = node{name: "node-a", ready: true}
	f.content = &snapshotapi.Content{}
	f.content.Spec.Driver, f.content.Spec.Source.VolumeHandle = "x", &text
	steps := []struct {
		what string
		set  func()
		want string
	}{
		{"it is taken", func() {}, "the daemon of node node-a; on node node-a"},
		{"its volume is gone", func() { f.volume = false }, "its volume it fails, which does not"},
		{"a person named it", func() { f.content.Spec.Source = snapshotapi.ContentSource{} },
			"which a person named"},
		{"it failed", func() {
			f.content.Status = &snapshotapi.ContentStatus{Error: &snapshotapi.Error{Message: &text}}
		}, "the daemon of node node-a: it fails; on node"},
		{"it is another's", func() { f.ours = false }, `driver "x", which is none of ours`},
		{"there is none", func() { f.content = nil }, "its content c, which does not exist"},
		{"it may not be read", func() { f.unseen = true }, "which this user may not read"},
		{"it is not bound", func() { f.bound = "" }, "which makes a VolumeSnapshotContent; kubectl"},
		{"of a claim", func() { f.Spec.Source.Claim = &text }, "once claim it fails is bound"},
		{"of a content", func() { f.Spec.Source.Content = &text }, "binds it to content it fails"},
		{"it cannot be", func() {
			f.Status = &snapshotapi.SnapshotStatus{Error: &snapshotapi.Error{Message: &text}}
		}, "the snapshot-controller, which cannot: it fails"},
		{"it is ready", func() { f.Status.ReadyToUse = &yes }, "; "},
		{"it is deleted", func() {
			f.DeletionTimestamp, f.Finalizers = &metav1.Time{}, []string{"x/y"}
		}, "its deletion: it has x/y"},
		{"its content, too", func() {
			f.content, f.ours = &snapshotapi.Content{}, true
			f.content.DeletionTimestamp = &metav1.Time{}
		}, "its content  waits for the daemon of node node-a"},
	}
	for _, step := range steps {
		step.set()
		w := plan.Decide(snapshotRules, f, waits{})
		if got := w.what + "; " + w.help; !strings.Contains(got, step.want) {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}
