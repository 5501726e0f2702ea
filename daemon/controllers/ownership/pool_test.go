package ownership

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// storage is a pool's directory with records and a marker. It counts how often the records are
// read.
type storage struct {
	disk.Storage
	records  []record.Record
	readErr  error
	hang     chan struct{} // closed when the records can be read; nil: at once
	reads    int
	marker   hostcheck.Marker // that was written; zero for none
	writeErr error
}

func (s *storage) List(context.Context, mounts.Identity) (volume.Inventory, error) {
	s.reads++
	if s.hang != nil {
		<-s.hang
	}
	return volume.Inventory{Volumes: s.records}, s.readErr
}

func (s *storage) Remark(_ context.Context, _ mounts.Identity, m hostcheck.Marker) error {
	if s.writeErr == nil {
		s.marker = m
	}
	return s.writeErr
}

// environment is everything around a Pool of node-a in the cluster "c".
type environment struct {
	*Pool
	api       *api
	storage   *storage
	noNode    bool
	boot      string // that the Node says
	holder    string // of the node's lease, if that is another host
	looks     atomic.Int64
	clusterOf *Cluster
	watched   []*corev1.PersistentVolume
}

func newEnvironment(scope string, a *api, s *storage) *environment {
	e := &environment{api: a, storage: s, clusterOf: newCluster(a)}
	e.clusterOf.identified.Store(true)
	e.clusterOf.id.Store(new("c"))
	e.clusterOf.Watched = func(name string) (*corev1.PersistentVolume, bool) {
		for _, v := range e.watched {
			if v.Name == name {
				return v, true
			}
		}
		return nil, false
	}
	e.Pool = New(Options{
		Pool: plan.Pool{Name: "fast", Path: "/srv/fast", Scope: scope}, Node: "node-a",
		Host: Host{BootID: "here"}, Object: e.node, BoundNode: func() string { return "" },
		Holder:  func() string { return e.holder },
		Objects: func() []*corev1.PersistentVolume { return e.watched },
		Beside:  func(v *corev1.PersistentVolume) bool { return v.Labels[plan.PoolLabel] == "slow" },
		Cluster: e.clusterOf, Disk: disk.New(disk.Options{Name: "fast", Storage: s, Look: func() {}, Slow: time.Hour}),
		Deadline: time.Minute, Look: func() { e.looks.Add(1) }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	return e
}

// node is the Node as the cluster has it.
func (e *environment) node() *corev1.Node {
	if e.noNode {
		return nil
	}
	n := &corev1.Node{}
	n.Status.NodeInfo.BootID = e.boot
	return n
}

// check checks a pool that was found with this marker, and returns the report and its reasons.
func (e *environment) check(ctx context.Context, marker hostcheck.Marker) (hostcheck.Report, string) {
	report := hostcheck.Report{Pool: "fast", Mark: marker}
	e.Check(ctx, &report)
	var reasons []string
	for _, f := range report.Findings {
		reasons = append(reasons, f.Reason)
	}
	return report, strings.Join(reasons, " ")
}

var (
	complete = hostcheck.Marker{Node: "node-a", Cluster: "c"}
	ours     = record.Record{PV: "pvc-1", ClaimUID: "1", Node: "node-a", Scope: plan.ScopeNode, Place: record.InPool}
	theirs   = record.Record{PV: "pvc-2", ClaimUID: "1", Node: "node-b", Scope: plan.ScopeNode, Place: record.InPool}
	common   = record.Record{PV: "pvc-3", ClaimUID: "1", Node: "node-b", Scope: plan.ScopeShared, Place: record.InPool}
	each     = record.Record{PV: "pvc-4", ClaimUID: "1", Node: "node-a", Scope: plan.ScopeEveryNode, Place: record.InPool}
	shared   = hostcheck.Marker{Cluster: "c", Scope: hostcheck.ScopeShared}
	claim    = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
)

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		scope   string
		marker  hostcheck.Marker // that is found
		disk    storage
		api     api
		noNode  bool
		reasons string
		reads   int
		after   hostcheck.Marker // that is written; zero for none
	}{
		"a marker that names this node and cluster":  {marker: complete},
		"a node that the cluster does not have":      {marker: complete, noNode: true, reasons: plan.ReasonNodeNotFound},
		"a new pool":                                 {reads: 1, after: complete},
		"a new pool of scope shared":                 {scope: plan.ScopeShared, reads: 1, after: shared},
		"a shared pool of this cluster":              {scope: plan.ScopeShared, marker: shared},
		"a shared pool whose marker has no scope":    {scope: plan.ScopeShared, marker: hostcheck.Marker{Cluster: "c"}, reads: 1, after: shared},
		"this node's pool, that is shared by now":    {scope: plan.ScopeShared, marker: complete, reads: 1, after: shared},
		"another node's pool, and scope shared":      {scope: plan.ScopeShared, marker: hostcheck.Marker{Node: "node-b", Cluster: "c"}, reads: 1, reasons: plan.ReasonOtherNode},
		"another node's, shared since long":          {scope: plan.ScopeShared, marker: hostcheck.Marker{Node: "node-b", Cluster: "c"}, disk: storage{records: []record.Record{common}}, reads: 1, after: shared},
		"a directory on each node, and scope shared": {scope: plan.ScopeShared, marker: hostcheck.Marker{Cluster: "c"}, disk: storage{records: []record.Record{each}}, reads: 1, reasons: plan.ReasonScopeChanged},
		"a shared pool, and scope node":              {marker: hostcheck.Marker{Cluster: "c", Scope: hostcheck.ScopeShared}, reads: 1, reasons: plan.ReasonScopeChanged},
		"records of this node":                       {disk: storage{records: []record.Record{ours}}, api: api{claim: claim}, reads: 1, after: complete},
		"records of another node":                    {disk: storage{records: []record.Record{theirs}}, api: api{claim: claim}, reads: 1, reasons: plan.ReasonOtherNode},
		"records of this node's former name": {marker: hostcheck.Marker{Node: "node-a", FormerNodes: "node-b"},
			disk: storage{records: []record.Record{theirs}}, api: api{claim: claim}, reads: 1, after: hostcheck.Marker{Node: "node-a", FormerNodes: "node-b", Cluster: "c"}},
		"records of another cluster":    {disk: storage{records: []record.Record{ours}}, reads: 1, reasons: plan.ReasonOtherCluster},
		"records that cannot be read":   {disk: storage{readErr: errors.New("i/o error")}, reads: 1, reasons: plan.ReasonRecordsUnread},
		"an API server that is away":    {disk: storage{records: []record.Record{ours}}, api: api{err: errors.New("refused")}, reads: 1, reasons: plan.ReasonRecordsUnread},
		"a marker for the next cluster": {marker: hostcheck.Marker{Node: "node-a", Cluster: hostcheck.ClusterAny}, after: complete},
		"a marker that cannot be written": {disk: storage{writeErr: errors.New("read-only file system")}, reads: 1,
			reasons: plan.ReasonStateUnwritable},
	} {
		e := newEnvironment(c.scope, &c.api, &c.disk)
		e.noNode = c.noNode
		report, reasons := e.check(t.Context(), c.marker)
		if reasons != c.reasons || c.disk.reads != c.reads || c.disk.marker != c.after {
			t.Errorf("%s: findings %q, %d times read, marker %+v; want %q, %d, %+v", name, reasons, c.disk.reads, c.disk.marker, c.reasons, c.reads, c.after)
		}
		if opens := report.Removable(); opens != (c.reasons == "" || c.reasons == plan.ReasonStateUnwritable) {
			t.Errorf("%s: the pool opens: %t", name, opens)
		}
		if c.after != (hostcheck.Marker{}) && report.Mark != c.after {
			t.Errorf("%s: the report has the marker %+v", name, report.Mark)
		}
	}
}

// Before the watches are complete nothing is known, and nothing is read.
func TestCheckWaitsForTheCluster(t *testing.T) {
	e := newEnvironment("", &api{}, &storage{readErr: errors.New("read too early")})
	e.clusterOf.identified.Store(false)
	if _, reasons := e.check(t.Context(), hostcheck.Marker{}); e.storage.reads > 0 || reasons != "" {
		t.Errorf("%d times read, findings %s", e.storage.reads, reasons)
	}
}

// A census that keeps its pool closed is taken again after a while, and not at each check.
func TestCensusIsTakenSeldom(t *testing.T) {
	for name, c := range map[string]struct {
		records []record.Record
		api     api
	}{
		"records of another node":    {[]record.Record{theirs}, api{claim: claim}},
		"records of another cluster": {[]record.Record{ours}, api{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEnvironment("", &c.api, &storage{records: c.records})
			closed := func() bool {
				report, _ := e.check(t.Context(), hostcheck.Marker{})
				return !report.Removable()
			}
			time.Sleep(time.Second)
			if !closed() || !closed() || e.storage.reads != 1 {
				t.Errorf("%s: read %d times, want once", name, e.storage.reads)
			}
			e.storage.records = nil // the operator removed them
			time.Sleep(recountAfter)
			if closed() || e.storage.reads != 2 {
				t.Errorf("%s: the records are gone, and the pool stays closed after %d reads", name, e.storage.reads)
			}
		})
	}
}

// A census that does not close the pool is kept, also for the marker that was written after it.
func TestCensusIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironment("", &api{claim: claim}, &storage{records: []record.Record{ours}})
		marker := hostcheck.Marker{}
		for range 3 {
			report, reasons := e.check(t.Context(), marker)
			if reasons != "" {
				t.Fatal(reasons)
			}
			marker = report.Mark
			time.Sleep(time.Hour)
		}
		if e.storage.reads != 1 {
			t.Errorf("read %d times, want once", e.storage.reads)
		}
		if e.check(t.Context(), hostcheck.Marker{Node: "node-a"}); e.storage.reads != 2 {
			t.Errorf("with another marker: read %d times, want twice", e.storage.reads)
		}
	})
}

// A pool whose records take longer than the deadline is closed in time. The census goes on, no
// second one is begun beside it, and the pool is probed again when it ends.
func TestCensusThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironment("", &api{}, &storage{hang: make(chan struct{})})
		for range 3 {
			began := time.Now()
			report, reasons := e.check(t.Context(), hostcheck.Marker{})
			if took := time.Since(began); reasons != plan.ReasonRecordsUnread || report.Removable() || took != time.Minute {
				t.Errorf("after %s: %q", took, reasons)
			}
		}
		synctest.Wait()
		if e.looks.Load() > 0 || e.storage.reads != 1 {
			t.Errorf("read %d times, probed %d times before the census ended", e.storage.reads, e.looks.Load())
		}
		close(e.storage.hang)
		synctest.Wait()
		if e.looks.Load() != 1 {
			t.Errorf("probed %d times after the census, want once", e.looks.Load())
		}
		if _, reasons := e.check(t.Context(), hostcheck.Marker{}); reasons != "" || e.storage.reads != 1 {
			t.Errorf("after the census: %q, read %d times", reasons, e.storage.reads)
		}
	})
}

// A daemon that stops does not wait for a census.
func TestCheckEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironment("", &api{}, &storage{hang: make(chan struct{})})
		defer close(e.storage.hang)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if report, _ := e.check(ctx, hostcheck.Marker{}); report.Removable() || time.Since(began) != time.Second {
			t.Errorf("returned after %s: %+v", time.Since(began), report.Findings)
		}
	})
}

// A failed census is not kept: the next check takes one.
func TestFailedCensusIsTakenAgain(t *testing.T) {
	e := newEnvironment("", &api{}, &storage{readErr: errors.New("i/o error")})
	e.check(t.Context(), hostcheck.Marker{})
	e.storage.readErr = nil
	if _, reasons := e.check(t.Context(), hostcheck.Marker{}); reasons != "" || e.storage.reads != 2 {
		t.Errorf("findings %q, read %d times", reasons, e.storage.reads)
	}
}

// The comparison of all records notices records of another node or scope: the pool is probed again,
// and closes.
func TestCount(t *testing.T) {
	shared := record.Record{PV: "pvc-3", Scope: plan.ScopeShared, Place: record.InPool}
	for name, c := range map[string]struct {
		records []record.Record
		closes  bool
		reasons string
	}{
		"of this node":      {records: []record.Record{ours}},
		"of another node":   {[]record.Record{ours, theirs}, true, plan.ReasonOtherNode},
		"of another scope":  {[]record.Record{ours, shared}, true, plan.ReasonScopeChanged},
		"no record at all":  {},
		"of several causes": {[]record.Record{theirs, shared}, true, plan.ReasonOtherNode + " " + plan.ReasonScopeChanged},
	} {
		e := newEnvironment("", &api{}, &storage{})
		looks := 0
		if c.closes {
			looks = 1
		}
		for range 2 { // the second time it is known
			if got := e.Count(c.records, complete); got != c.closes || int(e.looks.Load()) != looks {
				t.Errorf("%s: closes the pool: %t, probed %d times", name, got, e.looks.Load())
			}
		}
		if _, reasons := e.check(t.Context(), complete); reasons != c.reasons || e.storage.reads > 0 {
			t.Errorf("%s: findings %q after %d reads, want %q", name, reasons, e.storage.reads, c.reasons)
		}
	}
}

// Identify of the controller waits for the check of each pool, and not longer than its context.
func TestAwaitChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironment("", &api{}, &storage{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if e.AwaitChecked(ctx) {
			t.Error("the pool was checked, and nothing checked it")
		}
		time.AfterFunc(time.Minute, func() { e.Checked(); e.Checked() })
		if !e.AwaitChecked(t.Context()) {
			t.Error("the pool was not checked")
		}
	})
}

// A pool that was open closes when the Node is another host's, and opens when it is not, with no
// census. Who has the node's lease matters where the Node does not tell.
func TestOtherHost(t *testing.T) {
	e := newEnvironment(plan.ScopeNode, &api{}, &storage{})
	for _, step := range []struct{ boot, holder, want string }{
		{"", "", ""}, {"there", "", plan.ReasonOtherHost}, {"here", "", ""},
		{"here", "node-a_2", ""}, {"", "node-a_2", plan.ReasonOtherHost}, {"", "", ""},
	} {
		e.boot, e.holder = step.boot, step.holder
		if _, got := e.check(t.Context(), complete); got != step.want {
			t.Errorf("%+v: %s", step, got)
		}
	}
}
