// Command storm unmounts a pool at the worst moments. It runs the real daemon against a real API
// server and real filesystems. While claims are created and deleted as fast as the API takes them,
// the pool is unmounted plainly and lazily, remounted read-only, replaced by another filesystem,
// covered by one, by a bound directory and by itself, and mounted again.
//
// Nothing protects the wrong places but the daemon: the directory under the mount point is not
// immutable, and it, the other filesystem and the bound directory have all the directories that the
// daemon has in a pool, so that a write which gets there succeeds. inotify watches each of them by
// its inode, also under a mount. Each volume is looked for on the pool's filesystem, through a
// mount of its own, the moment its object appears. When the storm is over every claim that is left
// must be bound and have one directory and one record, and nothing else may be anywhere; then all
// are deleted, and nothing at all may be left. What was lost is printed, and the exit code is 1.
//
// Pods begin and end meanwhile, with volumes from before the storm and the node service, as kubelet
// has it do: each has the data of its volume or is refused, and in the end nothing of them is
// mounted. A pool that was unmounted in the middle of such a call was told as an internal error
// before this.
//
// First it measures the time from an unmount to the closed gate, on a machine that does nothing
// else: of 99 % of all unmounts it has to be below 20 ms. The short form prints it and does not
// judge it. What the storm has to have shown it waits for, so that a slow machine is no milder than
// a fast one: now and then the mount stays until a volume was made.
//
// It does not kill the daemon, cut the power or hang a filesystem; other tests do.
package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

func main() { os.Exit(harness.Main(name, parseOptions, play)) }

// play is the whole program.
func play(ctx context.Context, p *harness.Program, opt options) {
	r := &result{seed: opt.seed, promised: opt.p99}
	e := build(ctx, p, opt)
	e.measure(ctx, r)
	if opt.time > 0 {
		e.storm(ctx, r)
	}
	if ctx.Err() == nil {
		r.print(p)
	}
}

// storm is the second part: mounts that change under claims that come and go, and what is left of
// them.
func (e *environment) storm(ctx context.Context, r *result) {
	watcher, err := watchPlaces(e.fixture.wrong()...)
	e.Must(err, "watching the wrong places")
	load := harness.NewLoad(e.Client, e.Namespace, e.opt.live, e.opt.seed, e.claim)
	watching, enough := context.WithCancel(ctx)
	defer enough()
	checker, err := newChecker(watching, e, load)
	e.Must(err, "watching the cluster")
	kept := e.writeBefore(ctx, load)
	pods := newPods(e, kept)
	e.changeMounts(ctx, r, load, checker, pods)
	pods.end()
	e.compareAfterwards(ctx, r, load, checker, kept)
	for place, what := range watcher.close() {
		for _, one := range what {
			e.Fault(wrongPlace, "%s: %s", place, one)
		}
	}
	e.inspect(r)
}

// measure is the gate's part, while nothing else goes on.
func (e *environment) measure(ctx context.Context, r *result) {
	if e.opt.rounds == 0 {
		return
	}
	e.Say("measuring the time to the closed gate")
	for i, a := range acts {
		rounds := e.opt.rounds
		if i > 1 { // not an unmount
			rounds = max(1, rounds/10)
		}
		r.gate = append(r.gate, e.measureGate(ctx, a, rounds))
	}
	all := r.unmounts().since
	if took := percentile(all, 99); r.promised > 0 && took >= r.promised {
		e.Fault(gateLate, "of 99 %% of %d unmounts it took up to %s ms, want below %s", len(all), ms(took), ms(r.promised))
	}
}

// changeMounts is the storm itself.
func (e *environment) changeMounts(ctx context.Context, r *result, load *harness.Load, checker *checker, pods *pods) {
	e.Say("the storm begins, seed %d", e.opt.seed)
	before, began := e.reasons(), len(e.Daemon.Log())
	limited, over := context.WithTimeout(ctx, e.opt.time)
	defer over()
	loaded, end := context.WithCancel(ctx)
	defer end()
	load.ResetCount()
	created := make(chan error, 1)
	go func() {
		created <- load.RunUnpaced(loaded, e.opt.workers, func() bool { return checker.claimCount() > e.opt.live+goingMax })
	}()
	var mounting sync.WaitGroup
	mounting.Go(func() { pods.run(loaded) })
	r.changes = newMountChanges(e.opt.seed)
	begin := time.Now()
	err := r.changes.run(limited, e.fixture, e.opt.cycles, func() error { return checker.awaitAnother(ctx, harness.Timeout) })
	r.lasted = time.Since(begin)
	end()
	mounting.Wait()
	e.Must(err, "changing mounts")
	e.Must(<-created, "creating and deleting claims")
	e.Must(e.fixture.restore(), "mounting the pool for good")
	r.created, r.deleted = load.Count()
	r.during = checker.volumesSeen()
	r.reopened = reopened(e.Daemon.Log()[began:])
	r.reasons = map[string]int{}
	for reason, n := range e.reasons() {
		r.reasons[reason] = n - before[reason]
	}
}

// compareAfterwards compares API and disk twice: with the claims that are left, and with none.
func (e *environment) compareAfterwards(ctx context.Context, r *result, load *harness.Load, checker *checker, kept map[string]string) {
	e.Say("the mount stays: waiting for everything to settle")
	found, took := checker.settle(ctx, e.opt.settle)
	e.Merge(found, "")
	r.settled, r.survivors = took, len(load.Live())
	for pv, path := range kept {
		if data, err := os.ReadFile(path); err != nil || string(data) != pv {
			e.Fault(harness.FilesLost, "of volume %s: %q, %v", pv, data, err)
		}
	}
	e.Say("deleting what is left")
	e.Must(load.DeleteAll(ctx), "deleting claims")
	found, r.emptied = checker.settle(ctx, e.opt.settle)
	e.Merge(found, "")
	r.volumes, r.undecidable, r.gone = checker.count()
	for _, one := range checker.wrongVolumes() {
		e.Fault(wrongVolume, "%s", one)
	}
}

// inspect lists the wrong places once more, and asks whether the storm deserved its name.
func (e *environment) inspect(r *result) {
	for _, p := range e.fixture.wrong() {
		tree, err := p.tree()
		e.Must(err, "listing "+p.name)
		for _, name := range tree {
			e.Fault(wrongPlace, "%s: %s is there", p.name, name)
		}
	}
	e.CheckRunning()
	if r.during == 0 || r.gone == 0 || r.changes.cycles == 0 || !r.reopened {
		e.Fault(harness.NothingProven, "%d volumes made and %d removed in %d cycles, the pool was closed and open again: %t",
			r.during, r.gone, r.changes.cycles, r.reopened)
	}
}

// goingMax is how many claims may be deleted and not gone yet. Kubernetes lets them go one after
// the other, more slowly than they can be deleted: without a bound, ten minutes of storm left a
// queue of fourteen thousand.
const goingMax = 400

// reopened reports whether a log tells of a closed pool and, later, of a volume that was made in
// it. The openings themselves are reported now and then only, where a mount comes and goes
// (daemon/controllers/report, Changes).
func reopened(log string) bool {
	closed := strings.Index(log, " reason=PoolClosed")
	return closed >= 0 && strings.LastIndex(log, " reason=ProvisioningSucceeded") > closed
}

// writeBefore makes volumes before the storm with a file in each, and returns the files' paths by
// volume.
func (e *environment) writeBefore(ctx context.Context, load *harness.Load) map[string]string {
	kept := map[string]string{}
	for range 20 {
		claim, err := load.Create(ctx)
		e.Must(err, "making claims before the storm")
		bound, err := e.Cluster.WaitClaimBound(ctx, e.Namespace, claim.Name)
		e.Must(err, "making claims before the storm")
		pv := bound.Spec.VolumeName
		kept[pv] = e.fixture.own.path(pv, "data-from-before")
		e.Must(os.WriteFile(kept[pv], []byte(pv), 0o600), "writing to a volume")
	}
	load.Keep()
	return kept
}
