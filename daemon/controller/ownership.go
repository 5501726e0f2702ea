package controller

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Whose a pool is: a daemon under another node's name, or with the kubeconfig of another cluster, reads the
// volumes of its own pool as volumes that no object knows. It stops before it works. The marker says whose the
// pool is; until it does, because a daemon of an earlier version wrote it, the records and the API decide.

// identity is what is known of the cluster.
type identity struct {
	synced  atomic.Bool            // the watches are complete, and the cluster was asked who it is
	cluster atomic.Pointer[string] // its ID; "" is unknown
	warned  sync.Once
	asked   atomic.Pointer[time.Time] // when its ID was read last
}

// askedLately is how long the cluster's ID is known well enough where nothing is to be undone. All pools open at once
// when a daemon starts, right after it was asked.
const askedLately = time.Minute

func (c *Controller) knowsCluster() bool {
	at := c.identity.asked.Load()
	return at != nil && time.Since(*at) < askedLately
}

// Cluster is the cluster's ID, "" as long as it is not known.
func (c *Controller) Cluster() string {
	if id := c.identity.cluster.Load(); id != nil {
		return *id
	}
	return ""
}

// Identify asks the API which cluster it is, and has each pool looked at with that knowledge. It returns when
// both is done, and reports whether it was before ctx ended. No work may be done before.
func (c *Controller) Identify(ctx context.Context) bool {
	for c.confirm(ctx) != nil {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
	c.identity.synced.Store(true)
	c.Look()
	for name, r := range c.workers {
		if name == "" {
			continue
		}
		select {
		case <-r.owner.seen:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// confirm asks the API which cluster it is. Where the daemon may not know, it works as versions did that did
// not ask.
func (c *Controller) confirm(ctx context.Context) error {
	id, err := c.API.ClusterID(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	c.identity.asked.Store(&now)
	if id == "" {
		c.identity.warned.Do(func() {
			c.Log.Warn("the cluster cannot be told from others: this kubeconfig may not get the namespace kube-system; apply the present manifests (hostpath-provisioner manifests)")
		})
		return nil
	}
	if was := c.identity.cluster.Swap(&id); was != nil && *was != id {
		c.Look()
	}
	return nil
}

// owner is what is known of the owner of a pool by its records.
type owner struct {
	seen chan struct{} // closed when the pool was looked at with all that Identify learns
	once sync.Once

	mu     sync.Mutex
	marker hostcheck.Marker // for which the census was taken
	census *plan.Census     // nil: not taken
	at     time.Time
	taking chan struct{} // closed when the census that is under way ends; nil: none is
	err    error         // of the last one
}

// checkOwner finds what speaks against working in a pool, and notes in its marker whose it is from now on.
func (c *Controller) checkOwner(ctx context.Context, r *poolWorker, report *hostcheck.Report) {
	if !c.identity.synced.Load() {
		return
	}
	census, err := c.census(ctx, r, *report)
	if err != nil {
		report.Findings = append(report.Findings, hostcheck.Finding{Reason: plan.ReasonRecordsUnread, Severity: hostcheck.Close,
			Message: "whose the pool is cannot be told before its records are read: " + err.Error()})
		return
	}
	_, known := c.Listers.Nodes.Get(c.Node)
	for _, o := range plan.ForOwner(plan.OwnerFacts{
		Pool: r.Pool, Node: c.Node, NodeKnown: known, Cluster: c.Cluster(), MarkedCluster: report.Mark.Cluster, Census: census,
	}) {
		report.Findings = append(report.Findings, finding(o))
	}
	if report.Removable() {
		c.completeMarker(ctx, r, report)
	}
}

func finding(o plan.Objection) hostcheck.Finding {
	f := hostcheck.Finding{Reason: o.Reason, Message: o.Message, Severity: hostcheck.Close}
	if o.Warn {
		f.Severity = hostcheck.Warn
	}
	return f
}

// completeMarker completes a marker that nothing contradicts. One that cannot be written now is written later: until
// then the records decide, as they did just now.
func (c *Controller) completeMarker(ctx context.Context, r *poolWorker, report *hostcheck.Report) {
	m := report.Mark
	if m.Node == "" && !r.OfAllNodes() {
		m.Node = c.Node
	}
	if cluster := c.Cluster(); cluster != "" && (m.Cluster == "" || m.Cluster == hostcheck.ClusterAny) {
		m.Cluster = cluster
	}
	if m == report.Mark {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	h, _ := r.disk.Opening(ctx, *report)
	if err := h.Remark(m); err != nil {
		report.Findings = append(report.Findings, hostcheck.Finding{Reason: plan.ReasonStateUnwritable, Severity: hostcheck.Warn,
			Message: "whose the pool is cannot be written into its marker: " + err.Error()})
		return
	}
	c.Log.Info(fmt.Sprintf("the pool's marker says now whose it is: node %q, cluster %q", m.Node, m.Cluster), "pool", r.Name)
	r.owner.rename(report.Mark, m)
	report.Mark = m
}

// recountAfter is how old a census may be that keeps its pool closed.
const recountAfter = time.Minute

// census is what is known by the records. One is taken before the pool opens only where the marker does not
// say whose it is; else it comes from the comparison of all records, which follows.
func (c *Controller) census(ctx context.Context, r *poolWorker, report hostcheck.Report) (plan.Census, error) {
	o := &r.owner
	o.mu.Lock()
	if o.census != nil && o.marker == report.Mark && (!o.census.Closes() && !o.census.Absent || time.Since(o.at) < recountAfter) {
		defer o.mu.Unlock()
		return *o.census, nil
	}
	complete := (report.Mark.Node != "" || r.OfAllNodes()) && (report.Mark.Cluster != "" || c.Cluster() == "")
	if complete && o.census == nil {
		o.mu.Unlock()
		return plan.Census{}, nil
	}
	if o.taking == nil {
		o.taking = make(chan struct{})
		go c.takeCensus(ctx, r, report)
	}
	taking := o.taking
	o.mu.Unlock()
	timer := time.NewTimer(c.Deadline)
	defer timer.Stop()
	select {
	case <-taking:
	case <-timer.C:
		return plan.Census{}, fmt.Errorf("not done within %s, and still going on", c.Deadline)
	case <-ctx.Done():
		return plan.Census{}, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return plan.Census{}, o.err
	}
	return *o.census, nil
}

// takeCensus reads all records, which may take longer than a look at the pool.
func (c *Controller) takeCensus(ctx context.Context, r *poolWorker, report hostcheck.Report) {
	h, _ := r.disk.Opening(ctx, report)
	marker := report.Mark
	records, err := h.Records()
	census := plan.Count(records, r.Pool, c.Node, marker.Former())
	if err == nil && marker.Cluster == "" && c.Cluster() != "" {
		census.Absent, err = c.absent(ctx, records)
	}
	o := &r.owner
	o.mu.Lock()
	close(o.taking)
	o.taking, o.err = nil, err
	if err == nil {
		o.marker, o.census, o.at = marker, &census, time.Now()
	}
	o.mu.Unlock()
	signal(r.kick)
}

// asked is how many records the API is asked about to find out whether this is their cluster.
const asked = 50

// absent reports whether the cluster knows none of the volumes: neither the watch nor, of the first, the API
// has an object or a claim of theirs.
func (c *Controller) absent(ctx context.Context, records []record.Record) (bool, error) {
	for _, rec := range records {
		if v, watched := c.Listers.Volumes.Get(rec.PV); watched && boundTo(v, rec) {
			return false, nil
		}
	}
	n := 0
	for _, rec := range records {
		if !rec.HasObject() {
			continue
		}
		if n++; n > asked {
			break
		}
		volume, err := c.API.GetVolume(ctx, rec.PV)
		if err != nil {
			return false, err
		}
		claim, err := c.API.GetClaim(ctx, rec.Namespace, rec.Claim)
		if err != nil {
			return false, err
		}
		if volume != nil && boundTo(volume, rec) || claim != nil && string(claim.UID) == rec.ClaimUID {
			return false, nil
		}
	}
	return n > 0, nil
}

func boundTo(v *corev1.PersistentVolume, r record.Record) bool {
	return v.Spec.ClaimRef != nil && string(v.Spec.ClaimRef.UID) == r.ClaimUID
}

// count keeps the census of records that were read anyway, and reports whether it keeps the pool closed.
func (c *Controller) count(r *poolWorker, records []record.Record, marker hostcheck.Marker) (closes bool) {
	census := plan.Count(records, r.Pool, c.Node, marker.Former())
	o := &r.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	was := plan.Census{}
	if o.census != nil {
		was = *o.census
	}
	if len(was.Others) != len(census.Others) || !maps.Equal(was.Scopes, census.Scopes) {
		signal(r.kick)
	}
	o.marker, o.census, o.at = marker, &census, time.Now()
	return census.Closes()
}

func (o *owner) rename(was, now hostcheck.Marker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.marker == was {
		o.marker = now
	}
}

// sure reports whether this is the cluster of the pool's records: by the marker, or by a volume whose object
// it has.
func (c *Controller) sure(records []record.Record, marker hostcheck.Marker) bool {
	if cluster := c.Cluster(); cluster != "" && cluster == marker.Cluster {
		return true
	}
	for _, rec := range records {
		if v, watched := c.Listers.Volumes.Get(rec.PV); watched && boundTo(v, rec) {
			return true
		}
	}
	return false
}
