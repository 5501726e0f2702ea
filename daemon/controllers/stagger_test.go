package controllers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

// A burst has a backlog that ends with it, and never a longer one than its limit.
func TestStaggerBacklog(t *testing.T) {
	var s stagger
	now, slot := time.Now(), 25*time.Millisecond
	for i := range 10000 {
		if got := s.arrive(now, slot); got != min(time.Duration(i)*slot, plan.MaxBacklog) {
			t.Fatalf("claim %d has a backlog of %s", i, got)
		}
	}
	if got := s.arrive(now.Add(plan.MaxBacklog), slot); got > slot {
		t.Errorf("after the burst a claim has a backlog of %s", got)
	}
}

// What was taken and missed counts, and decays.
func TestStaggerFade(t *testing.T) {
	var s stagger
	now := time.Now()
	for range 8 {
		s.took(now)
		s.missed(now)
	}
	if taken, late := s.lately(now); taken != 8 || late != lagMost {
		t.Errorf("took %d, late by %s", taken, late)
	}
	if taken, late := s.lately(now.Add(halfLife)); taken != 4 || late != lagMost/2 {
		t.Errorf("later: took %d, late by %s", taken, late)
	}
	if taken, late := s.lately(now.Add(20 * halfLife)); taken != 0 || late != 0 {
		t.Errorf("much later: took %d, late by %s", taken, late)
	}
}

// A node takes one claim at a time; those behind do not all ask again at once.
func TestStaggerOneAtATime(t *testing.T) {
	var s stagger
	if s.enter() != 0 || s.enter() != plan.LagPerClaim || s.enter() != 2*plan.LagPerClaim {
		t.Error("more than one is taken, or those behind come at once")
	}
	s.leave()
	if s.enter() != 0 || s.enter() != plan.LagPerClaim {
		t.Error("the next one is not taken")
	}
}

// A claim that another node took, without the watch telling, is not written, and makes this node
// more patient.
func TestTakeLooksFirst(t *testing.T) {
	mode := storagev1.VolumeBindingImmediate
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "u", ResourceVersion: "1"}}
	taken := claim.DeepCopy()
	taken.ResourceVersion = "2"
	a := &api{claim: taken}
	c, _ := stand(a, &shelf{})
	claim.Annotations = map[string]string{plan.StorageProvisioner: plan.DefaultProvisioner}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	f := plan.ClaimFacts{
		RequestFacts: plan.RequestFacts{
			Self: plan.Self{Provisioner: plan.DefaultProvisioner, Node: "node-a"}, Nodes: 2,
			NodeLabels: map[string]string{plan.HostnameLabel: "a"}, Room: capacity.Room{Free: 1 << 30},
			Pool: plan.Pool{Name: "fast", Directory: func(pv, _, _ string) (string, error) { return pv, nil }},
		},
		Claim: claim, Class: &storagev1.StorageClass{VolumeBindingMode: &mode}, Age: time.Minute,
	}
	after, err := c.take(t.Context(), f)
	if _, late := c.stagger.lately(time.Now()); err != nil || after <= 0 || a.assignments != 0 || late == 0 {
		t.Errorf("again after %s, %v; %d writes, late by %s", after, err, a.assignments, late)
	}
	a.claim = claim
	if _, err := c.take(t.Context(), f); err != nil || a.assignments != 1 {
		t.Errorf("%v; %d writes of a claim that no node took", err, a.assignments)
	}
}

// asking is an API that counts what is asked about a claim of another node.
type asking struct {
	*api
	volume, node bool
	asked        []string
	said         time.Time
}

func (a *asking) GetVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	a.asked = append(a.asked, "volume")
	if a.volume {
		return &corev1.PersistentVolume{}, nil
	}
	return nil, nil
}

func (a *asking) NodeExists(_ context.Context, name string) (bool, error) {
	if name != "node-b" {
		return false, errors.New("asked for " + name)
	}
	a.asked = append(a.asked, "node")
	return a.node, nil
}

func (a *asking) EventLastWritten(context.Context, corev1.ObjectReference, string, string, string) (time.Time, string, error) {
	return a.said, "", nil
}

func TestInquire(t *testing.T) {
	for _, c := range []struct {
		chosen       string
		volume, node bool
		want         plan.Inquiry
		asked        int
	}{
		{"node-b", true, true, plan.Inquiry{Volume: true}, 1},
		{"node-b", false, true, plan.Inquiry{}, 2},
		{"node-b", false, false, plan.Inquiry{Gone: true}, 2},
		{"../b", false, true, plan.Inquiry{Gone: true}, 1}, // never put into a URL
	} {
		a := &asking{api: &api{}, volume: c.volume, node: c.node}
		ctl, _ := stand(a.api, &shelf{})
		ctl.API = a
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{plan.SelectedNode: c.chosen}}}
		got, err := ctl.inquire(t.Context(), claim)
		if err != nil || *got != c.want || len(a.asked) != c.asked {
			t.Errorf("%+v: %+v, %v, asked for %q", c, got, err, a.asked)
		}
	}
}

// otherClass is an API with one class, of another provisioner or of ours.
type otherClass struct {
	*api
	of string
}

func (o otherClass) ClassProvisioner(context.Context, string) (string, error) { return o.of, nil }

// A class that the watch does not have is asked for: whose it is is told, and one of ours is waited
// for.
func TestClassOfAnother(t *testing.T) {
	for of, want := range map[string]string{
		"":                      `storage class "c" does not exist`,
		"example.com/other":     `storage class "c" belongs to provisioner "example.com/other" now, and the claim is for "hostpath-provisioner"`,
		plan.DefaultProvisioner: "",
	} {
		c, _ := stand(&api{}, &shelf{})
		c.API, c.Listers.Classes, c.Provisioner = otherClass{&api{}, of}, none[*storagev1.StorageClass]{}, plan.DefaultProvisioner
		class := "c"
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{plan.StorageProvisioner: plan.DefaultProvisioner}}}
		claim.Spec.StorageClassName = &class
		_, _, v, err := c.decide(t.Context(), claim)
		if err != nil || v.Message != want || v.Action != plan.Wait || want == "" && v.After == 0 {
			t.Errorf("of %q: %+v, %v", of, v, err)
		}
	}
}

// countingClasses is an API server that counts how often it is asked whose a class is.
type countingClasses struct {
	*api
	n    int
	fail error
}

func (c *countingClasses) ClassProvisioner(context.Context, string) (string, error) {
	c.n++
	return "example.com/other", c.fail
}

// A tenant's claims of classes that are not ours cost a bounded number of requests, on each node.
func TestClassesAreAskedForSeldom(t *testing.T) {
	server := &countingClasses{api: &api{}}
	c, _ := stand(server.api, &shelf{})
	c.API = server
	for range 10 {
		if of, err := c.classOf(t.Context(), "c"); of != "example.com/other" || err != nil {
			t.Errorf("%q, %v", of, err)
		}
	}
	if server.n != 1 {
		t.Errorf("%d requests for one name, want one", server.n)
	}
	for i := range 1000 {
		if _, err := c.classOf(t.Context(), fmt.Sprint("class-", i)); err != nil {
			t.Error(err)
		}
	}
	if server.n != askClassMost {
		t.Errorf("%d requests for 1001 names, want %d", server.n, askClassMost)
	}
	for name, known := range c.classes.all { // a while later
		c.classes.all[name] = response[classOwner]{known.is, known.until.Add(-askClassAgain)}
	}
	if _, ask := c.takeClass("c"); !ask || len(c.classes.all) != 1 {
		t.Errorf("after a while: asked %t, %d are held", ask, len(c.classes.all))
	}
	if _, err := c.classOf(t.Context(), "c"); !errors.Is(err, errClassRequested) { // by the take above
		t.Errorf("beside another worker's request: %v", err)
	}
	server.fail = errors.New("away")
	c.classes.all = nil
	for range 2 { // a failure is not kept
		if _, err := c.classOf(t.Context(), "c"); !errors.Is(err, server.fail) {
			t.Errorf("while the server is away: %v", err)
		}
	}
}

// speaker counts events.
type speaker struct{ events []string }

func (s *speaker) Event(_ corev1.ObjectReference, _, reason, _ string) {
	s.events = append(s.events, reason)
}

type deaf struct{ deafObserver }

func (deaf) Claim(string, string, time.Duration) {}

// What another daemon said lately is not said again.
func TestRemind(t *testing.T) {
	a, s := &asking{api: &api{}, said: time.Now().Add(-time.Minute)}, &speaker{}
	c, _ := stand(a.api, &shelf{})
	c.API, c.Events, c.Metrics = a, s, deaf{}
	f := plan.ClaimFacts{Claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u"}}}
	v := plan.Verdict{Action: plan.Remind, Reason: plan.ReasonNodeSilent, Message: "silent"}
	if err := c.remind(t.Context(), f, v); err != nil || len(s.events) != 0 {
		t.Errorf("said %q, %v", s.events, err)
	}
	a.said = time.Time{}
	if err := c.remind(t.Context(), f, v); err != nil || len(s.events) != 1 {
		t.Errorf("said %q, %v", s.events, err)
	}
}

// Work that was begun for a claim that another node has by now is undone by the records.
func TestLeftClaimIsCheckedByItsRecord(t *testing.T) {
	c, w := stand(&api{}, &shelf{})
	c.abandon("u")
	if len(w.recheck) != 0 {
		t.Error("nothing was begun")
	}
	c.inFlight.made("u", "fast")
	c.abandon("u")
	if len(w.recheck) != 1 || c.inFlight.busy("u") {
		t.Error("the record is not looked at, or taken for one that a worker has")
	}
}

// A claim that the scheduler gave to this node is provisioned without counting the nodes, and
// refused only after that: on the only node of a cluster an access mode is no reason.
func TestNodesAreCountedBeforeARefusal(t *testing.T) {
	for name, c := range map[string]struct {
		mode   corev1.PersistentVolumeAccessMode
		action plan.Action
		counts int
	}{
		"what any node has": {corev1.ReadWriteOnce, plan.Provision, 0},
		"of a lone node":    {corev1.ReadWriteMany, plan.Provision, 1},
	} {
		a, wait, class := &api{}, storagev1.VolumeBindingWaitForFirstConsumer, "c"
		ctl, _ := stand(a, &shelf{})
		ctl.Provisioner = plan.DefaultProvisioner
		ctl.Listers.Classes = one[*storagev1.StorageClass]{&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: ctl.Provisioner, VolumeBindingMode: &wait}}
		ctl.Listers.Nodes = one[*corev1.Node]{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ctl.Node, Labels: map[string]string{corev1.LabelHostname: ctl.Node}}}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "ns", Name: "claim",
			Annotations: map[string]string{plan.StorageProvisioner: ctl.Provisioner, plan.SelectedNode: ctl.Node}}}
		claim.Spec.StorageClassName, claim.Spec.AccessModes = &class, []corev1.PersistentVolumeAccessMode{c.mode}
		_, _, verdict, err := ctl.decide(t.Context(), claim)
		if err != nil || verdict.Action != c.action || a.counts != c.counts {
			t.Errorf("%s: %v (%s, %s), %v after %d counts, want %v after %d", name, verdict.Action, verdict.Reason, verdict.Message, err, a.counts, c.action, c.counts)
		}
	}
}
