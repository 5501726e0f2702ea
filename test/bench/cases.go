package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The cases' names.
const (
	caseBacklog = "backlog" // all claims are annotated when the process starts
	caseSingle  = "single"  // one claim at a time
	caseBurst   = "burst"   // all claims are annotated as fast as the driver can, while the process runs
)

var allCases = []string{caseBacklog, caseSingle, caseBurst}

// measure runs every contender and case, interleaved, so that what changes on the machine meanwhile
// changes for all.
func (b *bench) measure(ctx context.Context) error {
	ctx, a, err := b.newArena(ctx, quietControllers, "--apiserver-flag=--delete-collection-workers=8")
	if err != nil {
		return err
	}
	for repeat := range max(b.repeats, b.slowRuns) {
		for _, purpose := range b.purposes() {
			for i := range b.contenders {
				contender := b.contenders[(i+repeat)%len(b.contenders)]
				if b.runs(contender) <= repeat {
					continue
				}
				if err := b.contend(ctx, a, contender, purpose, repeat); err != nil {
					return err
				}
			}
		}
	}
	return b.close()
}

// live is the purpose of a run that measures the cases in which the process is there already.
const live = "live"

// purposes are the runs that the cases need.
func (b *bench) purposes() (all []string) {
	if slices.Contains(b.cases, caseBacklog) {
		all = append(all, caseBacklog)
	}
	if len(b.liveCases()) > 0 {
		all = append(all, live)
	}
	return all
}

func (b *bench) liveCases() []string {
	return slices.DeleteFunc(slices.Clone(b.cases), func(kase string) bool { return kase == caseBacklog })
}

func (b *bench) runs(contender string) int {
	if contender == nameShipped {
		return b.slowRuns
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

// contend is one run of one contender.
func (b *bench) contend(ctx context.Context, a *arena, contender, purpose string, repeat int) error {
	return b.onStage(ctx, a, contender, purpose, repeat, func(ctx context.Context, r *running) error {
		if purpose == caseBacklog {
			return r.backlog(ctx, b.amount(contender, caseBacklog))
		}
		return r.live(ctx, b.liveCases(), func(kase string) int { return b.amount(contender, kase) })
	})
}

// running is a contender's run.
type running struct {
	*bench
	arena   *arena
	stage   *stage
	process process // nil before it was started
	repeat  int
	claims  []*corev1.PersistentVolumeClaim // all of the run
}

// onStage does body on a new stage and takes everything away again. What body answers is the
// contender's failure; what onStage answers is the benchmark's.
func (b *bench) onStage(ctx context.Context, a *arena, contender, purpose string, repeat int, body func(context.Context, *running) error) error {
	st, err := b.newStage(ctx, a, contender, purpose, repeat)
	if err != nil {
		return fmt.Errorf("%s: %w", contender, err)
	}
	r := &running{bench: b, arena: a, stage: st, repeat: repeat}
	failure := body(ctx, r)
	if r.process != nil {
		failure = errors.Join(failure, r.stop())
	}
	if failure == nil {
		failure = r.verify()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failure != nil {
		r.fail(purpose, failure)
	}
	a.observer.forget()
	return errors.Join(a.clear(ctx, st), st.strike(b))
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
	fmt.Fprintf(r.out, "%-24s %-8s FAILED: %v\n  the end of its log:\n%s", titles[r.stage.contender], purpose, err, indent(log))
	r.samples = append(r.samples, sample{contender: r.stage.contender, kase: purpose, repeat: r.repeat, err: err})
}

// verify looks at what the contender made: one volume for each claim, and its directory in the pool.
func (r *running) verify() error {
	all, err := r.arena.observer.wait(context.Background(), r.claims, hasVolume)
	if err != nil {
		return err
	}
	if second := r.arena.observer.forget(); len(second) > 0 {
		return fmt.Errorf("%d claims have two volumes, %s among them", len(second), second[0])
	}
	for i, s := range all {
		claim, path := r.claims[i], s.volume.Spec.HostPath
		if path == nil || !strings.HasPrefix(path.Path, r.stage.pool+"/") {
			return fmt.Errorf("volume %s of claim %s is not in the pool %s", s.volume.Name, claim.Name, r.stage.pool)
		}
		if info, err := os.Stat(path.Path); err != nil || !info.IsDir() || info.Mode().Perm() != 0o777 {
			return fmt.Errorf("the directory of volume %s: %v %v", s.volume.Name, info, err)
		}
	}
	return nil
}

// backlog starts the process when all claims wait for it already.
func (r *running) backlog(ctx context.Context, n int) (err error) {
	if r.claims, err = r.arena.claims(ctx, r.stage, "waiting", n, true); err != nil {
		return err
	}
	annotated := func(s *sighting) bool { return !s.annotated.IsZero() }
	if _, err := r.arena.observer.wait(ctx, r.claims, annotated); err != nil {
		return err
	}
	return r.measured(ctx, caseBacklog, r.claims, func(context.Context) (err error) {
		r.process, err = r.start(r.stage)
		return err
	})
}

// warmups are done before the live cases, so that the process has its caches and its connection.
const warmups = 3

func (r *running) live(ctx context.Context, cases []string, amount func(string) int) (err error) {
	if r.process, err = r.start(r.stage); err != nil {
		return err
	}
	warm, err := r.arena.claims(ctx, r.stage, "warm", warmups, true)
	if err != nil {
		return err
	}
	r.claims = append(r.claims, warm...)
	if _, err := r.await(ctx, warm); err != nil {
		return err
	}
	for _, kase := range cases {
		claims, err := r.arena.claims(ctx, r.stage, kase, amount(kase), false)
		if err != nil {
			return err
		}
		r.claims = append(r.claims, claims...)
		if _, err := r.arena.audit.settle(ctx); err != nil {
			return err
		}
		if err := r.measured(ctx, kase, claims, func(ctx context.Context) error { return r.give(ctx, kase, claims) }); err != nil {
			return err
		}
	}
	return nil
}

// give annotates the claims, all at once or one at a time.
func (r *running) give(ctx context.Context, kase string, claims []*corev1.PersistentVolumeClaim) error {
	if kase == caseBurst {
		return parallel(len(claims), func(i int) error { return r.arena.annotate(ctx, claims[i], annotations(r.stage)) })
	}
	for i, claim := range claims {
		if err := r.arena.annotate(ctx, claim, annotations(r.stage)); err != nil {
			return err
		}
		if _, err := r.await(ctx, claims[i:i+1]); err != nil {
			return err
		}
		time.Sleep(r.pause) // a pace, not a wait
	}
	return nil
}

// await waits for the claims' volumes, while the contender runs.
func (r *running) await(ctx context.Context, claims []*corev1.PersistentVolumeClaim) ([]sighting, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.process.Exited():
			cancel(errors.New("the process ended"))
		case <-time.After(r.limit):
			cancel(fmt.Errorf("not done after %s", r.limit))
		case <-ctx.Done():
		}
	}()
	return r.arena.observer.wait(ctx, claims, hasVolume)
}

// measured takes the sample of a case: begin does what starts it, and the last volume ends it.
func (r *running) measured(ctx context.Context, kase string, claims []*corev1.PersistentVolumeClaim, begin func(context.Context) error) error {
	if _, err := r.arena.audit.count(); err != nil { // what came before is not of this case
		return err
	}
	before, start := machineTicks(), time.Now()
	ours, own := r.ourTicks(), r.ownTicks()
	if err := begin(ctx); err != nil {
		return err
	}
	all, err := r.await(ctx, claims)
	if err != nil {
		return err
	}
	s := newSample(all, start)
	s.contender, s.kase, s.repeat = r.stage.contender, kase, r.repeat
	s.others = share(machineTicks(), before, r.ourTicks()-ours)
	if s.requests, err = r.arena.audit.settle(ctx); err != nil {
		return err
	}
	s.quiet = time.Since(start) - quietFor
	s.cpu, s.rss = (r.ownTicks() - own).duration(), peakMemory(r.process.PID())
	fmt.Fprintln(r.out, s.line(r.verbose))
	r.samples = append(r.samples, s)
	return nil
}

// ourTicks is the processor time of everything that the benchmark runs, so far.
func (r *running) ourTicks() ticks {
	return processTicks(os.Getpid()) + processTicks(r.arena.cluster.PID()) + r.ownTicks()
}

// ownTicks is the contender's processor time so far.
func (r *running) ownTicks() ticks {
	if r.process == nil {
		return 0
	}
	return processTicks(r.process.PID())
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}
