package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// A tombstone is a Lease, because the daemon may write Leases in its namespace anyway, and because
// no other program reads a Lease that it does not know.
const (
	// tombstoneLabel has the value plan.Tombstone.Data; other Leases do not have it.
	tombstoneLabel  = "hostpath-provisioner/tombstone"
	tombstoneClaim  = "hostpath-provisioner/claim"
	tombstoneVolume = "hostpath-provisioner/claim-uid"
	tombstoneClass  = "hostpath-provisioner/class"
	// tombstoneGroup has a hash of namespace and class as its value. Tombstones of versions without
	// this label are read as before, and are collected by their age alone.
	tombstoneGroup = "hostpath-provisioner/tombstone-group"
)

// WriteTombstone creates the tombstone of a volume, which tells every node what to do with the
// data. One that exists stays as it is, and first is false. But Retain replaces Delete: that was
// written before an administrator changed the policy. RunTombstoneGC deletes surplus ones.
//
// A crash between the two leaves no tombstone, by which every node keeps its data; the next try
// writes one.
func (c *Client) WriteTombstone(ctx context.Context, t plan.Tombstone) (first bool, err error) {
	first, err = c.createTombstone(ctx, t)
	if first || err != nil || t.Data != plan.Retain {
		return first, err
	}
	lease, err := leaseKind.get(ctx, c, c.options.Namespace, t.PV)
	if err != nil || lease != nil && lease.Labels[tombstoneLabel] != string(plan.Delete) {
		return false, err
	}
	if lease != nil {
		if err := c.deleteTombstones(ctx, []tombstone{{name: lease.Name, uid: lease.UID}}); err != nil {
			return false, fmt.Errorf("take back that volume %s goes with its data: %w", t.PV, err)
		}
	}
	return c.createTombstone(ctx, t)
}

func (c *Client) createTombstone(ctx context.Context, t plan.Tombstone) (first bool, err error) {
	group := groupOf(t)
	made, err := leaseKind.create(ctx, c, c.options.Namespace, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name:        t.PV,
			Labels:      map[string]string{tombstoneLabel: string(t.Data), tombstoneGroup: group},
			Annotations: map[string]string{tombstoneVolume: t.ClaimUID, tombstoneClaim: t.Claim, tombstoneClass: t.Class},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &t.Node},
	})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write down that volume %s went: %w", t.PV, err)
	}
	c.tombstones.added(group, made.CreationTimestamp.Time, time.Now())
	return true, nil
}

// groupOf returns the label value of the tombstones of the same namespace and class.
func groupOf(t plan.Tombstone) string {
	namespace, _, _ := strings.Cut(t.Claim, "/")
	sum := sha256.Sum256([]byte(namespace + "\x00" + t.Class))
	return hex.EncodeToString(sum[:16])
}

// ReadTombstone requests a volume's tombstone from the API server. It returns nil without an error
// if there is none.
func (c *Client) ReadTombstone(ctx context.Context, pv string) (*plan.Tombstone, error) {
	lease, err := leaseKind.get(ctx, c, c.options.Namespace, pv)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read what became of volume %s: %w", pv, err)
	case lease == nil:
		return nil, nil
	}
	t := &plan.Tombstone{
		PV: lease.Name, ClaimUID: lease.Annotations[tombstoneVolume], Claim: lease.Annotations[tombstoneClaim],
		Class: lease.Annotations[tombstoneClass], Data: plan.Action(lease.Labels[tombstoneLabel]),
	}
	if holder := lease.Spec.HolderIdentity; holder != nil {
		t.Node = *holder
	}
	return t, nil
}

// A tenant makes a tombstone with each claim that it deletes, and no quota counts them. Therefore
// there is a limit for each namespace and class. A node that misses a tombstone that was collected
// keeps its directory and reports it (Orphaned): too few tombstones never destroy data.
const (
	// TombstoneTTL is how long tombstones are kept. A node that was off for longer keeps its
	// directories.
	TombstoneTTL = 90 * 24 * time.Hour
	// TombstonesKept is how many tombstones of one namespace and class are kept: the newest.
	TombstonesKept = 100
	// tombstoneMinAge is the age below which TombstonesKept does not apply. It is longer than a
	// node takes to start anew, and than the 10 minutes within which a running node compares each
	// record with the API. A node whose watch was broken for a minute would otherwise keep what a
	// namespace with many claims had, if those were deleted at once.
	tombstoneMinAge = 15 * time.Minute
	// tombstonesMax is the limit for one namespace and class whatever the age.
	tombstonesMax = 1000
	// tombstoneGCInterval is the shortest time between two collections of one daemon.
	tombstoneGCInterval = 15 * time.Second
	// tombstoneGCAgain is the shortest time until a group is collected again of which no more was
	// written.
	tombstoneGCAgain = 3 * time.Minute
)

// tombstoneGC holds the groups (namespace and class) in which tombstones may have to be collected.
// Times are those of the API server's clock, which dated the objects.
type tombstoneGC struct {
	wake chan struct{}

	mu          sync.Mutex
	groups      map[string]time.Time // when each is due: those that this process wrote to, at once; zero is at once
	latest      time.Time            // when the last tombstone was written
	latestLocal time.Time            // the same by the clock of this host
	collected   time.Time            // when all groups were collected
}

func newTombstoneGC() *tombstoneGC {
	return &tombstoneGC{wake: make(chan struct{}, 1), groups: map[string]time.Time{}}
}

// added records a tombstone of a group that was written at a time of the server's clock, and at
// local of this host's.
func (g *tombstoneGC) added(group string, at, local time.Time) {
	g.mu.Lock()
	g.groups[group], g.latest, g.latestLocal = time.Time{}, at, local
	g.mu.Unlock()
	wake.Signal(g.wake)
}

// due returns and forgets the groups to collect, and the time of the server's clock. all reports,
// once a day, that every group is due.
func (g *tombstoneGC) due(local time.Time) (groups []string, now time.Time, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now = g.latest.Add(local.Sub(g.latestLocal))
	if all = now.Sub(g.collected) > 24*time.Hour; all {
		g.collected = now
	}
	for _, group := range slices.Sorted(maps.Keys(g.groups)) {
		if !g.groups[group].After(now) {
			groups = append(groups, group)
			delete(g.groups, group)
		}
	}
	return groups, now, all
}

// retry makes a group due again, unless it is due before.
func (g *tombstoneGC) retry(group string, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if was, known := g.groups[group]; !known || at.Before(was) {
		g.groups[group] = at
	}
}

// pending reports whether a group is due, now or later.
func (g *tombstoneGC) pending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.groups) > 0
}

// RunTombstoneGC deletes surplus and expired tombstones until ctx ends: those of a namespace and
// class soon after this daemon wrote one of them, and all others with the first tombstone of a day.
// What a daemon that is killed leaves is collected with the next tombstone of the same group, or of
// the next day.
func (c *Client) RunTombstoneGC(ctx context.Context) {
	for ctx.Err() == nil {
		if !c.tombstones.pending() {
			select {
			case <-c.tombstones.wake:
			case <-ctx.Done():
				return
			}
		}
		if !wake.Wait(ctx, c.tombstoneGCInterval, nil) {
			return
		}
		c.collectTombstones(ctx, time.Now())
	}
}

func (c *Client) collectTombstones(ctx context.Context, local time.Time) {
	groups, now, all := c.tombstones.due(local)
	for _, group := range groups {
		// An error is not reported, because an operator can do nothing about it. The group is
		// collected again.
		if again, err := c.deleteSurplusTombstones(ctx, group, now); err != nil || !again.IsZero() {
			c.tombstones.retry(group, again)
		}
	}
	if all {
		_ = c.deleteExpiredTombstones(ctx, now)
	}
}

// tombstone is what the collection reads of one.
type tombstone struct {
	name    string
	uid     types.UID
	created time.Time
}

// deleteSurplusTombstones deletes the surplus tombstones of a group, and returns when others will
// be surplus, zero for never.
func (c *Client) deleteSurplusTombstones(ctx context.Context, group string, now time.Time) (again time.Time, err error) {
	var all []tombstone
	err = c.eachTombstone(ctx, tombstoneGroup+"="+group, func(t tombstone, _ string) { all = append(all, t) })
	if err != nil {
		return again, err
	}
	surplus := surplusTombstones(all, now)
	if left := all[:len(all)-len(surplus)]; len(left) > TombstonesKept {
		again = left[len(left)-1].created.Add(tombstoneMinAge + time.Second) // of whole seconds
		if soon := now.Add(tombstoneGCAgain); again.Before(soon) {
			again = soon
		}
	}
	return again, c.deleteTombstones(ctx, surplus)
}

// surplusTombstones returns those of a group that exceed TombstonesKept and are older than
// tombstoneMinAge, or exceed tombstonesMax. It sorts all, so that these are the last.
func surplusTombstones(all []tombstone, now time.Time) []tombstone {
	slices.SortFunc(all, func(a, b tombstone) int {
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(a.name, b.name))
	})
	var surplus []tombstone
	for i, t := range all {
		if i >= tombstonesMax || i >= TombstonesKept && now.Sub(t.created) > tombstoneMinAge {
			surplus = append(surplus, t)
		}
	}
	return surplus
}

// deleteExpiredTombstones deletes the tombstones of all groups that are older than TombstoneTTL or
// surplus.
func (c *Client) deleteExpiredTombstones(ctx context.Context, now time.Time) error {
	var expired []tombstone
	groups := map[string][]tombstone{}
	err := c.eachTombstone(ctx, tombstoneLabel, func(t tombstone, group string) {
		switch {
		case now.Sub(t.created) > TombstoneTTL:
			expired = append(expired, t)
		case group != "":
			groups[group] = append(groups[group], t)
		}
	})
	if err != nil {
		return err
	}
	for _, all := range groups {
		expired = append(expired, surplusTombstones(all, now)...)
	}
	return c.deleteTombstones(ctx, expired)
}

func (c *Client) eachTombstone(ctx context.Context, labels string, visit func(t tombstone, group string)) error {
	of := selection{namespace: c.options.Namespace, labels: labels}
	return leaseKind.each(ctx, c, of, func(l *coordinationv1.Lease) {
		visit(tombstone{l.Name, l.UID, l.CreationTimestamp.Time}, l.Labels[tombstoneGroup])
	})
}

func (c *Client) deleteTombstones(ctx context.Context, all []tombstone) error {
	for _, t := range all {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: c.options.Namespace, Name: t.name, UID: t.uid}}
		if err := leaseKind.removeThis(ctx, c, lease, nil); err != nil {
			return err
		}
	}
	return nil
}
