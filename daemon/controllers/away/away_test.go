package away

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

func node(name string, ready corev1.ConditionStatus, ago time.Duration) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-ago))}}
	return n
}

func volumeOn(node string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: "v", UID: types.UID("v-" + node),
		Labels:      map[string]string{plan.NodeLabel: node},
		Annotations: map[string]string{plan.ProvisionedBy: "ours"}}}
	v.Spec.ClaimRef = &corev1.ObjectReference{
		Namespace: "ns", Name: "c", UID: types.UID("c-" + node)}
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	v.Status.Phase = phase
	return v
}

// Told are what is used and what waits for its removal, of nodes that are gone or long not Ready.
func TestForInOrder(t *testing.T) {
	bound, released := volumeOn("a", corev1.VolumeBound), volumeOn("a", corev1.VolumeReleased)
	theirs, kept := bound.DeepCopy(), released.DeepCopy()
	theirs.Annotations[plan.ProvisionedBy] = "other"
	kept.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	shared := bound.DeepCopy()
	shared.Labels = map[string]string{plan.ScopeLabel: plan.ScopeShared}
	unknown := corev1.ConditionUnknown
	for name, c := range map[string]struct {
		v    *corev1.PersistentVolume
		n    *corev1.Node
		want string
	}{
		"gone":                  {bound, nil, "does not exist any more, and nothing is done"},
		"gone, and released":    {released, nil, "does not exist any more, and the volume waits"},
		"silent":                {bound, node("a", unknown, After), "is not Ready, and nothing"},
		"Ready":                 {bound, node("a", corev1.ConditionTrue, time.Hour), ""},
		"a short while":         {bound, node("a", unknown, After-time.Minute), ""},
		"retained":              {kept, nil, ""},
		"another provisioner's": {theirs, nil, ""},
		"shared":                {shared, nil, ""},
	} {
		ours := plan.Self{Provisioner: "ours"}
		v := For(Facts{Self: ours, Volume: c.v, Node: c.n, Now: time.Now()})
		if (v.Action == plan.Remind) != (c.want != "") || !strings.Contains(v.Message, c.want) {
			t.Errorf("%s: %+v, want %q", name, v, c.want)
		}
	}
}

// cluster is an API that keeps events, and counts requests.
type cluster struct {
	nodes    []*corev1.Node
	volumes  []*corev1.PersistentVolume
	events   map[types.UID]time.Time
	requests int
	fails    bool
}

func (c *cluster) EachNode(_ context.Context, visit func(*corev1.Node)) error {
	c.requests++
	for _, n := range c.nodes {
		visit(n)
	}
	return nil
}

func (c *cluster) EachVolumeOf(_ context.Context, nodes []string, not bool,
	visit func(*corev1.PersistentVolume)) error {
	c.requests++
	for _, v := range c.volumes {
		if slices.Contains(nodes, v.Labels[plan.NodeLabel]) != not {
			visit(v)
		}
	}
	if c.fails {
		return errors.New("refused")
	}
	return nil
}

func (c *cluster) EventLastWritten(_ context.Context, ref corev1.ObjectReference, _, _,
	_ string) (time.Time, string, error) {
	c.requests++
	return c.events[ref.UID], "", nil
}

func (c *cluster) Event(ref corev1.ObjectReference, _, _, _ string) {
	if c.events == nil {
		c.events = map[types.UID]time.Time{}
	}
	c.requests++
	c.events[ref.UID] = time.Now()
}

func (c *cluster) watch(count *int) *Watch {
	return New(Options{Self: plan.Self{Provisioner: "ours"}, API: c,
		Count: func(n int) { *count = n }, Done: func(error) {}})
}

// As long as all is well a look costs two lists. What another daemon told lately is not told again,
// nor what this one did; a claim is told and not its volume.
func TestLook(t *testing.T) {
	c, n := &cluster{nodes: []*corev1.Node{node("a", corev1.ConditionTrue, 0)},
		volumes: []*corev1.PersistentVolume{volumeOn("a", corev1.VolumeBound)}}, 0
	w := c.watch(&n)
	if w.Look(t.Context(), true); n != 0 || c.requests != 2 || len(c.events) > 0 {
		t.Errorf("all is well: %d, %+v", n, c)
	}
	c.volumes = append(c.volumes, volumeOn("b", corev1.VolumeBound),
		volumeOn("d", corev1.VolumeReleased))
	w.Look(t.Context(), true)
	if _, claim := c.events["c-b"]; !claim || n != 2 || len(c.events) != 2 {
		t.Errorf("two nodes are gone: %d, %+v", n, c.events)
	}
	c.requests = 0
	if w.Look(t.Context(), true); c.requests != 2 {
		t.Errorf("%d requests for what was told", c.requests)
	}
	c.requests = 0
	if c.watch(&n).Look(t.Context(), true); c.requests != 4 || n != 2 {
		t.Errorf("%d requests for what another daemon told", c.requests)
	}
	if w.Look(t.Context(), false); n != 0 {
		t.Errorf("another daemon counts, and this one says %d", n)
	}
}

// One look writes a bounded number of events, asks for no node's volumes where no node is Ready,
// and counts nothing that it could not read.
func TestLookBounded(t *testing.T) {
	c, n := &cluster{}, 0
	for i := range most + 10 {
		v := volumeOn("gone", corev1.VolumeBound)
		v.Spec.ClaimRef.UID = types.UID(fmt.Sprint(i))
		c.volumes = append(c.volumes, v)
	}
	w := c.watch(&n)
	if w.Look(t.Context(), true); c.requests != 1 || n != 0 {
		t.Errorf("no node is Ready: %d requests, %d", c.requests, n)
	}
	c.nodes = []*corev1.Node{node("a", corev1.ConditionTrue, 0)}
	if w.Look(t.Context(), true); n != most+10 || len(c.events) != most {
		t.Errorf("%d, %d events", n, len(c.events))
	}
	if w.Look(t.Context(), true); len(c.events) != most+10 {
		t.Errorf("%d events after the next look", len(c.events))
	}
	c.fails, n = true, 7
	if w.Look(t.Context(), true); n != 7 {
		t.Errorf("%d are counted of what was not read", n)
	}
	large := &cluster{volumes: c.volumes[:1]}
	for i := range mostNodes + 1 {
		large.nodes = append(large.nodes, node(fmt.Sprint("n", i), corev1.ConditionTrue, 0))
	}
	large.nodes = append(large.nodes, node("gone", corev1.ConditionUnknown, time.Hour))
	if large.watch(&n).Look(t.Context(), true); n != 1 {
		t.Errorf("a large cluster: %d", n)
	}
}
