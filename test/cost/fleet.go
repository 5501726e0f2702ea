package cost

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// fleetOptions are the flags of Fleet.
type fleetOptions struct {
	daemons int
	claims  int // of each binding mode
	churn   bool
}

// Fleet runs 100 daemons against one API server, and counts their requests: when they start, when
// nothing happens, for claims of both binding modes, when some of them are dead, when the API server
// comes back, and when 20 and 100 claims a second come to one node and go.
//
// The daemons are processes of the real binary, each with a Node object, a token bound to it, and a
// pool on a tmpfs of its own. Requests are counted from the API server's audit log.
func Fleet() harness.Trial {
	var o fleetOptions
	return harness.Trial{
		Name: "fleet", Timeout: 4 * time.Minute,
		Does: "Runs many daemons against one API server, and counts their requests. Wants about 40 MB of memory for each daemon.",
		Flags: func(flags *flag.FlagSet) {
			flags.IntVar(&o.daemons, "daemons", 100, "how many daemons run")
			flags.IntVar(&o.claims, "claims", 300, "how many claims of each binding mode are made")
			flags.BoolVar(&o.churn, "churn", false, "measure nothing but what a node publishes while claims come and go")
		},
		Check: func() error {
			if o.daemons < 4 || o.claims < o.daemons {
				return errors.New("-daemons must be at least 4, and -claims no less than -daemons")
			}
			return nil
		},
		Play: func(ctx context.Context, p *harness.Program) {
			f := buildFleet(ctx, p, o)
			steps := []func(context.Context){f.start, f.idle, f.waiting, f.immediate, f.halfKilled, f.deadNodes, f.back, f.churn}
			if o.churn {
				steps = []func(context.Context){f.churn}
			}
			for _, step := range steps {
				step(ctx)
			}
			p.Report(aboveLimit)
		},
	}
}

const aboveLimit = "numbers above their limits"

// fleet is the daemons and the environment that they run in.
type fleet struct {
	plane
	opt     fleetOptions
	audit   *harness.AuditLog
	members []*member
}

// member is one daemon and its node.
type member struct {
	*rig.Daemon
	node string
}

// The classes, by when a claim is bound.
const (
	nowClass   = "now"
	laterClass = "later"
	ofFleet    = "fleet" // the provisioner
)

// buildFleet starts the control plane and prepares the daemons, which do not run yet.
func buildFleet(ctx context.Context, p *harness.Program, o fleetOptions) *fleet {
	audit, args, err := harness.NewAuditLog(hosttest.Dir(p), harness.AuditOfDaemons)
	p.Must(err, "writing the audit policy")
	f := &fleet{opt: o, audit: audit, plane: plane{p.StartPlane(ctx, "fleet", cluster.Options{ExtraArgs: args}), p}}
	f.AddClass(ctx, nowClass, ofFleet)
	f.AddClass(ctx, laterClass, ofFleet, whenConsumed)
	f.Say("preparing %d daemons", o.daemons)
	for i := range o.daemons {
		f.members = append(f.members, f.member(fmt.Sprintf("fleet-%03d", i), fmt.Sprintf("%dm", 32+16*o.claims/o.daemons)))
	}
	f.ApplyManifests(ctx, f.members[0].Daemon)
	f.Must(harness.Each(len(f.members), func(i int) error {
		return f.addNode(ctx, f.members[i].node, f.members[i].Path("kubeconfig"))
	}), "adding nodes")
	return f
}

// member is a daemon that has a processor: in earnest it has a machine of its own.
func (f *fleet) member(node, size string) *member {
	return &member{f.newDaemon(node, ofFleet, size, "GOMAXPROCS=1"), node}
}

// run starts daemons and waits until they are ready.
func (f *fleet) run(members ...*member) {
	for _, m := range members {
		f.Must(m.Start(), "starting a daemon")
	}
	ready := f.Soon()
	for _, m := range members {
		f.Must(m.WaitReady(ready, 1), "waiting for a daemon")
	}
}

// After so long without a request the daemons are done with something: quiet with claims, afterLess
// with what there is less of, which the capacity is published ten seconds later, and afterReview
// with a start, after which one daemon reviews the others at least 15 seconds after the last
// review.
const (
	quiet       = 3 * time.Second
	afterLess   = 13 * time.Second
	afterReview = 20 * time.Second
	quietIn     = 2 * time.Minute
)

// limit prints a number with its limit, and records a fault if the number is above it.
func (f *fleet) limit(what string, got, most float64) {
	f.Say("  %-52s %8.2f  limit %g", what, got, most)
	if got > most {
		f.Fault(aboveLimit, "%s: %.2f, limit %g", what, got, most)
	}
}

// count returns the requests of the daemons since the last call, after a while without any.
func (f *fleet) count(ctx context.Context, quiet time.Duration) harness.Requests {
	all := harness.Need(f.audit.Settle(ctx, quiet, quietIn))(f, "reading the audit log")
	got := harness.SumRequests(all)
	f.Say("  %d requests: %s", got.Total(), got)
	return got
}

// withoutWatches returns how many of the requests are not watches, nor lists of claims for them.
// The API server cuts watches whose readers are too slow (apiserver, storage/cacher,
// forgetWatcher), and that depends on the machine; a watch that is resumed is one request, because
// it verifies the history of the server itself (daemon/kube, watchstart.go), or a list if the server
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
	f.run(f.members...)
	f.Say("  ready in %s", time.Since(began).Round(100*time.Millisecond))
	// Two of the node's lease; six lists and watches, and that of its pods; whether a policy labels
	// claims; the CSIDriver and the own objects; one object, of the class whose claims the scheduler
	// places; one look or two whether the other nodes were reviewed after that. Two reviews are for
	// all, and the looks of the nodes that come to one at the same moment.
	f.limit("requests a daemon that starts for the first time",
		f.perDaemon(heard(f.count(ctx, afterReview))), 15.5+f.perDaemon(40))
}

// heard are the requests without those that a server refused because it was busy: how many these are
// depends on the machine, and each is made again.
func heard(r harness.Requests) int { return r.Total() - r.Of("", "(429)") }

// idle lets nothing happen. A watch that ends after its five minutes or more is begun again, and
// after as long a daemon looks at the CSIDriver and its own objects.
func (f *fleet) idle(ctx context.Context) {
	f.Say("nothing happens for 20 s")
	harness.Pass(ctx, 20*time.Second)
	f.limit("requests a daemon", f.perDaemon(f.count(ctx, quiet).Total()), 0.05)
}

// waiting makes claims for which the nodes are chosen, as the scheduler would.
func (f *fleet) waiting(ctx context.Context) {
	f.Say("%d claims that wait for their first consumer", f.opt.claims)
	began := time.Now()
	f.provision(ctx, batch{laterClass, "later", f.opt.claims, func(i int) string { return f.members[i%len(f.members)].node }})
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
	b := batch{class: nowClass, prefix: "now", n: f.opt.claims}
	took := f.provision(ctx, b)
	nodes := f.nodesOf(ctx, b)
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
		took = append(took, f.provision(ctx, batch{class: nowClass, prefix: fmt.Sprint("half", i), n: 1})...)
	}
	f.Say("  bound after %s", spread(took))
	f.count(ctx, quiet)
	f.limit("seconds that the last one took", longest(took), 30)
}

// deadNodes makes claims that a node took whose daemon is dead.
func (f *fleet) deadNodes(ctx context.Context) {
	f.Say("20 Immediate claims that dead daemons took")
	took := f.provision(ctx, batch{nowClass, "dead", 20, func(i int) string { return f.members[i%(len(f.members)/2)].node }})
	f.Say("  bound after %s", spread(took))
	got := f.count(ctx, afterLess)
	f.limit("writes of claims, for each", float64(got.Of("patch persistentvolumeclaims", ""))/20, 1.2)
	f.limit("seconds that the last one took", longest(took), 120)
}

// back kills the API server and starts it again, with all daemons there.
func (f *fleet) back(ctx context.Context) {
	dead := f.members[:len(f.members)/2]
	f.Say("the %d daemons that were killed start again", len(dead))
	f.run(dead...)
	all := harness.Need(f.audit.Settle(ctx, quiet, quietIn))(f, "reading the audit log")
	again := map[string]harness.Requests{}
	for _, m := range dead {
		again[m.node] = all[m.node]
	}
	got := harness.SumRequests(again)
	f.Say("  %d requests: %s", got.Total(), got)
	// Two of the node's lease, which is there; six lists and watches, and that of its pods, the
	// CSIDriver and the own objects; the claims once more, which were listed before the volumes; a
	// count of the nodes, for a claim that waits for one.
	f.limit("requests a daemon that starts again", float64(heard(got))/float64(len(dead)), 14.5)
	f.Say("the API server is killed and starts again")
	f.Must(f.Cluster.Kill(), "killing the control plane")
	f.audit.Busiest()
	f.Must(f.Cluster.Restart(ctx), "starting the control plane again")
	harness.Pass(ctx, 10*time.Second)
	all = harness.Need(f.audit.Take())(f, "reading the audit log")
	got = harness.SumRequests(all)
	f.Say("  %d requests: %s", got.Total(), got)
	f.Say("  %d in the second with the most", f.audit.Busiest())
	// A server that starts forbids every request until it has read its roles, and how long that
	// takes depends on the machine.
	f.limit("requests a daemon until 10 s after it is back", f.perDaemon(heard(got)-got.Of("", "(403)")), 8)
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

// longest is in seconds.
func longest(all []time.Duration) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.Max(all).Seconds()
}

// nodesOf returns how many volumes of a batch each node has.
func (f *fleet) nodesOf(ctx context.Context, b batch) map[string]int {
	nodes := map[string]int{}
	volumes := harness.Need(f.Volumes().List(ctx, metav1.ListOptions{}))(f, "listing volumes")
	for _, v := range volumes.Items {
		if ref := v.Spec.ClaimRef; ref != nil && strings.HasPrefix(ref.Name, b.prefix+"-") {
			nodes[v.Labels[plan.NodeLabel]]++
		}
	}
	return nodes
}

const (
	churnFor   = 40 * time.Second
	churnStays = 100 // claims between the one that comes and the one that goes
)

// churnRates are how many claims a second come, if the machine has the processors for it.
var churnRates = []int{20, 100}

// churn lets claims come to one node and go again, and counts what its daemon sends to tell the
// scheduler of it: no more when more claims come.
func (f *fleet) churn(ctx context.Context) {
	m := f.member("churn", "1g")
	f.Must(f.addNode(ctx, m.node, m.Path("kubeconfig")), "adding a node")
	f.run(m)
	for _, rate := range churnRates {
		f.count(ctx, afterLess)
		f.churnAt(ctx, m.node, rate)
	}
}

func (f *fleet) churnAt(ctx context.Context, node string, rate int) {
	f.Say("%d claims a second come to one node and go, for %s", rate, churnFor)
	began := time.Now()
	claims := f.comeAndGo(ctx, node, rate)
	seconds := time.Since(began).Seconds()
	all := harness.Need(f.audit.Take())(f, "reading the audit log")
	got := all[node]
	f.Say("  %d requests: %s", got.Total(), got)
	published := 0
	for what, n := range got {
		if strings.Contains(what, " csistoragecapacities") || strings.Contains(what, " csidrivers") {
			published += n
		}
	}
	made, removed := got.Of("create persistentvolumes", ""), got.Of("delete persistentvolumes", "")
	f.Say("  %.1f claims a second came, %.1f volumes were made, %.1f removed", float64(claims)/seconds, float64(made)/seconds, float64(removed)/seconds)
	if made == 0 || published == 0 {
		f.Fault("nothing was measured", "%d volumes were made, and %d requests published what the node has", made, published)
	}
	f.limit("requests a second and node to publish capacity", float64(published)/seconds, 1)
}

// comeAndGo creates and deletes claims of a node at an even rate, and returns how many there were.
func (f *fleet) comeAndGo(ctx context.Context, node string, rate int) (claims int) {
	api := f.Claims()
	b := batch{laterClass, fmt.Sprint("churn-", rate), 0, func(int) string { return node }}
	var all sync.WaitGroup
	defer all.Wait()
	tick, end := time.NewTicker(time.Second/time.Duration(rate)), time.After(churnFor)
	defer tick.Stop()
	for slots := make(chan struct{}, 32); ; claims++ {
		select {
		case <-ctx.Done():
			return claims
		case <-end:
			return claims
		case <-tick.C:
		}
		slots <- struct{}{}
		i := claims
		all.Go(func() {
			defer func() { <-slots }()
			_, err := f.claim(ctx, b, i)
			f.Blame("claims that could not be made", err)
			if i >= churnStays {
				f.Blame("claims that could not be deleted", api.Delete(ctx, b.name(i-churnStays), metav1.DeleteOptions{}))
			}
		})
	}
}
