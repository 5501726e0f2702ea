package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
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
	want := hosttest.Need(os.ReadFile(filepath.Join("testdata", "report.txt")))(t)
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
	want := hosttest.Need(os.ReadFile(filepath.Join("testdata", "cluster.txt")))(t)
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
