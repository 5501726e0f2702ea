package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// The cases' names.
const (
	caseBacklog = "backlog" // all claims are annotated when the process starts
	caseSingle  = "single"  // one claim at a time
	caseBurst   = "burst"   // all claims are annotated as fast as the driver can, while the process runs
)

// Of these the first four watch the daemon's own part.
var allCases = []string{caseBacklog, caseSingle, caseBurst, casePurge, caseCluster, casePublish, caseSnapshot}

// ownCases are those of the chosen cases in which there are claims, and kube-controller-manager
// binds none.
func (b *bench) ownCases() []string {
	return slices.DeleteFunc(slices.Clone(b.cases), func(kase string) bool {
		return slices.Contains([]string{caseCluster, casePurge, casePublish, caseSnapshot}, kase)
	})
}

// measure runs every contender and case, interleaved, so that what changes on the machine meanwhile
// changes for all.
func (b *bench) measure(ctx context.Context) error {
	// The volume binder's work would compete for the same processors and blur the comparison, for all
	// contenders alike but not equally.
	ctx, a := b.newEnvironment(ctx, b.contenders, harness.QuietControllers,
		"--apiserver-flag=--delete-collection-workers=8")
	for repeat := range max(b.repeats, slowRepeats) {
		for _, kase := range b.ownCases() {
			for _, together := range b.groups(kase, repeat) {
				harness.Check(b.contend(ctx, a, together, kase, repeat))
			}
		}
	}
	return b.CleanUp()
}

// singleEvery is in which repeats there is the case single: one in so many, for its contenders are
// compared claim by claim.
const singleEvery = 3

// groups are the contenders of a case in a repeat, those together that run at once: one after the
// other, each being the first in turn, and in the case single side by side. One that is a hundred
// times slower than the others stays alone.
func (b *bench) groups(kase string, repeat int) (all [][]string) {
	var beside []string
	for i := range b.contenders {
		contender := b.contenders[(i+repeat)%len(b.contenders)]
		switch {
		case b.runs(contender) <= repeat:
		case kase != caseSingle || contender == nameShipped:
			all = append(all, []string{contender})
		case repeat%singleEvery == 0:
			beside = append(beside, contender)
		}
	}
	if beside != nil {
		all = append(all, beside)
	}
	return all
}

func (b *bench) runs(contender string) int {
	if contender == nameShipped {
		return slowRepeats
	}
	return b.repeats
}

// amount is how many claims a contender gets in a case.
func (b *bench) amount(contender, kase string) int {
	switch {
	case contender == nameShipped:
		return b.slow
	case kase == caseSingle:
		return b.single
	default:
		return b.claims
	}
}

// contend is one run of a case.
func (b *bench) contend(ctx context.Context, a *environment, contenders []string, kase string, repeat int) error {
	return b.onFixtures(ctx, a, contenders, kase, repeat, func(ctx context.Context, all []*running) {
		switch kase {
		case caseSingle:
			a.sideBySide(ctx, all)
		case caseBacklog:
			all[0].fault = harness.Outcome(func() error { return all[0].backlog(ctx) })
		default:
			all[0].fault = harness.Outcome(func() error { return all[0].burst(ctx) })
		}
	})
}

// running is a contender's run.
type running struct {
	*bench
	environment *environment
	fixture     *fixture
	process     contender // nil before it was started
	kase        string
	repeat      int
	mu          sync.Mutex                      // for claims
	claims      []*corev1.PersistentVolumeClaim // all of the run
	fault       error                           // why it is out
}

// amount is how many claims this contender gets.
func (r *running) amount() int { return r.bench.amount(r.fixture.contender, r.kase) }

// onFixtures does body with the contenders, each on a new fixture, and takes everything away again.
// What onFixtures returns is the failure of the benchmark; the contenders' are in their faults.
func (b *bench) onFixtures(ctx context.Context, a *environment, contenders []string, kase string, repeat int, body func(context.Context, []*running)) error {
	var all []*running
	for _, contender := range contenders {
		f, err := b.newFixture(ctx, a, contender, kase, repeat)
		if err != nil {
			return fmt.Errorf("%s: %w", contender, err)
		}
		all = append(all, &running{bench: b, environment: a, fixture: f, kase: kase, repeat: repeat})
	}
	body(ctx, all)
	for _, r := range all {
		r.end()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	a.observer.forget()
	var err error
	for _, r := range all {
		if r.fault != nil {
			r.fail(kase, r.fault)
		}
		err = errors.Join(err, a.clear(ctx, r.fixture), r.fixture.tearDown(b))
	}
	return err
}

// end stops the process and looks at what it made.
func (r *running) end() {
	if r.process != nil {
		r.fault = errors.Join(r.fault, r.stop())
	}
	if r.fault == nil {
		r.fault = harness.Outcome(r.verify)
	}
}

func (r *running) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return r.process.Stop(ctx)
}

// fail reports a contender that did not do its work. It is not slow: it is out.
func (r *running) fail(purpose string, err error) {
	log := "it did not start"
	if r.process != nil {
		log = tail(r.process.Log(), 15)
	}
	fmt.Fprintf(r.out, "%-24s %-8s FAILED: %v\n  the end of its log:\n%s", titles[r.fixture.contender], purpose, err, indent(log))
	r.samples = append(r.samples, sample{contender: r.fixture.contender, kase: purpose, repeat: r.repeat, err: err})
}

// verify looks at what the contender made: one volume for each claim, and its directory in the
// pool.
func (r *running) verify() error {
	all := harness.Got(r.environment.observer.see(context.Background(), r.claims, made))
	if second := r.environment.observer.doubles(r.claims); len(second) > 0 {
		return fmt.Errorf("%d claims have two volumes, %s among them", len(second), second[0])
	}
	for i, s := range all {
		claim, path := r.claims[i], cluster.PathOf(s.volume)
		if !strings.HasPrefix(path, r.fixture.pool+"/") {
			return fmt.Errorf("volume %s of claim %s is not in the pool %s", s.volume.Name, claim.Name, r.fixture.pool)
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() || info.Mode().Perm() != 0o777 {
			return fmt.Errorf("the directory of volume %s: %v %v", s.volume.Name, info, err)
		}
	}
	return nil
}

// backlog starts the process when all claims wait for it already.
func (r *running) backlog(ctx context.Context) error {
	claims := harness.Got(r.more(ctx, "waiting", r.amount(), true))
	annotated := func(s *sighting) bool { return !s.annotated.IsZero() }
	harness.Got(r.environment.observer.see(ctx, claims, annotated))
	m := harness.Got(r.environment.begin(ctx, r))
	r.process = harness.Got(r.start(r.fixture))
	return r.took(ctx, m, claims)
}

// warmups are done before the cases in which the process is there already, so that it has its
// caches and its connection.
const warmups = 3

// ready starts the process, and returns the claims that it will get.
func (r *running) ready(ctx context.Context) (claims []*corev1.PersistentVolumeClaim, err error) {
	r.process = harness.Got(r.start(r.fixture))
	warm := harness.Got(r.more(ctx, "warm", warmups, true))
	harness.Got(r.await(ctx, warm))
	return r.more(ctx, r.kase, r.amount(), false)
}

// more makes claims of the run.
func (r *running) more(ctx context.Context, prefix string, n int, annotated bool) ([]*corev1.PersistentVolumeClaim, error) {
	claims, err := r.environment.claims(ctx, r.fixture, prefix, n, annotated)
	r.claims = append(r.claims, claims...)
	return claims, err
}

func (r *running) burst(ctx context.Context) error {
	claims := harness.Got(r.ready(ctx))
	harness.Got(r.environment.settle(ctx))
	m := harness.Got(r.environment.begin(ctx, r))
	harness.Check(harness.Each(len(claims), func(i int) error { return r.give(ctx, claims[i]) }))
	return r.took(ctx, m, claims)
}

// give annotates a claim.
func (r *running) give(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	return r.environment.annotate(ctx, claim, annotations(r.fixture))
}

// await waits for the claims' volumes, while the contender runs.
func (r *running) await(ctx context.Context, claims []*corev1.PersistentVolumeClaim) ([]sighting, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.process.Exited():
			cancel(errors.New("the process ended"))
		case <-time.After(caseLimit):
			cancel(fmt.Errorf("not done after %s", caseLimit))
		case <-ctx.Done():
		}
	}()
	return r.environment.observer.see(ctx, claims, hasVolume)
}

// took waits for the last volume, takes the sample and prints it.
func (r *running) took(ctx context.Context, m meter, claims []*corev1.PersistentVolumeClaim) error {
	harness.Got(r.await(ctx, claims))
	m.end()
	m.requests = harness.Got(r.environment.settle(ctx))
	return r.note(ctx, m, claims)
}

// note adds the sample of claims that have their volumes.
func (r *running) note(ctx context.Context, m meter, claims []*corev1.PersistentVolumeClaim) error {
	all := harness.Got(r.await(ctx, claims))
	s := newSample(all, m.start)
	s.contender, s.kase, s.repeat = r.fixture.contender, r.kase, r.repeat
	s.others, s.requests = m.others, m.requests[nodeOf(r.fixture.contender)]
	s.cpu, s.rss = r.ownCPU()-m.own[r], peakMemory(r.process.PID())
	fmt.Fprintln(r.out, s.line())
	r.samples = append(r.samples, s)
	return nil
}

// ownCPU is the contender's processor time so far.
func (r *running) ownCPU() time.Duration {
	if r.process == nil {
		return 0
	}
	return processCPU(r.process.PID())
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}
