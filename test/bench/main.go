// Command bench measures the daemon beside a bare client, which is the floor, and beside a
// provisioner on the usual library, on a real API server and a real filesystem, all in one run.
//
// Every contender is a process of its own, has a fresh filesystem for each run, and is judged by the
// same observer: one watch of claims and one of volumes. Absolute numbers are this machine's; the
// ratios are what it is for. It exits 1 if something failed, and never because something was slow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == floorCommand {
		os.Exit(floorMain(os.Args[2:]))
	}
	o, err := parseOptions(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	os.Exit(hosttest.Isolate(func() int { return run(o, os.Stdout) }))
}

// run is the benchmark in its own mount namespace.
func run(o options, out io.Writer) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	b := &bench{options: o, out: out, begin: time.Now()}
	defer func() {
		if err := b.close(); err != nil {
			fmt.Fprintln(out, "bench: cleaning up:", err)
			code = 1
		}
	}()
	// hosttest's helpers end the benchmark by a panic of this type.
	defer func() {
		switch r := recover().(type) {
		case nil:
		case broken:
			fmt.Fprintln(out, "bench:", r)
			code = 1
		default:
			panic(r)
		}
	}()
	if err := b.all(ctx); err != nil {
		fmt.Fprintln(out, "bench:", err)
		return 1
	}
	if b.samples.failed() {
		return 1
	}
	return 0
}

// all measures what the options ask for and prints it.
func (b *bench) all(ctx context.Context) error {
	fmt.Fprintf(b.out, "%s, pools on loop %s in %s, kube-controller-manager's volume binder off,\nno garbage collected by the control plane within a case: its rates are higher than a user's, the ratios are what counts\n\n", machine(), b.fs, b.place())
	if err := b.measure(ctx); err != nil {
		return err
	}
	fmt.Fprint(b.out, "\n", b.report())
	if b.binder > 0 {
		if err := b.measureBinder(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintf(b.out, "\ntook %s\n", time.Since(b.begin).Round(time.Second))
	return nil
}

// bench is one call of the program.
type bench struct {
	options
	out     io.Writer
	begin   time.Time
	samples samples
	undo    []func() error
}

func (b *bench) later(undo func() error) { b.undo = append(b.undo, undo) }

func (b *bench) close() (err error) {
	for len(b.undo) > 0 {
		last := len(b.undo) - 1
		err = errors.Join(err, b.undo[last]())
		b.undo = b.undo[:last]
	}
	return err
}

// broken ends the benchmark: what failed is not a contender.
type broken string

// The methods that make bench a hosttest.T.

func (b *bench) Helper()                   {}
func (b *bench) Name() string              { return "bench" }
func (b *bench) Fatal(args ...any)         { panic(broken(fmt.Sprint(args...))) }
func (b *bench) Fatalf(f string, a ...any) { panic(broken(fmt.Sprintf(f, a...))) }
