// Command chaos is an unkind API. Between the real daemon and a real API server stands a proxy
// that, at random, breaks connections before and after the server did what it was asked, delays,
// sends a request twice, responds with 404 (as a proxy that knows no server), 409, 410, 429, 500
// and 503 (before and after it was done; in a watch as an event), writes halves of responses and of
// events, and lets watches fall silent. Meanwhile claims are made and deleted at a steady pace, at
// the API server itself, and data is written into their volumes.
//
// The phases: fair weather, without faults, to compare with; refused, where nothing passes, at
// first but the watches; killed, the control plane with its etcd by SIGKILL, and started again;
// restored, the same with etcd's data put back to the moment of that kill; misery, where all of the
// above happens to a quarter or a third of all requests and most watches; ahead and behind, the
// same with the daemon's clock ten minutes off (see clock.go); silent, all watches open and dead.
//
// After each phase everything must settle: each claim is bound to one volume object, which was made
// once, and has one directory, one record and the data that was written into it; nothing else is
// anywhere. After the restore volumes whose claims and objects are forgotten keep their data, also
// over a restart of the daemon. A phase has a shortest time, and goes on until it has met what it
// is about: its faults, claims made and deleted, volumes that the restored server will not know.
// The requests that the proxy counted while it was bad are bounded: by what the claims of a second
// cost without faults, from when all is settled until it is again, or, where nothing is done, by
// the pauses that the daemon makes between two tries (phases.go). Neither depends on how fast the
// machine is. What was lost is printed, and the exit code is 1.
//
// All of it is played with a pool of each scope, each on a control plane of its own. A shared pool
// has two daemons, on nodes with the same storage; after the restore one of them must work in it,
// though the restored lease is an earlier version than they know. One of scope every-node has two
// daemons, each with a filesystem of its own, which are all judged: what a restored server forgot
// is kept there, empty or not.
//
// It does not touch the disk's side, where storm is at home, and it does not kill the daemon. Its
// proxy forges no responses but those above: a server that lies is not survived. The draws follow
// the seed; which request meets which draw does not.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func main() { os.Exit(harness.Command(name, parseOptions, run)) }

const (
	name   = "chaos"        // of the program, the pool, the class, the provisioner and the node
	chosen = "chaos-chosen" // the class of claims whose node the scheduler chooses
)

// run plays all stories, in the short form all but the first at the same time: most of them is
// waiting.
func run(ctx context.Context, opt options) (code int) {
	stories := opt.stories()
	if !opt.short {
		for _, story := range stories {
			code = max(code, tell(ctx, story))
		}
		return code
	}
	codes := make([]int, len(stories))
	codes[0] = tell(ctx, stories[0])
	var all sync.WaitGroup
	for i, story := range stories[1:] {
		all.Go(func() { codes[i+1] = tell(ctx, story) })
	}
	all.Wait()
	return slices.Max(codes)
}

// printing is held by the story that prints its report.
var printing sync.Mutex

// tell plays one story.
func tell(ctx context.Context, opt options) int {
	return harness.Run(ctx, name, func(ctx context.Context, p *harness.Program) {
		p.Label(opt.scope)
		p.Say("seed %d", opt.seed)
		e := build(ctx, p, opt)
		r := e.play(ctx)
		printing.Lock()
		defer printing.Unlock()
		r.print(p)
	})
}

// environment is what the unkindness hits.
type environment struct {
	*harness.Environment
	opt     options
	faults  *injector
	proxy   *proxy
	load    *harness.Load
	checker *checker
	fair    float64 // requests that the claims of a second cost without faults
	skewed  string  // the daemon with another clock, if it is played
	kept    int     // orphans
	back    int     // claims that were deleted and came back

	earlier map[string]bool // UIDs of the claims that etcd's data was kept with
}

// build makes everything up to a running daemon behind the proxy.
func build(ctx context.Context, p *harness.Program, opt options) *environment {
	e := &environment{opt: opt, Environment: harness.Start(ctx, p, harness.Options{
		Binary: opt.daemon, KeepLog: opt.keepLog,
		// What kube-controller-manager missed is settled sooner: it is not what is tested here.
		Plane: cluster.Options{ExtraArgs: []string{"--kcm-flag=--pvclaimbinder-sync-period=2s"}},
	})}
	pool := harness.Pool{Name: name, Path: filepath.Join(hosttest.Dir(p), "pool"), TOML: fmt.Sprintf("scope = %q\n", opt.scope)}
	pool.Mount = func() { harness.Mkfs(p, poolMiB).Mount(p, pool.Path) }
	e.AddPool(pool)
	expandable := func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = new(bool); *c.AllowVolumeExpansion = true }
	e.AddClass(ctx, name, e.Node, expandable)
	e.AddClass(ctx, chosen, e.Node, expandable, func(c *storagev1.StorageClass) { *c.VolumeBindingMode = storagev1.VolumeBindingWaitForFirstConsumer })
	e.startProxy()
	e.addPeer(ctx, pool)
	p.Must(e.Run(ctx), "starting the daemon")
	p.Cleanup(func() error { e.faults.set(fair); return nil }) // for what the daemon writes at its end
	e.load = harness.NewLoad(e.Client, e.Namespace, opt.live, opt.seed, e.claim)
	e.load.Growing()
	e.checker = newChecker(e.Environment, opt.scope, e.Storages(pool), e.load)
	go e.checker.run(ctx)
	return e
}

// poolMiB is room for all claims of the load, for those that are being removed, and for the volumes
// that a restored server has forgotten: on a busy machine a daemon is hundreds of removals behind
// when the server dies, and of scope every-node each of those is kept. If it is not enough, weigh
// says so.
const poolMiB = 4096

func (e *environment) startProxy() {
	e.faults = newInjector(e.opt.seed)
	var err error
	e.proxy, err = newProxy(e.Cluster.Config(), e.faults)
	e.Must(err, "starting the proxy")
	e.Cleanup(func() error { e.proxy.close(); return nil })
	e.Must(e.Redirect(e.proxy.address, e.proxy.ca), "pointing the daemon to the proxy")
}

// addPeer makes a second node, except for a pool of scope node.
func (e *environment) addPeer(ctx context.Context, pool harness.Pool) {
	switch e.opt.scope {
	case plan.ScopeShared:
		e.Must(e.AddPeer(ctx, pool, nil), "adding a second node")
	case plan.ScopeEveryNode:
		own := harness.Mkfs(e, poolMiB)
		e.Must(e.AddPeer(ctx, pool, &own), "adding a second node")
	}
}

// claim is a claim of the load: every other one with a node as the scheduler chooses it; else of a
// pool of scope node for the node that it names, and of another pool for none.
func (e *environment) claim(claim string) *corev1.PersistentVolumeClaim {
	if strings.ContainsAny(claim[len(claim)-1:], "02468") {
		c := cluster.Claim(e.Namespace, claim, chosen, "1Mi")
		c.Annotations = map[string]string{plan.SelectedNode: e.Node}
		return c
	}
	if e.opt.scope == plan.ScopeNode {
		return e.NewClaim(name, claim)
	}
	return cluster.Claim(e.Namespace, claim, name, "1Mi")
}
