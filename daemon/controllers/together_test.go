package controllers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/podclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// store is a lister.
type store[T any] map[string]T

func (s store[T]) Get(key string) (T, bool) { object, is := s[key]; return object, is }
func (s store[T]) Watched() bool            { return true }
func (s store[T]) List() (all []T) {
	for _, object := range s {
		all = append(all, object)
	}
	return all
}

// podWorld is a pool of 100 MiB, claims, and an API server that lists these pods.
type podWorld struct {
	*creator
	*testing.T
	*Controller
	w      *poolWorker
	heard  *audience
	claims many
	pods   []*corev1.Pod
	lists  int
	given  []string // claims whose node was written, with it
	// late are claims that no watch has brought.
	late store[*corev1.PersistentVolumeClaim]
	gets int // requests of claims
}

func (p *podWorld) GetClaim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	p.gets++
	return p.late[name], nil
}

func (p *podWorld) FewPods(_ context.Context, _, _ string, visit func(*corev1.Pod)) error {
	p.lists++
	for _, pod := range p.pods {
		visit(pod)
	}
	return nil
}

func (p *podWorld) NodeCount(context.Context) (int, error) { return 3, nil }

func (p *podWorld) SetSelectedNode(_ context.Context, claim *corev1.PersistentVolumeClaim, node string) (bool, error) {
	p.given = append(p.given, claim.Name+"="+node)
	return true, nil
}

func newPodWorld(t *testing.T) *podWorld {
	p := &podWorld{T: t, creator: &creator{api: &api{}}, claims: many{}, heard: &audience{}}
	p.Controller, p.w = stand(p.creator.api, p.creator)
	t.Cleanup(p.End)
	p.Controller.API, p.Events, p.Controller.Metrics = p, p.heard, deafToAll{}
	p.Controller.pods.finder = podclaims.NewFinder(p)
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	go p.Controller.pods.finder.Run(ctx)
	p.Self = plan.Self{Node: "node-a", Provisioner: "p"}
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: "p", VolumeBindingMode: &wait}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{plan.HostnameLabel: "host-a"}}}
	p.Listers = Listers{Claims: p.claims, Classes: store[*storagev1.StorageClass]{"c": class},
		Volumes: store[*corev1.PersistentVolume]{}, Nodes: store[*corev1.Node]{"node-a": node}}
	p.configured = []plan.Pool{{Name: "fast", Path: "/srv/fast", Source: plan.SourceHostPath,
		Directory: func(pv, _, _ string) (string, error) { return pv, nil }}}
	p.Gate.Set(hostcheck.Report{Pool: "fast", Size: 100 << 20, Available: 100 << 20, Mark: hostcheck.Marker{Cluster: "c"}}, time.Now())
	return p
}

// add makes a claim, and the pod that uses it with others.
func (p *podWorld) add(name, node, size string) *corev1.PersistentVolumeClaim {
	class := "c"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
		Annotations: map[string]string{plan.StorageProvisioner: "p"}}}
	if node != "" {
		claim.Annotations[plan.SelectedNode] = node
	}
	claim.Spec.StorageClassName = &class
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	p.claims["ns/"+name] = claim
	p.ClaimChanged(nil, claim)
	return claim
}

func (p *podWorld) pod(name string, claims ...string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	p.pods = append(p.pods, pod)
}

// may asks until the pods are known.
func (p *podWorld) may(claim *corev1.PersistentVolumeClaim) bool {
	p.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		f, _, err := p.gather(p.Context(), claim)
		if err != nil {
			p.Fatal(err)
		}
		may, after, err := p.Controller.pods.mayMake(p.Context(), f)
		if err != nil || time.Now().After(end) {
			p.Fatalf("it is not known whether the volume may be made: %v", err)
		}
		if may || after != podsAgain {
			return may
		}
	}
}

func (p *podWorld) wantPromised(mib uint64, when string) {
	p.Helper()
	if sum, _ := p.w.disk.Account.Promised(); sum != mib<<20 {
		p.Errorf("%s: %d bytes are promised, want %d MiB", when, sum, mib)
	}
}

// Where all that waits fits no pod is looked for, and a claim's own room alone is reserved.
func TestAllFits(t *testing.T) {
	p := newPodWorld(t)
	a := p.add("a", "node-a", "40Mi")
	p.add("b", "", "40Mi")
	if !p.may(a) || p.lists > 0 {
		t.Errorf("%d lists of pods", p.lists)
	}
	p.wantPromised(40, "all fits")
	p.dropClaim(item{"ns", "a", "a"})
	p.wantPromised(0, "the claim is gone")
	p.AllHeld = func(string) bool { return false }
	if !p.may(a) || p.lists != 1 {
		t.Errorf("not all claims are known: %d lists of pods", p.lists)
	}
}

// Claims of a pod that do not fit together are given back, all that have this node, and told why.
func TestGivenBackTogether(t *testing.T) {
	p := newPodWorld(t)
	a, b := p.add("a", "node-a", "60Mi"), p.add("b", "node-a", "60Mi")
	p.add("open", "", "1Mi")
	p.pod("db", "a", "b", "open", "none")
	if p.may(a) {
		t.Error("a volume is made that holds the pod where it cannot run")
	}
	slices.Sort(p.given)
	if got := strings.Join(p.given, " "); got != "a= b=" {
		t.Errorf("given back: %q", got)
	}
	for _, c := range []*corev1.PersistentVolumeClaim{a, b} {
		told := strings.Join(p.heard.of(c.UID), "; ")
		if !strings.Contains(told, "the claims of pod db request 121 MiB together (a 60Mi, b 60Mi, open 1Mi), and 100 MiB is available") {
			t.Errorf("%s was told %q", c.Name, told)
		}
	}
	p.wantPromised(0, "given back")
}

// The watch of pods is ahead of that of claims: one that it has not brought counts, too.
func TestClaimThatIsLate(t *testing.T) {
	p := newPodWorld(t)
	p.AllHeld = func(string) bool { return false }
	a := p.add("a", "node-a", "60Mi")
	p.late = store[*corev1.PersistentVolumeClaim]{"b": p.add("b", "node-a", "60Mi")}
	delete(p.claims, "ns/b")
	p.pod("db", "a", "b", "none", "nothing")
	if p.may(a) {
		t.Error("a volume is made that holds the pod where it cannot run")
	}
	if p.gets != 2 {
		t.Errorf("%d requests, want one for the late claim and one for absent ones", p.gets)
	}
}

// A pod whose claims fit has its room until its volumes are made: no other pod gets it meanwhile.
func TestRoomIsHeld(t *testing.T) {
	p := newPodWorld(t)
	a := p.add("a", "node-a", "40Mi")
	p.add("b", "", "40Mi")
	p.pod("one", "a", "b")
	c := p.add("c", "node-a", "30Mi")
	p.pod("two", "c")
	if !p.may(a) {
		t.Error("what fits is refused")
	}
	p.wantPromised(80, "reserved")
	if p.may(c) || strings.Join(p.given, " ") != "c=" {
		t.Errorf("another pod has the room: %q", p.given)
	}
	lists := p.lists
	if b := p.add("b", "node-a", "40Mi"); !p.may(b) || p.lists != lists {
		t.Error("what has its room is looked for again")
	}
	p.dropClaim(item{"ns", "b", "b"})
	p.wantPromised(40, "a claim is gone")
	p.Controller.pods.endAll()
	p.wantPromised(0, "the daemon ends")
}

// Of a pod one claim has its volume, or its room, and nothing is reserved for the others: no claim
// of another pod that comes then gets theirs.
func TestBegunPodsFirst(t *testing.T) {
	whole := capacity.Space{Size: 100 << 20, Available: 100 << 20, Overcommit: 1}
	for _, c := range []struct {
		name  string
		begun func(p *podWorld, a *corev1.PersistentVolumeClaim)
	}{
		{"its room", func(p *podWorld, a *corev1.PersistentVolumeClaim) {
			if !p.may(a) || p.lists > 0 {
				p.Errorf("not all fits: %d lists", p.lists)
			}
		}},
		{"its volume, before a restart", func(p *podWorld, a *corev1.PersistentVolumeClaim) {
			pv := &corev1.PersistentVolume{}
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "a"}
			p.Listers.Volumes = store[*corev1.PersistentVolume]{"pv": pv}
			_, err := p.w.disk.Account.Take("pv", 40<<20, whole)
			delete(p.claims, "ns/a")
			if p.ClaimChanged(a, nil); err != nil {
				p.Error(err)
			}
		}},
		{"a promise, of which a crash left nothing", func(p *podWorld, a *corev1.PersistentVolumeClaim) {
			if !p.may(a) {
				p.Error("not all fits")
			}
			p.Controller.pods.hold("a", func() {})
			p.Controller.pods.hold("b", func() {})
			p.wantPromised(0, "lost")
			p.w.disk.Account.Release("pvc-a")
			taken, err := p.w.disk.Account.Reserve("pvc-a", 40<<20, whole)
			if err != nil {
				p.Fatal(err)
			}
			p.Cleanup(func() { taken.Drop() })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPodWorld(t)
			a := p.add("a", "node-a", "40Mi")
			p.add("b", "", "40Mi")
			p.pod("one", "a", "b")
			h, _ := p.w.disk.Open(t.Context())
			h.Room() // the records are counted
			c.begun(p, a)
			other := p.add("other", "node-a", "30Mi")
			p.add("another", "", "1Mi")
			p.pod("two", "other")
			if p.may(other) || strings.Join(p.given, " ") != "other=" {
				t.Errorf("the room is given to another pod: %q", p.given)
			}
			p.wantPromised(80, "reserved")
		})
	}
}

// Of several pods that share a claim one that fits is enough; and none is waited for that the daemon
// does not know.
func TestSharedClaim(t *testing.T) {
	p := newPodWorld(t)
	shared := p.add("shared", "node-a", "40Mi")
	p.add("huge", "", "1Gi")
	p.add("small", "", "10Mi")
	p.pod("cannot", "shared", "huge")
	p.pod("can", "shared", "small")
	if !p.may(shared) || len(p.given) > 0 {
		t.Errorf("given back: %q", p.given)
	}
	p.wantPromised(50, "reserved")
	if alone := p.add("alone", "node-a", "1Mi"); !p.may(alone) {
		t.Error("a claim without a pod waits")
	}
}

// What cannot be had anywhere keeps the pod's other claims waiting; a volume that the pod has holds
// it here.
func TestRefusedTogether(t *testing.T) {
	p := newPodWorld(t)
	a, b := p.add("a", "node-a", "1Mi"), p.add("b", "node-a", "1Mi")
	block := corev1.PersistentVolumeBlock
	b.Spec.VolumeMode = &block
	p.ClaimChanged(b, b)
	p.pod("db", "a", "b", "made")
	if p.may(a) || len(p.given) > 0 {
		t.Errorf("made, or given back: %q", p.given)
	}
	if told := strings.Join(p.heard.of("a"), ""); !strings.Contains(told, "claim b of pod db, which uses this one, too, cannot have its volume") {
		t.Errorf("told %q", told)
	}
	b.Spec.VolumeMode = nil
	b.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Gi")
	p.ClaimChanged(b, b)
	pv := &corev1.PersistentVolume{}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "made"}
	p.Listers.Volumes = store[*corev1.PersistentVolume]{"pv": pv}
	if p.may(a) || len(p.given) > 0 {
		t.Errorf("made, or given back where the pod has to stay: %q", p.given)
	}
	if told := strings.Join(p.heard.of("a"), ""); !strings.Contains(told, "claim made of the pod has its volume on this node") {
		t.Errorf("told %q", told)
	}
}

// The claims of a pod that names this node get it, all or none, and are not tried again at once.
func TestPlace(t *testing.T) {
	p := newPodWorld(t)
	p.add("a", "", "40Mi")
	p.add("b", "", "40Mi")
	p.add("other", "node-b", "1Mi")
	p.add("c", "", "60Mi")
	p.pod("db", "a", "b", "other", "none")
	pods := store[*corev1.Pod]{"db": p.pods[0]}
	p.Listers.Pods = pods
	of := placer{p.Controller.claims, map[string]time.Time{}}
	of.round(t.Context())
	of.round(t.Context())
	slices.Sort(p.given)
	if got := strings.Join(p.given, " "); got != "a=node-a b=node-a" {
		t.Errorf("chosen: %q", got)
	}
	p.wantPromised(80, "placed")
	p.pod("large", "c")
	pods["large"] = p.pods[1]
	for range 2 {
		of.round(t.Context())
	}
	if told := p.heard.of("c"); len(p.given) != 2 || len(told) != 1 || !strings.Contains(told[0], "NotEnoughSpace: node node-a: pool fast: ") {
		t.Errorf("chosen: %q; told %q", p.given, told)
	}
	delete(pods, "large")
	if of.round(t.Context()); len(of.due) != 1 {
		t.Errorf("%d pods are remembered", len(of.due))
	}
}
