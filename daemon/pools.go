package daemon

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controller"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/metrics"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Expect is what the host must be for a configured pool. remembered is the ID of the marker that the
// pool had before, "" if none is known.
func Expect(p config.Pool, remembered string) hostcheck.Expect {
	return hostcheck.Expect{
		Pool: p.Name, Path: p.Path, MountPoint: p.MountPoint, RequireMount: p.RequireMount,
		Immutable: hostcheck.Immutability(p.Immutable), Filesystem: p.Filesystem, Device: p.Device,
		ReservePercent: p.ReservePercent, ReserveBytes: p.ReserveBytes, Remembered: remembered,
	}
}

// pools are the configured pools with their hands and eyes.
func (d *daemon) pools(cfg config.Config) []controller.PoolParts {
	var all []controller.PoolParts
	for _, p := range cfg.Pools {
		eyes := &prober{pool: p, stateDir: d.StateDir, locks: d.locks}
		all = append(all, controller.PoolParts{Pool: planPool(p), Disk: newDisk(d.handsOf(p)), Probe: eyes, Opened: eyes.remember})
	}
	return all
}

func planPool(p config.Pool) plan.Pool {
	return plan.Pool{
		Name: p.Name, Path: p.Path, Scope: p.Scope, Source: p.Source, Mode: p.Mode, UID: p.UID, GID: p.GID,
		OnDelete: p.OnDelete, Default: p.Default, Directory: p.Directory.Expand,
		Reclaim: p.ReclaimPolicy, Named: p.Directory != config.DefaultPool(p.Name).Directory,
	}
}

func (d *daemon) handsOf(p config.Pool) *volume.Pool {
	key := handsKey{p.Name, p.Path, p.MountPoint}
	if d.hands[key] == nil {
		d.hands[key] = volume.New(volume.Options{Name: p.Name, Path: p.Path})
	}
	return d.hands[key]
}

// prober looks at a pool with what the state directory remembers of it. It is used by one goroutine,
// the pool's loop.
type prober struct {
	pool       config.Pool
	stateDir   string
	locks      *poolLocks
	remembered string
	eyes       *hostcheck.Prober
}

// Probe reads what is remembered each time, because `prepare` may write it meanwhile. A state
// directory that cannot be read keeps the pool closed: another filesystem could stand in its place.
func (p *prober) Probe(ctx context.Context) hostcheck.Report {
	remembered, err := state.Remembered(p.stateDir, p.pool.Name)
	if err != nil {
		return hostcheck.Report{Pool: p.pool.Name, Path: p.pool.Path, Findings: []hostcheck.Finding{{
			Reason: plan.ReasonStateUnreadable, Severity: hostcheck.Close,
			Message: fmt.Sprintf("what this host remembers of the pool cannot be read: %v", err),
		}}}
	}
	p.expect(remembered)
	report := p.eyes.Probe(ctx)
	if report.Removable() {
		p.locks.guard(&report)
	}
	return report
}

func (p *prober) expect(remembered string) {
	if p.eyes == nil || remembered != p.remembered {
		p.remembered, p.eyes = remembered, hostcheck.NewProber(Expect(p.pool, remembered))
	}
}

// remember keeps the marker of a pool that opened for the first time, or on a host whose state
// directory was lost.
func (p *prober) remember(marker string) error {
	if marker == p.remembered {
		return nil
	}
	m := hostcheck.Marker{Version: 1, Pool: p.pool.Name, ID: marker}
	if err := state.Remember(p.stateDir, p.pool.Name, m); err != nil {
		return err
	}
	p.expect(marker)
	return nil
}

// observer counts, and lets the status be written anew.
type observer struct {
	*metrics.Metrics
	changed chan struct{}
}

func (o observer) Pool(s gate.State) {
	o.Metrics.Pool(s)
	signal(o.changed)
}
