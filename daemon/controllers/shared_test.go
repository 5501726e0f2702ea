package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Daemons that share a pool are tested in test/e2e. Here a holder of the lease is paused between
// two of its own steps, which no signal can time.

const me = "node-a_1"

// leased has one lease, one volume and the volume's claim, and notes what is written.
type leased struct {
	API
	lease  *leadership.Lease
	volume *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim
	done   *journal
	now    time.Duration // by the elector's clock
}

// journal is what was done, to the disk and in the API, in the order in which it was.
type journal []string

func (j *journal) note(what string) { *j = append(*j, what) }

func (j *journal) String() string { return strings.Join(*j, ", ") }

func (c *leased) ReadLease(context.Context, string) (*leadership.Lease, error) {
	if c.lease == nil {
		return nil, nil
	}
	lease := *c.lease
	return &lease, nil
}

func (c *leased) WriteLease(ctx context.Context, l leadership.Lease) (*leadership.Lease, error) {
	c.lease = &l
	return c.ReadLease(ctx, l.Name)
}

func (c *leased) GetVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	if c.volume == nil || c.volume.Name != name {
		return nil, nil
	}
	return c.volume.DeepCopy(), nil
}

func (c *leased) GetClaim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	return c.claim, nil
}

func (c *leased) EachVolume(_ context.Context, visit func(*corev1.PersistentVolume)) error {
	if c.volume != nil {
		visit(c.volume)
	}
	return nil
}

func (c *leased) ClusterID(context.Context) (string, error) { return "c", nil }

func (c *leased) ReleaseFinalizer(context.Context, *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if c.volume == nil {
		return nil, nil
	}
	c.done.note("finalizer off")
	c.volume.Finalizers = nil
	return c.volume.DeepCopy(), nil
}

// grow is a claim of the volume that requests more than it has, as its status says already.
func (c *leased) grow(pv *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	size := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	c.claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"}}
	c.claim.Spec.VolumeName, c.claim.Spec.Resources.Requests = pv.Name, size("2Mi")
	c.claim.Status = corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: size("1Mi"), AllocatedResources: size("2Mi"),
		AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimControllerResizeInProgress},
	}
	return c.claim
}

func (c *leased) SetCapacity(context.Context, *corev1.PersistentVolume, resource.Quantity) error {
	c.done.note("object")
	return nil
}

func (c *leased) PatchClaimStatus(context.Context, *corev1.PersistentVolumeClaim, plan.ClaimStatus) (*corev1.PersistentVolumeClaim, error) {
	c.done.note("status")
	return c.claim, nil
}

func (c *leased) DeleteVolume(context.Context, *corev1.PersistentVolume) error {
	c.done.note("object deleted")
	c.volume = nil
	return nil
}

// drawer is a disk with one volume, which remembers where its directory is.
type drawer struct {
	disk.Storage
	record record.Record
	done   *journal
	after  func(step string) // once, while the daemon is paused after its first step
}

func (d *drawer) step(name string, place record.Place) error {
	d.done.note(name)
	d.record.Place = place
	if after := d.after; after != nil {
		d.after = nil
		after(name)
	}
	return nil
}

func (d *drawer) Lookup(_ context.Context, _ mounts.Identity, pv string) (record.Record, error) {
	if d.record.PV != pv {
		return record.Record{}, volume.ErrNotRecorded
	}
	return d.record, nil
}

func (d *drawer) List(context.Context, mounts.Identity) (volume.Inventory, error) {
	return volume.Inventory{Volumes: []record.Record{d.record}}, nil
}

func (d *drawer) Trash(context.Context, mounts.Identity, string) error {
	return d.step("trash", record.InTrash)
}

// Create finds a volume that was removed.
func (d *drawer) Create(_ context.Context, _ mounts.Identity, spec volume.Spec) (string, error) {
	if !spec.PutBack {
		return "", volume.ErrRemoved
	}
	return "", d.step("made again", record.InPool)
}

func (d *drawer) Resize(context.Context, mounts.Identity, string, int64) error {
	return d.step("resize", d.record.Place)
}

func (d *drawer) Archive(context.Context, mounts.Identity, string) error {
	return d.step("archive", record.InArchive)
}

func (d *drawer) Retain(context.Context, mounts.Identity, string) error {
	return d.step("retain", d.record.Place)
}

func (d *drawer) Discard(context.Context, mounts.Identity, string) error {
	return d.step("discard", record.Emptying)
}

func (d *drawer) PutBack(context.Context, mounts.Identity, string, string) error {
	return d.step("put back", record.InPool)
}

func (d *drawer) Undo(context.Context, mounts.Identity, string) error {
	return d.step("undo", record.Nowhere)
}

func (d *drawer) Purge(context.Context, mounts.Identity, string) (volume.Purged, error) {
	return volume.Purged{}, d.step("purge", record.Nowhere)
}

func (d *drawer) Sweep(context.Context, mounts.Identity) (int, error) {
	return 0, d.step("sweep", d.record.Place)
}

type deafSpeaker struct{}

func (deafSpeaker) Event(corev1.ObjectReference, string, string, string) {}

// fenced is a controller that holds the lease of one shared pool, with a volume that is released.
func fenced() (*Controller, *poolWorker, *leased, *drawer) {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-u", UID: "v", Finalizers: []string{plan.Finalizer},
			Labels:      map[string]string{plan.PoolLabel: "fast", plan.ScopeLabel: plan.ScopeShared},
			Annotations: map[string]string{plan.ProvisionedBy: plan.DefaultProvisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/fast/pvc-u"}},
			ClaimRef:                      &corev1.ObjectReference{Namespace: "ns", Name: "c", UID: "u"},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
	}
	done := &journal{}
	disk := &drawer{done: done, record: record.Record{PV: pv.Name, Namespace: "ns", Claim: "c", ClaimUID: "u", Directory: pv.Name, Place: record.InPool, Scope: plan.ScopeShared, Requested: 2 << 20}}
	server := &leased{done: done, volume: pv}
	c, w := stand(&api{}, disk)
	c.API, c.Identity, c.Provisioner, c.Events = server, me, plan.DefaultProvisioner, deafSpeaker{}
	w.Pool = plan.Pool{Name: "fast", Path: "/srv/fast", Scope: plan.ScopeShared}
	c.identity, c.expander = c.newIdentity(), c.newExpander()
	w.owner = c.newOwner(w)
	w.elector = leadership.New(leadership.Options{
		Pool: "fast", Provisioner: c.Provisioner, Identity: me, Node: c.Node, Leases: server, Storage: storage{c.pools, w}, Events: c.Events,
		Log: c.Log, Clock: func() time.Duration { return server.now }, Resumed: func() {}, Requested: func(error) {},
	})
	server.now += time.Minute
	w.elector.Tend(context.Background())
	return c, w, server, disk
}

// lost are the ways in which a daemon holds the lease no more and has not heard of it.
var lost = map[string]func(c *leased){
	"another took it":                         func(c *leased) { c.lease.Holder, c.lease.Term.Number = "node-b_1", 2 },
	"another had it in between":               func(c *leased) { c.lease.Term.Number = 3 },
	"it was deleted":                          func(c *leased) { c.lease = nil },
	"it was deleted and made again":           func(c *leased) { c.lease.Term.UID = "m" },
	"another daemon of its name has it":       func(c *leased) { c.lease.Holder = "node-a_2" },
	"it only reports":                         func(c *leased) { c.lease.Reporter = true },
	"it was asleep for longer than it trusts": func(c *leased) { c.now += leadership.Trust },
}

// opened is a handle on a pool that is open.
func opened(t *testing.T, w *poolWorker) disk.Handle {
	t.Helper()
	h, ok := w.disk.Open(t.Context())
	if !ok {
		t.Fatal("the pool is not open")
	}
	return h
}

// sharedAct is a step by which a daemon changes something in a shared pool.
type sharedAct func(ctx context.Context, c *Controller, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error

func removing(action plan.Action) sharedAct {
	return func(ctx context.Context, c *Controller, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error {
		return c.remove(ctx, w, h, pv, action)
	}
}

// acts are all steps by which a daemon changes something in a shared pool, beside making a volume.
var acts = map[string]struct {
	act  sharedAct
	want string // what it does as long as it holds the lease
}{
	"delete":  {removing(plan.Delete), "trash, finalizer off, object deleted, discard"},
	"archive": {removing(plan.Archive), "archive, finalizer off, object deleted, discard"},
	"let go":  {removing(plan.LetGo), "finalizer off, object deleted, discard"},
	"retain":  {removing(plan.Retain), "retain, finalizer off"},
	"put back": {func(ctx context.Context, c *Controller, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error {
		return c.putBack(ctx, w, h, plan.VolumeFacts{Volume: pv, Record: &record.Record{}}, plan.Verdict{})
	}, "put back"},
	"put back by its record": {func(ctx context.Context, c *Controller, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error {
		return c.keep(ctx, w, h, record.Record{PV: pv.Name}, plan.Verdict{Action: plan.PutBack})
	}, "put back"},
	"purge": {func(ctx context.Context, c *Controller, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error {
		c.API.(*leased).volume = nil
		_, err := c.purge(ctx, w, pv.Name)
		return err
	}, "purge"},
	"undo": {func(ctx context.Context, c *Controller, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error {
		return c.undo(ctx, w, h, record.Record{PV: pv.Name, Place: record.InPool})
	}, "undo"},
	"make again": {func(ctx context.Context, c *Controller, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error {
		return c.makeAgain(ctx, w, h, pv)
	}, "made again"},
	"expand": {func(ctx context.Context, c *Controller, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error {
		_, err := c.expand(ctx, w, c.API.(*leased).grow(pv))
		return err
	}, "resize, object, status"},
	"records": {func(ctx context.Context, c *Controller, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error {
		c.API.(*leased).volume = nil
		return c.recheck(ctx, w)
	}, "sweep, undo"},
}

// A daemon that does not hold the lease any more changes nothing in the pool and nothing in the
// API, however it lost it.
func TestNothingWithoutTheLease(t *testing.T) {
	for name, a := range acts {
		c, w, api, _ := fenced()
		if err := a.act(t.Context(), c, w, opened(t, w), api.volume.DeepCopy()); err != nil || api.done.String() != a.want {
			t.Errorf("%s by the holder: %v, did %q, want %q", name, err, api.done.String(), a.want)
		}
		for how, lose := range lost {
			c, w, api, _ := fenced()
			pv := api.volume.DeepCopy()
			lose(api)
			err := a.act(t.Context(), c, w, opened(t, w), pv)
			if did := api.done.String(); did != "" || err != nil && !errors.Is(err, leadership.ErrNotLeading) {
				t.Errorf("%s, and %s: %v, did %q", name, how, err, did)
			}
		}
	}
}

// makeAgain has the claim of a volume that was removed get a volume.
func (c *Controller) makeAgain(ctx context.Context, w *poolWorker, h disk.Handle, pv *corev1.PersistentVolume) error {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"}}
	if api := c.API.(*leased); api.claim == nil {
		api.claim = claim
	}
	facts := plan.ClaimFacts{RequestFacts: plan.RequestFacts{Self: c.Self, Pool: w.Pool}, Claim: claim}
	return c.create(ctx, w, h, facts, volume.Spec{Record: record.Record{PV: pv.Name}})
}

// What was removed is put back for its claim alone, and as long as that waits for a volume: the
// decision to make one may be older than the volume.
func TestRemovedIsPutBackForItsClaim(t *testing.T) {
	for name, now := range map[string]*corev1.PersistentVolumeClaim{
		"another claim of its name": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "another"}},
		"it is bound":               {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-u"}},
	} {
		c, w, api, _ := fenced()
		api.claim = now
		if err := c.makeAgain(t.Context(), w, opened(t, w), api.volume); !errors.Is(err, leadership.ErrNotLeading) || api.done.String() != "" {
			t.Errorf("%s: %v, did %q", name, err, api.done.String())
		}
	}
}

// A daemon is paused right after it moved a directory away, and decided to do so long before. What
// became of the lease or of the volume meanwhile keeps its object, and with the object the data can
// be put back.
func TestObjectStaysIfThingsChanged(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"}}
	changes := map[string]func(c *leased){
		"the claim is there again": func(c *leased) { c.claim = claim },
		"it is bound again": func(c *leased) {
			c.claim, c.volume.Status.Phase = claim, corev1.VolumeBound
		},
		"it is retained now": func(c *leased) {
			c.volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		},
		"it points elsewhere": func(c *leased) { c.volume.Spec.HostPath.Path = "/srv/fast/other" },
	}
	for how, lose := range lost {
		changes[how] = func(c *leased) { lose(c) }
	}
	for _, action := range []plan.Action{plan.Delete, plan.Archive} {
		for how, change := range changes {
			c, w, api, drawer := fenced()
			if action == plan.Archive {
				drawer.record.OnDelete = plan.OnDeleteArchive
			}
			drawer.after = func(string) { change(api) }
			err := c.remove(t.Context(), w, opened(t, w), api.volume.DeepCopy(), action)
			if !errors.Is(err, leadership.ErrNotLeading) || len(*api.done) != 1 {
				t.Errorf("%s, and then %s: %v, did %q", action, how, err, api.done.String())
			}
		}
		// What another daemon, or an administrator, finished meanwhile is left as it is.
		c, w, api, drawer := fenced()
		drawer.after = func(string) { api.volume = nil }
		pv := api.volume.DeepCopy()
		if err := c.remove(t.Context(), w, opened(t, w), pv, action); !errors.Is(err, errRemovedByOthers) || len(*api.done) != 1 {
			t.Errorf("%s, and its object is gone: %v, did %q", action, err, api.done.String())
		}
	}
}

// In a shared pool nothing is purged as long as its object is there: it can be put back.
func TestPurgeWaitsForTheObject(t *testing.T) {
	c, w, api, _ := fenced()
	if _, err := c.purge(t.Context(), w, api.volume.Name); err != nil || len(*api.done) > 0 {
		t.Errorf("with its object: %v, did %q", err, api.done)
	}
	api.volume.Finalizers = nil
	if _, err := c.purge(t.Context(), w, api.volume.Name); err != nil || api.done.String() != "purge" {
		t.Errorf("with an object that was let go: %v, did %q", err, api.done)
	}
}

// The storage that has the record of one of the pool's volumes, for the same claim, is the pool's.
func TestProof(t *testing.T) {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Labels: map[string]string{plan.PoolLabel: "fast", plan.ScopeLabel: plan.ScopeShared}},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "1"}},
	}
	of := func(pool, scope string) *corev1.PersistentVolume {
		v := volume.DeepCopy()
		v.Labels = map[string]string{plan.PoolLabel: pool, plan.ScopeLabel: scope}
		return v
	}
	for name, c := range map[string]struct {
		volume *corev1.PersistentVolume
		record record.Record
		want   leadership.Proof
	}{
		"its record":                 {volume, record.Record{PV: "pvc-1", ClaimUID: "1"}, leadership.ProofHere},
		"a record for another claim": {volume, record.Record{PV: "pvc-1", ClaimUID: "2"}, leadership.ProofElsewhere},
		"no record":                  {volume, record.Record{}, leadership.ProofElsewhere},
		"a volume of another pool":   {of("slow", plan.ScopeShared), record.Record{PV: "pvc-1", ClaimUID: "1"}, ""},
		"a volume of another scope":  {of("fast", plan.ScopeNode), record.Record{PV: "pvc-1", ClaimUID: "1"}, ""},
	} {
		ctl, w := stand(&api{}, &shelf{records: []record.Record{c.record}})
		ctl.Listers.Volumes = one[*corev1.PersistentVolume]{c.volume}
		if got := (storage{ctl.pools, w}).Proof(t.Context()); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A daemon that stands by says nothing of a directory that is whole in the trash: the one that
// works in the pool removed its object just now, and discards it next. The one that works there
// does, of what it did not remove.
func TestStandbySaysNothingOfTheTrash(t *testing.T) {
	for name, leads := range map[string]bool{"leader": true, "standby": false} {
		c, w, api, drawer := fenced()
		api.volume, drawer.record.Place = nil, record.InTrash
		if !leads {
			lost["it was asleep for longer than it trusts"](api)
		}
		if _, err := c.volume(t.Context(), w, "pvc-u"); err != nil || c.said.Written("orphan/pvc-u") != leads {
			t.Errorf("%s: %v, and it was said: %t", name, err, c.said.Written("orphan/pvc-u"))
		}
	}
}
