package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

const selectedNode = "volume.kubernetes.io/selected-node"

// limit prints a number with its limit, and records a fault if the number is above it.
func (f *fleet) limit(what string, got, most float64) {
	f.Say("  %-52s %8.2f  limit %g", what, got, most)
	if got > most {
		f.Fault("numbers above their limits", "%s: %.2f, limit %g", what, got, most)
	}
}

// count returns the requests of the daemons since the last call, after a while without any.
func (f *fleet) count(ctx context.Context, quiet time.Duration) harness.Requests {
	got, err := f.settle(ctx, quiet)
	f.Must(err, "reading the audit log")
	f.Say("  %d requests: %s", got.Total(), got)
	return got
}

// withoutWatches returns how many of the requests are not watches, nor lists of claims for them.
// The API server cuts watches whose readers are too slow (apiserver, storage/cacher,
// forgetWatcher), and that depends on the machine; a watch that is resumed is one request, because
// it verifies the history of the server itself (daemon/kube, history.go), or a list if the server
// has forgotten it.
func (f *fleet) withoutWatches(got harness.Requests) int {
	rest := got.Total()
	for _, resource := range []string{"persistentvolumeclaims", "persistentvolumes", "nodes", "storageclasses"} {
		rest -= got.Of("watch "+resource, "")
	}
	rest -= got.Of("list persistentvolumeclaims", "")
	f.Say("  %d of them without those for watches that the API server cut", rest)
	return rest
}

func (f *fleet) perDaemon(n int) float64 { return float64(n) / float64(f.opt.daemons) }
func (f *fleet) perClaim(n int) float64  { return float64(n) / float64(f.opt.claims) }

// start starts all daemons at once.
func (f *fleet) start(ctx context.Context) {
	f.Say("starting %d daemons", f.opt.daemons)
	began := time.Now()
	for _, m := range f.members {
		f.Must(m.Start(), "starting a daemon")
	}
	ctx, cancel := soon(ctx)
	defer cancel()
	for _, m := range f.members {
		f.Must(m.WaitReady(ctx, 1), "waiting for a daemon")
	}
	f.Say("  ready in %s", time.Since(began).Round(100*time.Millisecond))
	// Six lists and watches; whether a policy labels claims; the CSIDriver and the own objects; one
	// object, of the class whose claims the scheduler places; one look or two whether the other
	// nodes were reviewed after that; and what a busy server refuses at first. Two reviews are for
	// all, and the looks of the nodes that come to one at the same moment.
	f.limit("requests a daemon that starts for the first time", f.perDaemon(f.count(ctx, afterReview).Total()), 13.5+f.perDaemon(40))
}

// idle lets nothing happen. A watch that ends after its five minutes or more is begun again, and
// after as long a daemon looks at the CSIDriver and its own objects.
func (f *fleet) idle(ctx context.Context) {
	f.Say("nothing happens for 20 s")
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
	}
	f.limit("requests a daemon", f.perDaemon(f.count(ctx, quiet).Total()), 0.05)
}

// waiting makes claims for which the nodes are chosen, as the scheduler would.
func (f *fleet) waiting(ctx context.Context) {
	f.Say("%d claims that wait for their first consumer", f.opt.claims)
	began := time.Now()
	f.provision(ctx, batch{wait, "later", f.opt.claims, func(i int, c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{selectedNode: f.members[i%len(f.members)].node}
	}})
	f.Say("  bound in %s", time.Since(began).Round(100*time.Millisecond))
	got := f.count(ctx, afterLess)
	// A volume, an event, a look for a kept volume, a list of the pods that may mix claims, a count
	// of the nodes by each daemon before its next list, and the room of each daemon's pool.
	f.limit("requests a claim", f.perClaim(f.withoutWatches(got)), 4)
	f.limit("conflicts", float64(got.Of("", "(409)")), 0)
}

// immediate makes claims that any node may take.
func (f *fleet) immediate(ctx context.Context) {
	f.Say("%d Immediate claims", f.opt.claims)
	nodes, took := f.provision(ctx, batch{immediate, "now", f.opt.claims, unchanged})
	most := slices.Max(slices.Collect(maps.Values(nodes)))
	f.Say("  bound after %s; on %d nodes, %d on one", spread(took), len(nodes), most)
	got := f.count(ctx, afterLess)
	f.limit("writes of claims, for each", f.perClaim(got.Of("patch persistentvolumeclaims", "")), 1.2)
	// A volume, two events, the claim's write, and looks of other nodes whether it was taken; two
	// lists of each daemon, and the room of its pool.
	f.limit("requests a claim", f.perClaim(f.withoutWatches(got)), 6.5)
	f.limit("responses with 429", float64(got.Of("", "(429)")), 0)
	f.limit("share of the node with the most, of an even share", float64(most)*float64(f.opt.daemons)/float64(f.opt.claims), 3)
}

// halfKilled kills half of the daemons, so that of each other claim the first node is dead.
func (f *fleet) halfKilled(ctx context.Context) {
	half := f.members[:len(f.members)/2]
	f.Say("%d daemons are killed; 40 Immediate claims, one after the other", len(half))
	for _, m := range half {
		m.Kill()
	}
	var took []time.Duration
	for i := range 40 {
		_, one := f.provision(ctx, batch{immediate, fmt.Sprint("half", i), 1, unchanged})
		took = append(took, one...)
	}
	f.Say("  bound after %s", spread(took))
	f.count(ctx, quiet)
	f.limit("seconds that the last one took", longest(took).Seconds(), 30)
}

// deadNodes makes claims that a node took whose daemon is dead.
func (f *fleet) deadNodes(ctx context.Context) {
	f.Say("20 Immediate claims that dead daemons took")
	_, took := f.provision(ctx, batch{immediate, "dead", 20, func(i int, c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{selectedNode: f.members[i%(len(f.members)/2)].node}
	}})
	f.Say("  bound after %s", spread(took))
	got := f.count(ctx, afterLess)
	f.limit("writes of claims, for each", float64(got.Of("patch persistentvolumeclaims", ""))/20, 1.2)
	f.limit("seconds that the last one took", longest(took).Seconds(), 120)
}

// back kills the API server and starts it again, with all daemons there.
func (f *fleet) back(ctx context.Context) {
	dead := f.members[:len(f.members)/2]
	f.Say("the %d daemons that were killed start again", len(dead))
	for _, m := range dead {
		f.Must(m.Start(), "starting a daemon")
	}
	soon, cancel := soon(ctx)
	defer cancel()
	for _, m := range f.members {
		f.Must(m.WaitReady(soon, 1), "waiting for a daemon")
	}
	all, err := f.audit.Settle(ctx, quiet, quietIn)
	f.Must(err, "reading the audit log")
	again := map[string]harness.Requests{}
	for _, m := range dead {
		again[m.node] = all[m.node]
	}
	got := harness.SumRequests(again)
	f.Say("  %d requests: %s", got.Total(), got)
	// Six lists and watches, the CSIDriver and the own objects; the claims once more, which were
	// listed before the volumes; a count of the nodes, for a claim that waits for one.
	f.limit("requests a daemon that starts again", float64(got.Total())/float64(len(dead)), 12.5)
	f.Say("the API server is killed and starts again")
	f.Must(f.Cluster.Kill(), "killing the control plane")
	f.audit.Busiest()
	f.Must(f.Cluster.Restart(ctx), "starting the control plane again")
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	got, err = f.take()
	f.Must(err, "reading the audit log")
	f.Say("  %d requests: %s", got.Total(), got)
	f.Say("  %d in the second with the most", f.audit.Busiest())
	// A server that starts forbids every request until it has read its roles, and how long that
	// takes depends on the machine.
	f.limit("requests a daemon until 10 s after it is back", f.perDaemon(got.Total()-got.Of("", "(403)")), 6.5)
}

// spread formats the median and the longest of some times.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "no time"
	}
	slices.Sort(all)
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	return fmt.Sprintf("%s at the median, %s at most", round(all[len(all)/2]), round(all[len(all)-1]))
}

func longest(all []time.Duration) (most time.Duration) {
	for _, d := range all {
		most = max(most, d)
	}
	return most
}
