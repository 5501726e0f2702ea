package hang

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

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
	left, err := e.service.Mounted()
	e.Must(err, "reading the mount table")
	for _, m := range left {
		e.Fault(podsNotServed, "%s is left", m.Point)
	}
}
