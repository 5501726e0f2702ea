// Package hang lets storage stop responding under the real daemon, in each call that the daemon
// makes, and looks at everything that must go on: the other pools, the watchdog, the end and a new
// start of the daemon, kubelet's calls of the node service, and in the end everything that waited. A
// FUSE filesystem (test/hungfs) for each call is one pool, a loop ext4 is the pool beside them; the
// API server is real.
//
// First the calls hang all at once, in a pool each, and a process that waits can be killed, as on
// NFS. Then, unless -short, one after the other, and in the end in a way that no signal ends, as a
// disk's driver does: then the daemon's own threads are all gone after SIGTERM, and what the kernel
// holds is not. Beside that a disk is yanked that can still be read from the page cache: only a read
// past the cache shows it.
//
// It does not hang NFS or a device-mapper device: this kernel has neither. getxattr is not among
// the calls because the daemon does not make it where there is no SELinux.
package hang

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

// What the daemon promises.
const (
	deadline   = 5 * time.Second  // for a response
	removal    = 20 * time.Second // for the removal of one entry of a deleted volume
	shutdown   = 5 * time.Second
	comesBack  = 10*time.Second + deadline // the tick, and a look
	hourOfLook = 360
)

// calls are the filesystem's requests that the daemon's work is made of, and in how long a pool
// that does not respond to one of them has to be closed.
var calls = []struct {
	name   string
	op     hungfs.Op
	within time.Duration
	// The daemon can make a volume without this call: a claim may be quicker than the gate.
	besideIt bool
}{
	{"lookup", hungfs.Lookup, deadline, false},
	{"statfs", hungfs.Statfs, deadline, true},
	{"getattr", hungfs.Getattr, deadline, true},
	{"open", hungfs.Open, deadline, true},
	{"read", hungfs.Read, deadline, true},
	{"opendir", hungfs.Opendir, deadline, false},
	{"readdir", hungfs.Readdir, removal, true},
	{"mkdir", hungfs.Mkdir, deadline, false},
	{"setattr", hungfs.Setattr, deadline, false},
	{"create", hungfs.Create, deadline, false},
	{"write", hungfs.Write, deadline, false},
	{"fsync", hungfs.Fsync, deadline, false},
	{"fsyncdir", hungfs.Fsyncdir, deadline, false},
	{"rename", hungfs.Rename2, deadline, false},
	{"unlink", hungfs.Unlink, removal, true},
	{"rmdir", hungfs.Rmdir, removal, true},
}

type options struct {
	short         bool
	slack         time.Duration // of a busy machine, on top of what is promised
	only          string
	looks, claims int
}

// Trial is the command line.
func Trial() harness.Trial {
	var o options
	return harness.Trial{
		Name: "hang", Short: "looks=30 claims=40 slack=15s",
		Does: "Lets storage hang in each call that the daemon makes, and looks at everything that must go on.",
		Flags: func(flags *flag.FlagSet) {
			flags.DurationVar(&o.slack, "slack", time.Second, "how much later than promised is in time, on a busy machine")
			flags.IntVar(&o.looks, "looks", hourOfLook, "how often each pool is looked at while it hangs")
			flags.IntVar(&o.claims, "claims", 100, "how many claims are made in the other pool, without and with the hang")
			flags.StringVar(&o.only, "only", "", "in place of everything: these calls, each alone, and \"unkillable\" for those that no signal ends")
		},
		Play: func(ctx context.Context, p *harness.Program) { o.short = p.Short; play(ctx, p, o) },
	}
}

// does reports whether a round besides the first is played.
func (o options) does(round string) bool {
	if o.only == "" {
		return !o.short
	}
	return slices.Contains(strings.Split(o.only, ","), round)
}

// play is the whole program.
func play(ctx context.Context, p *harness.Program, o options) {
	e := build(ctx, p, o.slack)
	r := &report{looks: o.looks}
	e.warmUp(ctx, r, o.claims)
	yanked := make(chan struct{})
	release := e.cutOff(ctx)
	go func() { defer close(yanked); defer release(); e.awaitNotice(r) }()
	if o.only == "" {
		e.round(ctx, r, e.pools, true, o)
	}
	o.looks = 0
	for _, p := range e.pools {
		if o.does(p.call) {
			e.round(ctx, r, []*pool{p}, true, o)
		}
	}
	if o.does("unkillable") {
		e.round(ctx, r, e.named("mkdir", "statfs", "fsync"), false, o)
	}
	<-yanked
	r.print(p)
}

// report is everything that is told in the end.
type report struct {
	alone         time.Duration // for the claims of the other pool, without a hang
	rounds        []*round
	looks         int
	looked        time.Duration
	before, after usage
	yanked        time.Duration
	yankMessage   string
}

// round is what came of one.
type round struct {
	what    string
	closed  []closed
	beside  time.Duration
	beats   int
	pause   time.Duration
	end     time.Duration
	stuck   int // threads that the kernel held at the end
	back    time.Duration
	settled time.Duration

	threads    int           // that the node service has more after kubelet's calls
	serviceEnd time.Duration // of the node service
}

func (r *report) print(p *harness.Program) {
	fmt.Println("\nfrom the first request that got no response to the closed gate")
	fmt.Printf("  %-10s %8s %8s  %s\n", "call", "promised", "took", "what the pool says")
	for _, rd := range r.rounds {
		for _, c := range rd.closed {
			fmt.Printf("  %-10s %7.0fs %7.2fs  %.90s\n", c.call, c.within.Seconds(), c.took.Seconds(), c.message)
		}
	}
	fmt.Printf("\nbeside the hang; the other pool's claims took %.2f s without it\n", r.alone.Seconds())
	fmt.Printf("  %-52s %8s %6s %6s %7s %8s %6s %6s %8s %12s\n", "hangs", "claims", "ratio", "beats", "pause", "SIGTERM", "stuck", "back", "settled", "csi: threads")
	for _, rd := range r.rounds {
		fmt.Printf("  %-52s %7.2fs %6.2f %6d %6.1fs %7.2fs %6d %5.1fs %7.1fs %+12d\n", rd.what, rd.beside.Seconds(),
			rd.beside.Seconds()/r.alone.Seconds(), rd.beats, rd.pause.Seconds(), rd.end.Seconds(), rd.stuck, rd.back.Seconds(), rd.settled.Seconds(), rd.threads)
	}
	if r.looked > 0 {
		r.printLooks()
	}
	fmt.Printf("\na yanked disk that is read from its cache: closed after %.1f s\n  %s\n\n", r.yanked.Seconds(), r.yankMessage)
	p.Report(kinds...)
}

func (r *report) printLooks() {
	fmt.Printf("\n%d looks at each pool while all hang, in %.0f s: the most in the beginning and the least in the end\n", r.looks, r.looked.Seconds())
	for _, what := range slices.Sorted(maps.Keys(bound)) {
		fmt.Printf("  %s: %d and %d\n", what, r.before[what], r.after[what])
	}
}

// fast is the pool that goes on.
const fast = "fast"

// environment is one daemon with a pool for each call that can hang, one that goes on, and one to
// be yanked.
type environment struct {
	*harness.Environment
	pools  []*pool
	fast   string // directory of the pool that goes on
	doomed hosttest.Image
	dir    string // of the pool to be yanked
	number int    // of rounds
	slack  time.Duration

	service *csinode.Service
}

// pool is one that hangs.
type pool struct {
	name, call string
	number     int // in calls
	dir        string
	fs         *hungfs.FS
	volumes    map[string]string // by claim
}

func build(ctx context.Context, p *harness.Program, slack time.Duration) *environment {
	e := &environment{Environment: harness.Start(ctx, p, harness.Options{Metrics: true}), slack: slack}
	at := filepath.Join(hosttest.Dir(p), fast)
	e.fast = at
	e.add(ctx, fast, at, func() { hosttest.Mkfs(p, "ext4", 512).Mount(p, at) })
	e.dir = filepath.Join(hosttest.Dir(p), "yanked")
	e.doomed = hosttest.Mkfs(p, "ext4", 32)
	e.add(ctx, "yanked", e.dir, func() { e.doomed.Mount(p, e.dir) })
	for i, c := range calls {
		hung := &pool{name: "net-" + c.name, call: c.name, number: i, dir: filepath.Join(hosttest.Dir(p), "net"), volumes: map[string]string{}}
		e.add(ctx, hung.name, hung.dir, func() {
			hung.fs = harness.Need(hungfs.Start(hung.dir))(p, "mounting hungfs")
		})
		e.pools = append(e.pools, hung)
	}
	p.Say("starting the daemon with %d pools", len(calls)+2)
	p.Must(e.Run(p.Soon()), "starting the daemon")
	e.serve()
	p.Cleanup(func() error { // before the daemon is stopped, which could not end else
		for _, hung := range e.pools {
			hung.fs.Stop(hung.dir)
		}
		return nil
	})
	return e
}

// add makes a pool with a class of its name.
func (e *environment) add(ctx context.Context, name, path string, mount func()) {
	e.AddPool(harness.Pool{Name: name, Path: path, Mount: mount})
	e.AddClass(ctx, name, e.Node, harness.InPool(name))
}

// named are some of the pools.
func (e *environment) named(calls ...string) (some []*pool) {
	for _, p := range e.pools {
		if slices.Contains(calls, p.call) {
			some = append(some, p)
		}
	}
	return some
}

// make makes a claim in a pool that responds, and remembers its volume.
func (e *environment) make(ctx context.Context, p *pool, claim string) {
	pv := harness.Need(e.Bound(ctx, p.name, claim))(e, "making a claim in pool "+p.name)
	p.volumes[claim] = pv
}

// fill writes to a volume, so that its removal has something to do.
func (e *environment) fill(p *pool, claim string) {
	dir := filepath.Join(p.dir, p.volumes[claim])
	e.Must(os.Mkdir(filepath.Join(dir, "directory"), 0o700), "filling a volume")
	e.Must(os.WriteFile(filepath.Join(dir, "directory", "file"), []byte("x"), 0o600), "filling a volume")
}
