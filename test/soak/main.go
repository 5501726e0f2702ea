// Command soak makes and deletes claims over one daemon, 100,000 by default, and asks
// whether the daemon is the same afterwards: its memory, descriptors, threads and goroutines.
//
// The claims come with what the scheduler and kube-controller-manager would write on them, so that
// the daemon begins at once, and the program binds and releases them itself: the volume controllers
// of the control plane are off. Two of three volumes get a file. After a warm-up, and then ten
// times, everything is let go, and when the daemon's processor time stands still it is measured
// over several garbage collections. The last measurement may not be more than 5 % above the first
// (see grown), in anything but threads, which have a limit; neither may the pool have anything
// left. What is wrong is printed, and the exit code is 1.
//
// It does not measure speed, and it knows no faults: chaos and storm do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func main() { os.Exit(harness.Main(name, parseOptions, play)) }

// options is what the command line says.
type options struct {
	claims  int
	warm    int // claims before the first measurement
	live    int // claims at once
	rounds  int
	daemon  string
	keepLog string
}

const usage = `Usage: soak [flags]

Makes and deletes claims over one daemon, and measures it before and after. Exit code 1 if anything
grew, or is left. Wants root, and what make builds in .build.

`

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	flags := harness.Flags(name, usage, out)
	short := flags.Bool("short", false, "the form for every change: -warm 1200 -claims 1200 -rounds 1, where not said otherwise")
	flags.IntVar(&o.claims, "claims", 100000, "how many claims are made and deleted after the warm-up")
	flags.IntVar(&o.warm, "warm", 5000, "how many before: events are remembered, and pools of memory fill")
	flags.IntVar(&o.live, "live", 200, "how many exist at once")
	flags.IntVar(&o.rounds, "rounds", 10, "how often it is measured")
	flags.StringVar(&o.daemon, "daemon", "", "the daemon's binary; default: the one in .build")
	flags.StringVar(&o.keepLog, "keep-log", "", "file to write the daemon's log to")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *short {
		if err := harness.Shorten(flags, map[string]string{"warm": "1200", "claims": "1200", "rounds": "1"}); err != nil {
			return o, err
		}
	}
	if o.warm < 1 || o.live < 1 || o.rounds < 1 || o.claims < o.rounds {
		return o, errors.New("-warm, -live and -rounds must be positive, and -claims not less than -rounds")
	}
	return o, nil
}

// environment is the harness's with what is measured in it.
type environment struct {
	*harness.Environment
	opt     options
	storage harness.Storage
	gauge   *gauge
}

// plane are flags of the control plane: it has no controller but those without which no daemon gets
// its token, and it forgets at once what was. At its defaults etcd would keep ten minutes'
// revisions and an hour's events, which at a fast machine's pace is what its quota of 2 GiB allows.
var plane = []string{
	"--kcm-flag=--controllers=serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller,node-lifecycle-controller",
	"--apiserver-flag=--disable-admission-plugins=StorageObjectInUseProtection",
	"--apiserver-flag=--etcd-compaction-interval=1m", "--apiserver-flag=--event-ttl=5m",
}

const name = "soak" // of the program, the pool, the class, the provisioner and the node

// play is the whole program: the warm-up and the rounds, each with its line in the table.
func play(ctx context.Context, p *harness.Program, opt options) {
	e := build(ctx, p, opt)
	fmt.Println(heading)
	first := e.round(ctx, opt.warm, 0)
	last, done := first, 0
	for i := range opt.rounds {
		n := opt.claims*(i+1)/opt.rounds - done
		done += n
		last = e.round(ctx, n, done)
	}
	for _, line := range grown(first, last) {
		p.Fault(leaked, "%s", line)
	}
	fmt.Printf("%d claims came and went\n", done)
	p.Report(leaked)
}

// leaked is the kind of what this program finds.
const leaked = "measurements that grew"

func build(ctx context.Context, p *harness.Program, opt options) *environment {
	e := &environment{opt: opt, Environment: harness.Start(ctx, p, harness.Options{
		Binary: opt.daemon, Metrics: true, KeepLog: opt.keepLog,
		Plane: cluster.Options{ExtraArgs: plane, Env: []string{"GOGC=400"}}, // it needs two thirds of the machine
	})}
	pool := harness.Pool{Name: name, Path: filepath.Join(hosttest.Dir(p), "pool")}
	pool.Mount = func() { harness.Mkfs(p, 256).Mount(p, pool.Path) }
	e.AddPool(pool)
	e.AddClass(ctx, name, e.Node)
	e.storage = e.Storages(pool)[0]
	p.Must(e.Run(ctx), "starting the daemon")
	e.gauge = &gauge{pid: e.Daemon.PID(), url: e.MetricsURL()}
	return e
}

// round makes and deletes claims, waits until nothing is left of them, and measures.
func (e *environment) round(ctx context.Context, n, done int) sample {
	begin := time.Now()
	e.Must(newLoad(e, e.opt.live).run(ctx, n), "making and deleting claims")
	took := time.Since(begin)
	e.Must(e.empty(ctx), "waiting for an empty pool")
	s, err := e.gauge.measure(ctx)
	e.Must(err, "measuring the daemon")
	s.claims, s.rate = done, float64(n)/took.Seconds()
	fmt.Println(s.line())
	return s
}

// empty waits until the pool has nothing in it.
func (e *environment) empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		tree, err := e.storage.Tree()
		if err != nil || len(tree) == 0 {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("left: %q", tree)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
