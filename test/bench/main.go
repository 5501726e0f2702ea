// Command bench measures the daemon beside a bare client, which is the floor, and beside a
// provisioner on the usual library, on a real API server and a real filesystem, all in one run.
//
// Every contender is a process of its own, has a fresh filesystem for each run, and is judged by
// the same observer: one watch of claims and one of volumes. Absolute numbers are this machine's;
// the ratios are what it is for. It exits 1 if something failed, and never because something was
// slow.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == floorCommand {
		os.Exit(floorMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == purgeCommand {
		os.Exit(purgeMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == writerCommand {
		os.Exit(writerMain(os.Args[2:]))
	}
	os.Exit(benchTrial().Main(os.Args[1:]))
}

// run is the benchmark in its own mount namespace.
func run(ctx context.Context, p *harness.Program, o options) {
	b := &bench{Program: p, options: o, out: os.Stdout}
	p.Must(b.all(ctx), "measuring")
	if b.samples.failed() {
		p.Fault("contenders that failed", "see the table")
	}
}

// all measures what the options ask for and prints it.
func (b *bench) all(ctx context.Context) error {
	if len(b.ownCases()) > 0 {
		if err := b.ownPart(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(b.cases, casePurge) {
		if err := b.measurePurge(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(b.cases, caseCluster) {
		fmt.Fprintf(b.out, "\n%s, pools on loop %s in %s, the control plane's components with their own limits,\none control plane for each run\n\n", harness.Machine(), b.fs, b.place())
		if err := b.measureCluster(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(b.cases, casePublish) {
		b.measurePublish(ctx)
	}
	if slices.Contains(b.cases, caseSnapshot) {
		b.measureSnapshot(ctx)
	}
	fmt.Fprintf(b.out, "\ntook %s\n", b.Elapsed().Round(time.Second))
	return nil
}

// ownPart measures what is left of the time when kube-controller-manager binds nothing.
func (b *bench) ownPart(ctx context.Context) error {
	fmt.Fprintf(b.out, "%s, pools on loop %s in %s, kube-controller-manager's volume binder off,\nno garbage collected by the control plane within a case: its rates are higher than a user's, the ratios are what counts\n\n", harness.Machine(), b.fs, b.place())
	if err := b.measure(ctx); err != nil {
		return err
	}
	fmt.Fprint(b.out, "\n", b.report())
	if b.binder == 0 {
		return nil
	}
	return b.measureBinder(ctx)
}

// bench is one call of the program.
type bench struct {
	*harness.Program
	options
	out     io.Writer
	samples samples
}
