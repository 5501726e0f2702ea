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

// count returns the requests of the daemons since the last call, after the last of them.
func (f *fleet) count(ctx context.Context) harness.Requests {
	got, err := f.settle(ctx)
	f.Must(err, "reading the audit log")
	f.Say("  %d requests: %s", got.Total(), got)
	return got
}

// withoutWatches returns how many of the requests are not watches. The API server cuts watches whose readers are
// too slow (apiserver, storage/cacher, forgetWatcher), and that depends on the machine; a watch that is resumed is one
// request, because it verifies the history of the server itself (daemon/kube, history.go).
func (f *fleet) withoutWatches(got harness.Requests) int {
	rest := got.Total()
	for _, resource := range []string{"persistentvolumeclaims", "persistentvolumes", "nodes", "storageclasses"} {
		rest -= got.Of("watch "+resource, "")
	}
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
	f.limit("requests a daemon, until it is ready", f.perDaemon(f.count(ctx).Total()), 7.5) // six, and what a busy server refuses at first
}

// idle lets nothing happen. A watch that ends after its five minutes or more is begun again.
func (f *fleet) idle(ctx context.Context) {
	f.Say("nothing happens for 20 s")
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
	}
	f.limit("requests a daemon", f.perDaemon(f.count(ctx).Total()), 0.05)
}

// waiting makes claims for which the nodes are chosen, as the scheduler would.
func (f *fleet) waiting(ctx context.Context) {
	f.Say("%d claims that wait for their first consumer", f.opt.claims)
	began := time.Now()
	f.provision(ctx, batch{wait, "later", f.opt.claims, func(i int, c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{selectedNode: f.members[i%len(f.members)].node}
	}})
	f.Say("  bound in %s", time.Since(began).Round(100*time.Millisecond))
	got := f.count(ctx)
	// A volume, an event, a list of the pods that may mix claims, and a count of the nodes by each daemon before its next list.
	f.limit("requests a claim", f.perClaim(f.withoutWatches(got)), 3.5)
	f.limit("conflicts", float64(got.Of("", "(409)")), 0)
}

// immediate makes claims that any node may take.
func (f *fleet) immediate(ctx context.Context) {
	f.Say("%d Immediate claims", f.opt.claims)
	nodes, took := f.provision(ctx, batch{immediate, "now", f.opt.claims, unchanged})
	most := slices.Max(slices.Collect(maps.Values(nodes)))
	f.Say("  bound after %s; on %d nodes, %d on one", spread(took), len(nodes), most)
	got := f.count(ctx)
	f.limit("writes of claims, for each", f.perClaim(got.Of("patch persistentvolumeclaims", "")), 1.2)
	f.limit("requests a claim", f.perClaim(f.withoutWatches(got)), 6)
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
	f.count(ctx)
	f.limit("seconds that the last one took", longest(took).Seconds(), 30)
}

// deadNodes makes claims that a node took whose daemon is dead.
func (f *fleet) deadNodes(ctx context.Context) {
	f.Say("20 Immediate claims that dead daemons took")
	_, took := f.provision(ctx, batch{immediate, "dead", 20, func(i int, c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{selectedNode: f.members[i%(len(f.members)/2)].node}
	}})
	f.Say("  bound after %s", spread(took))
	got := f.count(ctx)
	f.limit("writes of claims, for each", float64(got.Of("patch persistentvolumeclaims", ""))/20, 1.2)
	f.limit("seconds that the last one took", longest(took).Seconds(), 120)
}

// back kills the API server and starts it again, with all daemons there.
func (f *fleet) back(ctx context.Context) {
	for _, m := range f.members[:len(f.members)/2] {
		f.Must(m.Start(), "starting a daemon")
	}
	soon, cancel := soon(ctx)
	defer cancel()
	for _, m := range f.members {
		f.Must(m.WaitReady(soon, 1), "waiting for a daemon")
	}
	f.count(ctx)
	f.Say("the API server is killed and starts again")
	f.Must(f.Cluster.Kill(), "killing the control plane")
	f.Must(f.Cluster.Restart(ctx), "starting the control plane again")
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	got, err := f.take()
	f.Must(err, "reading the audit log")
	f.Say("  %d requests: %s", got.Total(), got)
	f.limit("requests a daemon until 10 s after it is back", f.perDaemon(got.Total()), 6.09)
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
