package adopt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// The whole way by a real API server is in test/e2e. Here is what cannot be had there at will: a
// server that fails in the middle, and one that does not let a user look at pods.
//
// Breakages that were tried and caught: the labels before the record (TestCutOff), the record
// before the object is taken (TestTwoNodes), the record forgotten before the marks
// (TestUndoRefused).

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// cluster is an API server's memory.
type cluster struct {
	node    *corev1.Node
	volumes map[string]*corev1.PersistentVolume
	pods    error                          // why pods cannot be listed
	mark    error                          // why volumes cannot be marked
	after   int                            // how many marks go well before that
	between func(*corev1.PersistentVolume) // what another client does before an object is marked

	claims  map[string]*corev1.PersistentVolumeClaim // by name
	inPods  []*corev1.Pod
	lock    func() *coordinationv1.Lease // a leader's; nil: locks may not be read
	drivers []string
	unread  error        // why drivers cannot be read
	refuses error        // why no new object is taken
	changes int          // how many times an object was changed
	dies    func() error // asked before and after each change, panics to play a crash
}

func (c *cluster) GetClaim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return c.claims[name].DeepCopy(), nil
}

func (c *cluster) CSIDrivers(context.Context, string) ([]string, error) { return c.drivers, c.unread }

func (c *cluster) CheckVolume(context.Context, *corev1.PersistentVolume) error { return c.refuses }

func (c *cluster) CheckPatch(context.Context, *corev1.PersistentVolume, plan.MetadataPatch) error {
	return c.mark
}

// change is one write to the server's memory, that a crash may come before or after.
func (c *cluster) change(write func() error) error {
	for _, do := range []func() error{c.dies, write, c.dies} {
		if do == nil {
			continue
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) conflict(name string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumes"}, name, errors.New("the object has been modified"))
}

func (c *cluster) CreateVolume(_ context.Context, pv *corev1.PersistentVolume) (existing *corev1.PersistentVolume, err error) {
	err = c.change(func() error {
		if existing = c.volumes[pv.Name].DeepCopy(); existing != nil {
			return nil
		}
		made := pv.DeepCopy()
		c.changes++
		made.UID, made.ResourceVersion = types.UID(fmt.Sprint("made-", c.changes)), "1"
		made.Finalizers = append(made.Finalizers, "kubernetes.io/pv-protection")
		slices.Sort(made.Finalizers)
		made.Finalizers = slices.Compact(made.Finalizers)
		made.Status.Phase = corev1.VolumeBound
		c.volumes[pv.Name] = made
		return nil
	})
	return existing, err
}

func (c *cluster) DeleteVolume(_ context.Context, pv *corev1.PersistentVolume) error {
	return c.change(func() error {
		now := c.volumes[pv.Name]
		switch {
		case now == nil || now.UID != pv.UID:
			return nil
		case now.ResourceVersion != pv.ResourceVersion:
			return c.conflict(pv.Name)
		case len(now.Finalizers) == 0:
			delete(c.volumes, pv.Name)
		default:
			going := metav1.Now()
			now.DeletionTimestamp = &going
			now.ResourceVersion += "-"
		}
		return nil
	})
}

func (c *cluster) EachVolume(_ context.Context, visit func(*corev1.PersistentVolume)) error {
	for _, name := range slices.Sorted(maps.Keys(c.volumes)) {
		visit(c.volumes[name].DeepCopy())
	}
	return nil
}

func (c *cluster) EachPod(_ context.Context, _, _ string, visit func(*corev1.Pod)) error {
	for _, pod := range c.inPods {
		visit(pod)
	}
	return c.pods
}

func (c *cluster) EachLock(_ context.Context, name string, visit func(*coordinationv1.Lease)) error {
	if c.lock == nil {
		return errors.New("leases is forbidden")
	}
	if l := c.lock(); l.Name == name {
		visit(l)
	}
	return nil
}

func (c *cluster) GetVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return c.volumes[name].DeepCopy(), nil
}

func (c *cluster) GetNode(context.Context, string) (*corev1.Node, error) { return c.node, nil }

func (c *cluster) PatchVolume(_ context.Context, pv *corev1.PersistentVolume, m plan.MetadataPatch) (*corev1.PersistentVolume, error) {
	if change := c.between; change != nil {
		c.between = nil
		change(c.volumes[pv.Name])
		c.volumes[pv.Name].ResourceVersion += "+"
	}
	if c.mark != nil && c.after == 0 {
		return nil, c.mark
	}
	c.after = max(0, c.after-1)
	if c.volumes[pv.Name] == nil || pv.ResourceVersion != c.volumes[pv.Name].ResourceVersion || pv.UID != c.volumes[pv.Name].UID {
		return nil, c.conflict(pv.Name)
	}
	now := pv.DeepCopy()
	now.ResourceVersion, now.Finalizers = pv.ResourceVersion+".", m.Finalizers
	now.Labels, now.Annotations = changed(now.Labels, m.Labels), changed(now.Annotations, m.Annotations)
	now.Spec.PersistentVolumeReclaimPolicy = cmp.Or(m.Reclaim, now.Spec.PersistentVolumeReclaimPolicy)
	return now.DeepCopy(), c.change(func() error {
		if c.volumes[pv.Name] = now; now.DeletionTimestamp != nil && len(now.Finalizers) == 0 {
			delete(c.volumes, pv.Name)
		}
		return nil
	})
}

func changed(in map[string]string, by map[string]*string) map[string]string {
	out := maps.Clone(in)
	if out == nil {
		out = map[string]string{}
	}
	for key, value := range by {
		if delete(out, key); value != nil {
			out[key] = *value
		}
	}
	return out
}

func (c *cluster) String() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(c.volumes)) {
		v := c.volumes[name]
		lines = append(lines, fmt.Sprintf("%s %q %q %q", name, v.Labels, v.Finalizers, v.Annotations[plan.AdoptedAnnotation]+v.Annotations[adoptrules.AdoptingAnnotation]))
	}
	return strings.Join(lines, "\n")
}

// site is a prepared pool with one directory of kubevirt's, and the cluster that knows it.
func site(t *testing.T) (Options, *cluster) {
	t.Helper()
	path := hosttest.Dir(t)
	store := volume.New(volume.Options{Name: "fast", Path: path})
	id := pool.Identity(t, path)
	must(t, store.InitMarker(t.Context(), id, []byte("{}\n")))
	must(t, os.Mkdir(filepath.Join(path, "pvc-1"), 0o777))
	must(t, os.WriteFile(filepath.Join(path, "pvc-1", "data"), nil, 0o600))
	labels := map[string]string{plan.HostnameLabel: "host-a"}
	c := &cluster{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: labels}}}
	c.volumes = map[string]*corev1.PersistentVolume{"pvc-1": {
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{plan.ProvisionedBy: plan.Kubevirt, plan.HostPathIdentity: plan.Kubevirt}},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "db", UID: types.UID("1")},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: plan.HostnameLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{"host-a"}}},
			}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path + "/pvc-1"}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}}
	return Options{
		Pool: plan.Pool{Name: "fast", Path: path, Scope: plan.ScopeNode, OnDelete: plan.OnDeleteArchive}, Store: store, Identity: id,
		Self: plan.Self{Provisioner: plan.DefaultProvisioner, Aliases: []string{plan.Kubevirt}, Node: "node-a"}, API: c,
	}, c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// one runs it and wants a single row.
func one(t *testing.T, run func(context.Context, Options) ([]Row, error), o Options) Row {
	t.Helper()
	rows, err := run(t.Context(), o)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%+v, %v", rows, err)
	}
	return rows[0]
}

// state is the pool's record and the cluster, in words.
func state(t *testing.T, o Options, c *cluster) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(o.Pool.Path, "pvc-1", "data")); err != nil {
		t.Error(err)
	}
	inventory, err := o.Store.List(t.Context(), o.Identity)
	must(t, err)
	words := c.String()
	for _, v := range inventory.Volumes {
		r := v
		words += fmt.Sprintf("\nrecord %s %s/%s %s %s %s %s %s", r.PV, r.Namespace, r.Claim, r.Directory, r.Provisioner, r.Scope, r.OnDelete, r.Place)
	}
	return words
}

const (
	untouched = `pvc-1 map[] [] ""`
	marked    = `pvc-1 map["hostpath-provisioner/node":"node-a" "hostpath-provisioner/pool":"fast"] ["external-provisioner.volume.kubernetes.io/finalizer"] "without-finalizer"`
	taken     = `pvc-1 map[] [] "node-a"`
	recorded  = "\nrecord pvc-1 shop/db pvc-1 kubevirt.io/hostpath-provisioner node archive pool"
)

// The server fails before each mark, on the way there and back: the next call goes on, and asks for
// nothing again.
func TestCutOff(t *testing.T) {
	o, c := site(t)
	want := func(what, words string) {
		t.Helper()
		if got := state(t, o, c); strings.TrimSpace(got) != strings.TrimSpace(words) {
			t.Errorf("%s: got\n%s\nwant\n%s", what, got, words)
		}
	}
	for after, left := range []string{untouched, taken + recorded} {
		c.mark, c.after = errors.New("the server is away"), after
		if row := one(t, Run, o); row.Action != plan.Refuse || row.Done || row.Message != "the server is away" {
			t.Errorf("%+v", row)
		}
		want("cut off", left)
	}
	c.mark, c.pods = nil, errors.New("pods is forbidden")
	if row := one(t, Run, o); row.Action != adoptrules.Adopt || !row.Done {
		t.Errorf("%+v", row)
	}
	want("adopted", marked+recorded)
	if row := one(t, Run, o); row.Action != adoptrules.Ours || row.Done {
		t.Errorf("%+v", row)
	}
	// Given up, cut off after the marks.
	pv := c.volumes["pvc-1"]
	_, err := c.PatchVolume(t.Context(), pv, adoptrules.UndoPatch(pv))
	must(t, err)
	want("cut off on the way back", untouched+recorded)
	if row := one(t, Undo, o); row.Action != adoptrules.Undo || !row.Done {
		t.Errorf("%+v", row)
	}
	want("undone", untouched)
	if rows, err := Undo(t.Context(), o); err != nil || len(rows) != 0 {
		t.Errorf("again: %+v, %v", rows, err)
	}
}

// A claim that requests more by now has that noted by the next call, and by a dry run nothing.
func TestGrownSince(t *testing.T) {
	o, c := site(t)
	pv := c.volumes["pvc-1"]
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "1"}}
	request := func(size string) {
		claim.Spec.Resources.Requests = corev1.ResourceList{
			corev1.ResourceStorage: resource.MustParse(size),
		}
	}
	c.claims = map[string]*corev1.PersistentVolumeClaim{"db": claim}
	request("1Mi")
	one(t, Run, o)
	for _, step := range []struct {
		size, noted string
		dry         bool
	}{{"1Mi", "1Mi", false}, {"3Mi", "1Mi", true}, {"3Mi", "3Mi", false}, {"2Mi", "3Mi", false},
		{"3Gi", "2Gi", false}} {
		request(step.size)
		o.DryRun = step.dry
		row := one(t, Run, o)
		noted := plan.SizeOf(c.volumes["pvc-1"])
		if row.Action != adoptrules.Ours || noted.String() != step.noted {
			t.Errorf("%+v: %s, noted is %s", step, row.Action, noted.String())
		}
	}
}

// An API server that was restored to a day on which the volume was adopted: the record is gone, and
// the next undo takes the marks off again, also of one whose claim is gone: without a record no
// daemon removes it. What has no directory keeps them.
func TestUndoRestored(t *testing.T) {
	for name, test := range map[string]struct {
		change func(o Options, pv *corev1.PersistentVolume)
		undone bool
	}{
		"restored": {func(Options, *corev1.PersistentVolume) {}, true},
		"released": {func(_ Options, pv *corev1.PersistentVolume) {
			pv.Status.Phase, pv.Spec.PersistentVolumeReclaimPolicy = corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete
		}, true},
		"no directory": {func(_ Options, pv *corev1.PersistentVolume) { pv.Spec.HostPath.Path += "-gone" }, false},
		"other pool":   {func(_ Options, pv *corev1.PersistentVolume) { pv.Labels[plan.PoolLabel] = "slow" }, false},
		"from CSI": {func(_ Options, pv *corev1.PersistentVolume) {
			annotate(pv, plan.AdoptedAnnotation, adoptrules.AdoptedFromCSI)
		}, false},
		"not an alias": {func(_ Options, pv *corev1.PersistentVolume) { annotate(pv, plan.ProvisionedBy, "another.example") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, c := site(t)
			one(t, Run, o)
			saved := c.volumes["pvc-1"].DeepCopy()
			one(t, Undo, o)
			test.change(o, saved)
			c.volumes["pvc-1"] = saved
			rows, err := Undo(t.Context(), o)
			want := map[bool]string{true: untouched, false: c.String()}[test.undone]
			if err != nil || (len(rows) == 1 && rows[0].Done) != test.undone || state(t, o, c) != want {
				t.Errorf("%+v, %v, %s", rows, err, c)
			}
		})
	}
}

// A server that says no on the way back: the record stays as long as the marks.
func TestUndoRefused(t *testing.T) {
	o, c := site(t)
	one(t, Run, o)
	c.mark = errors.New("forbidden")
	if row := one(t, Undo, o); row.Action != plan.Refuse || row.Message != "forbidden" {
		t.Errorf("%+v", row)
	}
	if got := state(t, o, c); got != marked+recorded {
		t.Errorf("got\n%s", got)
	}
}

func TestNobodyCanTell(t *testing.T) {
	o, c := site(t)
	c.pods = errors.New("pods is forbidden")
	if row := one(t, Run, o); row.Action != plan.Refuse || row.Reason != adoptrules.ReasonNotKnown || !strings.Contains(row.Message, "pods is forbidden") {
		t.Errorf("%+v", row)
	}
	o.Overrides.Stopped = []string{plan.Kubevirt}
	o.DryRun = true
	if row := one(t, Run, o); row.Action != adoptrules.Adopt || row.Done {
		t.Errorf("%+v", row)
	}
	if got := state(t, o, c); got != untouched {
		t.Errorf("got\n%s", got)
	}
	c.node = nil
	if rows, err := Run(t.Context(), o); err == nil || err.Error() != `the cluster has no node "node-a"` {
		t.Errorf("%+v, %v", rows, err)
	}
}

// A pool that moved since it was checked is not worked in.
func TestMoved(t *testing.T) {
	o, c := site(t)
	o.Identity.Inode++
	if rows, err := Run(t.Context(), o); !errors.Is(err, volume.ErrDirectoryReplaced) {
		t.Errorf("%+v, %v", rows, err)
	}
	if got := c.String(); got != untouched {
		t.Errorf("got\n%s", got)
	}
}
