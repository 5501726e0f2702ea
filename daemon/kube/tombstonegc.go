package kube

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Tombstones are objects that a tenant has made by deleting claims, as often as it likes, and that no quota counts.
// So there is a bound for each namespace and class. A node that misses one that went keeps its directory, and says
// so (Orphaned): too few never destroy anything.
const (
	// TombstoneTTL is how long tombstones stay. A node that was off for longer keeps its directories.
	TombstoneTTL = 90 * 24 * time.Hour
	// TombstonesKept is how many of a namespace and class stay: the newest.
	TombstonesKept = 100
	// tombstoneMinAge is how old one has to be to go as a surplus one. By then each node that works has seen that
	// the object went and has looked for it, also if a namespace with many claims was deleted at once.
	tombstoneMinAge = time.Minute
	// tombstonesMax is how many of a namespace and class there may be, fresh ones too.
	tombstonesMax = 1000
	// tombstoneGCInterval is how often one daemon looks for surplus ones, at most.
	tombstoneGCInterval = 15 * time.Second
)

// graves is which tombstones this process wrote and has not counted since. Times are by the API server's clock,
// which dated the objects.
type tombstoneGC struct {
	wake chan struct{}

	mu          sync.Mutex
	groups      map[string]bool // with one that is new here, or with too many the last time
	latest      time.Time       // when the last one was written
	writtenHere time.Time       // the same by this host's clock
	pruned      time.Time       // when all were looked through
}

func newTombstoneGC() *tombstoneGC {
	return &tombstoneGC{wake: make(chan struct{}, 1), groups: map[string]bool{}}
}

func (g *tombstoneGC) added(group string, at, local time.Time) {
	g.mu.Lock()
	g.groups[group], g.latest, g.writtenHere = true, at, local
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// due is what is to be looked at now, and forgets it. all says that everything is, which is once a day.
func (g *tombstoneGC) due(local time.Time) (groups []string, now time.Time, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now = g.latest.Add(local.Sub(g.writtenHere))
	if all = now.Sub(g.pruned) > 24*time.Hour; all {
		g.pruned = now
	}
	groups = slices.Sorted(maps.Keys(g.groups))
	g.groups = map[string]bool{}
	return groups, now, all
}

// again has a group looked at once more, a while from now.
func (g *tombstoneGC) retry(group string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[group] = true
}

func (g *tombstoneGC) waiting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.groups) > 0
}

// RunTombstoneGC removes surplus and old tombstones until ctx ends: those of a namespace and class soon after this
// daemon wrote one of them, and all others with the first one that it writes on a day. A daemon that is killed in
// between leaves that to the next tombstone of the same group, or of the next day.
func (c *Client) RunTombstoneGC(ctx context.Context) {
	for ctx.Err() == nil {
		if !c.tombstones.waiting() {
			select {
			case <-c.tombstones.wake:
			case <-ctx.Done():
				return
			}
		}
		if !pause(ctx, c.tombstoneGCInterval) {
			return
		}
		c.collectTombstones(ctx, time.Now())
	}
}

func (c *Client) collectTombstones(ctx context.Context, local time.Time) {
	groups, now, all := c.tombstones.due(local)
	for _, group := range groups {
		// What cannot be removed now is tried again: it is no trouble that an operator could mend.
		if left, err := c.removeSurplusTombstones(ctx, group, now); err != nil || left > TombstonesKept {
			c.tombstones.retry(group)
		}
	}
	if all {
		_ = c.removeOldTombstones(ctx, now)
	}
}

// tombstone is one tombstone.
type tombstone struct {
	name  string
	uid   types.UID
	since time.Time
}

// removeSurplusTombstones removes the surplus ones of a group, and returns how many there are then.
func (c *Client) removeSurplusTombstones(ctx context.Context, group string, now time.Time) (left int, err error) {
	var all []tombstone
	err = c.eachTombstone(ctx, tombstoneGroup+"="+group, func(g tombstone, _ string) { all = append(all, g) })
	if err != nil {
		return 0, err
	}
	surplus := surplusOf(all, now)
	return len(all) - len(surplus), c.removeTombstones(ctx, surplus)
}

// surplusOf are those that have to go: beyond the newest, unless they are fresh.
func surplusOf(all []tombstone, now time.Time) []tombstone {
	slices.SortFunc(all, func(a, b tombstone) int { return cmp.Or(b.since.Compare(a.since), cmp.Compare(a.name, b.name)) })
	var surplus []tombstone
	for i, g := range all {
		if i >= tombstonesMax || i >= TombstonesKept && now.Sub(g.since) > tombstoneMinAge {
			surplus = append(surplus, g)
		}
	}
	return surplus
}

// removeOldTombstones removes the surplus ones of all groups, and all that are too old.
func (c *Client) removeOldTombstones(ctx context.Context, now time.Time) error {
	var old []tombstone
	groups := map[string][]tombstone{}
	err := c.eachTombstone(ctx, tombstoneLabel, func(g tombstone, group string) {
		switch {
		case now.Sub(g.since) > TombstoneTTL:
			old = append(old, g)
		case group != "":
			groups[group] = append(groups[group], g)
		}
	})
	if err != nil {
		return err
	}
	for _, all := range groups {
		old = append(old, surplusOf(all, now)...)
	}
	return c.removeTombstones(ctx, old)
}

func (c *Client) eachTombstone(ctx context.Context, labels string, visit func(g tombstone, group string)) error {
	source := c.source(c.coordination, "leases", func() runtime.Object { return &coordinationv1.LeaseList{} })
	source.namespace, source.labels = c.options.Namespace, labels
	return each(ctx, source, func(l *coordinationv1.Lease) {
		visit(tombstone{l.Name, l.UID, l.CreationTimestamp.Time}, l.Labels[tombstoneGroup])
	})
}

func (c *Client) removeTombstones(ctx context.Context, all []tombstone) error {
	for _, g := range all {
		err := c.coordination.Delete().Namespace(c.options.Namespace).Resource("leases").Name(g.name).
			Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &g.uid}}).
			Timeout(callTimeout).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
