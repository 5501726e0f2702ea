// Package trial is the frame of programs that try the product hard and print what became of it: a real
// control plane, one daemon, pools, claims, and a list of what went wrong. It runs inside a mount
// namespace of its own and takes everything back.
//
// It judges nothing but the world as a whole (Compare): each program knows what it tries.
package trial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Trial is one run of a program. It is a hosttest.T: what cannot be set up ends the program.
type Trial struct {
	Cluster   *cluster.Cluster
	Client    kubernetes.Interface
	Namespace string
	Daemon    *rig.Daemon

	name    string
	began   time.Time
	config  string // config.toml before the pools
	metrics string // where the daemon serves its metrics

	mu     sync.Mutex
	faults map[string][]string
}

// failure ends the program: the trial could not be held.
type failure string

// Run is a program's main: body in a private mount namespace, with a context that SIGINT ends. It
// answers the exit code: 0 only if body came to its end and found no fault.
func Run(name string, body func(context.Context, *Trial)) int {
	return hosttest.Isolate(func() (code int) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		t := &Trial{name: name, began: time.Now(), faults: map[string][]string{}}
		defer func() {
			switch r := recover().(type) {
			case nil:
			case failure:
				fmt.Printf("\n%s: %s\n", name, r)
				code = 1
			default:
				panic(r)
			}
			if err := t.stop(); err != nil {
				fmt.Printf("%s: stopping: %v\n", name, err)
				code = 1
			}
		}()
		body(ctx, t)
		if ctx.Err() != nil {
			t.Fatal("interrupted")
		}
		return t.verdict()
	})
}

// Helper is part of hosttest.T.
func (t *Trial) Helper() {}

// Name is part of hosttest.T.
func (t *Trial) Name() string { return t.name }

// Fatal ends the trial, which proved nothing then.
func (t *Trial) Fatal(args ...any) { panic(failure(fmt.Sprint(args...))) }

// Fatalf is Fatal with a format.
func (t *Trial) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// Must ends the trial if something could not be done. It is for the program's own goroutine only.
func (t *Trial) Must(err error, doing string) {
	if err != nil {
		t.Fatalf("%s: %v", doing, err)
	}
}

// Say prints a line with the time.
func (t *Trial) Say(format string, args ...any) {
	fmt.Printf("[%6.1fs] %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}

// Fault notes something that the product did wrong. Any goroutine may.
func (t *Trial) Fault(kind, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[kind] = append(t.faults[kind], fmt.Sprintf(format, args...))
}

// Blame notes an error as a fault, and says whether there was one.
func (t *Trial) Blame(kind string, err error) bool {
	if err != nil {
		t.Fault(kind, "%v", err)
	}
	return err != nil
}

// PrintFaults prints a line for each kind of fault, those with none too, and the last verdict.
func (t *Trial) PrintFaults(kinds ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for kind := range t.faults {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	fmt.Println("wrong")
	for _, kind := range kinds {
		fmt.Printf("  %-56s %6d\n", kind, len(t.faults[kind]))
		for i, what := range t.faults[kind] {
			if i == 5 {
				fmt.Printf("    and %d more\n", len(t.faults[kind])-i)
				break
			}
			fmt.Println("    " + strings.ReplaceAll(what, "\n", "\n    "))
		}
	}
	n := 0
	for what := range maps.Values(t.faults) {
		n += len(what)
	}
	verdict := "nothing went wrong"
	if n > 0 {
		verdict = fmt.Sprintf("WRONG: %d", n)
	}
	fmt.Printf("%s, in %s\n", verdict, time.Since(t.began).Round(time.Second))
}

func (t *Trial) verdict() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.faults) > 0 {
		return 1
	}
	return 0
}

// stop ends the daemon and the control plane. How the daemon ends is a program's business.
func (t *Trial) stop() error {
	var err error
	if t.Daemon != nil && t.Daemon.Exited() != nil {
		select {
		case <-t.Daemon.Exited():
		default:
			_, _, err = t.Daemon.Stop(t.Soon())
		}
	}
	if name := os.Getenv("KEEP_LOG"); name != "" && t.Daemon != nil {
		err = errors.Join(err, os.WriteFile(name, []byte(t.Daemon.Log()), 0o600))
	}
	if t.Cluster != nil {
		err = errors.Join(err, t.Cluster.Kill()) // nobody needs its state any more
	}
	return err
}

// Patience is for one wait: claims that failed are tried again after at most 30 s. Programs may let
// it be set: one that tries a broken product need not wait so long for each of its faults.
var Patience = 90 * time.Second

// Soon is a context for one wait.
func (t *Trial) Soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	context.AfterFunc(ctx, cancel)
	return ctx
}
