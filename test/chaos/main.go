// Command chaos is an unkind API. Between the real daemon and a real API server stands a proxy that, at
// random, breaks connections before and after the server did what it was asked, delays, sends a request
// twice, answers 404 (as a proxy that knows no server), 409, 410, 429, 500 and 503 (before and after it was done; in a watch as an event),
// writes halves of answers and of events, and lets watches fall silent. Meanwhile claims are made and
// deleted at a steady pace, at the API server itself, and data is written into their volumes.
//
// The phases: fair weather, to compare with; refused, where nothing passes, at first but the watches;
// killed, the control plane with its etcd by SIGKILL, and started again; restored, the same with etcd's
// data put back to the moment of that kill; misery, where all of the above happens to a quarter or a
// third of all requests and most watches; ahead and behind, the same with the daemon's clock ten
// minutes off (see clock.go); silent, all watches open and dead.
//
// After each phase everything must settle: each claim is bound to one volume object, which was made
// once, and has one directory, one record and the data that was written into it; nothing else is
// anywhere. After the restore volumes whose claims and objects are forgotten keep their data, also
// over a restart of the daemon. A phase has a shortest time, and goes on until it has met what it is about:
// its faults, claims made and deleted, volumes that the restored server will not know. The requests that
// the proxy counted while it was bad are bounded: by what the claims of a second cost in fair weather, from when all is
// settled until it is again, or, where nothing is done, by the pauses that the daemon makes between two tries
// (phases.go). Neither depends on how fast the machine is. What was lost is printed, and the exit code is 1.
//
// What it caught, each within a run of the short form: a watch that went on where it had broken, on a
// server whose data had been restored meanwhile, was deaf for minutes (restored: 48 claims not settled);
// a volume whose object was deleted by a request whose answer was lost was not purged, and one record in
// trouble put off all others for ten minutes (restored: trash left); a removal that the kill cut off and the
// restored server had undone left the directory of a Bound volume in the trash (restored: trash left, in most
// runs on a busy machine); and a claim that the restored server had forgotten was answered with a volume from
// memory, which was released and removed with its data (restored: the files of six volumes, once in a dozen runs);
// and a deletion that was answered with 503 after it had been done was taken for refused, so that the directory
// stayed in the trash (misery: one, in one of many runs).
//
// Broken on purpose, it was red, in the short form, for a directory that is there already as an error
// where the volume's object was refused before (misery: 42 claims not settled); for a directory in the
// trash as an error where the deletion's answer was lost (misery: 16 objects and 32 pieces left); for a
// volume without an object that is removed though it has data (restored: 26 times the file of a volume
// lost). It stayed green, because the next event or list mends it, when a conflict was taken for somebody
// else's change that the watch will bring, when AlreadyExists was an error, when a conflict at a delete
// counted as gone, and when watches had no pause between two tries. With no pause between two tries of a claim it
// was red on a machine with seven times the work it can do (refused: 329 requests a second where 85 are usual and 254
// were let pass; of a shared pool 374 of 201). With
// watches that are not given up, however long they are silent, it was red (silent: 67 claims Pending, 71 objects left).
//
// All of it is played with a pool of each scope, each on a control plane of its own. A shared pool has two daemons, on
// nodes with the same storage; after the restore one of them must work in it, though the restored lease is an earlier
// version than they know. One of scope every-node has two daemons, each with a filesystem of its own, which are all
// judged: what a restored server forgot is kept there, empty or not.
//
// With the lease of a restored server dropped because its version is lower, no daemon worked in a shared pool, and it
// was red (restored: 131 claims Pending).
//
// It does not touch the disk's side, where storm is at home, and it does not kill the daemon. Its
// proxy forges no answers but those above: a server that lies is not survived. The draws follow the
// seed; which request meets which draw does not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/scene"
)

func main() { os.Exit(hosttest.Isolate(run)) }

func run() (code int) {
	opt, err := parseOptions(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	stories := opt.stories()
	if !opt.short {
		for _, story := range stories {
			code = max(code, tell(ctx, story))
		}
		return code
	}
	return max(tell(ctx, stories[0]), together(ctx, stories[1:]))
}

// together plays stories at the same time. Most of it is waiting.
func together(ctx context.Context, stories []options) int {
	codes := make([]int, len(stories)+1)
	var all sync.WaitGroup
	for i, story := range stories {
		all.Go(func() { codes[i] = tell(ctx, story) })
	}
	all.Wait()
	return slices.Max(codes)
}

// printing is held by the story that prints its report.
var printing sync.Mutex

// tell plays one story.
func tell(ctx context.Context, opt options) (code int) {
	w := &world{opt: opt, begin: time.Now()}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			fmt.Printf("\nchaos, scope %s: %s\n", opt.scope, r)
			code = 1
		default:
			panic(r)
		}
		if err := w.close(); err != nil {
			fmt.Printf("chaos, scope %s: stopping: %v\n", opt.scope, err)
			code = 1
		}
	}()
	w.build(ctx)
	r := w.play(ctx)
	printing.Lock()
	r.print()
	printing.Unlock()
	if ctx.Err() != nil || r.sum() > 0 {
		return 1
	}
	return 0
}

// world is what the unkindness hits.
type world struct {
	opt    options
	begin  time.Time
	sky    *sky
	proxy  *proxy
	scene  *scene.Scene
	churn  *churn
	judge  *judge
	fair   float64 // requests that the claims of a second cost in fair weather
	log    int     // how much of the daemon's log was looked at
	skewed string  // the daemon with another clock, if it is played
	kept   int     // orphans
	back   int     // claims that were deleted and came back

	earlier map[string]bool // UIDs of the claims that etcd's data was kept with
}

// failure ends the program: the story could not be played.
type failure string

// The methods that make world a hosttest.T.

func (w *world) Helper()                   {}
func (w *world) Name() string              { return name }
func (w *world) Fatal(args ...any)         { panic(failure(fmt.Sprint(args...))) }
func (w *world) Fatalf(f string, a ...any) { panic(failure(fmt.Sprintf(f, a...))) }

func (w *world) must(err error, doing string) {
	if err != nil {
		w.Fatalf("%s: %v", doing, err)
	}
}

func (w *world) say(format string, args ...any) {
	fmt.Printf("[%6.1fs] %s: %s\n", time.Since(w.begin).Seconds(), w.opt.scope, fmt.Sprintf(format, args...))
}

const name = "chaos" // of the pool, the class, the provisioner and the node

// build makes everything up to a running daemon behind the proxy.
func (w *world) build(ctx context.Context) {
	w.say("starting the control plane, seed %d", w.opt.seed)
	stage := scene.Options{
		Name: name, Scope: w.opt.scope, Binary: w.opt.daemon, MiB: 128,
		// What kube-controller-manager missed is settled sooner: it is not what is tested here.
		Args: []string{"--kcm-flag=--pvclaimbinder-sync-period=2s"},
	}
	w.scene = scene.Build(ctx, w, stage)
	w.sky = newSky(w.opt.seed)
	var err error
	w.proxy, err = newProxy(w.scene.Cluster.Config(), w.sky)
	w.must(err, "starting the proxy")
	w.must(w.scene.Redirect(w.proxy.address, w.proxy.ca), "pointing the daemon to the proxy")
	if w.opt.scope != plan.ScopeNode {
		w.must(w.scene.AddPeer(ctx, w, stage), "adding a second node")
	}
	w.must(w.scene.Run(ctx), "starting the daemon")
	w.churn = newChurn(w.scene, w.opt.rate, w.opt.live, w.opt.seed)
	w.judge = newJudge(w.scene, w.churn)
	go w.judge.run(ctx)
}

// close ends what runs, and keeps the daemon's log if that is wanted.
func (w *world) close() error {
	if w.scene == nil {
		return nil
	}
	if w.sky != nil {
		w.sky.turn(fair) // the daemon's last words
	}
	err := w.scene.Stop()
	if w.proxy != nil {
		w.proxy.close()
	}
	if w.opt.keepLog != "" {
		err = errors.Join(err, os.WriteFile(w.opt.keepLog, []byte(w.scene.Log()), 0o600))
	}
	return err
}
