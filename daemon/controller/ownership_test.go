package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// owned is a disk with a marker, and records that can be read or not.
type owned struct {
	shelf
	marker   hostcheck.Marker
	readErr  error
	writeErr error
	reads    int
}

func (o *owned) List(ctx context.Context, id mounts.Identity) (volume.Inventory, error) {
	o.reads++
	inventory, _ := o.shelf.List(ctx, id)
	return inventory, o.readErr
}

func (o *owned) Remark(_ context.Context, _ mounts.Identity, m hostcheck.Marker) error {
	if o.writeErr == nil {
		o.marker = m
	}
	return o.writeErr
}

// ownerOf is a controller of node-a in the cluster "c", whose watches are complete.
func ownerOf(a *api, o *owned) (*Controller, *poolWorker) {
	c, r := stand(a, o)
	c.Deadline = time.Minute
	c.Listers.Nodes = one[*corev1.Node]{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}}
	id := "c"
	c.identity.cluster.Store(&id)
	c.identity.synced.Store(true)
	return c, r
}

func TestCheckOwner(t *testing.T) {
	mine := record.Record{PV: "pvc-1", ClaimUID: "1", Node: "node-a", Scope: plan.ScopeNode, Place: record.InPool}
	theirs := mine
	theirs.Node = "node-b"
	whole := hostcheck.Marker{Pool: "fast", Node: "node-a", Cluster: "c"}
	known := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	for name, c := range map[string]struct {
		marker  hostcheck.Marker // that is found
		disk    owned
		claim   *corev1.PersistentVolumeClaim // of the record, in the cluster
		reasons string
		reads   int
		after   hostcheck.Marker // that is written; zero for none
	}{
		"a marker that names this node and cluster": {marker: whole},
		"a new pool":                  {reads: 1, after: hostcheck.Marker{Node: "node-a", Cluster: "c"}},
		"records of this node":        {disk: owned{shelf: shelf{records: []record.Record{mine}}}, claim: known, reads: 1, after: hostcheck.Marker{Node: "node-a", Cluster: "c"}},
		"records of another node":     {disk: owned{shelf: shelf{records: []record.Record{theirs}}}, claim: known, reads: 1, reasons: plan.ReasonOtherNode},
		"records of another cluster":  {disk: owned{shelf: shelf{records: []record.Record{mine}}}, reads: 1, reasons: plan.ReasonOtherCluster},
		"records that cannot be read": {disk: owned{readErr: errors.New("i/o error")}, reads: 1, reasons: plan.ReasonRecordsUnread},
		"a marker for the next cluster": {marker: hostcheck.Marker{Node: "node-a", Cluster: hostcheck.ClusterAny},
			after: hostcheck.Marker{Node: "node-a", Cluster: "c"}},
		"a marker that cannot be written": {disk: owned{writeErr: errors.New("read-only file system")}, reads: 1, reasons: plan.ReasonStateUnwritable},
	} {
		disk := c.disk
		ctl, r := ownerOf(&api{claim: c.claim}, &disk)
		report := hostcheck.Report{Pool: "fast", Mark: c.marker}
		ctl.checkOwner(t.Context(), r, &report)
		var reasons []string
		for _, f := range report.Findings {
			reasons = append(reasons, f.Reason)
		}
		if got := strings.Join(reasons, " "); got != c.reasons || disk.reads != c.reads || disk.marker != c.after {
			t.Errorf("%s: findings %q, %d times read, marker %+v; want %q, %d, %+v", name, got, disk.reads, disk.marker, c.reasons, c.reads, c.after)
		}
		if open := report.Removable(); open != (c.reasons == "" || c.reasons == plan.ReasonStateUnwritable) {
			t.Errorf("%s: the pool opens: %t", name, open)
		}
	}
}

// Before the watches are complete nothing is known, and nothing is asked.
func TestOwnerWaitsForTheWatches(t *testing.T) {
	disk := &owned{readErr: errors.New("read too early")}
	c, r := ownerOf(&api{}, disk)
	c.identity.synced.Store(false)
	report := hostcheck.Report{Pool: "fast"}
	if c.checkOwner(t.Context(), r, &report); disk.reads > 0 || len(report.Findings) > 0 {
		t.Errorf("%d times read, findings %v", disk.reads, report.Findings)
	}
}

// A census that keeps its pool closed is taken again after a while, and not at each look; one that does not is kept.
func TestCensusIsTakenSeldom(t *testing.T) {
	disk := &owned{shelf: shelf{records: []record.Record{{PV: "pvc-1", Node: "node-b", Scope: plan.ScopeNode, Place: record.InPool}}}}
	c, r := ownerOf(&api{claim: &corev1.PersistentVolumeClaim{}}, disk)
	closed := func() bool {
		report := hostcheck.Report{Pool: "fast"}
		c.checkOwner(t.Context(), r, &report)
		return !report.Removable()
	}
	if !closed() || !closed() || disk.reads != 1 {
		t.Errorf("read %d times, want once", disk.reads)
	}
	disk.records = nil // the operator removed them
	r.owner.at = time.Now().Add(-recountAfter)
	if closed() || disk.reads != 2 {
		t.Errorf("the records are gone, and the pool stays closed after %d reads", disk.reads)
	}
}

// The comparison of all records, which comes again and again, notices records of another node.
func TestCountNoticesOthers(t *testing.T) {
	c, r := ownerOf(&api{}, &owned{})
	for name, s := range map[string]struct {
		node   string
		closes bool
	}{"of this node": {"node-a", false}, "of another": {"node-b", true}} {
		records := []record.Record{{PV: "pvc-1", Node: s.node, Scope: plan.ScopeNode, Place: record.InPool}}
		for len(r.kick) > 0 {
			<-r.kick
		}
		if got := c.count(r, records, hostcheck.Marker{Node: "node-a"}); got != s.closes {
			t.Errorf("%s: closes the pool: %t", name, got)
		}
		if s.closes && len(r.kick) == 0 {
			t.Errorf("%s: the pool is not looked at", name)
		}
		r.owner.census = nil
	}
}

// The daemon is sure of the cluster by the marker, or by a volume that it has.
func TestSure(t *testing.T) {
	bound := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "1"}}}
	records := []record.Record{{PV: "pvc-1", ClaimUID: "1"}}
	for name, s := range map[string]struct {
		marked  string
		volumes Lister[*corev1.PersistentVolume]
		want    bool
	}{
		"the marker names it":            {"c", none[*corev1.PersistentVolume]{}, true},
		"the marker names another":       {"d", none[*corev1.PersistentVolume]{}, false},
		"no marker, and no volume":       {"", none[*corev1.PersistentVolume]{}, false},
		"no marker, and a known volume":  {"", one[*corev1.PersistentVolume]{bound}, true},
		"a volume for another claim UID": {"", one[*corev1.PersistentVolume]{&corev1.PersistentVolume{}}, false},
	} {
		c, _ := ownerOf(&api{}, &owned{})
		c.Listers.Volumes = s.volumes
		if got := c.sure(records, hostcheck.Marker{Cluster: s.marked}); got != s.want {
			t.Errorf("%s: %t, want %t", name, got, s.want)
		}
	}
}
