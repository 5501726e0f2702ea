// Command demo shows the daemon's main job, step by step, on a real API server and a real
// filesystem, and exits 0 only if every step really held.
//
// It runs in a mount namespace of its own, so that what it mounts is gone when it ends. On the cluster that
// KUBECONFIG names, if it names one, it makes objects with its own name, and mounts on the host, because a kubelet
// would not see what is mounted in another namespace; it removes both.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func main() {
	if os.Getenv("KUBECONFIG") != "" {
		os.Exit(run())
	}
	os.Exit(hosttest.Isolate(run))
}

// limit is for the whole demonstration; a step that waits longer has failed.
const limit = 5 * time.Minute

func run() (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	story, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	w := &world{begin: time.Now()}
	defer func() {
		if w.close() != nil {
			code = 1
		}
	}()
	// hosttest's helpers and the steps end the story by a panic with this type.
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			fmt.Printf("\nFAILED: %s\n", r)
			w.post()
			code = 1
		default:
			panic(r)
		}
	}()
	w.tell(story)
	fmt.Printf("\nevery step held, in %s\n", time.Since(w.begin).Round(time.Second))
	if os.Getenv("KEEP") == "1" {
		w.keep(ctx)
	}
	return 0
}

// failure ends the story.
type failure string
