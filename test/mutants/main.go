// Command mutants breaks the product on purpose, one line at a time, and runs the proof that must
// notice. A proof that stays green beside its breakage cannot fail, and proves nothing.
//
// The breakages are in list/*.txt. Each is applied to a copy of the working tree, never to the tree
// itself. A proof must be green without a breakage first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	only    *regexp.Regexp
	list    bool
	verbose bool
	workers int
	timeout time.Duration
}

const usage = `Usage: mutants [flags]

Applies each breakage of test/mutants/list to a copy of the working tree and runs its proof. Exit code 0
if every proof is green without a breakage and red with it, 1 otherwise. Wants root, and what make builds
in .build.

`

func parseOptions(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() { fmt.Fprint(out, usage); flags.PrintDefaults() }
	only := flags.String("only", "", "only breakages whose name, file or proof matches this regular expression")
	flags.BoolVar(&o.list, "list", false, "print the breakages and run nothing")
	flags.BoolVar(&o.verbose, "v", false, "print what each proof printed")
	flags.IntVar(&o.workers, "parallel", 2, "how many breakages are tried at the same time")
	flags.DurationVar(&o.timeout, "timeout", 4*time.Minute, "of one run of a proof")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	if o.workers < 1 || o.timeout <= 0 {
		return o, errors.New("-parallel and -timeout must be positive")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	opt, err := parseOptions(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errOut, "mutants:", err)
		return 2
	}
	all, err := readList(rig.Root())
	if err != nil {
		fmt.Fprintln(errOut, "mutants:", err)
		return 2
	}
	var chosen []mutant
	for _, m := range all {
		if opt.only.MatchString(m.Name) || opt.only.MatchString(m.File) || opt.only.MatchString(m.Proof.String()) {
			chosen = append(chosen, m)
		}
	}
	if opt.list {
		for _, m := range chosen {
			fmt.Fprintf(out, "%-32s %s (%s)\n", m.Name, m.Promise, m.Proof)
		}
		fmt.Fprintf(out, "%d breakages\n", len(chosen))
		return 0
	}
	if err := try(ctx, opt, chosen, out); err != nil {
		fmt.Fprintln(errOut, "mutants:", err)
		return 1
	}
	return 0
}
