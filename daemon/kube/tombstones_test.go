package kube

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

func TestTombstones(t *testing.T) {
	ctx := t.Context()
	ownNamespace(t)
	c, w := newClient(t, Options{})
	if none, err := c.ReadTombstone(ctx, "pvc-none"); none != nil || err != nil {
		t.Errorf("of a volume that has none: %+v, %v", none, err)
	}
	want := plan.Tombstone{PV: "pvc-u-1", ClaimUID: "u-1", Claim: "default/data", Class: "c", Node: "node-a", Data: plan.Retain}
	if first, err := c.WriteTombstone(ctx, want); !first || err != nil {
		t.Fatalf("the first: %v, %v", first, err)
	}
	other := want
	other.Data, other.Node = plan.Delete, "node-b"
	if first, err := c.WriteTombstone(ctx, other); first || err != nil {
		t.Errorf("the second: %v, %v", first, err)
	}
	if got, err := c.ReadTombstone(ctx, want.PV); err != nil || got == nil || *got != want {
		t.Errorf("read %+v, %v; the first one stays", got, err)
	}
	w.forget()
	if first, err := c.WriteTombstone(ctx, want); first || err != nil {
		t.Errorf("Retain again: %v, %v: %q", first, err, w.requests())
	}
	for range 2 { // the second on the same day
		w.forget()
		if _, err := c.WriteTombstone(ctx, plan.Tombstone{PV: "pvc-" + strings.ToLower(rand.Text()), Data: plan.Delete}); err != nil {
			t.Error(err)
		}
		c.collectTombstones(ctx, time.Now())
	}
	if n := w.count("limit"); n != 1 { // no page of all
		t.Errorf("%d lists, want that of the group: %q", n, w.requests())
	}
}

// That the data is kept replaces that it goes, and nothing else is replaced.
func TestTombstoneOfAPolicyThatChanged(t *testing.T) {
	ctx := t.Context()
	ownNamespace(t)
	c, _ := newClient(t, Options{})
	goes := plan.Tombstone{PV: "pvc-changed", ClaimUID: "changed", Claim: "default/data", Class: "c", Node: "node-a", Data: plan.Delete}
	kept := goes
	kept.Data, kept.Node = plan.Retain, "node-b"
	for i, step := range []struct {
		write, want plan.Tombstone
		first       bool
	}{{goes, goes, true}, {goes, goes, false}, {kept, kept, true}, {kept, kept, false}, {goes, kept, false}} {
		first, err := c.WriteTombstone(ctx, step.write)
		if first != step.first || err != nil {
			t.Errorf("step %d: first %t, %v", i, first, err)
		}
		if got, err := c.ReadTombstone(ctx, goes.PV); err != nil || got == nil || *got != step.want {
			t.Errorf("step %d: read %+v, %v", i, got, err)
		}
	}
}

// Tombstones go when they are old, and nothing else in the namespace does.
func TestTombstonesGo(t *testing.T) {
	ctx := t.Context()
	ownNamespace(t)
	c, _ := newClient(t, Options{})
	if _, err := c.WriteTombstone(ctx, plan.Tombstone{PV: "pvc-old", ClaimUID: "old", Data: plan.Delete}); err != nil {
		t.Fatal(err)
	}
	leases := plane.Client().CoordinationV1().Leases(DefaultNamespace)
	lease, err := leases.Get(ctx, "pvc-old", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	another := lease.DeepCopy()
	another.ObjectMeta = metav1.ObjectMeta{Name: "another"}
	if _, err := leases.Create(ctx, another, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	there := func(name string) bool {
		_, err := leases.Get(context.WithoutCancel(ctx), name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	if err := c.deleteExpiredTombstones(ctx, lease.CreationTimestamp.Add(TombstoneTTL)); err != nil || !there("pvc-old") {
		t.Errorf("one that is not older went, %v", err)
	}
	if err := c.deleteExpiredTombstones(ctx, lease.CreationTimestamp.Add(TombstoneTTL+time.Second)); err != nil || there("pvc-old") {
		t.Errorf("one that is older stayed, %v", err)
	}
	if !there("another") {
		t.Error("a lease that is no tombstone went")
	}
}

// ownNamespace makes the namespace of the daemon's objects, as the manifests do.
func ownNamespace(t *testing.T) {
	t.Helper()
	_, err := plane.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: DefaultNamespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// A tenant that makes and deletes claims all day leaves a bounded number of tombstones, the newest
// ones; no other group loses one by that, nor those of an older version.
func TestTombstonesAreBounded(t *testing.T) {
	ctx := t.Context()
	ownNamespace(t)
	c, _ := newClient(t, Options{})
	write := func(name, claim, class string) {
		t.Helper()
		if _, err := c.WriteTombstone(ctx, plan.Tombstone{PV: name, ClaimUID: name, Claim: claim, Class: class, Data: plan.Delete}); err != nil {
			t.Fatal(err)
		}
	}
	write("pvc-neighbour", "calm/data", "c")
	write("pvc-class", "busy/data", "other")
	writeUngrouped(t, "pvc-before")
	write("pvc-first", "busy/data", "c")
	awaitNextSecond(t) // creation times have no fractions
	for i := range TombstonesKept + 20 {
		write(fmt.Sprintf("pvc-many-%d", i), "busy/data", "c")
	}
	c.collectTombstones(ctx, time.Now())
	if n := len(tombstonesOf(t, "busy/data")); n != TombstonesKept+22 {
		t.Errorf("%d left, want all while they are fresh", n)
	}
	if groups, _, _ := c.tombstones.due(time.Now().Add(tombstoneMinAge - time.Minute)); len(groups) > 0 {
		t.Errorf("%q are due while all are fresh: each collection reads all of a group", groups)
	}
	c.collectTombstones(ctx, time.Now().Add(2*tombstoneMinAge)) // was not forgotten
	left := tombstonesOf(t, "busy/data")
	if len(left) != TombstonesKept+1 || slices.Contains(left, "pvc-first") || !slices.Contains(left, "pvc-class") {
		t.Errorf("%d left, want %d and the one of another class: %q", len(left), TombstonesKept, left)
	}
	for _, pv := range []string{"pvc-neighbour", "pvc-class", "pvc-before"} {
		if got, err := c.ReadTombstone(ctx, pv); got == nil || err != nil {
			t.Errorf("%s: %v, %v", pv, got, err)
		}
	}
	if c.tombstones.pending() {
		t.Error("the group stays due")
	}
}

// However many there are fresh, and however many pages.
func TestTombstonesOfManyPages(t *testing.T) {
	ctx := t.Context()
	ownNamespace(t)
	c, _ := newClient(t, Options{})
	for i := range defaultTimings.pageSize + 20 {
		writeUngrouped(t, fmt.Sprintf("pvc-page-%d", i))
	}
	if err := c.deleteExpiredTombstones(ctx, time.Now().Add(TombstoneTTL+time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left := tombstonesOf(t, "paged/data"); len(left) > 0 {
		t.Errorf("%d old ones left", len(left))
	}
	var all []tombstone
	for i := range tombstonesMax + 5 {
		all = append(all, tombstone{name: fmt.Sprint(i)})
	}
	if n := len(surplusTombstones(all, time.Time{})); n != 5 {
		t.Errorf("of %d fresh ones %d go, want 5", len(all), n)
	}
}

// A node that starts anew, or whose watch is broken for minutes, finds the tombstones of a
// namespace that was deleted at once. A minute was too short: what such a node had was kept for
// ever.
func TestTombstonesStayForANodeThatIsAway(t *testing.T) {
	now := time.Now()
	for age, want := range map[time.Duration]int{0: 0, 11 * time.Minute: 0, 20 * time.Minute: 400} {
		var all []tombstone
		for i := range TombstonesKept + 400 {
			all = append(all, tombstone{name: fmt.Sprint(i), created: now.Add(-age)})
		}
		if got := surplusTombstones(all, now); len(got) != want {
			t.Errorf("of %d that are %s old %d go, want %d", len(all), age, len(got), want)
		}
	}
}

// A group is collected again at the time that was said, and at once when a tombstone was written.
func TestTombstoneGroupsAreDue(t *testing.T) {
	g, start := newTombstoneGC(), time.Now()
	due := func(after time.Duration) []string {
		groups, _, _ := g.due(start.Add(after))
		return groups
	}
	g.added("a", start, start)
	if got := due(0); !slices.Equal(got, []string{"a"}) || g.pending() {
		t.Errorf("%q are due when one was written", got)
	}
	g.retry("a", start.Add(time.Minute))
	g.retry("a", start.Add(time.Hour))
	if early, late := due(59*time.Second), due(time.Minute); len(early) > 0 || !slices.Equal(late, []string{"a"}) {
		t.Errorf("%q are due before the time, %q then", early, late)
	}
}

// TestRunTombstoneGC: the daemon collects by itself after WriteTombstone.
func TestRunTombstoneGC(t *testing.T) {
	ownNamespace(t)
	c, w := newClient(t, Options{})
	c.tombstoneGCInterval = time.Millisecond
	ended := make(chan struct{})
	ctx, end := context.WithCancel(t.Context())
	go func() { c.RunTombstoneGC(ctx); close(ended) }()
	if _, err := c.WriteTombstone(ctx, plan.Tombstone{PV: "pvc-" + strings.ToLower(rand.Text()), Data: plan.Delete}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the collection", func() bool { return w.count("limit") >= 2 })
	end()
	<-ended
}

// writeUngrouped writes a tombstone without the label of a group.
func writeUngrouped(t *testing.T, pv string) {
	t.Helper()
	_, err := plane.Client().CoordinationV1().Leases(DefaultNamespace).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: pv, Labels: map[string]string{tombstoneLabel: string(plan.Delete)},
		Annotations: map[string]string{tombstoneVolume: pv, tombstoneClaim: "paged/data"},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// tombstonesOf are the names of a claim's.
func tombstonesOf(t *testing.T, claim string) []string {
	t.Helper()
	list, err := plane.Client().CoordinationV1().Leases(DefaultNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: tombstoneLabel})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range list.Items {
		if l.Annotations[tombstoneClaim] == claim {
			names = append(names, l.Name)
		}
	}
	return names
}

func awaitNextSecond(t *testing.T) {
	t.Helper()
	now := time.Now()
	eventually(t, "the next second", func() bool { return time.Now().Unix() > now.Unix() })
}
