package main

import (
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		sorted []int
		q      float64
		want   int
	}{
		{nil, 0.5, 0}, {[]int{7}, 0.99, 7}, {[]int{1, 2, 3}, 0.5, 2}, {[]int{1, 2, 3, 4}, 0.5, 3},
		{[]int{1, 2, 3, 4}, 1, 4}, {[]int{1, 2, 3, 4}, 0, 1},
	} {
		if got := quantile(c.sorted, c.q); got != c.want {
			t.Errorf("quantile(%v, %v) is %d, want %d", c.sorted, c.q, got, c.want)
		}
	}
}

// The limits are the table's for 15 differences: the 31st mean from either end (Wilcoxon's T is
// 30).
func TestRatioLimits(t *testing.T) {
	var mine, theirs samples
	for i := range 15 {
		mine = append(mine, sample{repeat: i, rate: float64(int(1) << (2 * i))})
		theirs = append(theirs, sample{repeat: i, rate: 1})
	}
	// The means are two to the sums of two numbers of 0 to 14, which are 1, 1, 2, 2, 3, 3 ... of 0,
	// 1, 2 ...
	got := ratio(mine, theirs, rateOf)
	if got.value != 1<<14 || got.low != 1<<9 && got.low != 1<<10 || got.low*got.high != 1<<28 {
		t.Errorf("got %+v", got)
	}
}

// A repeat in which the machine was slow for both does not change a ratio.
func TestRatioPairsRepeats(t *testing.T) {
	mine := samples{{repeat: 0, rate: 90}, {repeat: 1, rate: 9}, {repeat: 2, rate: 80}}
	theirs := samples{{repeat: 2, rate: 100}, {repeat: 1, rate: 10}, {repeat: 0, rate: 100}, {repeat: 3, rate: 1}}
	// The means are 0.8, twice 0.849, and three times 0.9.
	if got := ratio(mine, theirs, rateOf); math.Abs(got.value-0.8743) > 0.0001 || got.low != 0 || got.high != 0 {
		t.Errorf("ratio is %v, want 0.8743, and of three repeats no interval", got)
	}
	if got := ratio(mine, nil, rateOf); got != (estimate{}) {
		t.Errorf("ratio to nothing is %v, want 0", got)
	}
}

func TestNewSample(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	s := newSample([]sighting{
		{annotated: at(0), created: at(500)}, {annotated: at(90), created: at(100)}, {annotated: at(-100), created: at(200)},
	}, start)
	if s.rate != 6 || s.first != 100*time.Millisecond || s.p50() != 300*time.Millisecond || s.p99() != 500*time.Millisecond {
		t.Errorf("got %.1f volumes a second, first after %s, p50 %s, p99 %s", s.rate, s.first, s.p50(), s.p99())
	}
}

func TestUsage(t *testing.T) {
	before := parseMachineCPU("cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1 1 1 1\n")
	now := parseMachineCPU("cpu  200 0 160 1000 40 0 0 0 99 0\n")
	if before != (machineTime{busy: 2 * time.Second, total: 10 * time.Second}) {
		t.Errorf("before: %+v", before)
	}
	if got := share(now, before, 600*time.Millisecond); got != 0.25 {
		t.Errorf("others used %v, want 0.25", got)
	}
	if got := share(before, before, 0); got != 0 {
		t.Errorf("in no time others used %v", got)
	}
}

func TestObserver(t *testing.T) {
	o, now := newObserver(), time.Unix(1000, 0)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", UID: "u"}}
	volume := func(name string, uid types.UID) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: uid}}}
	}
	all := []*corev1.PersistentVolumeClaim{claim}
	o.event(watch.Event{Type: watch.Added, Object: claim}, now)
	annotated := claim.DeepCopy()
	annotated.Annotations = map[string]string{plan.SelectedNode: "n", plan.StorageProvisioner: "p"}
	o.event(watch.Event{Type: watch.Modified, Object: annotated}, now.Add(1))
	o.event(watch.Event{Type: watch.Modified, Object: annotated}, now.Add(2))
	if o.count(uidsOf(all), hasVolume) != 0 {
		t.Error("a volume was seen before there was one")
	}
	o.event(watch.Event{Type: watch.Modified, Object: volume("b", "u")}, now.Add(3))
	o.event(watch.Event{Type: watch.Added, Object: volume("a", "u")}, now.Add(4))
	got, err := o.see(t.Context(), all, hasVolume)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].annotated != now.Add(1) || got[0].created != now.Add(4) || got[0].volume.Name != "a" {
		t.Errorf("got %+v", got[0])
	}
	o.event(watch.Event{Type: watch.Added, Object: volume("c", "u")}, now.Add(5))
	if second := o.doubles(all); !slices.Equal(second, []string{"claim"}) {
		t.Errorf("claims with a second volume are %q", second)
	}
	o.event(watch.Event{Type: watch.Deleted, Object: volume("a", "u")}, now.Add(6))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}}
	o.event(watch.Event{Type: watch.Added, Object: pod}, now.Add(7))
	pod.Spec.NodeName = "n"
	o.event(watch.Event{Type: watch.Modified, Object: pod}, now.Add(8))
	o.event(watch.Event{Type: watch.Modified, Object: pod}, now.Add(9))
	if seen := o.all([]types.UID{"u", "p"}); seen[0].gone != now.Add(6) || seen[1].placed != now.Add(8) {
		t.Errorf("got %+v", seen)
	}
	o.forget()
	if o.count(uidsOf(all), hasVolume) != 0 {
		t.Error("it does not forget")
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{3, 1, 2}, 2}, {[]float64{1.5, 0.5, 0.75, 1.25}, 1}} {
		if got := middle(c.values); got != c.want {
			t.Errorf("the middle of %v is %v, want %v", c.values, got, c.want)
		}
	}
}
