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
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
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
