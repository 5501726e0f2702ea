package everynode

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// What several nodes do with one volume is tested in test/everynode, with real disks and a real API
// server. Here are the single steps of one node, which that cannot time.

// node is one node with an API server, a disk and everything else around a Directory. It notes what
// is done.
type node struct {
	*Directory
	gate    *gate.Gate
	object  *corev1.PersistentVolume // what the API server has
	watched *corev1.PersistentVolume
	others  int // nodes
	tomb    *plan.Tombstone
	record  *record.Record // what the disk has
	diskErr error
	busy    bool
	done    []string
	events  []string
	made    volume.Spec // by Create
	quota   string      // of the pool
}

func (n *node) note(what string) { n.done = append(n.done, what) }

func (n *node) did() string {
	did := strings.Join(n.done, ", ")
	n.done = nil
	return did
}

// storage is the node's disk. Each step notes itself and moves the directory.
type storage struct {
	disk.Storage
	n *node
}

func (s storage) step(name string, place record.Place) error {
	if s.n.diskErr != nil {
		return s.n.diskErr
	}
	s.n.note(name)
	if s.n.record != nil {
		s.n.record.Place = place
	}
	return nil
}

func (s storage) Create(_ context.Context, _ mounts.Identity, spec volume.Spec) (string, error) {
	if s.n.diskErr != nil {
		return "", s.n.diskErr
	}
	s.n.record, s.n.made = &spec.Record, spec
	return "", s.step("create", record.InPool)
}

func (s storage) List(context.Context, mounts.Identity) (volume.Inventory, error) {
	return volume.Inventory{}, nil
}

func (s storage) Lookup(context.Context, mounts.Identity, string) (record.Record, error) {
	if s.n.record == nil {
		return record.Record{}, volume.ErrNotRecorded
	}
	return *s.n.record, nil
}

func (s storage) Published(context.Context, mounts.Identity, string) error {
	s.n.record.Unpublished = false
	return s.step("published", record.InPool)
}

func (s storage) Trash(context.Context, mounts.Identity, string) error {
	return s.step("trash", record.InTrash)
}

func (s storage) Discard(context.Context, mounts.Identity, string) error {
	return s.step("discard", record.Emptying)
}

func (s storage) Archive(context.Context, mounts.Identity, string) error {
	return s.step("archive", record.InArchive)
}

func (s storage) PutBack(context.Context, mounts.Identity, string, string) error {
	return s.step("put back", record.InPool)
}

func (s storage) Retain(context.Context, mounts.Identity, string) error {
	return s.step("retain", record.InPool)
}

func (n *node) GetVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	return n.object, nil
}

func (n *node) WriteTombstone(_ context.Context, t plan.Tombstone) (bool, error) {
	if n.tomb != nil {
		return false, nil
	}
	n.note("tombstone " + string(t.Data))
	n.tomb = &t
	return true, nil
}

func (n *node) ReleaseFinalizer(context.Context, *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	n.note("finalizer off")
	return nil, nil
}

func (n *node) RemoveVolume(context.Context, *corev1.PersistentVolume) error {
	n.note("object removed")
	return nil
}

func (n *node) Watched(string) (*corev1.PersistentVolume, bool) { return n.watched, n.watched != nil }
func (n *node) PoolOf(*corev1.PersistentVolume) plan.Pool       { p := pool; p.Quota = n.quota; return p }
func (n *node) Nodes(context.Context) int                       { return n.others + 1 }
func (n *node) InFlight(string) bool                            { return n.busy }
func (n *node) Purge(string)                                    { n.note("purge") }
func (n *node) LookAtPool()                                     { n.note("look") }

func (n *node) Compare(context.Context, disk.Handle, record.Record) error {
	n.note("compare")
	return nil
}

func (n *node) DiskFailed(_ *corev1.PersistentVolume, err error) error { return err }

func (n *node) Event(_ corev1.ObjectReference, _, reason, message string) {
	n.events = append(n.events, reason+": "+message)
}

func (n *node) Volume(string, string) {}
func (n *node) Part(string, string)   {}

var pool = plan.Pool{
	Name: "fast", Path: "/srv/fast", Scope: plan.ScopeEveryNode, Mode: 0o770, UID: 7, GID: 8,
	Directory: func(pv, _, _ string) (string, error) { return pv, nil },
}

// newNode is node-a with the open pool "fast", which has nothing of the volume pvc-u. The object is
// bound.
func newNode() *node {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: "pvc-u", UID: "v", CreationTimestamp: metav1.Now(), Finalizers: []string{plan.Finalizer},
		Labels:      map[string]string{plan.PoolLabel: "fast", plan.ScopeLabel: plan.ScopeEveryNode},
		Annotations: map[string]string{plan.ProvisionedBy: plan.DefaultProvisioner},
	}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c", UID: "u"}
	pv.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/srv/fast/pvc-u"}
	pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = corev1.PersistentVolumeReclaimDelete, corev1.VolumeBound
	n := &node{gate: gate.New("fast"), object: pv, watched: pv}
	n.open()
	n.Directory = New(Options{
		Self: plan.Self{Node: "node-a", Provisioner: plan.DefaultProvisioner}, Pool: "fast", Scope: plan.ScopeEveryNode,
		Disk: disk.New(disk.Options{Name: "fast", Gate: n.gate, Storage: storage{n: n}, Look: func() {}, Slow: time.Hour}),
		API:  n, Watched: n.Watched, PoolOf: n.PoolOf, Nodes: n.Nodes, InFlight: n.InFlight, Compare: n.Compare,
		Purge: n.Purge, LookAtPool: n.LookAtPool, DiskFailed: n.DiskFailed, Events: n, Metrics: n, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	return n
}

func (n *node) open() {
	n.gate.Set(hostcheck.Report{Pool: "fast", Size: 1 << 40, Available: 1 << 40}, time.Now())
}

func (n *node) close() {
	n.gate.Set(hostcheck.Report{Pool: "fast", Findings: []hostcheck.Finding{{
		Reason: "NotMounted", Severity: hostcheck.Close, Message: "it is not mounted"}}}, time.Now())
}

func (n *node) look(t *testing.T) (done bool, after time.Duration) {
	t.Helper()
	done, after, err := n.Look(t.Context(), "pvc-u")
	if err != nil {
		t.Error(err)
	}
	return done, after
}

func (n *node) release() { n.object.Status.Phase = corev1.VolumeReleased }

// Each node's directory has a project quota of the claim's size, where the pool says so.
func TestLimitOfEachNode(t *testing.T) {
	for quota, want := range map[string]int64{plan.QuotaProject: 5 << 20, plan.QuotaOff: 0} {
		n := newNode()
		n.quota, n.object.Spec.Capacity = quota, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Mi")}
		if n.look(t); n.made.PV != "pvc-u" || n.made.Quota != want || n.made.Project != (want > 0) {
			t.Errorf("quota %s: %+v", quota, n.made)
		}
	}
}

var deleted = plan.Verdict{Action: plan.Delete, Reason: "Deleted"}

// One look at a volume of which the node has this, by what the API server and the disk have.
func TestLook(t *testing.T) {
	with := func(place record.Place) func(*node) {
		return func(n *node) {
			n.record = &record.Record{PV: "pvc-u", ClaimUID: "u", Scope: plan.ScopeEveryNode, Directory: "pvc-u", Place: place}
		}
	}
	gone := func(n *node) { n.watched, n.object = nil, nil }
	for name, c := range map[string]struct {
		given []func(*node)
		want  string
		event string // what it begins with; "" for none
	}{
		"a volume without a directory here":      {nil, "create", ""},
		"an old volume":                          {[]func(*node){func(n *node) { n.object.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)) }}, "create", plan.ReasonPartMade},
		"a directory that is there":              {[]func(*node){with(record.InPool)}, "", ""},
		"a directory that has its object by now": {[]func(*node){with(record.InPool), func(n *node) { n.record.Unpublished = true }}, "published", ""},
		"a directory in the trash":               {[]func(*node){with(record.InTrash)}, "put back", plan.ReasonPutBack},
		"in the trash, and released since": {[]func(*node){with(record.InTrash), func(n *node) {
			n.watched = n.object.DeepCopy()
			n.release()
		}}, "", ""},
		"a closed pool":                {[]func(*node){(*node).close}, "", plan.ReasonPoolClosed},
		"a disk that fails":            {[]func(*node){func(n *node) { n.diskErr = errors.New("i/o error") }}, "look", plan.ReasonProvisioningFailed},
		"a pool that moved":            {[]func(*node){func(n *node) { n.diskErr = volume.ErrDirectoryReplaced }}, "look", ""},
		"a pool that is not here":      {[]func(*node){func(n *node) { n.Pool = "" }}, "", ""},
		"no object, and a directory":   {[]func(*node){gone, with(record.InPool)}, "compare", ""},
		"no object, being removed":     {[]func(*node){gone, with(record.Emptying)}, "purge", ""},
		"no object yet":                {[]func(*node){gone, with(record.InPool), func(n *node) { n.busy = true }}, "", ""},
		"no object, and a closed pool": {[]func(*node){gone, with(record.InPool), (*node).close}, "", ""},
		"no object and no directory":   {[]func(*node){gone}, "", ""},
	} {
		n := newNode()
		for _, given := range c.given {
			given(n)
		}
		done, _, err := n.Look(t.Context(), "pvc-u")
		if did := n.did(); !done || did != c.want || (err != nil) != (n.diskErr != nil) {
			t.Errorf("%s: done %t, did %q, %v; want %q", name, done, did, err, c.want)
		}
		if len(n.events) > 1 || (len(n.events) == 1) != (c.event != "") || c.event != "" && !strings.HasPrefix(n.events[0], c.event+":") {
			t.Errorf("%s: events %q, want %q", name, n.events, c.event)
		}
	}
}

// A volume whose object went within seconds of its claim's provisioning here is looked at again: no
// further event tells of it, and its tombstone does not stay for ever.
func TestLookAgainWhileInFlight(t *testing.T) {
	n := newNode()
	n.watched, n.object, n.busy = nil, nil, true
	n.record = &record.Record{PV: "pvc-u", ClaimUID: "u", Scope: plan.ScopeEveryNode, Directory: "pvc-u", Place: record.InPool}
	if _, after := n.look(t); after <= 0 || n.did() != "" {
		t.Errorf("while its claim is in flight: looked at again after %s", after)
	}
	n.busy = false
	if _, after := n.look(t); after != 0 || n.did() != "compare" {
		t.Errorf("then: looked at again after %s, and it was not compared", after)
	}
}

// A volume that is released, and one of another scope, is not for Look.
func TestNotForLook(t *testing.T) {
	n := newNode()
	n.release()
	if done, _ := n.look(t); done {
		t.Error("a released volume is looked at here")
	}
	n = newNode()
	n.object.Labels[plan.ScopeLabel] = plan.ScopeNode
	if done, _ := n.look(t); done {
		t.Error("a volume of one node is looked at here")
	}
}

// The record of a new directory has what a removal needs.
func TestRecordOfANewDirectory(t *testing.T) {
	n := newNode()
	n.look(t)
	r := *n.record
	if r.PV != "pvc-u" || r.ClaimUID != "u" || r.Node != "node-a" || r.Scope != plan.ScopeEveryNode || r.Provisioner != plan.DefaultProvisioner ||
		r.Source != plan.SourceHostPath || r.Reclaim != "Delete" || r.Directory != "pvc-u" || r.Unpublished {
		t.Errorf("the record is %+v", r)
	}
}

// A pool that opens and closes all the time has two events on each volume, and in the end the one
// that is so.
func TestFlappingPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.look(t)
		for range 60 {
			n.close()
			n.look(t)
			time.Sleep(time.Second) // of the bubble's clock
			n.open()
			n.look(t)
			time.Sleep(time.Second)
		}
		if len(n.events) != 2 || !strings.HasPrefix(n.events[0], plan.ReasonPoolClosed) || !strings.HasPrefix(n.events[1], plan.ReasonPartMade) {
			t.Errorf("events %q", n.events)
		}
		n.close()
		_, after := n.look(t)
		if after <= 0 {
			t.Error("it is not looked at again, and the last event is not what is so")
		}
		time.Sleep(after)
		n.look(t)
		if last := n.events[len(n.events)-1]; len(n.events) != 3 || !strings.HasPrefix(last, plan.ReasonPoolClosed) {
			t.Errorf("events %q, want the last one about the closed pool", n.events)
		}
		for range 100 { // an hour and a half
			n.open()
			n.look(t)
			time.Sleep(time.Minute)
		}
		if len(n.events) != 4 || !strings.HasPrefix(n.events[3], plan.ReasonPartMade) {
			t.Errorf("events %q, want that it is there, once", n.events)
		}
	})
}

// A volume with a message that is not due yet, which then is not this provisioner's any more:
// nothing is to be reported, and it is not looked at again until it changes.
func TestNothingIsHeldForAVolumeWithoutAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.look(t)
		n.close()
		n.look(t)
		n.open()
		n.look(t)
		n.close()
		if _, after := n.look(t); after <= 0 {
			t.Fatal("no message is held")
		}
		time.Sleep(report.Settle)
		n.watched.Annotations[plan.ProvisionedBy] = "another"
		if _, after := n.look(t); after != 0 {
			t.Errorf("it is looked at again after %s", after)
		}
	})
}
