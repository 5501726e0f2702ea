// Package demo shows the daemon's main job, step by step, on a real API server and a real
// filesystem, and fails unless every step really held.
//
// It runs in a mount namespace of its own, so that what it mounts is gone when it ends. On the
// cluster that KUBECONFIG names, if it names one, it makes objects with its own name, and mounts on
// the host, because a kubelet would not see what is mounted in another namespace; it removes both.
package demo

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Main is the demonstration, and returns the exit code.
func Main() int {
	if os.Getenv("KUBECONFIG") != "" {
		return run()
	}
	return hosttest.Isolate(run)
}

// limit is for the whole demonstration; a step that waits longer has failed.
const limit = 5 * time.Minute

func run() int {
	ctx, stop := harness.Interruptible()
	defer stop()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return harness.Run(context.Background(), "demo", func(_ context.Context, p *harness.Program) {
		e := &environment{Program: p}
		p.OnFatal(e.post)
		e.tell(limited)
		fmt.Printf("\nevery step held, in %s\n", p.Elapsed().Round(time.Second))
		if os.Getenv("KEEP") == "1" {
			e.keep(ctx)
		}
	})
}
