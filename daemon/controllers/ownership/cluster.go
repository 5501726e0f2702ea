package ownership

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// API is the part of Kubernetes that is read. An object that does not exist is nil without an
// error.
type API interface {
	// ClusterID is an ID that no other cluster has, "" where this daemon may not know it.
	ClusterID(ctx context.Context) (string, error)
	GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	GetClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
}

// ClusterOptions are a Cluster's. All fields are needed.
type ClusterOptions struct {
	API     API
	Watched func(name string) (*corev1.PersistentVolume, bool) // a volume object that the daemon watches
	Changed func()                                             // called when the ID is another one than before; it must not block
	// Requested is called with how each request for the ID ended.
	Requested func(err error)
	Log       *slog.Logger
}

// Cluster is the cluster that the kubeconfig leads to. It is safe for concurrent use.
type Cluster struct {
	ClusterOptions
	identified atomic.Bool
	id         atomic.Pointer[string]
	warned     sync.Once
	confirmed  atomic.Pointer[time.Time]
	again      atomic.Pointer[time.Time] // when Recall asked last
}

// NewCluster returns a cluster of which nothing is known. It asks nothing.
func NewCluster(o ClusterOptions) *Cluster { return &Cluster{ClusterOptions: o} }

// ID is the UID of the namespace kube-system, "" as long as it is not known.
func (c *Cluster) ID() string {
	if id := c.id.Load(); id != nil {
		return *id
	}
	return ""
}

// Identify asks the API server for the ID once a second, and reports whether it responded before
// ctx ended. The watches must be complete: from then on pools are checked.
func (c *Cluster) Identify(ctx context.Context) bool {
	for c.Confirm(ctx) != nil {
		if !wake.Wait(ctx, time.Second, nil) {
			return false
		}
	}
	c.identified.Store(true)
	return true
}

// Identified reports whether Identify returned true.
func (c *Cluster) Identified() bool { return c.identified.Load() }

// Confirm asks the API server for the ID. Where the daemon may not know it, the ID stays as it was,
// and pools are not compared with it, as in versions that did not ask.
func (c *Cluster) Confirm(ctx context.Context) error {
	id, err := c.API.ClusterID(ctx)
	c.Requested(err)
	if err != nil {
		return err
	}
	now := time.Now()
	c.confirmed.Store(&now)
	if id == "" {
		c.warned.Do(func() {
			c.Log.Warn("the cluster cannot be told from others: this kubeconfig may not get the namespace kube-system; apply the present manifests (hostpath-provisioner manifests)")
		})
		return nil
	}
	if was := c.id.Swap(&id); was != nil && *was != id {
		c.Changed()
	}
	return nil
}

// recallEvery is how often Recall asks.
const recallEvery = 10 * time.Second

// Recall asks for the ID again, in the background, if a marker names another cluster: the API
// server may be the right one by now, under the same address. No work in the pool would ask,
// because the pool is closed.
func (c *Cluster) Recall(ctx context.Context, m hostcheck.Marker) {
	last, now := c.again.Load(), time.Now()
	if !c.Contradicts(m) || last != nil && now.Sub(*last) < recallEvery || !c.again.CompareAndSwap(last, &now) {
		return
	}
	go func() { _ = c.Confirm(ctx) }() // if it fails it is asked again
}

// confirmedFor is how long the ID counts as confirmed where nothing is to be undone. All pools open
// at once when a daemon starts, right after the ID was read.
const confirmedFor = time.Minute

// ConfirmedLately reports whether the ID was read within the last minute.
func (c *Cluster) ConfirmedLately() bool {
	at := c.confirmed.Load()
	return at != nil && time.Since(*at) < confirmedFor
}

// Contradicts reports whether a marker names another cluster.
func (c *Cluster) Contradicts(m hostcheck.Marker) bool {
	return m.Cluster != "" && m.Cluster != hostcheck.ClusterAny && c.ID() != "" && m.Cluster != c.ID()
}

// Owns reports whether this is certainly the cluster of a pool's records: the marker names it, or
// the object of one of them is watched.
func (c *Cluster) Owns(records []record.Record, marker hostcheck.Marker) bool {
	if id := c.ID(); id != "" && id == marker.Cluster {
		return true
	}
	return c.watchesOneOf(records)
}

func (c *Cluster) watchesOneOf(records []record.Record) bool {
	for _, r := range records {
		if v, watched := c.Watched(r.PV); watched && boundTo(v, r) {
			return true
		}
	}
	return false
}

// lookups is for how many records the API server is asked, to find out whether this is their
// cluster.
const lookups = 50

// absent reports whether the cluster has none of the volumes: no object of theirs is watched, and
// for the first of them the API server has neither object nor claim.
func (c *Cluster) absent(ctx context.Context, records []record.Record) (bool, error) {
	if c.watchesOneOf(records) {
		return false, nil
	}
	n := 0
	for _, r := range records {
		if !r.HasObject() {
			continue
		}
		if n++; n > lookups {
			break
		}
		if exists, err := c.has(ctx, r); exists || err != nil {
			return false, err
		}
	}
	return n > 0, nil
}

// has reports whether the API server has the object or the claim of a record.
func (c *Cluster) has(ctx context.Context, r record.Record) (bool, error) {
	volume, err := c.API.GetVolume(ctx, r.PV)
	if err != nil {
		return false, err
	}
	claim, err := c.API.GetClaim(ctx, r.Namespace, r.Claim)
	if err != nil {
		return false, err
	}
	return volume != nil && boundTo(volume, r) || claim != nil && string(claim.UID) == r.ClaimUID, nil
}

func boundTo(v *corev1.PersistentVolume, r record.Record) bool {
	return v.Spec.ClaimRef != nil && string(v.Spec.ClaimRef.UID) == r.ClaimUID
}
