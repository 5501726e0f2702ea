package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

func main() {
	if os.Getenv(socketEnv) != "" { // this copy is to be the daemon
		fmt.Fprintln(os.Stderr, "crash: becoming the daemon:", become(os.Args))
		os.Exit(1)
	}
	os.Exit(harness.Main(name, parseOptions, play))
}

// Kinds of findings.
const (
	notProven = "operations that were not proven"
	unknown   = "system calls that this program does not know"
)

// play is the whole program.
func play(ctx context.Context, p *harness.Program, opt options) {
	harness.Patience = opt.settle
	e := build(ctx, p, opt)
	var all report
	for _, op := range operations {
		if ctx.Err() == nil && strings.Contains(op.name, opt.only) {
			all = append(all, e.prove(op))
		}
	}
	if opt.kills > 0 && ctx.Err() == nil {
		all = append(all, e.killAtRandom())
	}
	e.Say("%d volumes stayed whole in the trash, killed between the removal of the object and the note of it", e.stayed)
	if !all.print(os.Stdout) {
		e.Fault(notProven, "see the table")
	}
	for _, call := range e.killer.strangers() {
		e.Fault(unknown, "%s", call)
	}
	e.Report(notProven, unknown)
}
