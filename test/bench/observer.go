package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// observer sees when claims are annotated and when their volumes come, with one clock for all.
type observer struct {
	mu     sync.Mutex
	seen   map[types.UID]*sighting
	second []types.UID   // claims that were given one more
	news   chan struct{} // closed and made anew at each sighting of a volume
}

// sighting is what was seen of one claim, or of one pod.
type sighting struct {
	annotated time.Time // both annotations are there; zero: not yet
	created   time.Time // its volume came; zero: not yet
	bound     time.Time // its phase is Bound; zero: not yet
	gone      time.Time // its volume went; zero: not yet
	placed    time.Time // of a pod: it has its node; zero: not yet
	volume    *corev1.PersistentVolume
}

func newObserver() *observer {
	return &observer{seen: map[types.UID]*sighting{}, news: make(chan struct{})}
}

// watch begins to observe and returns; ended is called with the reason why it cannot go on.
func (o *observer) watch(ctx context.Context, client kubernetes.Interface, ended func(error)) {
	core := client.CoreV1()
	claims, volumes, pods := core.PersistentVolumeClaims(metav1.NamespaceAll), core.PersistentVolumes(), core.Pods(metav1.NamespaceAll)
	have := harness.Got(claims.List(ctx, metav1.ListOptions{Limit: 1}))
	for what, source := range map[string]cache.WatcherWithContext{
		"claims":  &cache.ListWatch{WatchFuncWithContext: claims.Watch},
		"volumes": &cache.ListWatch{WatchFuncWithContext: volumes.Watch},
		"pods":    &cache.ListWatch{WatchFuncWithContext: pods.Watch},
	} {
		watcher := harness.Got(watchtools.NewRetryWatcherWithContext(
			ctx, have.ResourceVersion, source))
		go func() {
			for event := range watcher.ResultChan() {
				o.event(event, time.Now())
			}
			ended(fmt.Errorf("the observer's watch of %s ended", what))
		}()
	}
}

func (o *observer) event(event watch.Event, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch object := event.Object.(type) {
	case *corev1.PersistentVolumeClaim:
		o.claim(object, now)
	case *corev1.PersistentVolume:
		if object.Spec.ClaimRef != nil {
			o.volume(event.Type, object, now)
		}
	case *corev1.Pod:
		if s := o.of(object.UID); s.placed.IsZero() && object.Spec.NodeName != "" {
			s.placed = now
			o.tell()
		}
	}
}

func (o *observer) claim(claim *corev1.PersistentVolumeClaim, now time.Time) {
	s := o.of(claim.UID)
	a := claim.Annotations
	if s.annotated.IsZero() && a[plan.StorageProvisioner] != "" && a[plan.SelectedNode] != "" {
		s.annotated = now
		o.tell()
	}
	if s.bound.IsZero() && claim.Status.Phase == corev1.ClaimBound {
		s.bound = now
		o.tell()
	}
}

func (o *observer) volume(what watch.EventType, pv *corev1.PersistentVolume, now time.Time) {
	s := o.of(pv.Spec.ClaimRef.UID)
	switch {
	case what == watch.Deleted:
		s.gone = now
		o.tell()
		return
	case what != watch.Added:
		return
	case s.volume != nil:
		o.second = append(o.second, pv.Spec.ClaimRef.UID)
		return
	}
	s.created, s.volume = now, pv
	o.tell()
}

func (o *observer) of(uid types.UID) *sighting {
	if o.seen[uid] == nil {
		o.seen[uid] = &sighting{}
	}
	return o.seen[uid]
}

func (o *observer) tell() {
	close(o.news)
	o.news = make(chan struct{})
}

// see is wait for claims.
func (o *observer) see(ctx context.Context, claims []*corev1.PersistentVolumeClaim, is func(*sighting) bool) ([]sighting, error) {
	return o.wait(ctx, uidsOf(claims), is)
}

func uidsOf[T metav1.Object](objects []T) []types.UID {
	uids := make([]types.UID, 0, len(objects))
	for _, object := range objects {
		uids = append(uids, object.GetUID())
	}
	return uids
}

// wait waits until is holds for all claims or pods with these UIDs, and returns what was seen of
// them, in their order.
func (o *observer) wait(ctx context.Context, uids []types.UID, is func(*sighting) bool) ([]sighting, error) {
	next := 0
	for {
		o.mu.Lock()
		for next < len(uids) && is(o.of(uids[next])) {
			next++
		}
		news := o.news
		o.mu.Unlock()
		if next == len(uids) {
			return o.all(uids), nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d are done: %w", o.count(uids, is), len(uids), context.Cause(ctx))
		case <-news:
		}
	}
}

// all is what was seen of those with these UIDs, in their order.
func (o *observer) all(uids []types.UID) []sighting {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]sighting, 0, len(uids))
	for _, uid := range uids {
		all = append(all, *o.of(uid))
	}
	return all
}

func (o *observer) count(uids []types.UID, is func(*sighting) bool) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, uid := range uids {
		if is(o.of(uid)) {
			n++
		}
	}
	return n
}

// doubles names those of the claims that have got two volumes.
func (o *observer) doubles(claims []*corev1.PersistentVolumeClaim) (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range claims {
		if slices.Contains(o.second, c.UID) {
			names = append(names, c.Name)
		}
	}
	return names
}

// forget empties the memory between two runs.
func (o *observer) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.second, o.seen = nil, map[types.UID]*sighting{}
}

func hasVolume(s *sighting) bool { return !s.created.IsZero() && !s.annotated.IsZero() }
func made(s *sighting) bool      { return !s.created.IsZero() }
func isGone(s *sighting) bool    { return !s.gone.IsZero() }
func isBound(s *sighting) bool   { return !s.bound.IsZero() }

// machine time: that of all processes, and all there is.
type machineTime struct{ busy, total time.Duration }

func machineCPU() machineTime {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machineTime{}
	}
	return parseMachineCPU(string(data))
}

// parseMachineCPU reads the first line: user nice system idle iowait irq softirq steal; the
// guests' time is in user already (proc(5)).
func parseMachineCPU(stat string) (m machineTime) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, field := range strings.Fields(line) {
		if i == 0 || i > 8 {
			continue
		}
		n, _ := strconv.ParseInt(field, 10, 64)
		used := time.Duration(n) * 10 * time.Millisecond // USER_HZ is 100 on every architecture that Go supports
		m.total += used
		if i != 4 && i != 5 {
			m.busy += used
		}
	}
	return m
}

// share is the part of the machine's processors that was used between two looks, besides ours.
func share(now, before machineTime, ours time.Duration) float64 {
	total := now.total - before.total
	if total <= 0 {
		return 0
	}
	return max(0, float64(now.busy-before.busy-ours)/float64(total))
}

// processCPU is the processor time of a process so far; 0 if it is gone.
func processCPU(pid int) time.Duration {
	used, _ := process.CPUTime(pid)
	return used
}

// peakMemory is the most that a process had resident, in bytes; 0 if it is gone.
func peakMemory(pid int) int64 {
	status, _ := process.Status(pid)
	return int64(status["VmHWM"]) << 10
}

// sideBySide is the case single: all processes run, each on a node of its own, and are given claims
// in turn, in an order that is drawn for each round: what the machine does to one it does to the
// next, a moment later.
func (a *environment) sideBySide(ctx context.Context, all []*running) {
	claims := map[*running][]*corev1.PersistentVolumeClaim{}
	for _, r := range all {
		r.fault = harness.Outcome(func() (err error) { claims[r], err = r.ready(ctx); return err })
	}
	fail := func(err error) bool {
		for _, r := range all {
			if r.fault == nil {
				r.fault = err
			}
		}
		return err != nil
	}
	if _, err := a.settle(ctx); fail(err) {
		return
	}
	m, err := a.begin(ctx, all...)
	if fail(err) {
		return
	}
	for i := range all[0].amount() {
		for _, turn := range rand.Perm(len(all)) {
			if r := all[turn]; r.fault == nil {
				r.fault = harness.Outcome(func() error { return r.one(ctx, claims[r][i]) })
			}
		}
	}
	m.end()
	if m.requests, err = a.settle(ctx); fail(err) {
		return
	}
	for _, r := range all {
		if r.fault == nil {
			r.fault = harness.Outcome(func() error { return r.note(ctx, m, claims[r]) })
		}
	}
}

// one gives the contender a claim and lets it be quiet again.
func (r *running) one(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	harness.Check(r.give(ctx, claim))
	_, err := r.await(ctx, []*corev1.PersistentVolumeClaim{claim})
	time.Sleep(singlePause) // a pace, not a wait
	return err
}

// meter is what a case costs.
type meter struct {
	environment *environment
	of          []*running
	start       time.Time
	before      machineTime
	ours        time.Duration
	own         map[*running]time.Duration
	others      float64             // what strangers used up to end
	requests    map[string]requests // by node
}

// begin forgets the requests so far and begins to measure.
func (a *environment) begin(ctx context.Context, of ...*running) (meter, error) {
	m := meter{environment: a, of: of, own: map[*running]time.Duration{}}
	if err := a.collect(ctx); err != nil {
		return m, err
	}
	if _, err := a.audit.Take(); err != nil {
		return m, err
	}
	for _, r := range of {
		m.own[r] = r.ownCPU()
	}
	m.before, m.ours, m.start = machineCPU(), m.ourCPU(), time.Now()
	return m, nil
}

// end ends what is measured of the machine.
func (m *meter) end() { m.others = share(machineCPU(), m.before, m.ourCPU()-m.ours) }

// ourCPU is the processor time of everything that the benchmark runs, so far.
func (m *meter) ourCPU() time.Duration {
	all := processCPU(os.Getpid()) + processCPU(m.environment.cluster.PID())
	for _, r := range m.of {
		all += r.ownCPU()
	}
	return all
}
