package harness

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Trial is a program of test/prove.
type Trial struct {
	Name    string
	Does    string              // a sentence or two
	Short   string              // flags of the short form ("time=20s rounds=100"), where not given
	Timeout time.Duration       // the default of -timeout; 0: that of Timeout
	Flags   func(*flag.FlagSet) // adds the trial's own flags; nil: it has none
	Check   func() error        // returns what is wrong with their values; nil: nothing can be
	Play    func(context.Context, *Program)
}

// Common are the flags of every trial, but for -timeout.
type Common struct {
	Short   bool
	Seed    uint64
	Binary  string // of the daemon; empty: the rig's default
	KeepLog string // a file that the daemons' log is written to in the end; empty: $KEEP_LOG, or none
}

// Main enters a mount namespace, parses the arguments, and plays the trial with a context that
// SIGINT and SIGTERM end. It returns the exit code: 2 for a wrong command line, else that of Run.
func (t Trial) Main(args []string) int {
	return hosttest.Isolate(func() int {
		common, err := t.Parse(args, os.Stderr)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return 0
		case err != nil:
			fmt.Fprintf(os.Stderr, "%s: %v\n", t.Name, err)
			return 2
		}
		ctx, stop := Interruptible()
		defer stop()
		return Run(ctx, t.Name, func(ctx context.Context, p *Program) {
			p.Common = common
			t.Play(ctx, p)
		})
	})
}

// Parse parses the flags, and sets Timeout.
func (t Trial) Parse(args []string, out io.Writer) (c Common, err error) {
	flags := flag.NewFlagSet(t.Name, flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprintf(out, "Usage: %s [flags]\n\n%s\nExit code 1 if anything went wrong. Wants root, and what make builds in .build.\n\n",
			t.Name, t.Does)
		flags.PrintDefaults()
	}
	flags.BoolVar(&c.Short, "short", false, strings.TrimSpace("the form for every change: "+t.Short))
	flags.Uint64Var(&c.Seed, "seed", uint64(time.Now().UnixNano()%1e6), "of the random choices")
	flags.StringVar(&c.Binary, "daemon", "", "the daemon's binary; default: the one in .build")
	flags.StringVar(&c.KeepLog, "keep-log", "", "file to write the daemons' log to")
	flags.DurationVar(&Timeout, "timeout", cmp.Or(t.Timeout, Timeout), "how long one thing may take before it is called a fault")
	if t.Flags != nil {
		t.Flags(flags)
	}
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if c.Short {
		if err := shorten(flags, t.Short); err != nil {
			return c, err
		}
	}
	if Timeout <= 0 {
		return c, errors.New("-timeout must be positive")
	}
	if t.Check != nil {
		return c, t.Check()
	}
	return c, nil
}

// shorten sets the flags that the command line did not set.
func shorten(flags *flag.FlagSet, values string) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for word := range strings.FieldsSeq(values) {
		name, value, _ := strings.Cut(word, "=")
		if given[name] {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}
