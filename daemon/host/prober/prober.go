// Package prober looks at one configured pool for the daemon: at its storage, with what the host
// remembers of its marker; at the calls that wait for the storage; and at the locks against other
// daemons of the host. It will not open or close a gate, and writes nothing but the remembered
// marker.
package prober

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Store tells of calls beneath the pool to which the filesystem has not replied.
type Store interface {
	Waiting(limit time.Duration) volume.Waiting
}

// Locks closes in the report a pool that another daemon of the host uses, and takes one that is
// free.
type Locks interface {
	Guard(report *hostcheck.Report)
}

// Options are a Prober's. All fields are needed, except where it says so.
type Options struct {
	Pool     config.Pool
	Before   []config.Pool // the pools that it must not share directories with
	Node     string
	Cluster  func() string // the UID of the cluster, "" as long as that is not known; may be nil
	StateDir string
	Locks    Locks
	Store    Store
	Deadline time.Duration // within which the storage has to respond
	// Outside is called when reading the pool was denied. It returns why only another start of the
	// process may read it, "" if that is not so. It may be nil.
	Outside func() string
	// Explain adds what the pool needs of the process and does not have. It may be nil.
	Explain func(*hostcheck.Report)
}

// Prober looks at a pool. It is used by one goroutine, the pool's loop.
type Prober struct {
	Options
	remembered hostcheck.Marker
	probe      *hostcheck.Prober
}

// New returns a Prober that has not looked at the pool yet.
func New(o Options) *Prober { return &Prober{Options: o} }

// Expect is what the host must be for a configured pool. remembered is the ID of the marker that
// the pool had before, "" if none is known; before are the pools that it must not share directories
// with.
func Expect(node string, p config.Pool, remembered string, before ...config.Pool) hostcheck.Expect {
	if p.Scope != plan.ScopeNode {
		node = "" // every node has it
	}
	var neighbours []hostcheck.Neighbour
	for _, other := range before {
		neighbours = append(neighbours, hostcheck.Neighbour{Pool: other.Name, Path: other.Path})
	}
	return hostcheck.Expect{
		Before: neighbours,
		Node:   node, Exclusive: p.Exclusive,
		Pool: p.Name, Path: p.Path, MountPoint: p.MountPoint, RequireMount: p.RequireMount,
		Immutable: hostcheck.Immutability(p.Immutable), Filesystem: p.Filesystem, Device: p.Device,
		ReservePercent: p.ReservePercent, ReserveBytes: p.ReserveBytes, Remembered: remembered, SELinuxType: p.SELinuxType,
		Quota: p.Quota == plan.QuotaProject, Subvolumes: p.Snapshots == plan.SnapshotsSnapshot,
	}
}

// Probe looks at the pool once. It reads what is remembered each time, because `prepare` may write
// it meanwhile. A state directory that cannot be read keeps the pool closed: another filesystem
// could stand in its place.
func (p *Prober) Probe(ctx context.Context) hostcheck.Report {
	remembered, err := state.Recall(p.StateDir, p.Pool.Name)
	if err != nil {
		return Unremembered(p.Pool, err)
	}
	p.expect(remembered)
	ctx, cancel := p.limit(ctx)
	defer cancel()
	report := p.probe.Probe(ctx)
	if w := p.waiting(); p.counts(w, report) {
		report.AddFirst(closing(hostcheck.ReasonNotAnswering,
			"%s: no response for more than %s", w.About, w.Limit))
	}
	p.reach(&report)
	report.Add(Cordoned(p.StateDir, p.Pool.Name))
	if report.Removable() {
		p.Locks.Guard(&report)
	}
	if p.Explain != nil {
		p.Explain(&report)
	}
	return report.Without(p.Pool.Accepts)
}

// Cordoned is the finding that a person wants no new volumes in a pool. Where that cannot be read it
// is not known, and the pool is closed.
func Cordoned(stateDir, pool string) (hostcheck.Finding, bool) {
	is, err := state.Cordoned(stateDir, pool)
	if err != nil {
		return closing(plan.ReasonStateUnreadable, "whether the pool is cordoned cannot be read: %v", err), true
	}
	return hostcheck.Finding{
		Reason: plan.ReasonCordoned, Severity: hostcheck.Full,
		Message: "it is cordoned: no new volumes until it is uncordoned",
	}, is
}

// Opened keeps the marker of a pool that opened for the first time, or on a host whose state
// directory was lost, or whose marker names another owner since.
func (p *Prober) Opened(m hostcheck.Marker) error {
	if m == p.remembered {
		return nil
	}
	if err := state.Remember(p.StateDir, p.Pool.Name, m); err != nil {
		return err
	}
	p.expect(m)
	return nil
}

func (p *Prober) expect(remembered hostcheck.Marker) {
	if p.probe == nil || remembered.ID != p.remembered.ID {
		p.probe = hostcheck.NewProber(Expect(p.Node, p.Pool, remembered.ID, p.Before...)).Asking(mountpoint.Service, mountpoint.Under)
	}
	p.remembered = remembered
	if p.Cluster != nil {
		p.probe.SetCluster(p.Cluster())
	}
}

// waiting is a call of the pool's store to which the filesystem has not replied, for less than the
// deadline, so that the pool is closed within it.
func (p *Prober) waiting() volume.Waiting { return p.Store.Waiting(p.Deadline * 3 / 4) }

// counts reports whether a call that waits closes the pool: one that waits on a mount which is not
// the pool's any more does not.
func (p *Prober) counts(w volume.Waiting, r hostcheck.Report) bool {
	return w.For > 0 && w.Where == r.Identity && r.Removable()
}

// limit ends a probe early when a call gets no response: no need to wait any longer to know. Where
// that is known already, or the last probe waits still, this one only finds out whether that is
// over.
func (p *Prober) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	short := p.Deadline / 20
	if p.waiting().For > 0 || p.probe.Waiting() > p.Deadline {
		return context.WithTimeout(ctx, short)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		every := time.NewTicker(short)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
				if p.waiting().For > 0 {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel
}

// reach closes a pool that only another start of this process can read. It asks only where reading
// was denied, so that a permission that is lacking for another reason does not end the process
// again and again.
func (p *Prober) reach(r *hostcheck.Report) {
	if p.Outside == nil || !slices.ContainsFunc(r.Findings, denied) {
		return
	}
	if why := p.Outside(); why != "" {
		r.AddFirst(closing(plan.ReasonRestartNeeded, "%s", why))
	}
}

// Unremembered is the report of a pool of which the host's state cannot be read.
func Unremembered(pool config.Pool, err error) hostcheck.Report {
	return hostcheck.Report{Pool: pool.Name, Path: pool.Path, Findings: []hostcheck.Finding{closing(
		plan.ReasonStateUnreadable, "what this host remembers of the pool cannot be read: %v", err)}}
}

// closing is a finding that closes the pool.
func closing(reason, format string, args ...any) hostcheck.Finding {
	return hostcheck.Finding{Reason: reason, Severity: hostcheck.Close, Message: fmt.Sprintf(format, args...)}
}

func denied(f hostcheck.Finding) bool {
	return (f.Reason == hostcheck.ReasonUnreadable || f.Reason == hostcheck.ReasonPathUnreadable) && strings.Contains(f.Message, unix.EACCES.Error())
}
