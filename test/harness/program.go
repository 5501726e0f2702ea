// Package harness is the frame of the trials of test/prove: the command line, a mount namespace, an
// environment of a real control plane and real daemons, a load of claims, and what a trial finds
// wrong.
//
// It knows no faults, and it decides nothing about the product but whether the API's objects fit
// each other (CompareObjects): each program knows what it does to the product and what must hold.
package harness

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Interruptible returns a context that SIGINT and SIGTERM end.
func Interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}

// Program is one run of a program. It is a hosttest.T: what cannot be set up ends the program.
type Program struct {
	Findings
	Common

	ctx      context.Context
	name     string
	label    string // before each line that it prints
	began    time.Time
	cleanups []func() error
	failed   func()
}

// fatal ends the program: the proof could not be made. It is the value of a panic.
type fatal string

// Run runs body. It returns the exit code: 0 only if body returned, the context has not ended,
// nothing was found and every cleanup succeeded.
func Run(ctx context.Context, name string, body func(context.Context, *Program)) (code int) {
	p := &Program{ctx: ctx, name: name, began: time.Now()}
	defer func() {
		if err := p.CleanUp(); err != nil {
			fmt.Printf("%s: cleaning up: %v\n", name, err)
			code = 1
		}
	}()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fatal:
			fmt.Printf("\nFAILED: %s: %s\n", name, r)
			if p.failed != nil {
				p.failed()
			}
			code = 1
		default:
			panic(r)
		}
	}()
	body(ctx, p)
	if ctx.Err() != nil {
		p.Fatal("interrupted")
	}
	return min(p.Count(), 1)
}

// Label puts a word before each line that the program prints from now on.
func (p *Program) Label(word string) { p.label = word + ": " }

// Cleanup calls a function when the program ends, however it ends. The last one that was given is
// called first.
func (p *Program) Cleanup(f func() error) { p.cleanups = append(p.cleanups, f) }

// OnFatal sets what is called after Fatal, before the cleanups. It prints what helps to understand
// the failure.
func (p *Program) OnFatal(f func()) { p.failed = f }

// CleanUp calls what Cleanup was given, now. A program may call it between two parts.
func (p *Program) CleanUp() (err error) {
	for len(p.cleanups) > 0 {
		last := len(p.cleanups) - 1
		f := p.cleanups[last]
		p.cleanups = p.cleanups[:last]
		err = errors.Join(err, f())
	}
	return err
}

// Helper is part of hosttest.T.
func (p *Program) Helper() {}

// Name is part of hosttest.T.
func (p *Program) Name() string { return p.name }

// Fatal ends the program, which proved nothing then. It is for the program's own goroutine only.
func (p *Program) Fatal(args ...any) { panic(fatal(fmt.Sprint(args...))) }

// Fatalf is Fatal with a format.
func (p *Program) Fatalf(format string, args ...any) { panic(fatal(fmt.Sprintf(format, args...))) }

// Fatally runs f and returns what it called Fatal with, "" if it did not: for tests of programs.
func Fatally(f func()) (message string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fatal:
			message = string(r)
		default:
			panic(r)
		}
	}()
	f()
	return ""
}

// Must ends the program if something could not be done. It is for the program's own goroutine only.
func (p *Program) Must(err error, doing string) {
	if err != nil {
		p.Fatalf("%s: %v", doing, err)
	}
}

// Need returns what a call returned, as in Need(os.ReadFile(name))(p, "reading"), and is Must.
func Need[V any](value V, err error) func(p interface{ Must(error, string) }, doing string) V {
	return func(p interface{ Must(error, string) }, doing string) V {
		p.Must(err, doing)
		return value
	}
}

// failure is the value of the panic that ends what Outcome calls.
type failure struct{ error }

// Check ends what Outcome calls if something failed. It is for the goroutine of that call only.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Got is Check for what returns a value.
func Got[T any](value T, err error) T { Check(err); return value }

// Got2 is Check for what returns two.
func Got2[T, U any](one T, other U, err error) (T, U) { Check(err); return one, other }

// Outcome returns the error of do, or the one by which Check ended it.
func Outcome(do func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	return do()
}

// Each calls do for 0 to n-1, 16 at once, and returns the errors joined, also those by which Check
// ended do. After an error no more is begun.
func Each(n int, do func(i int) error) error {
	var (
		next   atomic.Int64
		all    sync.WaitGroup
		errs   [16]error
		failed atomic.Bool
	)
	for worker := range errs {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n) && !failed.Load(); i = next.Add(1) {
				errs[worker] = Outcome(func() error { return do(int(i - 1)) })
				if errs[worker] != nil {
					failed.Store(true)
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

// QuietControllers is an argument of a control plane that writes nothing about claims and volumes.
const QuietControllers = "--kcm-flag=--controllers=*,-persistentvolume-binder-controller," +
	"-persistentvolume-protection-controller,-persistentvolumeclaim-protection-controller"

// Say prints a line with the time since the program began.
func (p *Program) Say(format string, args ...any) {
	fmt.Printf("[%6.1fs] %s%s\n", p.Elapsed().Seconds(), p.label, fmt.Sprintf(format, args...))
}

// Elapsed is the time since the program began.
func (p *Program) Elapsed() time.Duration { return time.Since(p.began) }

// Report prints what was found, each kind with its number, and the verdict.
func (p *Program) Report(kinds ...string) {
	p.print(os.Stdout, kinds)
	verdict := "nothing went wrong"
	if n := p.Count(); n > 0 {
		verdict = fmt.Sprintf("WRONG: %d", n)
	}
	fmt.Printf("%s%s, in %s\n", p.label, verdict, p.Elapsed().Round(time.Second))
}

// Timeout is for one wait: claims that failed are tried again after at most 30 s. The command line
// sets it: who tries a broken product need not wait so long for each of its faults.
var Timeout = 90 * time.Second

// Soon is a context for one wait.
func (p *Program) Soon() context.Context {
	ctx, cancel := context.WithTimeout(p.ctx, Timeout)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// Eventually waits for a condition, of which no event tells, by looking again after short pauses.
func Eventually(ctx context.Context, is func() bool) error {
	for began := time.Now(); !is(); {
		select {
		case <-ctx.Done():
			return errors.New("not in time")
		case <-time.After(rig.Pause(began)):
		}
	}
	return nil
}

// Pass lets time pass: something is this long, not that it is ready.
func Pass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Tail returns the last n bytes of a text at most.
func Tail(text string, n int) string { return text[max(0, len(text)-n):] }

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
