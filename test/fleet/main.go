// Command fleet runs 100 daemons against one API server, and counts their requests: when they
// start, when nothing happens, for claims of both binding modes, when some of them are dead, when
// the API server comes back, and when 20 and 100 claims a second come to one node and go. Each
// number has a limit. What is above it is printed, and the exit code is 1.
//
// The daemons are processes of the real binary, each with a Node object, a token bound to it, and a
// pool on a tmpfs of its own. Requests are counted from the API server's audit log.
//
// It measures no time that depends on the machine: 100 daemons, etcd and the API server share its
// processors. Times are printed, and limited only where a claim could wait for ever.
package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

func main() { os.Exit(harness.Main("fleet", parseOptions, play)) }

// options is what the command line says.
type options struct {
	daemons int
	claims  int // of each binding mode
	churn   bool
}

const usage = `Usage: fleet [flags]

Runs many daemons against one API server, and counts their requests. Exit code 1 if a number is above its
limit. Wants root, about 40 MB of memory for each daemon, and what make builds in .build.

`

func parseOptions(args []string, out io.Writer) (options, error) {
	var o options
	flags := harness.Flags("fleet", usage, out)
	flags.IntVar(&o.daemons, "daemons", 100, "how many daemons run")
	flags.IntVar(&o.claims, "claims", 300, "how many claims of each binding mode are made")
	flags.BoolVar(&o.churn, "churn", false, "measure nothing but what a node publishes while claims come and go")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.daemons < 4 || o.claims < o.daemons {
		return o, errors.New("-daemons must be at least 4, and -claims no less than -daemons")
	}
	return o, nil
}

// play is the whole program.
func play(ctx context.Context, p *harness.Program, opt options) {
	f := &fleet{program: p, opt: opt}
	f.build(ctx)
	if opt.churn {
		f.churn(ctx)
		p.Report("numbers above their limits")
		return
	}
	f.start(ctx)
	f.idle(ctx)
	f.waiting(ctx)
	f.immediate(ctx)
	f.halfKilled(ctx)
	f.deadNodes(ctx)
	f.back(ctx)
	f.churn(ctx)
	p.Report("numbers above their limits")
}
