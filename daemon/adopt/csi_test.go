package adopt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Breakages that were tried and caught are in test/mutants/list/csi.txt.

const csiKey = "topology.hostpath.csi/node"

// csiSite is site with the directory as a volume of kubevirt's CSI driver, whose claim exists.
func csiSite(t *testing.T) (Options, *cluster) {
	t.Helper()
	o, c := site(t)
	v := c.volumes["pvc-1"]
	v.UID, v.ResourceVersion = "original", "1"
	v.Annotations = map[string]string{plan.ProvisionedBy: plan.KubevirtCSI}
	v.Finalizers = []string{"external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-protection"}
	v.Labels = map[string]string{"team": "shop"}
	v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: plan.KubevirtCSI, VolumeHandle: "pvc-1"}}
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0] = corev1.NodeSelectorRequirement{Key: csiKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-a"}}
	c.claims = map[string]*corev1.PersistentVolumeClaim{"db": {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "1"}}}
	o.Aliases, o.Driver, o.Kubelet = []string{plan.KubevirtCSI}, plan.KubevirtCSI, hosttest.Dir(t)
	return o, c
}

// csiState is the object in words, and whether it is recorded. The data has to be there.
func csiState(t *testing.T, o Options, c *cluster) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(o.Pool.Path, "pvc-1", "data")); err != nil {
		t.Error(err)
	}
	inventory, err := o.Store.List(t.Context(), o.Identity)
	must(t, err)
	words := "no object"
	if v := c.volumes["pvc-1"]; v != nil {
		source := "of the driver"
		if v.Spec.HostPath != nil {
			source = "at " + strings.TrimPrefix(v.Spec.HostPath.Path, o.Pool.Path+"/")
		}
		words = fmt.Sprintf("%s for %s, %s, %q %q %q", source, v.Spec.ClaimRef.UID, v.Spec.PersistentVolumeReclaimPolicy, v.Labels, v.Annotations, v.Finalizers)
		if v.DeletionTimestamp != nil {
			words += ", going"
		}
	}
	for _, v := range inventory.Volumes {
		words += fmt.Sprintf("\nrecord %s of claim %s in %s, replaced: %t", v.PV, v.ClaimUID, v.Place, v.Replaced != "")
	}
	return words
}

const (
	drivers = `of the driver for 1, Delete, map["team":"shop"] map["pv.kubernetes.io/provisioned-by":"kubevirt.io.hostpath-provisioner"] ` +
		`["external-provisioner.volume.kubernetes.io/finalizer" "kubernetes.io/pv-protection"]`
	successor = `at pvc-1 for 1, Delete, map["hostpath-provisioner/node":"node-a" "hostpath-provisioner/pool":"fast" "team":"shop"] ` +
		`map["hostpath-provisioner/adopted":"from-csi" "pv.kubernetes.io/provisioned-by":"kubevirt.io.hostpath-provisioner"] ` +
		`["external-provisioner.volume.kubernetes.io/finalizer" "kubernetes.io/pv-protection"]` +
		"\nrecord pvc-1 of claim 1 in pool, replaced: true"
)

func wantCSI(t *testing.T, o Options, c *cluster, what, want string) {
	t.Helper()
	if got := csiState(t, o, c); got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

// There and back, with what every step may meet again.
func TestFromCSI(t *testing.T) {
	o, c := csiSite(t)
	o.DryRun = true
	if row := one(t, FromCSI, o); row.Action != adoptrules.Adopt || row.Done {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "a dry run", drivers)
	o.DryRun = false
	if row := one(t, FromCSI, o); row.Action != adoptrules.Adopt || !row.Done || row.Path != o.Pool.Path+"/pvc-1" {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "taken over", successor)
	v := c.volumes["pvc-1"]
	if v.Spec.HostPath == nil {
		t.FailNow()
	}
	if *v.Spec.HostPath.Type != corev1.HostPathDirectory || v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "host-a" {
		t.Errorf("%+v", v.Spec)
	}
	if row := one(t, FromCSI, o); row.Action != adoptrules.Ours {
		t.Errorf("%+v", row)
	}
	undo := o
	undo.Driver, undo.DryRun = "", true
	if row := one(t, Undo, undo); row.Action != adoptrules.Undo || row.Done {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "a dry run of the way back", successor)
	undo.DryRun = false
	c.volumes["pvc-1"].Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain // by an administrator
	if row := one(t, Undo, undo); !row.Done {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "given back", strings.Replace(drivers, "Delete", "Retain", 1))
	if rows, err := Undo(t.Context(), undo); err != nil || len(rows) != 0 {
		t.Errorf("again: %+v, %v", rows, err)
	}
}

// What must not be taken over, and is told. Nothing is changed by any.
func TestFromCSIRefuses(t *testing.T) {
	pod := func(volume corev1.Volume) func(*Options, *cluster) {
		return func(_ *Options, c *cluster) {
			c.inPods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{volume}}}}
		}
	}
	handle := func(handle string) func(*Options, *cluster) {
		return func(_ *Options, c *cluster) { c.volumes["pvc-1"].Spec.CSI.VolumeHandle = handle }
	}
	for name, c := range map[string]struct {
		change func(*Options, *cluster)
		reason string
		says   string
	}{
		"registered": {func(_ *Options, c *cluster) { c.drivers = []string{plan.KubevirtCSI} }, adoptrules.ReasonDriverRuns, "kubelet of node node-a has it registered"},
		"registered, and the operator says that it is stopped": {func(o *Options, c *cluster) {
			c.drivers, o.Overrides.Stopped = []string{plan.KubevirtCSI}, []string{plan.KubevirtCSI}
		}, adoptrules.ReasonDriverRuns, "kubelet of node node-a has it registered"},
		"its pod": {func(_ *Options, c *cluster) {
			c.inPods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "csi"}, Spec: corev1.PodSpec{NodeName: "node-b", Containers: []corev1.Container{{Image: "quay.io/kubevirt/hostpath-csi-driver:v1"}}}}}
		}, adoptrules.ReasonDriverRuns, `pod default/csi on node "node-b"`},
		"its operator's pod": {func(_ *Options, c *cluster) {
			c.inPods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "hpp", Name: "op"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "quay.io/kubevirt/hostpath-provisioner-operator:v1"}}}}}
		}, adoptrules.ReasonDriverRuns, "pod hpp/op"},
		"pods cannot be listed":                   {func(_ *Options, c *cluster) { c.pods = errors.New("pods is forbidden") }, "", "pods is forbidden"},
		"drivers cannot be read":                  {func(_ *Options, c *cluster) { c.unread = errors.New("csinodes is forbidden") }, adoptrules.ReasonDriverNotKnown, "csinodes is forbidden"},
		"in use":                                  {pod(corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "db"}}}), adoptrules.ReasonUsed, "pod shop/web uses it"},
		"mounted by kubelet, for a pod that went": {mountedByKubelet, "", "/pods/1/volumes/kubernetes.io~csi/pvc-1/mount as well"},
		"no affinity":                             {func(_ *Options, c *cluster) { c.volumes["pvc-1"].Spec.NodeAffinity = nil }, adoptrules.ReasonNoAffinity, "no affinity"},
		"out of the pool":                         {handle("../pvc-1"), "", `has a ".."`},
		"deeper":                                  {handle("a/b"), "", "not right in the pool"},
		"no handle":                               {handle(""), "", "the pool itself"},
		"ours":                                    {handle(".hostpath-provisioner"), "", "begins with a dot"},
		"inline":                                  {handle("csi-123"), "", "inline volume"},
		"not there":                               {handle("pvc-2"), "", `the pool has no directory "pvc-2"`},
		"a link":                                  {linked, "", "it is no directory"},
		"not an alias":                            {func(o *Options, _ *cluster) { o.Aliases = nil }, adoptrules.ReasonNotAlias, "not one of this node's aliases"},
		"read-only":                               {func(_ *Options, c *cluster) { c.volumes["pvc-1"].Spec.CSI.ReadOnly = true }, "", "read-only"},
		"another's finalizer":                     {func(_ *Options, c *cluster) { c.volumes["pvc-1"].Finalizers = []string{"example.org/backup"} }, "", `the finalizer "example.org/backup"`},
		"being deleted":                           {func(_ *Options, c *cluster) { now := metav1.Now(); c.volumes["pvc-1"].DeletionTimestamp = &now }, "", "being deleted"},
		"its claim is gone":                       {func(_ *Options, c *cluster) { c.claims = nil }, adoptrules.ReasonReleased, "its data would be removed once it is adopted"},
		"a new claim of the name":                 {func(_ *Options, c *cluster) { c.claims["db"].UID = "2" }, adoptrules.ReasonReleased, "its data would be removed once it is adopted"},
		"the server would refuse":                 {func(_ *Options, c *cluster) { c.refuses = errors.New("denied by a policy") }, "", "denied by a policy"},
		"another node is at it":                   {func(_ *Options, c *cluster) { annotate(c.volumes["pvc-1"], adoptrules.AdoptingAnnotation, "node-b") }, "", `"node-b" is adopting it`},
		"no hostname label":                       {func(_ *Options, c *cluster) { c.node.Labels = nil }, "", "has no label kubernetes.io/hostname"},
	} {
		t.Run(name, func(t *testing.T) {
			o, api := csiSite(t)
			c.change(&o, api)
			before := csiState(t, o, api)
			if row := one(t, FromCSI, o); row.Action != plan.Refuse || row.Reason != c.reason && c.reason != "" || !strings.Contains(row.Message, c.says) {
				t.Errorf("%+v", row)
			}
			wantCSI(t, o, api, name, before)
		})
	}
}

func linked(o *Options, c *cluster) {
	os.Symlink(filepath.Join(o.Pool.Path, "pvc-1"), filepath.Join(o.Pool.Path, "link"))
	c.volumes["pvc-1"].Spec.CSI.VolumeHandle = "link"
}

// A socket that a process listens at shows that the driver runs; one that was left behind does not.
func TestFromCSISocket(t *testing.T) {
	for _, socket := range []string{"plugins_registry/" + plan.KubevirtCSI + "-reg.sock", "plugins/csi-hostpath/csi.sock", "plugins/" + plan.KubevirtCSI + "/csi.sock"} {
		o, c := csiSite(t)
		at := filepath.Join(o.Kubelet, socket)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
		must(t, err)
		l.SetUnlinkOnClose(false)
		if row := one(t, FromCSI, o); row.Reason != adoptrules.ReasonDriverRuns || !strings.Contains(row.Message, "a process accepts connections at "+at) {
			t.Errorf("%+v", row)
		}
		must(t, l.Close())
		if row := one(t, FromCSI, o); !row.Done {
			t.Errorf("%+v", row)
		}
		wantCSI(t, o, c, socket, successor)
	}
}

// Two objects with one handle: neither is taken, and each is told of the other. Nor is a hostPath
// object by hand, beside the driver's.
func TestTwoOfOneHandle(t *testing.T) {
	second := func(c *cluster) *corev1.PersistentVolume {
		v := c.volumes["pvc-1"].DeepCopy()
		v.Name, v.UID, v.Spec.ClaimRef = "pvc-2", "second", &corev1.ObjectReference{Namespace: "shop", Name: "db-2", UID: "2"}
		c.claims["db-2"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "db-2", UID: types.UID("2")}}
		c.volumes["pvc-2"] = v
		return v
	}
	o, c := csiSite(t)
	second(c)
	rows, err := FromCSI(t.Context(), o)
	must(t, err)
	for i, says := range []string{"volume pvc-2 lies in the same directory", "volume pvc-1 lies in the same directory"} {
		if len(rows) != 2 || rows[i].Message != says {
			t.Fatalf("%+v", rows)
		}
	}
	o, c = csiSite(t)
	o.Driver = ""
	byHand := second(c)
	byHand.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: o.Pool.Path + "/pvc-1"}}
	rows, err = Run(t.Context(), o)
	must(t, err)
	if len(rows) != 2 || rows[1].Message != "volume pvc-1 lies in the same directory" {
		t.Errorf("%+v", rows)
	}
}

// An error of one volume is told, and the others are taken over.
func TestFromCSIGoesOn(t *testing.T) {
	o, c := csiSite(t)
	for _, name := range []string{"pvc-2", "pvc-3"} {
		v := c.volumes["pvc-1"].DeepCopy()
		v.Name, v.UID, v.Spec.CSI.VolumeHandle = name, types.UID(name), name
		must(t, os.Mkdir(filepath.Join(o.Pool.Path, name), 0o755))
		c.volumes[name] = v
	}
	n := 0
	c.dies = func() error { // before the last change of the second volume, and each one after it until the third's
		if n++; n == 8+7 {
			return errors.New("the server is away")
		}
		return nil
	}
	rows, err := FromCSI(t.Context(), o)
	must(t, err)
	if len(rows) != 3 || !rows[0].Done || rows[1].Message != "the server is away" || rows[1].Action != plan.Refuse || !rows[2].Done {
		t.Errorf("%+v", rows)
	}
	rows, err = FromCSI(t.Context(), o)
	must(t, err)
	if len(rows) != 3 || rows[0].Action != adoptrules.Ours || !rows[1].Done || rows[2].Action != adoptrules.Ours {
		t.Errorf("%+v", rows)
	}
}

// An object that changes between two steps is decided on anew, and the change is kept.
func TestFromCSIChanged(t *testing.T) {
	o, c := csiSite(t)
	n := 0
	c.dies = func() error {
		if n++; n == 3 { // held and recorded, and about to be deleted
			v := c.volumes["pvc-1"]
			v.ResourceVersion += "+"
			v.Labels = map[string]string{"team": "other"}
		}
		return nil
	}
	if row := one(t, FromCSI, o); !row.Done {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "changed meanwhile", strings.Replace(successor, `"shop"`, `"other"`, 1))
	o.Driver = ""
	if row := one(t, Undo, o); !row.Done {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "given back", strings.Replace(drivers, `"shop"`, `"other"`, 1))
}

// The way back waits for the pods, too.
func TestGiveBackInUse(t *testing.T) {
	o, c := csiSite(t)
	one(t, FromCSI, o)
	o.Driver = ""
	volume := corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "db"}}}
	c.inPods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{volume}}}}
	if row := one(t, Undo, o); row.Action != plan.Refuse || row.Message != "pod shop/web uses it" {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "in use", successor)
	c.inPods, c.refuses = nil, errors.New("denied by a policy")
	if row := one(t, Undo, o); row.Action != plan.Refuse || row.Message != "denied by a policy" {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "denied", successor)
}

// In a pool of source local.
func TestFromCSILocal(t *testing.T) {
	o, c := csiSite(t)
	o.Pool.Source = plan.SourceLocal
	c.volumes["pvc-1"].Spec.MountOptions = []string{"noatime"}
	if row := one(t, FromCSI, o); !row.Done {
		t.Errorf("%+v", row)
	}
	spec := c.volumes["pvc-1"].Spec
	found, err := o.Store.Lookup(t.Context(), o.Identity, "pvc-1")
	if spec.Local == nil || spec.Local.Path != o.Pool.Path+"/pvc-1" || len(spec.MountOptions) != 1 || err != nil || found.Source != plan.SourceLocal {
		t.Errorf("%+v, %+v, %v", spec, found, err)
	}
}

// mountedByKubelet is a table with what a driver leaves whose pod went by force.
func mountedByKubelet(o *Options, _ *cluster) {
	at := mounts.Mount{ID: 1, Point: o.Pool.Path, Root: "/", Major: 8, Minor: 1}
	bound := mounts.Mount{ID: 2, Point: "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount", Root: "/pvc-1", Major: 8, Minor: 1}
	o.Mounts = []mounts.Mount{at, bound}
}

// A volume that was removed since, or whose object was let go, is not made again by either way.
func TestTakenOverAndOver(t *testing.T) {
	for name, end := range map[string]func(o Options) error{
		"removed":  func(o Options) error { return o.Store.(*volume.Pool).Trash(t.Context(), o.Identity, "pvc-1") },
		"retained": func(o Options) error { return o.Store.(*volume.Pool).Retain(t.Context(), o.Identity, "pvc-1") },
	} {
		o, c := csiSite(t)
		one(t, FromCSI, o)
		must(t, end(o))
		delete(c.volumes, "pvc-1")
		for _, run := range []func(context.Context, Options) ([]Row, error){FromCSI, Undo} {
			if rows, err := run(t.Context(), o); err != nil || len(rows) != 0 || len(c.volumes) != 0 {
				t.Errorf("%s: %+v, %v, %s", name, rows, err, c)
			}
		}
	}
}
