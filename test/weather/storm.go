package weather

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// stormOptions are the flags of Storm.
type stormOptions struct {
	time    time.Duration // how long the storm lasts at most, 0: there is none
	cycles  int           // mount changes at most, 0: no limit
	rounds  int           // measurements of the gate, of each kind of unmount
	p99     time.Duration // how long 99 % of them may take, 0: however long
	live    int           // claims at once
	workers int           // that create and delete claims
}

// Storm changes the mount of a pool at the worst moments, while claims are created and deleted as
// fast as the API takes them.
//
// Nothing protects the wrong places but the daemon: the directory under the mount point is not
// immutable, and it, the other filesystem and the bound directory have all the directories that the
// daemon has in a pool, so that a write which gets there succeeds. inotify watches each of them by
// its inode, also under a mount. Each volume is looked for on the pool's filesystem, through a
// mount of its own, the moment its object appears. Pods begin and end meanwhile: each has the data
// of its volume or is refused.
//
// First it measures the time from an unmount to the closed gate, on a machine that does nothing
// else; the short form does not judge it. What the storm has to have shown it waits for: now and
// then the mount stays until a volume was made.
func Storm() harness.Trial {
	var o stormOptions
	return harness.Trial{
		Name: "storm", Short: "time=20s rounds=100 p99=0",
		Does: `Measures the time from an unmount to the closed gate; then mounts, unmounts and swaps the pool as fast as
it can while claims come and go, and compares the state. -time 0 only measures, on an idle machine.`,
		Flags: func(flags *flag.FlagSet) {
			flags.DurationVar(&o.time, "time", 10*time.Minute, "the storm ends after this time; 0: there is none")
			flags.IntVar(&o.cycles, "cycles", 0, "or after so many mount changes; 0: whenever the time is over")
			flags.IntVar(&o.rounds, "rounds", 1000, "how often the time from an unmount to the closed gate is measured, of each kind; 0: never")
			flags.DurationVar(&o.p99, "p99", 20*time.Millisecond, "how long that may take for 99 % of the unmounts; 0: however long")
			flags.IntVar(&o.live, "live", 100, "how many claims exist at once")
			flags.IntVar(&o.workers, "workers", 4, "how many create and delete claims")
		},
		Check: func() error {
			if o.live < 1 || o.workers < 1 || o.time < 0 || o.p99 < 0 || o.rounds < 0 || o.time == 0 && o.rounds == 0 {
				return errors.New("-live, -workers, and -time or -rounds must be positive; no flag can be negative")
			}
			return nil
		},
		Play: func(ctx context.Context, p *harness.Program) {
			s := buildStorm(ctx, p, o)
			s.measure(ctx)
			if o.time > 0 {
				s.play(ctx)
			}
			if ctx.Err() == nil {
				s.print()
			}
		},
	}
}

// storm is what the mount changes hit, and what came of it.
type storm struct {
	*harness.Environment
	stormOptions
	*fixture
	load    *harness.Load
	checker *checker
	kept    map[string]string // files from before the storm, by volume

	gate              []gateTimes
	changes           *mountChanges
	lasted            time.Duration // the storm
	settled, emptied  time.Duration // until all claims were, after it; until all were gone
	reopened          bool          // the pool was closed, and a volume made in it later
	reasons           map[string]int
	created, deleted  int // claims
	survivors, during int // claims that were left; volume objects that were made in the storm
}

// buildStorm makes everything up to a running daemon with an open pool.
func buildStorm(ctx context.Context, p *harness.Program, o stormOptions) *storm {
	s := &storm{stormOptions: o, Environment: harness.Start(ctx, p, harness.Options{}), kept: map[string]string{}}
	s.fixture = newFixture(p)
	s.AddClass(ctx, s.Name(), s.Node)
	s.AddPool(harness.Pool{Name: s.Name(), Path: s.mount, TOML: "immutable = \"off\"\n"})
	s.mimic(p)
	s.Say("starting the daemon, with nothing immutable, and a copy of its directories in every wrong place")
	s.Must(s.Run(ctx), "starting the daemon")
	s.waitStatus(ctx, "1 of 1 pool open")
	s.load = harness.NewLoad(s.Client, s.Namespace, o.live, p.Seed, func(name string) *corev1.PersistentVolumeClaim {
		return s.NewClaim(s.Name(), name)
	})
	s.checker = newChecker(s.Environment, plan.ScopeNode, s.mount, []harness.Storage{s.StorageAt(s.own.path())}, s.load)
	s.checker.exact = true
	return s
}

// waitStatus waits for words in the daemon's STATUS.
func (s *storm) waitStatus(ctx context.Context, words string) {
	ctx, cancel := context.WithTimeout(ctx, harness.Timeout)
	defer cancel()
	s.Must(s.Daemon.WaitStatus(ctx, words), "waiting for the daemon")
}

// countReasons counts how often a log names each reason.
func countReasons(log string) map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(log) {
		if _, rest, found := strings.Cut(line, " reason="); found {
			reason, _, _ := strings.Cut(rest, " ")
			count[strings.TrimSpace(reason)]++
		}
	}
	return count
}

// play is the second part: mounts that change under claims that come and go, and what is left of
// them.
func (s *storm) play(ctx context.Context) {
	watcher := watchPlaces(s, s.wrong()...)
	watching, enough := context.WithCancel(ctx)
	defer enough()
	go s.checker.run(watching)
	s.writeBefore(ctx)
	pods := newPods(s)
	s.changeMounts(ctx, pods)
	pods.end()
	s.compareAfterwards(ctx)
	for place, what := range watcher.close() {
		for _, one := range what {
			s.Fault(wrongPlace, "%s: %s", place, one)
		}
	}
	s.inspect()
}

// goingMax is how many claims may be deleted and not gone yet. Kubernetes lets them go one after
// the other, more slowly than they can be deleted: without a bound, ten minutes of storm left a
// queue of fourteen thousand.
const goingMax = 400

// full reports whether there are as many claims as there may be, by a look now and then.
func (s *storm) full(ctx context.Context) func() bool {
	var mu sync.Mutex
	var looked time.Time
	n := 0
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(looked) > 100*time.Millisecond {
			all, err := s.Claims().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err == nil {
				n = len(all.Items)
			}
			looked = time.Now()
		}
		return n > s.live+goingMax
	}
}

// changeMounts is the storm itself.
func (s *storm) changeMounts(ctx context.Context, pods *pods) {
	s.Say("the storm begins, seed %d", s.Seed)
	began, before := len(s.Daemon.Log()), s.volumes()
	limited, over := context.WithTimeout(ctx, s.time)
	defer over()
	loaded, end := context.WithCancel(ctx)
	defer end()
	s.load.ResetCount()
	created := make(chan error, 1)
	go func() { created <- s.load.RunUnpaced(loaded, s.workers, s.full(loaded)) }()
	var mounting sync.WaitGroup
	mounting.Go(func() { pods.run(loaded) })
	s.changes = newMountChanges(s.Seed)
	begin := time.Now()
	err := s.changes.run(limited, s.fixture, s.cycles, func() error {
		was := s.volumes()
		if harness.Eventually(s.Soon(), func() bool { return s.volumes() > was || ctx.Err() != nil }) != nil {
			return fmt.Errorf("no volume is made in %s in which the pool is mounted", harness.Timeout)
		}
		return nil
	})
	s.lasted = time.Since(begin)
	end()
	mounting.Wait()
	s.Must(err, "changing mounts")
	s.Must(<-created, "creating and deleting claims")
	s.Must(s.restore(), "mounting the pool for good")
	s.created, s.deleted = s.load.Count()
	s.during = s.volumes() - before
	log := s.Daemon.Log()[began:]
	s.reopened, s.reasons = reopened(log), countReasons(log)
}

// volumes are the volume objects that appeared so far.
func (s *storm) volumes() int {
	seen, _, _ := s.checker.counts()
	return seen
}

// compareAfterwards compares API and disk twice: with the claims that are left, and with none.
func (s *storm) compareAfterwards(ctx context.Context) {
	s.Say("the mount stays: waiting for everything to settle")
	found, took := s.checker.settle(ctx, harness.Timeout)
	s.Merge(found, "")
	s.settled, s.survivors = took, len(s.load.Live())
	for pv, path := range s.kept {
		if data, err := os.ReadFile(path); err != nil || string(data) != pv {
			s.Fault(harness.FilesLost, "of volume %s: %q, %v", pv, data, err)
		}
	}
	s.Say("deleting what is left")
	s.Must(s.load.DeleteAll(ctx), "deleting claims")
	found, s.emptied = s.checker.settle(ctx, harness.Timeout)
	s.Merge(found, "")
	for _, one := range s.checker.lost() {
		s.Fault(noDirectory, "%s", one)
	}
}

// inspect lists the wrong places once more, and asks whether the storm deserved its name.
func (s *storm) inspect() {
	for _, p := range s.wrong() {
		tree := harness.Need(p.tree())(s, "listing "+p.name)
		for _, name := range tree {
			s.Fault(wrongPlace, "%s: %s is there", p.name, name)
		}
	}
	s.CheckRunning()
	if _, _, gone := s.checker.counts(); s.during == 0 || gone == 0 || s.changes.cycles == 0 || !s.reopened {
		s.Fault(harness.NothingProven, "%d volumes made and %d removed in %d cycles, the pool was closed and open again: %t",
			s.during, gone, s.changes.cycles, s.reopened)
	}
}

// reopened reports whether a log tells of a closed pool and, later, of a volume that was made in
// it. The openings themselves are reported now and then only, where a mount comes and goes
// (daemon/controllers/report, Changes).
func reopened(log string) bool {
	closed := strings.Index(log, " reason=PoolClosed")
	return closed >= 0 && strings.LastIndex(log, " reason=ProvisioningSucceeded") > closed
}

// writeBefore makes volumes before the storm with a file in each.
func (s *storm) writeBefore(ctx context.Context) {
	for range 20 {
		claim := harness.Need(s.load.Create(ctx))(s, "making claims before the storm")
		bound, err := s.Cluster.WaitClaimBound(ctx, s.Namespace, claim.Name)
		s.Must(err, "making claims before the storm")
		pv := bound.Spec.VolumeName
		s.kept[pv] = s.own.path(pv, "data-from-before")
		s.Must(os.WriteFile(s.kept[pv], []byte(pv), 0o600), "writing to a volume")
	}
	s.load.Keep()
}

// gateTimes is how long it took to close the gate after one act, in the order of the rounds.
type gateTimes struct {
	act   string
	since []time.Duration // from before the call that changed the mount
	after []time.Duration // from its return; negative: the gate was closed before the call returned
}

// measure is the gate's part, while nothing else goes on.
func (s *storm) measure(ctx context.Context) {
	if s.rounds == 0 {
		return
	}
	s.Say("measuring the time to the closed gate")
	for i, a := range acts {
		rounds := s.rounds
		if i > 1 { // not an unmount
			rounds = max(1, rounds/10)
		}
		s.gate = append(s.gate, s.measureGate(ctx, a, rounds))
	}
	all := s.unmounts().since
	if took := percentile(all, 99); s.p99 > 0 && took >= s.p99 {
		s.Fault(gateLate, "of 99 %% of %d unmounts it took up to %s ms, want below %s", len(all), ms(took), ms(s.p99))
	}
}

// measureGate closes and opens the pool again and again. The moment of the closing is the product's
// own: "since" in its status file, which is read off the clock on the way into gate.Set, in
// nanoseconds and by the same clock as here. The notify socket tells when to read it.
func (s *storm) measureGate(ctx context.Context, a act, rounds int) gateTimes {
	t := gateTimes{act: a.name}
	for range rounds {
		s.waitStatus(ctx, "1 of 1 pool open")
		before, after := s.timed(a)
		s.waitStatus(ctx, "0 of 1 pool open")
		closed := s.closedAt()
		t.since, t.after = append(t.since, closed.Sub(before)), append(t.after, closed.Sub(after))
		s.Must(a.undo(s.fixture), "undoing: "+a.name)
	}
	s.waitStatus(ctx, "1 of 1 pool open")
	return t
}

func (s *storm) timed(a act) (before, after time.Time) {
	for end := time.Now().Add(harness.Timeout); ; {
		before = time.Now()
		err := a.do(s.fixture)
		after = time.Now()
		if !errors.Is(err, unix.EBUSY) || before.After(end) {
			s.Must(err, a.name)
			return before, after
		}
		time.Sleep(time.Millisecond)
	}
}

// closedAt reads when the pool was closed.
func (s *storm) closedAt() time.Time {
	var status struct {
		Pools []struct {
			Open  bool
			Since time.Time
		}
	}
	data, err := os.ReadFile(s.Daemon.Path("run", "status.json"))
	s.Must(err, "reading the status file")
	s.Must(json.Unmarshal(data, &status), "reading the status file")
	if len(status.Pools) != 1 || status.Pools[0].Open {
		s.Fatalf("the status file disagrees with STATUS: %s", data)
	}
	return status.Pools[0].Since
}

// percentile is the smallest value that so many percent of all are not above.
func percentile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

func (t gateTimes) String() string {
	show := func(all []time.Duration) string {
		return fmt.Sprintf("%7s %7s %7s", ms(percentile(all, 50)), ms(percentile(all, 99)), ms(percentile(all, 100)))
	}
	return fmt.Sprintf("  %-34s %6d  %s  %s", t.act, len(t.since), show(t.since), show(t.after))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

// unmounts are both kinds of unmount together: the first two acts.
func (s *storm) unmounts() gateTimes {
	t := gateTimes{act: "both kinds of unmount"}
	for _, g := range s.gate[:min(2, len(s.gate))] {
		t.since, t.after = append(t.since, g.since...), append(t.after, g.after...)
	}
	return t
}

func (s *storm) print() {
	if len(s.gate) > 0 {
		fmt.Println("\nfrom a mount change to the closed gate, in ms: by \"since\" in the daemon's status file")
		fmt.Printf("  %-34s %6s  %-23s  %s\n", "", "", "from the call", "from its return")
		fmt.Printf("  %-34s %6s  %7s %7s %7s  %7s %7s %7s\n", "", "times", "p50", "p99", "max", "p50", "p99", "max")
		for _, t := range append(s.gate, s.unmounts()) {
			fmt.Println(t)
		}
		if s.p99 == 0 {
			fmt.Println("  not judged")
		}
	}
	if s.changes != nil {
		s.printStorm()
	}
	s.Report(kinds...)
}

func (s *storm) printStorm() {
	fmt.Printf("\nmount changes in %s, seed %d (busy: refused by the kernel while the daemon worked there, tried again)\n",
		s.lasted.Round(time.Second), s.Seed)
	total := 0
	for _, a := range acts {
		fmt.Printf("  %-40s %8d  busy %d\n", a.name, s.changes.count[a.name], s.changes.busy[a.name])
		total += s.changes.count[a.name]
	}
	fmt.Printf("  %-40s %8d\nthe daemon's reasons in the log: ", "all", total)
	for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
		fmt.Printf("%s %d ", reason, s.reasons[reason])
	}
	seen, undecidable, gone := s.checker.counts()
	fmt.Printf("\nclaims: %d created, %d deleted in the storm, %d left after it\n", s.created, s.deleted, s.survivors)
	fmt.Printf("volumes: %d published in the storm, %d looked for on the disk, of which %d were gone before, %d removed\n",
		s.during, seen, undecidable, gone)
	fmt.Printf("settled %.1f s after the storm, empty %.1f s after the last deletion\n", s.settled.Seconds(), s.emptied.Seconds())
}
