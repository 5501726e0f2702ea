package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// verdict is what became of a proof.
type verdict string

const (
	red     verdict = "RED"     // an assertion failed
	green   verdict = "GREEN"   // nothing failed
	absent  verdict = "STALE"   // the old line, or the proof, is not there any more
	broken  verdict = "BROKEN"  // it does not compile, or could not be tried
	crashed verdict = "CRASHED" // the proof ended by a panic, not by an assertion
	hung    verdict = "HUNG"    // the proof did not end in time
)

// stale is an entry that does not fit the tree any more.
type stale struct{ error }

const (
	daemon   = "hostpath-provisioner"
	stripped = "-ldflags=-s -w" // each breakage is linked anew, and not debugged
)

// prover compiles and runs proofs in one copy of the tree.
type prover struct {
	*copyOf
	timeout time.Duration
}

// outcome is a verdict, with what was printed by what led to it.
type outcome struct {
	verdict verdict
	output  string
	took    time.Duration
}

// prove runs a proof as the copy is now.
func (p prover) prove(ctx context.Context, what proof) (o outcome) {
	began := time.Now()
	defer func() { o.took = time.Since(began) }()
	tag, why := what.find(p.dir)
	if why != "" {
		return outcome{verdict: absent, output: why}
	}
	if strings.HasPrefix(what.Package, "test/") && !p.made { // it runs the daemon itself
		if out, err := p.command(ctx, p.dir, "go", "build", "-trimpath", stripped, "-o", filepath.Join(".build", daemon), "./cmd/"+daemon); err != nil {
			return outcome{verdict: broken, output: out}
		}
		p.made = true
	}
	binary := filepath.Join(p.dir, ".build", "proof.test")
	if of := what.Package + " " + tag; p.compiled != of {
		p.compiled = ""
		if out, err := p.command(ctx, p.dir, "go", "test", "-trimpath", stripped, "-tags", tag, "-c", "-o", binary, "./"+what.Package); err != nil {
			return outcome{verdict: broken, output: out}
		}
		p.compiled = of
	}
	out, err := p.command(ctx, filepath.Join(p.dir, what.Package), binary,
		"-test.run", what.Run, "-test.failfast", "-test.timeout", p.timeout.String())
	return outcome{verdict: judge(out, err), output: out}
}

// command runs one in its own process group, because a test binary starts others, and ends all of
// them when it takes far too long.
func (p prover) command(ctx context.Context, dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*p.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "HOSTPATH_WORLDS=whole")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	group(cmd)
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return out.String(), err
}

// judge tells an assertion that failed from everything else that ends a test binary with an error.
func judge(out string, err error) verdict {
	switch {
	case strings.Contains(out, "testing: warning: no tests to run"):
		return absent
	case err == nil:
		return green
	case strings.Contains(out, "panic: test timed out"), errors.Is(err, context.DeadlineExceeded):
		return hung
	case strings.Contains(out, "\npanic: "), strings.HasPrefix(out, "panic: "), strings.Contains(out, "fatal error: "):
		return crashed
	case strings.Contains(out, "--- FAIL: "):
		return red
	default:
		return broken
	}
}

// try applies one breakage and runs its proof.
func (p prover) try(ctx context.Context, m mutant) (o outcome) {
	err := p.with(m, func() { o = p.prove(ctx, m.Proof) })
	switch {
	case errors.As(err, new(stale)):
		return outcome{verdict: absent, output: err.Error()}
	case err != nil:
		return outcome{verdict: broken, output: fmt.Sprint(err)}
	}
	return o
}
