package controllers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// An API server that responds late, wrongly or not at all is simulated in test/weather. Here are the
// single steps that it found wanting.

var errAway = errors.New("away")

// api has no objects, and counts what it is asked.
type api struct {
	API
	away        bool
	claim       *corev1.PersistentVolumeClaim
	counts      int
	asked       []string
	assignments int
	volume      *corev1.PersistentVolume // gone when its finalizer is to be taken off
	released    int
	many        bool // there are more volumes than are read
}

func (a *api) ReleaseFinalizer(context.Context, *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	a.released, a.volume = a.released+1, nil
	return nil, a.err()
}

func (a *api) err() error {
	if a.away {
		return errAway
	}
	return nil
}

func (a *api) NodeCount(context.Context) (int, error) { a.counts++; return 1, a.err() }

func (a *api) GetVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	a.asked = append(a.asked, name)
	return a.volume, a.err()
}

// The objects that a comparison finds under other names are tested in test/e2e.
func (a *api) EachVolume(context.Context, func(*corev1.PersistentVolume)) error { return a.err() }

func (a *api) FewVolumes(_ context.Context, _ int64, visit func(*corev1.PersistentVolume)) (bool, error) {
	a.asked = append(a.asked, "volumes")
	if a.volume != nil {
		visit(a.volume)
	}
	return !a.many, a.err()
}

func (a *api) ClusterID(context.Context) (string, error) {
	a.asked = append(a.asked, "cluster")
	return "c", a.err()
}

func (a *api) GetClaim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	a.asked = append(a.asked, "claim")
	return a.claim, a.err()
}

func (a *api) SetSelectedNode(context.Context, *corev1.PersistentVolumeClaim, string) (bool, error) {
	a.assignments++
	return false, nil
}

// shelf is a disk with records, of which the first cannot be undone.
type shelf struct {
	disk.Storage
	records []record.Record
	undone  []string

	discarded []string
}

func (s *shelf) Discard(_ context.Context, _ mounts.Identity, pv string) error {
	s.discarded = append(s.discarded, pv)
	return nil
}

func (s *shelf) Sweep(context.Context, mounts.Identity) (int, error) { return 0, nil }

func (s *shelf) List(context.Context, mounts.Identity) (volume.Inventory, error) {
	return volume.Inventory{Volumes: s.records}, nil
}

func (s *shelf) Lookup(_ context.Context, _ mounts.Identity, pv string) (record.Record, error) {
	for _, r := range s.records {
		if r.PV == pv {
			return r, nil
		}
	}
	return record.Record{}, volume.ErrNotRecorded
}

func (s *shelf) Trash(context.Context, mounts.Identity, string) error { return nil }

func (s *shelf) Undo(_ context.Context, _ mounts.Identity, pv string) error {
	if pv == s.records[0].PV {
		return errors.New("it is busy")
	}
	s.undone = append(s.undone, pv)
	return nil
}

// none is a store without objects.
type none[T any] struct{}

func (none[T]) Get(string) (t T, ok bool) { return t, false }
func (none[T]) List() []T                 { return nil }
func (none[T]) Watched() bool             { return true }

type deafObserver struct{ Metrics }

func (deafObserver) Volume(string, string)    {}
func (deafObserver) Expansion(string, string) {}
func (deafObserver) Snapshot(string)          {}

// stand is a controller with one open pool, "fast", on this disk.
func stand(a *api, storage disk.Storage) (*Controller, *poolWorker) {
	g := gate.New("fast")
	g.Set(hostcheck.Report{Pool: "fast", Size: 1 << 40, Available: 1 << 40, Mark: hostcheck.Marker{Cluster: "c"}}, time.Now())
	c := New(Options{
		Self: plan.Self{Node: "node-a"}, API: a, BoundNode: nobody, Holder: nobody, Gate: g, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: deafObserver{},
		Pools:    []PoolParts{{Pool: plan.Pool{Name: "fast"}, Storage: storage}},
		Deadline: time.Minute, // a busy machine is no reason to look at the pool
		Listers:  Listers{Claims: none[*corev1.PersistentVolumeClaim]{}, Volumes: none[*corev1.PersistentVolume]{}, Nodes: none[*corev1.Node]{}},
	})
	return c, c.workers["fast"]
}

// All workers wait while the nodes are counted: one that failed is enough for a while.
func TestNodesAreCountedOnceWhileItFails(t *testing.T) {
	a := &api{away: true}
	c, _ := stand(a, &shelf{})
	for range 100 {
		if c.nodeCount(t.Context(), time.Minute) < 2 {
			t.Fatal("what could not be counted is taken for a single node")
		}
	}
	if a.counts != 1 {
		t.Errorf("the nodes were counted %d times", a.counts)
	}
	a.away = false
	c.nodes.failed = time.Now().Add(-countAgain - time.Second)
	if c.nodeCount(t.Context(), time.Minute) != 1 || a.counts != 2 {
		t.Errorf("after a while it was not asked again: %d times", a.counts)
	}
}

// A claim that seems to have been changed is looked at again: the watch may have nothing to bring.
func TestAssignIsTriedAgain(t *testing.T) {
	a := &api{}
	c, _ := stand(a, &shelf{})
	after, err := c.assign(t.Context(), &corev1.PersistentVolumeClaim{}, "node-a", "took the claim")
	if err != nil || after <= 0 || a.assignments != 1 {
		t.Errorf("looked at again after %s, %v", after, err)
	}
}

// The object is gone, by a request whose response was lost: the trash is emptied all the same.
func TestVanishedVolumeIsPurged(t *testing.T) {
	disk := &shelf{records: []record.Record{
		{PV: "pvc-a", Place: record.Emptying}, {PV: "pvc-b", Place: record.InPool}, {PV: "pvc-c", Place: record.InTrash}, {PV: "pvc-d", Place: record.InTrash},
	}}
	c, w := stand(&api{}, disk)
	c.begun.Begin(letGoKey("pvc-c")) // the response to its last request was lost
	for _, name := range []string{"pvc-a", "pvc-b", "pvc-c", "pvc-d", "pvc-unknown"} {
		if _, err := c.volume(t.Context(), w, name); err != nil {
			t.Error(err)
		}
	}
	var purged []string
	for w.purges.Len() > 0 {
		i, _ := w.purges.Get()
		purged = append(purged, i.name)
	}
	if !slices.Equal(purged, []string{"pvc-a", "pvc-c"}) || !slices.Equal(disk.discarded, []string{"pvc-c"}) {
		t.Errorf("%q are purged, %q discarded", purged, disk.discarded)
	}
	if !c.said.Written("orphan/pvc-d") || c.said.Written("orphan/pvc-c") {
		t.Error("the one that this daemon did not let go is told, and no other")
	}
}

// An administrator sets another policy and forces the object away while its directory is on its way
// to the trash: its files do not go. Those of an object that this daemon let go do, also if that is
// found out by the next try.
func TestForcedAwayMeanwhile(t *testing.T) {
	for _, own := range []bool{false, true} {
		a := &api{}
		disk := &shelf{records: []record.Record{{PV: "pvc-a", Place: record.InTrash}}}
		c, w := stand(a, disk)
		a.volume = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a", Finalizers: []string{plan.Finalizer},
			Labels: map[string]string{plan.NodeLabel: "node-a"}, Annotations: map[string]string{plan.ProvisionedBy: ""}}}
		a.volume.Spec.PersistentVolumeReclaimPolicy, a.volume.Status.Phase = corev1.PersistentVolumeReclaimDelete, corev1.VolumeReleased
		a.volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "a"}
		a.volume.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/pvc-a"}
		disk.records[0].Directory = "pvc-a"
		if own {
			c.begun.Begin(letGoKey("pvc-a"))
		}
		if _, err := c.volume(t.Context(), w, "pvc-a"); err != nil {
			t.Error(err)
		}
		if a.released != 1 || (len(disk.discarded) > 0) != own || c.said.Written("orphan/pvc-a") == own {
			t.Errorf("let go by this daemon %t: asked %d times to release it, discarded %q, told %t", own, a.released, disk.discarded, c.said.Written("orphan/pvc-a"))
		}
	}
}

// A pool that goes away between the removal of an object and the note of it in the trash has the
// note when it is back: its records are gone through then, and not the volume alone. It stayed for
// ever.
func TestLetGoInAPoolThatWasAway(t *testing.T) {
	disk := &shelf{records: []record.Record{{PV: "pvc-a", Place: record.InTrash}, {PV: "pvc-b", Place: record.InTrash}}}
	c, w := stand(&api{}, disk)
	c.begun.Begin(letGoKey("pvc-a"))
	if err := c.recheck(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(disk.discarded, []string{"pvc-a"}) || w.purges.Len() != 1 {
		t.Errorf("%q are discarded, %d are to be purged", disk.discarded, w.purges.Len())
	}
	if c.said.Written("orphan/pvc-a") || !c.said.Written("orphan/pvc-b") {
		t.Error("the one that this daemon did not let go is told, and no other")
	}
}

// What this process remembers of an object that it let go ends when the object is to stay after
// all.
func TestLetGoIsForgotten(t *testing.T) {
	for _, change := range []func(*corev1.PersistentVolume){
		func(v *corev1.PersistentVolume) {},
		func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		},
		func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil },
		func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound },
	} {
		c, _ := stand(&api{}, &shelf{})
		c.begun.Begin(letGoKey("pvc-a"))
		was := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a", Labels: map[string]string{plan.PoolLabel: "fast"}}}
		was.Spec.PersistentVolumeReclaimPolicy, was.Status.Phase = corev1.PersistentVolumeReclaimDelete, corev1.VolumeReleased
		was.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
		now := was.DeepCopy()
		change(now)
		c.VolumeChanged(was, now)
		if same := now.Spec.ClaimRef != nil && now.Status.Phase == was.Status.Phase && now.Spec.PersistentVolumeReclaimPolicy == was.Spec.PersistentVolumeReclaimPolicy; c.begun.Has(letGoKey("pvc-a")) != same {
			t.Errorf("remembered: %v, of %+v", !same, now.Spec)
		}
	}
}

// An object that went with our finalizer on it was removed by force, or a restored server forgot
// it.
func TestForcedRemovalIsNoticed(t *testing.T) {
	c, w := stand(&api{}, &shelf{})
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{plan.PoolLabel: "fast"}}}
	c.VolumeChanged(pv, nil)
	if len(w.recheck) != 0 {
		t.Error("the records are gone through for an object that was let go")
	}
	pv.Finalizers = []string{plan.Finalizer}
	c.VolumeChanged(pv, nil)
	if len(w.recheck) != 1 {
		t.Error("the record is not looked at of a volume whose object is gone")
	}
}

// One record that cannot be dealt with does not stop the others; an API that is away does.
func TestRecheckGoesOn(t *testing.T) {
	a := &api{}
	disk := &shelf{records: []record.Record{{PV: "pvc-a", Place: record.InPool}, {PV: "pvc-b", Place: record.InPool}, {PV: "pvc-c", Place: record.InPool}}}
	c, w := stand(a, disk)
	if err := c.recheck(t.Context(), w); err == nil || err.Error() != "it is busy" {
		t.Errorf("it returns %v", err)
	}
	if !slices.Equal(disk.undone, []string{"pvc-b", "pvc-c"}) {
		t.Errorf("undone: %q", disk.undone)
	}
	a.away, a.asked = true, nil
	if err := c.recheck(t.Context(), w); !errors.Is(err, errAway) || len(a.asked) != 1 {
		t.Errorf("it returns %v after it asked for %q", err, a.asked)
	}
}

// Where nothing is to be undone the cluster is not asked again who it is, right after it was;
// before anything is undone it is.
func TestRecheckAsksOnlyToUndo(t *testing.T) {
	a, disk := &api{}, &shelf{}
	c, w := stand(a, disk)
	for _, want := range []int{1, 0} {
		if err := c.recheck(t.Context(), w); err != nil || len(a.asked) != want {
			t.Errorf("it returns %v after it asked for %q, want %d requests", err, a.asked, want)
		}
		a.asked = nil
	}
	disk.records = []record.Record{{PV: "pvc-a", Place: record.InPool}, {PV: "pvc-b", Place: record.InPool}}
	c.recheck(t.Context(), w) // the first one is busy
	if len(a.asked) == 0 || a.asked[0] != "cluster" || len(disk.undone) != 1 {
		t.Errorf("it asked for %q, and undid %q", a.asked, disk.undone)
	}
}

// A record whose object was made a moment ago is left to the watch, and looked at again after that:
// the object may have gone meanwhile, by a deletion or with the server's data.
func TestRecheckComesBackForWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &shelf{records: []record.Record{{PV: "pvc-a", ClaimUID: "a", Retained: true}, {PV: "pvc-b", ClaimUID: "b", Place: record.InPool}}}
		c, w := stand(&api{}, disk)
		defer c.End()
		c.inFlight.published("b")
		if err := c.recheck(t.Context(), w); err != nil || len(disk.undone) != 0 {
			t.Errorf("while the watch has its time: %v, undone %q", err, disk.undone)
		}
		<-w.recheck
		if err := c.recheck(t.Context(), w); err != nil || len(disk.undone) != 1 {
			t.Errorf("afterwards: %v, undone %q", err, disk.undone)
		}
	})
}

// What failed again and again while the API was away is tried at once when it responds.
func TestAPIRecovered(t *testing.T) {
	c, w := stand(&api{}, &shelf{})
	claim := waitingClaim(0, "c")
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-a", Labels: map[string]string{plan.PoolLabel: "fast"}}}
	pv.Status.Phase = corev1.VolumeReleased
	c.Listers = Listers{Claims: one[*corev1.PersistentVolumeClaim]{claim}, Volumes: one[*corev1.PersistentVolume]{pv}, Classes: none[*storagev1.StorageClass]{}}
	home := c.workers[""] // the claim's class is not known
	for range 10 {
		home.claims.AddRateLimited(claimItem(claim))
		w.volumes.AddRateLimited(item{name: pv.Name})
	}
	if home.claims.Len()+w.volumes.Len() != 0 {
		t.Fatal("they do not wait")
	}
	c.APIRecovered()
	if home.claims.Len() != 1 || w.volumes.Len() != 1 || len(w.recheck) != 1 {
		t.Errorf("%d claims, %d volumes and %d looks at the records are due, want one each", home.claims.Len(), w.volumes.Len(), len(w.recheck))
	}
}

// one is a store with one object.
type one[T any] struct{ object T }

func (o one[T]) Get(string) (T, bool) { return o.object, true }
func (o one[T]) List() []T            { return []T{o.object} }
func (one[T]) Watched() bool          { return false }

// No object is made for a claim that is only remembered, unless the API server has it just so: a
// restored server that does not know the claim would release the object, and what was in the
// directory would go.
func TestRememberedClaimIsAskedFor(t *testing.T) {
	remembered := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u", ResourceVersion: "7"}}
	other, later := remembered.DeepCopy(), remembered.DeepCopy()
	other.UID, later.ResourceVersion = "v", "8"
	for name, c := range map[string]struct {
		api      *api
		want     bool
		failed   bool
		requests int
		claims   WatchedLister[*corev1.PersistentVolumeClaim]
	}{
		"watched":                    {&api{away: true}, true, false, 0, many{"ns/c": remembered}},
		"watched, went, is bound":    {&api{claim: later}, false, false, 1, many{}},
		"watched, went, forgotten":   {&api{}, false, false, 1, many{}},
		"watched, went, is there":    {&api{claim: remembered}, true, false, 1, many{}},
		"watched, went, no response": {&api{away: true}, false, true, 1, many{}},
		"the same":                   {&api{claim: remembered}, true, false, 1, one[*corev1.PersistentVolumeClaim]{}},
		"forgotten":                  {&api{}, false, false, 1, one[*corev1.PersistentVolumeClaim]{}},
		"another of its name":        {&api{claim: other}, false, false, 1, one[*corev1.PersistentVolumeClaim]{}},
		"changed meanwhile":          {&api{claim: later}, false, false, 1, one[*corev1.PersistentVolumeClaim]{}},
		"no response":                {&api{away: true, claim: remembered}, false, true, 1, one[*corev1.PersistentVolumeClaim]{}},
	} {
		stood, _ := stand(c.api, &shelf{})
		stood.Listers.Claims = c.claims
		got, err := stood.unchanged(t.Context(), plan.ClaimFacts{Claim: remembered})
		if got != c.want || (err != nil) != c.failed || len(c.api.asked) != c.requests {
			t.Errorf("%s: %v, %v, after asking %q", name, got, err, c.api.asked)
		}
	}
}

// nobody is no other host, and no Node.
func nobody() string { return "" }
