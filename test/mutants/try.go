package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// try runs each proof without a breakage, then each breakage with its proof, and prints the
// verdicts as they come. An error says what cannot be relied on.
func try(ctx context.Context, opt options, chosen []mutant, out io.Writer) error {
	began := time.Now()
	provers, err := newProvers(ctx, opt)
	defer func() {
		for _, p := range provers {
			p.remove()
		}
	}()
	if err != nil {
		return err
	}
	bad := map[string]int{}
	count := func(o outcome, wanted verdict, about string) {
		if o.verdict != wanted {
			bad[string(o.verdict)]++
		}
		fmt.Fprintf(out, "%-7s %5.1fs %s\n", o.verdict, o.took.Seconds(), about)
		if o.verdict != wanted || opt.verbose {
			fmt.Fprintln(out, indented(o.output))
		}
	}
	slices.SortStableFunc(chosen, func(a, b mutant) int { // each package is compiled as seldom as can be
		return cmp.Or(cmp.Compare(a.Proof.wait(), b.Proof.wait()),
			strings.Compare(a.Proof.Package, b.Proof.Package))
	})
	proofs := distinct(chosen)
	fmt.Fprintf(out, "%d proofs without a breakage, which must be green\n", len(proofs))
	each(ctx, provers, proofs, func(p prover, what proof) (outcome, string) { return p.prove(ctx, what), what.String() },
		func(o outcome, about string) { count(o, green, about) })
	fmt.Fprintf(out, "%d breakages, whose proofs must be red\n", len(chosen))
	each(ctx, provers, chosen, func(p prover, m mutant) (outcome, string) {
		return p.try(ctx, m), fmt.Sprintf("%s: %s (%s)", m.Name, m.Promise, m.Proof)
	}, func(o outcome, about string) { count(o, red, about) })
	if err := summary(ctx, bad); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d of %d breakages turned their proof red, in %s\n", len(chosen), len(chosen), time.Since(began).Round(time.Second))
	return nil
}

// summary is the error of a run with these unwanted verdicts, nil if there were none.
func summary(ctx context.Context, bad map[string]int) error {
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case len(bad) > 0:
		return fmt.Errorf("NOT PROVEN: %s", strings.TrimPrefix(fmt.Sprint(bad), "map"))
	default:
		return nil
	}
}

func newProvers(ctx context.Context, opt options) (all []prover, err error) {
	for range opt.workers {
		c, err := newCopy(ctx, rig.Root())
		if err != nil {
			return all, err
		}
		all = append(all, prover{c, opt.timeout})
	}
	return all, nil
}

// distinct are the proofs of these breakages, each once.
func distinct(all []mutant) (proofs []proof) {
	for _, m := range all {
		if !slices.Contains(proofs, m.Proof) {
			proofs = append(proofs, m.Proof)
		}
	}
	return proofs
}

// each does what is to be done with every one of them, as many at a time as there are provers.
func each[T any](ctx context.Context, provers []prover, all []T, do func(prover, T) (outcome, string), done func(outcome, string)) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	queue := make(chan T)
	for _, p := range provers {
		wait.Go(func() {
			for one := range queue {
				o, about := do(p, one)
				mu.Lock()
				done(o, about)
				mu.Unlock()
			}
		})
	}
	for _, one := range all {
		if ctx.Err() != nil {
			break
		}
		queue <- one
	}
	close(queue)
	wait.Wait()
}

// printedMax is how many lines of a proof's output are shown: its last ones.
const printedMax = 40

func indented(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if n := len(lines) - printedMax; n > 0 {
		lines = lines[n:]
	}
	return "        " + strings.Join(lines, "\n        ")
}

// group puts a command into a process group of its own, which is ended as a whole.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
}
