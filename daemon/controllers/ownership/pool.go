package ownership

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Options are a Pool's. All fields are needed.
type Options struct {
	Pool   plan.Pool
	Node   string              // the name of the daemon's Node object
	Object func() *corev1.Node // of that name, nil if the cluster has none
	Host   Host                // this one
	// BoundNode is the Node that the token is bound to, "" for none, and Holder the other host that
	// works under the node's name, "" if none does.
	BoundNode, Holder func() string
	Cluster           *Cluster
	Objects           func() []*corev1.PersistentVolume // that the daemon watches
	// Beside reports whether an object is of another pool of this node, though this one has a record
	// of its name.
	Beside   func(*corev1.PersistentVolume) bool
	Disk     *disk.Pool
	Deadline time.Duration // for a census, and for a marker that is written
	Look     func()        // has the pool probed again; it must not block
	Log      *slog.Logger
}

// Pool is what is known of one pool's owner. It is safe for concurrent use.
type Pool struct {
	Options
	once    sync.Once
	checked chan struct{}

	mu     sync.Mutex
	marker hostcheck.Marker // for which the census was taken
	census *Census          // nil: not taken
	at     time.Time        // when it was taken
	taking chan struct{}    // closed when the census in flight ends; nil: none is in flight
	err    error            // of the last census
}

// New returns a pool of whose owner nothing is known. It touches nothing.
func New(o Options) *Pool { return &Pool{Options: o, checked: make(chan struct{})} }

// Checked is called when the pool's gate was set by a report that was begun after the cluster was
// identified.
func (p *Pool) Checked() { p.once.Do(func() { close(p.checked) }) }

// AwaitChecked reports whether Checked was called before ctx ended.
func (p *Pool) AwaitChecked(ctx context.Context) bool {
	select {
	case <-p.checked:
		return true
	case <-ctx.Done():
		return false
	}
}

// Check appends to the report of a pool that was found in order what keeps this daemon from working
// in it. Where nothing does, it completes the pool's marker. Before the cluster is identified it
// does nothing.
func (p *Pool) Check(ctx context.Context, report *hostcheck.Report) {
	if !p.Cluster.Identified() {
		return
	}
	census, err := p.censusFor(ctx, *report)
	if err != nil {
		report.Findings = append(report.Findings, hostcheck.Finding{Reason: plan.ReasonRecordsUnread, Severity: hostcheck.Close,
			Message: "whose the pool is cannot be told before its records are read: " + err.Error()})
		return
	}
	node, reported, holder := p.Object(), Host{}, ""
	if node != nil {
		reported = HostOf(node)
	}
	if reported == (Host{}) { // else it tells hosts apart
		holder = p.Holder()
	}
	report.Findings = append(report.Findings, Findings(Facts{
		Pool: p.Pool, Node: p.Node, NodeKnown: node != nil, Cluster: p.Cluster.ID(), Census: census,
		OtherHost: p.Host.Differs(reported), BoundNode: p.BoundNode(),
		Holder:        holder,
		MarkedCluster: report.Mark.Cluster, MarkedNode: report.Mark.Node, MarkedScope: report.Mark.Scope,
	})...)
	if report.Removable() {
		p.completeMarker(ctx, report)
	}
}

// Completed is the marker of a pool that a daemon of this node opens: it says whose the pool is.
// cluster is "" where it is not known.
func Completed(m hostcheck.Marker, pool plan.Pool, node, cluster string) hostcheck.Marker {
	switch {
	case pool.Scope == plan.ScopeShared:
		m.Node, m.Scope = "", hostcheck.ScopeShared
	case m.Node == "" && pool.OfOneNode():
		m.Node = node
	}
	if cluster != "" && (m.Cluster == "" || m.Cluster == hostcheck.ClusterAny) {
		m.Cluster = cluster
	}
	return m
}

// completeMarker writes whose the pool is into a marker that does not say it. A marker that cannot
// be written now is written at a later check; until then the records decide each time.
func (p *Pool) completeMarker(ctx context.Context, report *hostcheck.Report) {
	m := Completed(report.Mark, p.Pool, p.Node, p.Cluster.ID())
	if m == report.Mark {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.Deadline)
	defer cancel()
	h, _ := p.Disk.Opening(ctx, *report)
	if err := h.Remark(m); err != nil {
		report.Findings = append(report.Findings, hostcheck.Finding{Reason: plan.ReasonStateUnwritable, Severity: hostcheck.Warn,
			Message: "whose the pool is cannot be written into its marker: " + err.Error()})
		return
	}
	p.Log.Info(fmt.Sprintf("the pool's marker says now whose it is: node %q, scope %q, cluster %q", m.Node, cmp.Or(m.Scope, p.Pool.Scope), m.Cluster), "pool", p.Pool.Name)
	p.keepCensus(report.Mark, m)
	report.Mark = m
}

// keepCensus keeps the census of a pool whose marker was written anew.
func (p *Pool) keepCensus(was, now hostcheck.Marker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.marker == was {
		p.marker = now
	}
}

// recountAfter is how old a census may be that keeps its pool closed.
const recountAfter = time.Minute

// censusFor returns the last census, or takes one. Before the pool opens one is taken only where
// the marker does not say whose it is. Later ones come from Count.
func (p *Pool) censusFor(ctx context.Context, report hostcheck.Report) (Census, error) {
	p.mu.Lock()
	if p.census != nil && p.marker == report.Mark && (!p.census.Closes() && !p.census.Absent || time.Since(p.at) < recountAfter) {
		defer p.mu.Unlock()
		return *p.census, nil
	}
	if p.census == nil && p.complete(report.Mark) && !p.pointedElsewhere() {
		p.mu.Unlock()
		return Census{}, nil
	}
	if p.taking == nil {
		p.taking = make(chan struct{})
		go p.takeCensus(ctx, report)
	}
	taking := p.taking
	p.mu.Unlock()
	select {
	case <-taking:
	case <-time.After(p.Deadline):
		return Census{}, fmt.Errorf("not done within %s, and still going on", p.Deadline)
	case <-ctx.Done():
		return Census{}, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return Census{}, p.err
	}
	return *p.census, nil
}

// pointedElsewhere reports whether an object of the pool points out of it.
func (p *Pool) pointedElsewhere() bool {
	return slices.ContainsFunc(p.Objects(), func(v *corev1.PersistentVolume) bool {
		at := plan.PathOf(v)
		ours := v.Labels[plan.PoolLabel] == p.Pool.Name && !plan.OnEveryNode(v)
		return ours && at != "" && path.Dir(at) != p.Pool.Path
	})
}

// complete reports whether a marker says all that this daemon could write into it.
func (p *Pool) complete(m hostcheck.Marker) bool {
	return Completed(m, p.Pool, p.Node, "") == m && (m.Cluster != "" || p.Cluster.ID() == "")
}

// takeCensus reads all records, which may take longer than a check.
func (p *Pool) takeCensus(ctx context.Context, report hostcheck.Report) {
	h, _ := p.Disk.Opening(ctx, report)
	marker := report.Mark
	records, err := h.Records()
	census := p.censusOf(records, marker)
	if err == nil && marker.Cluster == "" && p.Cluster.ID() != "" {
		census.Absent, err = p.Cluster.absent(ctx, records)
	}
	p.mu.Lock()
	close(p.taking)
	p.taking, p.err = nil, err
	if err == nil {
		p.marker, p.census, p.at = marker, &census, time.Now()
	}
	p.mu.Unlock()
	p.Look()
}

func (p *Pool) censusOf(records []record.Record, marker hostcheck.Marker) Census {
	census := CensusOf(records, p.Pool, p.Node, marker.Former())
	census.point(records, p.Pool, func(name string) (*corev1.PersistentVolume, bool) {
		v, watched := p.Cluster.Watched(name)
		return v, watched && !p.Beside(v)
	})
	return census
}

// Count takes the census of records that were read for another purpose, and reports whether it
// keeps the pool closed. The pool is probed again when the census differs from the last one.
func (p *Pool) Count(records []record.Record, marker hostcheck.Marker) (closes bool) {
	census := p.censusOf(records, marker)
	p.mu.Lock()
	defer p.mu.Unlock()
	was := Census{}
	if p.census != nil {
		was = *p.census
	}
	if len(was.Others) != len(census.Others) || !maps.Equal(was.Scopes, census.Scopes) ||
		was.moved() != census.moved() {
		p.Look()
	}
	p.marker, p.census, p.at = marker, &census, time.Now()
	return census.Closes()
}
