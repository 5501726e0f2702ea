package hang

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// Kinds of faults.
const (
	notClosed     = "gates that were not closed within the deadline"
	notTold       = "claims that were not told"
	otherPool     = "claims of the other pool that were not made"
	notFed        = "times when the watchdog was not fed"
	grown         = "things that grew over the looks"
	slowEnd       = "shutdowns that took too long"
	noStart       = "starts beside the hang that failed"
	notBack       = "pools that did not come back by themselves"
	notSettled    = "claims and removals that did not go through"
	wrongPools    = "pools with too much or too little in them"
	notNoticed    = "yanked disks that were not noticed"
	podsNotServed = "pods with volumes that the node service did not serve in time"
	nothingDone   = "rounds in which nothing hung"
)

var kinds = []string{notClosed, notTold, otherPool, notFed, grown, slowEnd, noStart, notBack, notSettled, wrongPools, notNoticed, podsNotServed, nothingDone}

// warmUp makes claims in the other pool while nothing hangs.
func (e *environment) warmUp(ctx context.Context, r *report, claims int) {
	_, err := e.Batch(ctx, fast, "warm", claims) // once without counting: caches, connections
	e.Must(err, "making claims")
	r.alone = harness.Need(e.Batch(ctx, fast, "alone", claims))(e, "making claims")
}

// round hangs some pools at once and looks at everything.
func (e *environment) round(ctx context.Context, r *report, pools []*pool, killable bool, o options) {
	e.number++
	what := fmt.Sprintf("%d calls at once", len(pools))
	if len(pools) == 1 {
		what = pools[0].call
	}
	if !killable {
		what += ", and no signal ends them"
	}
	e.Say("hanging: %s", what)
	for _, p := range pools {
		e.make(ctx, p, e.claim(p, "goner"))
		e.fill(p, e.claim(p, "goner"))
	}
	e.begin(ctx, pools)
	rd := &round{what: what}
	beats := e.Daemon.Beats()
	var beside sync.WaitGroup
	if len(pools) == 1 { // else what 16 pools tell the API would be measured
		beside.Go(func() { e.beside(ctx, rd, o) })
	}
	e.hang(ctx, rd, pools, killable)
	if beside.Wait(); len(pools) > 1 {
		e.beside(ctx, rd, o)
	}
	if o.looks > 0 {
		e.look(ctx, r, pools, o.looks)
	}
	e.pods(rd, pools)
	if killable {
		e.restart(rd)
	}
	rd.beats, rd.pause = e.Daemon.Beats()-beats, e.Daemon.LongestPause()
	if rd.pause >= rig.WatchdogInterval {
		e.Fault(notFed, "%s: not for %s", what, rd.pause)
	}
	e.end(rd, pools, killable)
	e.recover(ctx, rd, pools)
	e.again(pools)
	r.rounds = append(r.rounds, rd)
}

// claim is the name of a claim of this round.
func (e *environment) claim(p *pool, role string) string {
	return fmt.Sprintf("%s-%s-%d", p.call, role, e.number)
}

// hang stops the calls, asks for a volume and a removal in each pool, and waits for the gates.
func (e *environment) hang(ctx context.Context, rd *round, pools []*pool, killable bool) {
	rd.closed = make([]closed, len(pools))
	var all sync.WaitGroup
	for i, p := range pools {
		p.fs.Killable(killable)
		p.fs.Hold(calls[p.number].op)
		all.Go(func() { rd.closed[i] = e.watchGate(p) })
		claim := harness.Need(e.Claim(ctx, p.name, e.claim(p, "waits")))(e, "making a claim")
		e.Must(e.Delete(ctx, e.claim(p, "goner")), "deleting a claim")
		all.Go(func() {
			e.told(p, claim)
		})
	}
	all.Wait()
}

// told waits until a claim is told that its pool is closed, or is made where that can be.
func (e *environment) told(p *pool, claim *corev1.PersistentVolumeClaim) {
	bound := false
	err := harness.Eventually(e.Soon(), func() bool {
		now, err := e.Claims().Get(context.Background(), claim.Name, metav1.GetOptions{})
		if bound = err == nil && now.Status.Phase == corev1.ClaimBound; bound {
			return true
		}
		events, err := e.Client.CoreV1().Events(e.Namespace).List(context.Background(), metav1.ListOptions{FieldSelector: "reason=PoolClosed,involvedObject.uid=" + string(claim.UID)})
		return err == nil && len(events.Items) > 0
	})
	if err != nil || bound && !calls[p.number].besideIt {
		e.Fault(notTold, "%s: bound %v, %v", p.call, bound, err)
	}
}

// closed is how a gate closed.
type closed struct {
	call    string
	within  time.Duration // that is promised
	took    time.Duration // from the first request that got no response
	message string
}

// watchGate takes the time from the daemon's own status, so that no polling is in it.
func (e *environment) watchGate(p *pool) closed {
	c := closed{call: p.call, within: calls[p.number].within}
	p.fs.AwaitHeld()
	began := time.Now()
	status, err := e.WaitPool(e.Soon(), p.name, func(p daemon.PoolStatus) bool { return !p.Open })
	if e.Blame(notClosed, err) {
		return c
	}
	c.took, c.message = status.Since.Sub(began), status.Message
	if c.took > c.within+e.slack || status.Reason != "NotAnswering" {
		e.Fault(notClosed, "%s: after %s, %s: %s", p.call, c.took, status.Reason, status.Message)
	}
	return c
}

// beside makes claims in the pool that does not hang.
func (e *environment) beside(ctx context.Context, rd *round, o options) {
	var err error
	rd.beside, err = e.Batch(ctx, fast, fmt.Sprintf("beside-%d", e.number), o.claims)
	e.Blame(otherPool, err)
}

// end stops the daemon beside the hang and starts it again.
func (e *environment) end(rd *round, pools []*pool, killable bool) {
	pid, began := e.Daemon.PID(), time.Now()
	e.Must(e.Daemon.Signal(syscall.SIGTERM), "sending SIGTERM")
	gone := func() bool {
		select {
		case <-e.Daemon.Exited():
			return true
		default:
			rd.stuck = process.Threads(pid)
			return !killable && process.Zombie(pid)
		}
	}
	err := harness.Eventually(e.Soon(), gone)
	rd.end = time.Since(began)
	if err != nil || rd.end >= max(shutdown, e.slack) {
		e.Fault(slowEnd, "%s: %s, %v", rd.what, rd.end, err)
	}
	if killable {
		rd.stuck = 0
	} else {
		e.letGo(pools) // or the dead daemon would keep its locks
		<-e.Daemon.Exited()
		for _, p := range pools {
			p.fs.Hold(calls[p.number].op)
		}
	}
	if e.Blame(noStart, e.Daemon.Run(e.Soon())) {
		e.Fatal("the daemon does not start beside the hang")
	}
	_, err = e.Bound(e.Soon(), fast, fmt.Sprintf("restarted-%d", e.number))
	e.Blame(otherPool, err)
}

func (e *environment) letGo(pools []*pool) {
	for _, p := range pools {
		p.fs.Resume()
	}
}

// recover lets the calls go on and waits for everything to be right.
func (e *environment) recover(ctx context.Context, rd *round, pools []*pool) {
	e.letGo(pools)
	began := time.Now()
	for _, p := range pools {
		_, err := e.WaitPool(e.Soon(), p.name, harness.Open)
		e.Blame(notBack, err)
	}
	rd.back = time.Since(began)
	if rd.back > comesBack+e.slack {
		e.Fault(notBack, "%s: after %s", rd.what, rd.back)
	}
	for _, p := range pools {
		goner, waits := e.claim(p, "goner"), e.claim(p, "waits")
		claim, err := e.Cluster.WaitClaimBound(e.Soon(), e.Namespace, waits)
		if e.Blame(notSettled, err) {
			continue
		}
		p.volumes[waits] = claim.Spec.VolumeName
		e.Blame(notSettled, e.Cluster.WaitVolumeGone(e.Soon(), p.volumes[goner]))
		delete(p.volumes, goner)
		var left []string
		for _, pv := range p.volumes {
			left = append(left, pv)
		}
		e.Blame(wrongPools, harness.WaitDisk(e.Soon(), p.dir, left...))
	}
	rd.settled = time.Since(began)
}

const (
	// statsCalls of each volume come at once, as those of some minutes do that were not responded
	// to.
	statsCalls = 8
	// mostStuck calls of each pool may wait in the kernel (daemon/node/csi), each with a thread; a look
	// at the pool takes another one.
	mostStuck = 4 + 1
	// ownThreads are those that a Go program may begin by itself meanwhile.
	ownThreads = 16
)

// serve starts the node service, for pods with volumes of the pools.
func (e *environment) serve() {
	e.service = e.NodeService(csinode.Options{
		Root: filepath.Join(hosttest.Dir(e), "k"), Driver: e.Node, Command: e.Daemon.Command, Log: e.Daemon.Path("csi.log"),
	})
	e.Must(e.service.Start(), "starting the node service")
}

// of is the volume of a claim, as kubelet asks for it.
func (p *pool) of(claim string) csinode.Volume {
	return csinode.Of(p.volumes[claim], p.name, filepath.Join(p.dir, p.volumes[claim]))
}

// begin makes a volume in each pool, and mounts it for a pod.
func (e *environment) begin(ctx context.Context, pools []*pool) {
	for _, p := range pools {
		claim := e.claim(p, "pod")
		e.make(ctx, p, claim)
		e.Must(e.service.Publish(e.Soon(), claim, p.of(claim)), "mounting a volume for a pod")
	}
}

// pods looks at kubelet's calls while the pools hang: each has a response in time, and no thread
// waits for each. Pods of other pools begin, and those of the hung ones end.
func (e *environment) pods(rd *round, pools []*pool) {
	before := process.Threads(e.service.PID())
	var all sync.WaitGroup
	for _, p := range pools {
		for range statsCalls {
			all.Go(func() { e.stats(rd, p) })
		}
	}
	all.Wait()
	rd.threads = process.Threads(e.service.PID()) - before
	if rd.threads > mostStuck*len(pools)+ownThreads {
		e.Fault(podsNotServed, "%s: %d threads more after %d calls for statistics of each volume", rd.what, rd.threads, statsCalls)
	}
	other := &pool{name: fast, dir: e.fast, volumes: map[string]string{}}
	e.make(e.Soon(), other, e.claim(pools[0], "beside"))
	claim := e.claim(pools[0], "beside")
	e.Blame(podsNotServed, e.service.Publish(e.Soon(), claim, other.of(claim)))
	e.Blame(podsNotServed, e.service.Unpublish(e.Soon(), claim, other.volumes[claim]))
	for _, p := range pools {
		began, claim := time.Now(), e.claim(p, "pod")
		e.Blame(podsNotServed, e.service.Unpublish(e.Soon(), claim, p.volumes[claim]))
		if took := time.Since(began); took > deadline+e.slack {
			e.Fault(podsNotServed, "%s: the end of a pod took %s", p.call, took)
		}
	}
}

// stats is one of kubelet's calls.
func (e *environment) stats(rd *round, p *pool) {
	began, claim := time.Now(), e.claim(p, "pod")
	err := e.service.Stats(e.Soon(), claim, p.volumes[claim])
	if took := time.Since(began); took > deadline+e.slack || err != nil && status.Code(err) != codes.DeadlineExceeded {
		e.Fault(podsNotServed, "%s: statistics after %s: %v", rd.what, took, err)
	}
}

// restart stops the service as systemd does, beside the hang, and starts it again.
func (e *environment) restart(rd *round) {
	began := time.Now()
	e.Blame(podsNotServed, e.service.Stop(e.Soon()))
	if rd.serviceEnd = time.Since(began); rd.serviceEnd > serviceStop+e.slack {
		e.Fault(podsNotServed, "%s: the node service ended after %s", rd.what, rd.serviceEnd)
	}
	e.Must(e.service.Start(), "starting the node service")
}

// serviceStop is the unit's TimeoutStopSec=.
const serviceStop = 10 * time.Second

// again mounts the volumes for pods once the pools respond, and unmounts them. Then nothing is
// left.
func (e *environment) again(pools []*pool) {
	for _, p := range pools {
		claim := e.claim(p, "pod")
		var err error
		if harness.Eventually(e.Soon(), func() bool { err = e.service.Publish(e.Soon(), claim, p.of(claim)); return err == nil }) != nil {
			e.Fault(podsNotServed, "%s: no pod begins once the pool responds: %v", p.call, err)
		}
		e.Blame(podsNotServed, e.service.Unpublish(e.Soon(), claim, p.volumes[claim]))
	}
	left := harness.Need(e.service.Mounted())(e, "reading the mount table")
	for _, m := range left {
		e.Fault(podsNotServed, "%s is left", m.Point)
	}
}
