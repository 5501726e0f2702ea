package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

func testSample(contender, kase string, repeat int, rate float64, p50 time.Duration, perClaim int) sample {
	return sample{
		contender: contender, kase: kase, repeat: repeat, claims: 10, rate: rate, first: 20 * time.Millisecond,
		latency: []time.Duration{p50}, requests: requests{"create persistentvolumes": 10 * perClaim},
		cpu: 10 * time.Millisecond, rss: 20 << 20, others: 0.25,
	}
}

// The whole report: a good case, a missed one, a contender that failed and one that took no part.
func TestReport(t *testing.T) {
	b := &bench{options: options{
		contenders: []string{nameFloor, nameShipped, nameTuned, nameDaemon}, cases: allCases, claims: 10, single: 10, slow: 4,
	}}
	for repeat := range 5 {
		noise := float64(repeat + 1)
		for _, kase := range []string{caseBacklog, caseBurst} {
			b.samples = append(b.samples, testSample(nameFloor, kase, repeat, 100*noise, time.Millisecond, 1),
				testSample(nameTuned, kase, repeat, 80*noise, time.Millisecond, 3))
		}
		b.samples = append(b.samples,
			testSample(nameDaemon, caseBacklog, repeat, 90*noise, time.Millisecond, 2),
			testSample(nameDaemon, caseBurst, repeat, 70*noise+float64(repeat*repeat), time.Millisecond, 4),
			testSample(nameFloor, caseSingle, repeat, 50, 5*time.Millisecond, 1),
			testSample(nameDaemon, caseSingle, repeat, 50, 6*time.Millisecond, 2))
	}
	b.samples = append(b.samples, sample{contender: nameShipped, kase: caseBurst, err: errors.New("the process ended\nand more")})
	want, err := os.ReadFile(filepath.Join("testdata", "report.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.report(); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if !b.samples.failed() {
		t.Error("a failed contender is not a failure")
	}
}

// The report of the case cluster: a good part, a missed one, and a contender that failed.
func TestClusterReport(t *testing.T) {
	b := &bench{options: options{contenders: allContenders, pods: 10, replicas: 3}}
	for repeat := range 3 {
		noise := float64(repeat + 1)
		of := func(contender string, rate, bound, removed float64, ordered time.Duration, binder int) {
			s := testSample(contender, caseCluster, repeat, rate*noise, 2*time.Second, 2)
			s.bound, s.removed, s.ordered, s.byBinder = bound*noise, removed*noise, ordered, requests{"update persistentvolumeclaims": binder * s.claims}
			b.samples = append(b.samples, s)
		}
		of(nameTuned, 4, 4.5, 20, 10*time.Second, 6)
		of(nameDaemon, 6.5, 6.5, 20, 11*time.Second, 4)
	}
	b.samples = append(b.samples, sample{contender: nameBound, kase: caseCluster, err: errors.New("3 of 10 are done: not in time\nand more")})
	want, err := os.ReadFile(filepath.Join("testdata", "cluster.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.clusterReport(); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What misses by less than the runs can tell is not decided, and what has no interval is.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		got     estimate
		atLeast bool
		want    string
	}{
		{estimate{1.1, 0.9, 1.3}, true, "PASS"}, {estimate{0.9, 0.8, 1.1}, true, "OPEN"}, {estimate{0.9, 0.8, 0.95}, true, "MISS"},
		{estimate{0.9, 0.8, 1.1}, false, "PASS"}, {estimate{1.1, 0.9, 1.3}, false, "OPEN"}, {estimate{1.1, 1.05, 1.3}, false, "MISS"},
		{estimate{value: 2}, false, "MISS"}, {estimate{value: 0.5}, true, "MISS"}, {estimate{}, true, "NONE"},
	} {
		if got := verdict(c.got, 1, c.atLeast, "%s of %.0f"); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v, at least is %t: %s, want %s", c.got, c.atLeast, got, c.want)
		}
	}
}

// Each is first in turn; in the case single they run at once, but for the one that is slow.
func TestGroups(t *testing.T) {
	b := &bench{options: options{contenders: []string{nameFloor, nameShipped, nameDaemon}, repeats: 4, slowRuns: 1}}
	for _, c := range []struct {
		kase   string
		repeat int
		want   string
	}{
		{caseBurst, 0, "[[floor] [lib-shipped] [daemon]]"}, {caseBurst, 1, "[[daemon] [floor]]"}, {caseBacklog, 3, "[[floor] [daemon]]"},
		{caseSingle, 0, "[[lib-shipped] [floor daemon]]"}, {caseSingle, 1, "[]"}, {caseSingle, 3, "[[floor daemon]]"}, {caseSingle, 4, "[]"},
	} {
		if got := fmt.Sprint(b.groups(c.kase, c.repeat)); got != c.want {
			t.Errorf("%s, repeat %d: %s, want %s", c.kase, c.repeat, got, c.want)
		}
	}
}

// A daemon that failed is not slow, and nothing it did well counts.
func TestReportOfFailedDaemon(t *testing.T) {
	b := &bench{options: options{contenders: []string{nameDaemon}, cases: allCases}}
	b.samples = samples{
		testSample(nameDaemon, caseBacklog, 0, 1000, time.Millisecond, 1),
		{contender: nameDaemon, kase: caseBurst, err: errors.New("7 of 10 claims are done: not done after 1m0s")},
	}
	got := b.report()
	if strings.Contains(got, "PASS") || strings.Contains(got, "1000") || strings.Count(got, "FAILED") != 4 {
		t.Errorf("got\n%s", got)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-contenders=floor,nobody", `-contenders: unknown "nobody"; known are floor, lib-shipped, lib-tuned, daemon`},
		{"-cases=single,all", `-cases: unknown "all"; known are backlog, single, burst, purge, cluster, publish, snapshot`},
		{"-fs=ntfs", `-fs: "ntfs" is neither ext4 nor xfs`},
		{"-claims=0", `-claims: 0 is less than 1`},
		{"-snapshot-files=999", `-snapshot-files: 999 is less than 1000`},
		{"now", `unexpected argument "now"`},
	} {
		_, err := benchTrial().Parse(strings.Fields(c.args), io.Discard)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.args, err, c.want)
		}
	}
	if _, err := benchTrial().Parse([]string{"-short", "-claims=77", "-contenders=floor"}, io.Discard); err != nil {
		t.Error(err)
	}
}

// The floor makes what the daemon makes.
func TestMakeDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "volume")
	if err := makeDirectory(path, 0o777); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o777 {
		t.Errorf("got %v, %v", info, err)
	}
	if err := makeDirectory(path, 0o777); !errors.Is(err, os.ErrExist) {
		t.Errorf("a directory that is there: %v", err)
	}
}

// What is written for the pictures is the medians of those that did not fail.
func TestClusterResults(t *testing.T) {
	b := &bench{options: options{contenders: allContenders, pods: 10}}
	for repeat, rate := range []float64{3, 1, 2} {
		b.samples = append(b.samples, testSample(nameDaemon, caseCluster, repeat, rate, 2*time.Second, 2), testSample(nameBound, caseCluster, repeat, 100*rate, time.Second, 0))
	}
	b.samples = append(b.samples, sample{contender: nameTuned, kase: caseCluster, err: errors.New("it ended")})
	got := b.clusterResults("a machine")
	if len(got.Rows) != 2 || got.Pods != 10 || got.Machine != "a machine" {
		t.Fatalf("got %+v", got)
	}
	floor, mine := got.Rows[0], got.Rows[1]
	if !floor.Floor || floor.PodsPerSecond != 200 || mine.Floor || mine.PodsPerSecond != 2 || mine.Runs != 3 || mine.PodP50 != 2 || mine.Contender != titles[nameDaemon] {
		t.Errorf("got %+v", got.Rows)
	}
}

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
