package expansion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// What a user sees is tested in test/e2e and test/everynode, with real disks and a real API server.
// Here are the single steps of one daemon, each of which fails, or is overtaken by another writer.

// environment is a claim of 1Gi in a pool with room for 10Gi, an API server and a disk. It notes
// what is written.
type environment struct {
	*Expander
	claim  *corev1.PersistentVolumeClaim // what the API server has
	pv     *corev1.PersistentVolume
	record *record.Record // what the disk has
	fails  map[string]error
	before map[string]func() // what another writer does just before a step
	done   []string
	events []string
	quiet  bool // nothing may be written about the namespace
	older  bool // the API server is one before Kubernetes 1.32
}

func (e *environment) step(name string) error {
	if do := e.before[name]; do != nil {
		delete(e.before, name)
		do()
	}
	if err := e.fails[name]; err != nil {
		return err
	}
	e.done = append(e.done, name)
	return nil
}

var errConflict = apierrors.NewConflict(schema.GroupResource{}, "", errors.New("changed"))

func (e *environment) GetClaim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	return e.claim.DeepCopy(), e.fails["read claim"]
}

func (e *environment) GetVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	if name == "" {
		return nil, errors.New("resource name may not be empty") // as client-go's request
	}
	return e.pv.DeepCopy(), e.fails["read volume"]
}

func (e *environment) PatchClaimStatus(_ context.Context, seen *corev1.PersistentVolumeClaim, s plan.ClaimStatus) (*corev1.PersistentVolumeClaim, error) {
	name := "done"
	switch s.State {
	case corev1.PersistentVolumeClaimControllerResizeInProgress:
		name = "begun"
	case corev1.PersistentVolumeClaimControllerResizeInfeasible:
		name = "infeasible"
	}
	if err := e.step(name); err != nil {
		return nil, err
	}
	if seen.ResourceVersion != e.claim.ResourceVersion {
		e.done = e.done[:len(e.done)-1]
		return nil, errConflict
	}
	now := e.claim
	now.ResourceVersion += "+"
	now.Status.AllocatedResourceStatuses = nil
	if e.older {
		s.State, s.Allocated = "", nil
	}
	if s.State != "" {
		now.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: s.State}
	}
	if s.Allocated != nil {
		now.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: *s.Allocated}
	}
	if s.Capacity != nil {
		now.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *s.Capacity}
	}
	return now.DeepCopy(), nil
}

func (e *environment) SetCapacity(_ context.Context, seen *corev1.PersistentVolume, size resource.Quantity) error {
	if err := e.step("object " + size.String()); err != nil {
		return err
	}
	e.pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
	return nil
}

// storage is the disk.
type storage struct {
	disk.Storage
	e *environment
}

func (s storage) Lookup(context.Context, mounts.Identity, string) (record.Record, error) {
	if s.e.record == nil {
		return record.Record{}, volume.ErrNotRecorded
	}
	return *s.e.record, s.e.fails["lookup"]
}

func (s storage) List(context.Context, mounts.Identity) (volume.Inventory, error) {
	if s.e.record == nil {
		return volume.Inventory{}, nil
	}
	return volume.Inventory{Volumes: []record.Record{*s.e.record}}, nil
}

func (s storage) Resize(_ context.Context, _ mounts.Identity, _ string, bytes int64) error {
	if err := s.e.step(fmt.Sprintf("disk %dGi", bytes>>30)); err != nil {
		return err
	}
	s.e.record.Requested = bytes
	return nil
}

func (s storage) ResizeFrom(
	ctx context.Context, id mounts.Identity, pv string, was, bytes int64,
) (bool, error) {
	if s.e.record.Requested != was {
		return false, nil
	}
	return true, s.Resize(ctx, id, pv, bytes)
}

// The rest of the controller.
func (e *environment) watched(string) (*corev1.PersistentVolume, bool) {
	return e.pv, e.pv != nil
}
func (e *environment) Expansion(_, reason string) { e.done = append(e.done, "counted "+reason) }

func (e *environment) Event(ref corev1.ObjectReference, kind, reason, _ string) {
	e.events = append(e.events, fmt.Sprint(ref.Name, " ", kind, " ", reason))
}

func sizeOf(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// growing is a claim of 1Gi that requests 2Gi, on node-a in pool fast.
func growing() (*environment, Pool) {
	e := &environment{fails: map[string]error{}, before: map[string]func(){}}
	e.claim = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u", ResourceVersion: "1"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-u"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: sizeOf("1Gi")},
	}
	e.request("2Gi")
	pool := plan.Pool{Name: "fast", Path: "/srv/fast"}
	e.pv = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-u", Labels: plan.VolumeLabels(pool, "node-a"), Annotations: map[string]string{plan.ProvisionedBy: "p"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: sizeOf("1Gi"), ClaimRef: &corev1.ObjectReference{UID: "u"}, PersistentVolumeSource: plan.VolumeSource(pool, "/srv/fast/pvc-u"),
		},
	}
	e.record = &record.Record{PV: "pvc-u", Directory: "pvc-u", Place: record.InPool, Requested: 1 << 30}
	e.Expander = New(Options{Self: plan.Self{Provisioner: "p", Node: "node-a"}, API: e, Watched: e.watched, CountNodes: func(context.Context) int { return 1 }, MayWarn: func(string) bool { return !e.quiet },
		Events: e, Metrics: e,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	g := gate.New("fast")
	g.Set(hostcheck.Report{Pool: "fast", Size: 11 << 30, Available: 11 << 30}, time.Now())
	return e, Pool{Pool: pool, Disk: disk.New(disk.Options{Name: "fast", Gate: g, Storage: storage{e: e}, Look: func() {}}), LookAt: func() {
		e.done = append(e.done, "pool looked at")
	}}
}

func (e *environment) request(size string) {
	e.claim.Spec.Resources.Requests = sizeOf(size)
	e.claim.ResourceVersion += "'"
}

// did is what was done since it was asked last.
func (e *environment) did() string {
	did := strings.Join(e.done, ", ")
	e.done = nil
	return did
}

func (e *environment) look(t *testing.T, p Pool) (time.Duration, error) {
	t.Helper()
	return e.Look(t.Context(), p, plan.LeanClaim(e.claim))
}

const whole = "begun, disk 2Gi, object 2Gi, done, counted VolumeResizeSuccessful"

// The steps come in Kubernetes' order. One that fails is not followed by another, and the next look
// goes on from there.
func TestSteps(t *testing.T) {
	e, p := growing()
	if after, err := e.look(t, p); err != nil || after != 0 || e.did() != whole {
		t.Errorf("again after %s, %v", after, err)
	}
	if _, err := e.look(t, p); err != nil || e.did() != "" {
		t.Errorf("a claim that has what it requests is expanded, %v", err)
	}
	steps := strings.Split(whole, ", ")
	for i, step := range steps[:4] {
		e, p := growing()
		e.fails[step] = errors.New("broken")
		_, err := e.look(t, p)
		did, events := e.did(), len(e.events)
		want := strings.Join(steps[:i], ", ")
		if step == "disk 2Gi" {
			want = "begun, pool looked at, counted VolumeResizeFailed"
		}
		if err == nil || did != want || (events > 0) != (step == "disk 2Gi") {
			t.Errorf("%s fails: %v, did %q, want %q; events %q", step, err, did, want, e.events)
		}
		delete(e.fails, step)
		next := map[string]string{"begun": whole, "done": "disk 2Gi, object 2Gi, done, " + steps[4]}[step]
		if next == "" {
			next = strings.TrimPrefix(whole, "begun, ")
		}
		if _, err := e.look(t, p); err != nil || e.did() != next || e.claim.Status.Capacity.Storage().String() != "2Gi" {
			t.Errorf("after %s had failed: %v, want %q; the claim has %s", step, err, next, e.claim.Status.Capacity.Storage())
		}
	}
}

// What another writer does between two steps is not overwritten.
func TestOvertaken(t *testing.T) {
	kubelet := func(e *environment) { // pkg/volume/util, MarkFSResizeFinished
		e.claim.ResourceVersion += "k"
		e.claim.Status.Capacity, e.claim.Status.AllocatedResourceStatuses = sizeOf("2Gi"), nil
	}
	for name, c := range map[string]struct {
		step  string
		do    func(*environment)
		did   string
		fails bool
		next  string // by the next look
	}{
		"kubelet writes the size":             {"done", kubelet, whole[:len("begun, disk 2Gi, object 2Gi")] + ", counted VolumeResizeSuccessful", false, ""},
		"kubelet writes it before the object": {"object 2Gi", kubelet, "begun, disk 2Gi, object 2Gi, counted VolumeResizeSuccessful", false, ""},
		"more is requested": {"done", func(e *environment) { e.request("3Gi") }, "begun, disk 2Gi, object 2Gi", true,
			"begun, disk 3Gi, object 3Gi, done, counted VolumeResizeSuccessful"},
		"less is requested before the object": {"begun", func(e *environment) { e.request("1536Mi") }, "", true,
			"begun, disk 1Gi, object 1536Mi, done, counted VolumeResizeSuccessful"},
		"less is requested after the object": {"done", func(e *environment) { e.request("1536Mi") }, "begun, disk 2Gi, object 2Gi", true,
			"disk 2Gi, object 2Gi, done, counted VolumeResizeSuccessful"},
	} {
		e, p := growing()
		e.before[c.step] = func() { c.do(e) }
		if _, err := e.look(t, p); (err != nil) != c.fails || e.did() != c.did {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := e.look(t, p); err != nil || e.did() != c.next {
			t.Errorf("%s: the next look: %v, want %q", name, err, c.next)
		}
		if len(e.events) != 1 {
			t.Errorf("%s: events %q", name, e.events)
		}
	}
}

// The API server is restored between two requests. A claim that it has unbound has nothing to be
// expanded; and the claim is told no size that the restored volume object does not say.
func TestRestored(t *testing.T) {
	e, p := growing()
	seen := plan.LeanClaim(e.claim)
	e.claim.Spec.VolumeName, e.claim.Status = "", corev1.PersistentVolumeClaimStatus{}
	if _, err := e.Look(t.Context(), p, seen); err != nil || e.did() != "" {
		t.Errorf("a claim that is unbound now: %v", err)
	}
	e, p = growing()
	e.fails["done"] = errors.New("killed")
	if _, err := e.look(t, p); err == nil {
		t.Fatal("it is done")
	}
	e.did()
	e.fails = map[string]error{"object 2Gi": errConflict} // it has another version since
	if _, err := e.look(t, p); err == nil || e.did() != "disk 2Gi" {
		t.Errorf("the volume object was restored: %v", err)
	}
}

// An attempt that got to the disk is undone if less is requested then: record and limit become
// smaller, once, and never smaller than the volume object says.
func TestLowered(t *testing.T) {
	e, p := growing()
	e.request("5Gi")
	e.fails["object 5Gi"] = errors.New("broken")
	if _, err := e.look(t, p); err == nil || e.record.Requested != 5<<30 {
		t.Fatalf("%v, recorded are %d bytes", err, e.record.Requested)
	}
	e.did()
	e.request("2Gi")
	if _, err := e.look(t, p); err != nil || e.did() != whole || e.record.Requested != 2<<30 {
		t.Errorf("%v, recorded are %d bytes", err, e.record.Requested)
	}
}

// A watch that is behind shows a claim that was expanded to 2Gi, as it was in the middle of that,
// after another daemon expanded it to 3Gi: nothing becomes smaller.
func TestStaleWatch(t *testing.T) {
	e, p := growing()
	e.fails["done"] = errors.New("paused")
	if _, err := e.look(t, p); err == nil {
		t.Fatal("it is done")
	}
	stale := plan.LeanClaim(e.claim)
	e.request("3Gi")
	e.claim.Status.Capacity, e.claim.Status.AllocatedResourceStatuses = sizeOf("3Gi"), nil
	e.record.Requested, e.fails = 3<<30, map[string]error{}
	e.did()
	if _, err := e.Look(t.Context(), p, stale); err != nil || e.did() != "" || e.record.Requested != 3<<30 {
		t.Errorf("%v, recorded are %d bytes", err, e.record.Requested)
	}
}

// What cannot be is written once, with one event for each request, and costs no request of the API
// after that. The user may request less.
func TestInfeasible(t *testing.T) {
	e, p := growing()
	for _, size := range []string{"20Gi", "30Gi"} {
		e.request(size)
		for _, want := range []string{"infeasible, counted NotEnoughSpace", "", ""} {
			if after, err := e.look(t, p); err != nil || after <= 0 || e.did() != want {
				t.Errorf("%s: again after %s, %v, want %q", size, after, err, want)
			}
			e.fails["read claim"] = errors.New("a request")
		}
		delete(e.fails, "read claim")
	}
	if want := []string{"data Warning NotEnoughSpace", "data Warning NotEnoughSpace"}; !slices.Equal(e.events, want) {
		t.Errorf("events %q", e.events)
	}
	e.request("2Gi")
	if _, err := e.look(t, p); err != nil || e.did() != whole {
		t.Error(err)
	}
}

// An API server that drops the state is not told it again and again.
func TestInfeasibleWithoutState(t *testing.T) {
	e, p := growing()
	e.older = true
	for _, size := range []string{"20Gi", "30Gi"} {
		e.request(size)
		for _, want := range []string{"infeasible, counted NotEnoughSpace", "", ""} {
			if after, err := e.look(t, p); err != nil || after <= 0 || e.did() != want {
				t.Errorf("%s: again after %s, %v, want %q", size, after, err, want)
			}
		}
	}
}

// Another volume is promised the space while this one's expansion is under way.
func TestTooLate(t *testing.T) {
	e, p := growing()
	e.before["begun"] = func() {
		if _, err := p.Disk.Account.Take("pvc-other", 95<<30/10, capacity.Space{Size: 11 << 30, Available: 11 << 30, Overcommit: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.look(t, p); err != nil || e.did() != "begun, infeasible, counted NotEnoughSpace" || e.record.Requested != 1<<30 {
		t.Errorf("%v, recorded are %d bytes", err, e.record.Requested)
	}
	if after, err := e.look(t, p); err != nil || after <= 0 || e.did() != "" {
		t.Errorf("again after %s, %v", after, err)
	}
}

// What waits says so once. A claim of another node, or whose volume is gone, is left alone.
func TestWaits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*environment, *Pool)
		event  string
	}{
		"no pool of the name": {func(_ *environment, p *Pool) { *p = Pool{LookAt: func() {}} }, "data Warning UnknownPool"},
		"record damaged": {func(e *environment, _ *Pool) {
			e.fails["lookup"] = fmt.Errorf("%w: torn", record.ErrDamaged)
		}, "data Warning RecordDamaged"},
		"another node's":     {func(e *environment, _ *Pool) { e.pv.Labels[plan.NodeLabel] = "node-b" }, ""},
		"no volume":          {func(e *environment, _ *Pool) { e.pv = nil }, ""},
		"it may not be said": {func(e *environment, p *Pool) { *p, e.quiet = Pool{LookAt: func() {}}, true }, ""},
	} {
		e, p := growing()
		c.change(e, &p)
		for range 2 {
			if _, err := e.look(t, p); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := strings.Join(e.events, ", "); got != c.event || e.record.Requested != 1<<30 {
			t.Errorf("%s: events %q, want %q; recorded are %d bytes", name, got, c.event, e.record.Requested)
		}
	}
}

// A tenant that changes the request again and again is served at first, and then once a second.
// Another namespace is not delayed by that.
func TestExpansionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, p := growing()
		size, delayed := 0, 0
		for range 5000 {
			size++
			e.request(fmt.Sprintf("%d", 1<<30+size))
			if after, err := e.look(t, p); err != nil || after > 0 {
				delayed++
			}
		}
		if delayed < 3900 {
			t.Errorf("%d of 5000 changes within no time are left for later", delayed)
		}
		e.did()
		e.claim.Namespace = "other"
		e.request("2Gi")
		if after, err := e.look(t, p); err != nil || after > 0 || e.did() == "" {
			t.Errorf("another namespace: again after %s, %v", after, err)
		}
		time.Sleep(time.Hour) // of the bubble's clock
		e.claim.Namespace = "ns"
		e.request("3Gi")
		if after, err := e.look(t, p); err != nil || after > 0 {
			t.Errorf("an hour later: again after %s, %v", after, err)
		}
	})
}
