package crash

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// Again is for a program that this trial starts again: as the daemon, which it becomes, or as the
// process that works on limits. It returns the exit code, or is false for any other call.
func Again() (code int, is bool) {
	if killer.Asked() {
		fmt.Fprintln(os.Stderr, "crash: becoming the daemon:", killer.Become(os.Args))
		return 1, true
	}
	if os.Getenv(limitsEnv) != "" {
		return operate(os.Args[1:]), true
	}
	return 0, false
}

// Kinds of findings.
const (
	notProven = "operations that were not proven"
	unknown   = "system calls that this program does not know"
)

// play is the whole program.
func play(ctx context.Context, p *harness.Program, opt options) {
	if opt.limits != "" || opt.requests != "" || opt.speed {
		playLimits(ctx, p, opt)
		return
	}
	all := provePublishing(ctx, p, opt)
	if opt.csi {
		finish(p, all)
		return
	}
	plane := sync.OnceValue(func() *harness.Plane { return p.StartPlane(ctx, name, cluster.Options{}) })
	all = append(all, proveDaemon(ctx, p, plane, opt)...)
	finish(p, append(all, provePods(ctx, p, plane, opt)...))
}

// proveDaemon kills the daemon in what it does alone, and then at random.
func proveDaemon(ctx context.Context, p *harness.Program, plane func() *harness.Plane, opt options) (all report) {
	chosen := slices.DeleteFunc(slices.Clone(operations), func(op operation) bool {
		return !opt.only.MatchString(op.name) || op.clones && !opt.clones()
	})
	if len(chosen) == 0 && opt.kills == 0 {
		return nil
	}
	e := build(ctx, plane(), opt)
	for _, op := range chosen {
		if ctx.Err() == nil {
			play := func(point string) (string, []string, []fault) { return e.newCase(op).play(point) }
			all = append(all, prover{p, ctx, opt}.try(trial{name: op.name, most: opt.points, play: play}))
		}
	}
	if opt.kills > 0 && ctx.Err() == nil {
		all = append(all, e.killAtRandom())
	}
	e.Say("%d volumes stayed whole in the trash, killed between the removal of the object and the note of it", e.stayed)
	for _, call := range e.killer.Strangers() {
		e.Fault(unknown, "%s", call)
	}
	e.die()
	return all
}

// finish prints everything.
func finish(p *harness.Program, all report) {
	if !all.print(os.Stdout) {
		p.Fault(notProven, "see the table")
	}
	p.Report(notProven, unknown)
}

// playLimits is the program with -limits, -requests and -speed, without a daemon and without a
// cluster.
func playLimits(ctx context.Context, p *harness.Program, opt options) {
	if opt.speed {
		p.Say("%s", speed())
		return
	}
	if opt.requests != "" {
		took, err := requestCost(opt.requests)
		p.Must(err, "asking for projects")
		p.Say("%s", took)
		return
	}
	var all report
	for path := range strings.SplitSeq(opt.limits, ",") {
		all = append(all, proveLimits(ctx, p, opt, path)...)
	}
	if opt.only.String() != "" && len(all) == 0 {
		return // only what limits cost was asked for
	}
	finish(p, all)
}
