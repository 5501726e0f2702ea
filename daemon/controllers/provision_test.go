package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// creator is an API server and a disk that note in one journal what is made, in which order.
type creator struct {
	*api
	disk.Storage
	done      journal
	diskErr   error
	createErr error
	existing  func(*corev1.PersistentVolume) *corev1.PersistentVolume // the object of the name, made from the one to be created
	won       bool
	node      string // that was written on the claim
}

func (r *creator) Create(_ context.Context, _ mounts.Identity, s volume.Spec) (string, error) {
	r.done.note("directory " + s.Directory)
	return s.Directory, r.diskErr
}

func (r *creator) List(context.Context, mounts.Identity) (volume.Inventory, error) {
	return volume.Inventory{}, nil
}

func (r *creator) Lookup(context.Context, mounts.Identity, string) (record.Record, error) {
	return record.Record{}, volume.ErrNotRecorded
}

func (r *creator) CreateVolume(_ context.Context, pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	r.done.note("object " + pv.Name)
	if r.existing != nil {
		return r.existing(pv.DeepCopy()), r.createErr
	}
	return nil, r.createErr
}

func (r *creator) SetSelectedNode(_ context.Context, _ *corev1.PersistentVolumeClaim, node string) (bool, error) {
	r.node = "node " + node
	return r.won, r.createErr
}

// provisioning is a controller whose one claim is to be provisioned in the pool "fast".
func provisioning(made *creator) (*Controller, *poolWorker, plan.ClaimFacts, *audience) {
	made.api = &api{}
	c, w := stand(made.api, made)
	heard := &audience{}
	c.API, c.Events, c.refusals.Events, c.Metrics = made, heard, heard, deafToAll{}
	c.Listers.Classes = none[*storagev1.StorageClass]{}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u", Annotations: map[string]string{plan.StorageProvisioner: "p"}}}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	made.claim = claim
	return c, w, plan.ClaimFacts{
		RequestFacts: plan.RequestFacts{
			Self: c.Self, Pool: plan.Pool{Name: "fast", Path: "/srv/fast", Directory: func(pv, _, _ string) (string, error) { return pv, nil }},
			NodeLabels: map[string]string{plan.HostnameLabel: "node-a"},
		},
		Claim: claim, Class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Provisioner: "p"},
	}, heard
}

// A volume is limited to its claim's size in the way of its pool.
func TestQuotaOfClaim(t *testing.T) {
	_, _, f, _ := provisioning(&creator{})
	for quota, want := range map[string]volume.Spec{
		plan.QuotaOff: {}, "": {}, plan.QuotaCeph: {Quota: 1 << 20}, plan.QuotaProject: {Quota: 1 << 20, Project: true},
	} {
		f.Pool.Quota = quota
		if got := spec(f, plan.NewVolume(f, "pvc-u"), "pvc-u"); got.Quota != want.Quota || got.Project != want.Project {
			t.Errorf("%q: %d bytes, project %t", quota, got.Quota, got.Project)
		}
	}
}

// The directory comes before the object. What keeps either from being made is reported, except
// where the pool moved: its gate reports why. Until the object exists the claim's directory counts
// as unpublished.
func TestProvision(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, "pvc-u", errors.New("no"))
	for name, c := range map[string]struct {
		made    creator
		done    string
		event   string // its reason
		fails   bool
		look    bool // the pool is probed again
		unready bool // the directory is left without its object
	}{
		"in order": {creator{}, "directory pvc-u, object pvc-u", plan.ReasonProvisioningSucceeded, false, false, false},
		"made before a crash": {creator{existing: func(pv *corev1.PersistentVolume) *corev1.PersistentVolume { return pv }},
			"directory pvc-u, object pvc-u", plan.ReasonProvisioningSucceeded, false, false, false},
		"another object has the name": {creator{existing: func(*corev1.PersistentVolume) *corev1.PersistentVolume { return &corev1.PersistentVolume{} }},
			"directory pvc-u, object pvc-u", plan.ReasonNameTaken, false, false, false},
		"the disk fails":         {creator{diskErr: errors.New("i/o error")}, "directory pvc-u", plan.ReasonProvisioningFailed, true, true, true},
		"no quota":               {creator{diskErr: volume.ErrNoQuota}, "directory pvc-u", plan.ReasonNoQuota, true, true, true},
		"the pool moved":         {creator{diskErr: volume.ErrDirectoryReplaced}, "directory pvc-u", "", true, true, true},
		"the API server is away": {creator{createErr: errors.New("refused")}, "directory pvc-u, object pvc-u", "", true, false, true},
		"the object is refused":  {creator{createErr: forbidden}, "directory pvc-u, object pvc-u", plan.ReasonAPIRefused, true, false, true},
	} {
		ctl, w, facts, heard := provisioning(&c.made)
		h, _ := w.disk.Open(t.Context())
		_, err := ctl.attempt(t.Context(), h, facts)
		ctl.noteClaim(claimItem(facts.Claim), err)
		if c.made.done.String() != c.done || (err != nil) != c.fails {
			t.Errorf("%s: did %q, %v; want %q", name, c.made.done.String(), err, c.done)
		}
		if said := strings.Join(heard.of("u"), ", "); !strings.HasPrefix(said, c.event) || (said == "") != (c.event == "") {
			t.Errorf("%s: events %q, want %q", name, said, c.event)
		}
		if looks := len(w.kick) > 0; looks != c.look {
			t.Errorf("%s: the pool is probed again: %t", name, looks)
		}
		if left := ctl.inFlight.abandon("u") != ""; left != c.unready {
			t.Errorf("%s: the directory is left without its object: %t", name, left)
		}
	}
}

// Another claim was promised the space since this one's facts were gathered: nothing is made, the
// claim is told the numbers of that moment, and goes back to the scheduler, unless it has nowhere
// else to go.
func TestSpaceThatAnotherClaimGot(t *testing.T) {
	for name, c := range map[string]struct {
		nodes int
		node  string // that was written on the claim
	}{"others may have it": {2, "node "}, "the only node": {1, ""}} {
		made := &creator{won: true}
		ctl, w, facts, heard := provisioning(made)
		facts.Self.Provisioner, facts.Nodes, facts.Room.Free = "p", c.nodes, 1<<40
		facts.Claim.Annotations = map[string]string{plan.SelectedNode: "node-a", plan.StorageProvisioner: "p"}
		ctl.nodes.number, ctl.nodes.counted = c.nodes, time.Now()
		h, _ := w.disk.Open(t.Context())
		if err := h.Create(volume.Spec{Record: record.Record{PV: "other", Directory: "other", Requested: 1<<40 - 5}}); err != nil {
			t.Fatal(err)
		}
		after, err := ctl.attempt(t.Context(), h, facts)
		said := strings.Join(heard.of("u"), ", ")
		if err != nil || made.node != c.node || made.done.String() != "directory other" || (after > 0) != (c.node == "") {
			t.Errorf("%s: did %q, wrote %q, again after %s, %v", name, made.done.String(), made.node, after, err)
		}
		if !strings.HasPrefix(said, plan.ReasonNotEnoughSpace) || !strings.Contains(said, "5 B is available for new volumes") {
			t.Errorf("%s: events %q", name, said)
		}
		if ctl.inFlight.abandon("u") != "" {
			t.Errorf("%s: a directory is thought to be left", name)
		}
	}
}

// A node that gives a claim back reports first why it cannot provision it; a claim of another node
// is reported after the write, and only by the daemon whose write won.
func TestReleaseAndTakeOver(t *testing.T) {
	refusal := plan.Verdict{Action: plan.Release, Reason: "TooLarge", Message: "too large"}
	for name, c := range map[string]struct {
		chosen string
		won    bool
		act    func(*Controller, plan.ClaimFacts) (time.Duration, error)
		node   string
		events int
		again  bool
	}{
		"its own":                     {"node-a", true, released(refusal), "node ", 1, false},
		"its own, changed meanwhile":  {"node-a", false, released(refusal), "node ", 1, true},
		"of a node that is gone":      {"node-b", true, released(refusal), "node ", 1, false},
		"another was faster":          {"node-b", false, released(refusal), "node ", 0, true},
		"taken over":                  {"node-b", true, takenOver, "node node-a", 1, false},
		"taken over by another first": {"node-b", false, takenOver, "node node-a", 0, true},
	} {
		made := &creator{won: c.won}
		ctl, _, facts, heard := provisioning(made)
		facts.Claim.Annotations = map[string]string{plan.SelectedNode: c.chosen}
		after, err := c.act(ctl, facts)
		if err != nil || made.node != c.node || len(heard.of("u")) != c.events || (after > 0) != c.again {
			t.Errorf("%s: wrote %q, events %q, again after %s, %v", name, made.node, heard.of("u"), after, err)
		}
	}
}

func released(v plan.Verdict) func(*Controller, plan.ClaimFacts) (time.Duration, error) {
	return func(c *Controller, f plan.ClaimFacts) (time.Duration, error) {
		return c.release(context.Background(), f, v)
	}
}

func takenOver(c *Controller, f plan.ClaimFacts) (time.Duration, error) {
	return c.takeOver(context.Background(), f)
}

// A failure of the disk is reported on the volume, once in the same words. A pool or a lease that
// changed is not: both are reported by themselves.
func TestDiskFailed(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumes"}, "pvc-u", errors.New("changed"))
	for name, c := range map[string]struct {
		err    error
		events int
		look   bool
	}{
		"the disk fails":                  {errors.New("i/o error"), 1, false},
		"the pool moved":                  {volume.ErrDirectoryReplaced, 0, true},
		"the object changed meanwhile":    {conflict, 0, false},
		"the daemon ends":                 {context.Canceled, 0, false},
		"the disk fails with the context": {context.DeadlineExceeded, 1, false},
	} {
		ctl, w, _, heard := provisioning(&creator{})
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u", UID: "v"}}
		for range 3 {
			if err := ctl.diskFailed(w, pv, c.err); !errors.Is(err, c.err) {
				t.Errorf("%s: returned %v", name, err)
			}
		}
		if events := heard.of("v"); len(events) != c.events || (len(w.kick) > 0) != c.look {
			t.Errorf("%s: events %q, the pool is probed again: %t", name, events, len(w.kick) > 0)
		}
	}
}

// A lost volume is reported to its claim as well, whose pod finds nothing.
func TestLostVolumeIsReportedToItsClaim(t *testing.T) {
	ctl, w, _, heard := provisioning(&creator{})
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u", UID: "v"}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{UID: "u"}
	ctl.reportVolume(w, pv, plan.Verdict{Reason: plan.ReasonVolumeFailedDelete, Message: "busy"})
	ctl.reportVolume(w, pv, plan.Verdict{Reason: plan.ReasonVolumeLost, Message: "gone"})
	if got := heard.of("u"); !slices.Equal(got, []string{plan.ReasonVolumeLost + ": gone"}) || len(heard.of("v")) != 2 {
		t.Errorf("the claim has %q, the volume %q", got, heard.of("v"))
	}
}
