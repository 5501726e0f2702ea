package weather

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// soakOptions are the flags of Soak.
type soakOptions struct {
	claims int
	warm   int // claims before the first measurement
	live   int // claims at once
	rounds int
}

// Soak makes and deletes claims over one daemon, and asks whether the daemon is the same
// afterwards: its memory, descriptors, threads and goroutines. It does not measure speed.
//
// The claims come with what the scheduler and kube-controller-manager would write on them, so that
// the daemon begins at once, and the trial binds and releases them itself: the binder of
// kube-controller-manager takes 25 s for a claim when 200 of them are under way. After a warm-up,
// and then in each round, everything is let go, and when the daemon's processor time stands still
// it is measured over several garbage collections.
func Soak() harness.Trial {
	var o soakOptions
	return harness.Trial{
		Name: "soak", Short: "warm=1200 claims=1200 rounds=1",
		Does: "Makes and deletes claims over one daemon, and measures it before and after.",
		Flags: func(flags *flag.FlagSet) {
			flags.IntVar(&o.claims, "claims", 100000, "how many claims are made and deleted after the warm-up")
			flags.IntVar(&o.warm, "warm", 5000, "how many before: events are remembered, and pools of memory fill")
			flags.IntVar(&o.live, "live", 200, "how many exist at once")
			flags.IntVar(&o.rounds, "rounds", 10, "how often it is measured")
		},
		Check: func() error {
			if o.warm < 1 || o.live < 1 || o.rounds < 1 || o.claims < o.rounds {
				return errors.New("-warm, -live and -rounds must be positive, and -claims not less than -rounds")
			}
			return nil
		},
		Play: func(ctx context.Context, p *harness.Program) { buildSoak(ctx, p, o).play(ctx) },
	}
}

// quietPlane are flags of the control plane: it has no controller but those without which no daemon
// gets its token, and it forgets at once what was. At its defaults etcd would keep ten minutes'
// revisions and an hour's events, which at a fast machine's pace is what its quota of 2 GiB allows.
var quietPlane = []string{
	"--kcm-flag=--controllers=serviceaccount-controller,serviceaccount-token-controller," +
		"root-ca-certificate-publisher-controller,node-lifecycle-controller",
	"--apiserver-flag=--disable-admission-plugins=StorageObjectInUseProtection",
	"--apiserver-flag=--etcd-compaction-interval=1m", "--apiserver-flag=--event-ttl=5m",
}

// soak is a daemon, and the claims that come and go over it.
type soak struct {
	*harness.Environment
	soakOptions
	load    *harness.Load
	checker *checker
	storage harness.Storage
	made    atomic.Int64 // claims, in this round
	work    sync.WaitGroup
}

func buildSoak(ctx context.Context, p *harness.Program, o soakOptions) *soak {
	s := &soak{soakOptions: o, Environment: harness.Start(ctx, p, harness.Options{
		Metrics: true, Plane: cluster.Options{ExtraArgs: quietPlane, Env: []string{"GOGC=400"}}, // it needs two thirds of the machine
	})}
	pool := harness.Pool{Name: s.Name(), Path: filepath.Join(hosttest.Dir(p), "pool")}
	pool.Mount = func() { harness.Mkfs(p, 256).Mount(p, pool.Path) }
	s.AddPool(pool)
	s.AddClass(ctx, s.Name(), s.Node)
	p.Must(s.Run(ctx), "starting the daemon")
	s.storage = s.Storages(pool)[0]
	s.load = harness.NewLoad(s.Client, s.Namespace, 1<<30, p.Seed, s.claim) // each is deleted by the event of its volume
	s.checker = newChecker(s.Environment, plan.ScopeNode, pool.Path, []harness.Storage{s.storage}, s.load)
	s.checker.onMade = func(pv *corev1.PersistentVolume) { s.work.Go(func() { s.use(ctx, pv) }) }
	go s.checker.run(ctx)
	return s
}

func (s *soak) claim(name string) *corev1.PersistentVolumeClaim {
	c := cluster.Claim(s.Namespace, name, s.Name(), "1Mi")
	c.Annotations = map[string]string{plan.SelectedNode: s.Node, plan.StorageProvisioner: s.Node}
	return c
}

// use binds a volume, deletes its claim and releases it. Whole objects are written: a patch costs
// the API server more than the rest.
func (s *soak) use(ctx context.Context, pv *corev1.PersistentVolume) {
	claim := s.claim(pv.Spec.ClaimRef.Name)
	claim.UID, claim.Spec.VolumeName = pv.Spec.ClaimRef.UID, pv.Name
	s.Blame(harness.Unsettled, harness.Patiently(func() error {
		_, err := s.Claims().Update(ctx, claim, metav1.UpdateOptions{})
		return err
	}))
	s.Blame(harness.Unsettled, s.load.End(ctx, claim.Name))
	released := pv.DeepCopy()
	released.Status.Phase, released.ResourceVersion = corev1.VolumeReleased, ""
	s.Blame(harness.Unsettled, harness.Patiently(func() error {
		_, err := s.Volumes().UpdateStatus(ctx, released, metav1.UpdateOptions{})
		return err
	}))
}

// play is the warm-up and the rounds, each with its line in the table.
func (s *soak) play(ctx context.Context) {
	fmt.Println("  claims  a second  RSS KiB  heap KiB  descriptors  threads  goroutines")
	first := s.round(ctx, s.warm, 0)
	last, done := first, 0
	for i := range s.rounds {
		n := s.claims*(i+1)/s.rounds - done
		done += n
		last = s.round(ctx, n, done)
	}
	for _, line := range grown(first, last) {
		s.Fault(leaked, "%s", line)
	}
	for _, one := range s.checker.lost() {
		s.Fault(noDirectory, "%s", one)
	}
	fmt.Printf("%d claims came and went\n", done)
	s.Report(leaked, noDirectory, harness.Unsettled)
}

// stuck is how long nothing may happen at all.
const stuck = 2 * time.Minute

// round makes and deletes claims, waits until nothing is left of them, and measures.
func (s *soak) round(ctx context.Context, n, done int) sample {
	begin := time.Now()
	_, _, before := s.checker.counts()
	s.made.Store(0)
	making, end := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		failed <- s.load.RunUnpaced(making, 8, func() bool { return !s.takes(n, before) })
	}()
	gone, since := 0, time.Now()
	for gone < n && ctx.Err() == nil && time.Since(since) < stuck {
		time.Sleep(5 * time.Millisecond)
		if _, _, now := s.checker.counts(); now-before > gone {
			gone, since = now-before, time.Now()
		}
	}
	end()
	s.Must(<-failed, "making claims")
	s.work.Wait()
	if gone < n {
		s.Fatalf("of %d claims %d came and went, and then nothing happened for %s", n, gone, stuck)
	}
	took := time.Since(begin)
	s.Must(harness.WaitDisk(s.Soon(), s.storage.Path()), "waiting for an empty pool")
	m := s.sample(ctx)
	m.claims, m.rate = done, float64(n)/took.Seconds()
	fmt.Println(m)
	return m
}

// takes takes one of the n claims of a round, and reports whether there was one left, and room for
// it. before is how many volumes had gone when the round began.
func (s *soak) takes(n, before int) bool {
	_, _, gone := s.checker.counts()
	if made := int(s.made.Add(1)); made <= n && made-(gone-before) <= s.live {
		return true
	}
	s.made.Add(-1)
	return false
}

// sample is one measurement of a daemon. The race detector takes memory of its own, with which none
// is measured.
type sample struct {
	claims int     // made and deleted since the warm-up
	rate   float64 // claims a second in the round

	rss        int // KiB, VmRSS of proc(5)
	heap       int // KiB, the least that was allocated over some garbage collections
	fds        int // the least number meanwhile
	threads    int
	goroutines int // the least number meanwhile
}

func (s sample) String() string {
	at := strconv.Itoa(s.claims)
	if s.claims == 0 {
		at = "warm"
	}
	return fmt.Sprintf("%8s  %8.0f  %7d  %8d  %11d  %7d  %10d", at, s.rate, s.rss, s.heap, s.fds, s.threads, s.goroutines)
}

// grown is what is more than 5 % above what it was, and threads beyond their limit. The daemon's
// heap is 3 MiB at rest, so that 5 % of it come and go by chance; what a claim leaves behind is
// more, after some thousands of them, than the KiB that are let pass.
func grown(first, last sample) (wrong []string) {
	for _, q := range []struct {
		what            string
		was, is, chance int
	}{
		{"KiB of RSS", first.rss, last.rss, 4096}, {"KiB of heap", first.heap, last.heap, 512},
		{"descriptors", first.fds, last.fds, 0}, {"goroutines", first.goroutines, last.goroutines, 0},
	} {
		if 100*q.is > 105*q.was && q.is-q.was > q.chance {
			wrong = append(wrong, fmt.Sprintf("%s: %d, and now %d", q.what, q.was, q.is))
		}
	}
	if last.threads > threadsMax {
		wrong = append(wrong, fmt.Sprintf("threads: %d, at most %d were wanted", last.threads, threadsMax))
	}
	return wrong
}

// threadsMax: Go ends no thread, and a goroutine that waits for the disk needs one. How many do at
// once is chance, so that the number may grow after the warm-up, but not beyond those that make
// volumes (16, the seats of daemon/controllers), those that remove them (16 and 1), and what the
// runtime and the pool's loop take.
const threadsMax = 16 + 17 + 43

// collections is how many garbage collections are awaited. The daemon has no way to ask for one:
// each page of metrics makes garbage, so pages are asked for until there was enough of it.
const collections = 4

// sample measures the daemon from outside, by /proc and its metrics, once it is quiet. What a look
// at the pool opens and starts is gone in the next moment; what leaked is not.
func (s *soak) sample(ctx context.Context) (m sample) {
	pid := s.Daemon.PID()
	s.quiet(ctx, pid)
	least := func(was, is int) int {
		if was == 0 {
			return is
		}
		return min(was, is)
	}
	for begin, now := -1, 0; now < begin+collections || begin < 0; {
		page := harness.Need(s.Metrics())(s, "reading the daemon's metrics")
		if now = int(page["go_gc_duration_seconds_count"]); begin < 0 {
			begin = now
		}
		fds := harness.Need(process.Descriptors(pid))(s, "reading the daemon's descriptors")
		m.heap = least(m.heap, int(page["go_memstats_alloc_bytes"])/1024)
		m.goroutines, m.fds = least(m.goroutines, int(page["go_goroutines"])), least(m.fds, fds)
	}
	status := harness.Need(process.Status(pid))(s, "reading the daemon's status")
	m.rss, m.threads = status["VmRSS"], status["Threads"]
	if s.Daemon.Raced() {
		m.rss, m.heap = 0, 0
	}
	return m
}

// quiet waits for a second in which the daemon used at most 10 ms of processor time: its events are
// written then, and its trash is empty.
func (s *soak) quiet(ctx context.Context, pid int) {
	ctx, cancel := context.WithTimeout(ctx, stuck)
	defer cancel()
	for last := -time.Second; ; harness.Pass(ctx, time.Second) {
		now := harness.Need(process.CPUTime(pid))(s, "reading the daemon's processor time")
		switch {
		case now-last <= 10*time.Millisecond:
			return
		case ctx.Err() != nil:
			s.Fatal("the daemon does not come to rest")
		}
		last = now
	}
}
