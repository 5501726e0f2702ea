package main

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// environment is what the storm hits.
type environment struct {
	*harness.Environment
	opt     options
	fixture *fixture
}

const name = "storm" // of the program, the pool, the class, the provisioner and the node

// build makes everything up to a running daemon with an open pool.
func build(ctx context.Context, p *harness.Program, opt options) *environment {
	e := &environment{opt: opt, Environment: harness.Start(ctx, p, harness.Options{Binary: opt.daemon, KeepLog: opt.keepLog})}
	e.fixture = newFixture(p)
	e.AddClass(ctx, name, e.Node)
	e.AddPool(harness.Pool{Name: name, Path: e.fixture.mount, TOML: "immutable = \"off\"\n"})
	e.fixture.mimic(p)
	e.Say("starting the daemon, with nothing immutable, and a copy of its directories in every wrong place")
	e.Must(e.Run(ctx), "starting the daemon")
	e.waitStatus(ctx, "1 of 1 pool open")
	return e
}

// claim is a claim of the load.
func (e *environment) claim(claim string) *corev1.PersistentVolumeClaim {
	return e.NewClaim(name, claim)
}

// waitStatus waits for words in the daemon's STATUS.
func (e *environment) waitStatus(ctx context.Context, words string) {
	ctx, cancel := context.WithTimeout(ctx, harness.Timeout)
	defer cancel()
	e.Must(e.Daemon.WaitStatus(ctx, words), "waiting for the daemon")
}

// reasons counts how often the daemon's log names each reason.
func (e *environment) reasons() map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(e.Daemon.Log()) {
		if _, rest, found := strings.Cut(line, " reason="); found {
			reason, _, _ := strings.Cut(rest, " ")
			count[strings.TrimSpace(reason)]++
		}
	}
	return count
}
