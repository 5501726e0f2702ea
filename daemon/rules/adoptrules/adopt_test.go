package adoptrules

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

const us, them = "node-a", "node-b"

func testPool(name string) plan.Pool {
	return plan.Pool{Name: name, Path: "/srv/" + name, Scope: plan.ScopeNode, Source: plan.SourceHostPath}
}

// adoptable is a volume that kubevirt made and this node may adopt: with affinity, a directory in
// the pool, and nothing that runs.
func adoptable() Facts {
	directory := corev1.HostPathDirectory
	return Facts{
		Volume: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-u-1", Annotations: map[string]string{plan.ProvisionedBy: plan.Kubevirt, plan.HostPathIdentity: plan.Kubevirt}},
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				ClaimRef:                      &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "u-1"},
				NodeAffinity:                  plan.NodeAffinity("host-a"),
				PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/fast/pvc-u-1", Type: &directory}},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		},
		Pool: testPool("fast"), NodeLabels: map[string]string{plan.HostnameLabel: "host-a", "topology.hostpath.csi/node": us},
		Self: plan.Self{Provisioner: plan.DefaultProvisioner, Aliases: []string{plan.Kubevirt, plan.MaZderMind, plan.Microk8s, plan.KubevirtCSI, plan.Torchbox}, Node: us},
	}
}

type change = func(*Facts)

func lies(path string) change {
	return func(f *Facts) { f.Volume.Spec.HostPath.Path = path }
}

func madeBy(provisioner, identity string) change {
	return func(f *Facts) {
		f.Volume.Annotations = map[string]string{plan.ProvisionedBy: provisioner, plan.HostPathIdentity: identity}
	}
}

func on(terms ...corev1.NodeSelectorTerm) change {
	return func(f *Facts) {
		f.Volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	}
}

func want(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func both(a, b corev1.NodeSelectorTerm) corev1.NodeSelectorTerm {
	a.MatchExpressions = append(a.MatchExpressions, b.MatchExpressions...)
	return a
}

func anywhere(f *Facts)      { f.Volume.Spec.NodeAffinity = nil }
func hasData(f *Facts)       { f.Overrides.HasData = true }
func runs(f *Facts)          { f.Running = "pod a/b" }
func notKnown(f *Facts)      { f.NotKnown = "pods is forbidden" }
func stopped(f *Facts)       { f.Overrides.Stopped = []string{plan.Kubevirt} }
func torchbox(f *Facts)      { madeBy(plan.Torchbox, "")(f) }
func toldOutside(f *Facts)   { f.Overrides.Outside = true }
func outsideAlias(f *Facts)  { f.Aliases = append(f.Aliases, "ceph.example/x") }
func adoptReleased(f *Facts) { f.Volume.Status.Phase = corev1.VolumeReleased }
func adoptFailed(f *Facts)   { f.Volume.Status.Phase = corev1.VolumeFailed }
func toldReleased(f *Facts)  { f.Overrides.Released = true }
func adoptRetain(f *Facts) {
	f.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func unusable(f *Facts)   { f.Unusable = "no directory" }
func otherHasIt(f *Facts) { f.Other = "pvc-2" }
func recordedAlready(f *Facts) {
	f.Record = &record.Record{PV: "pvc-u-1", ClaimUID: "u-1", Directory: "pvc-u-1", Place: record.InPool}
}

func labelled(f *Facts) {
	f.Volume.Labels = map[string]string{plan.NodeLabel: us, plan.PoolLabel: "fast"}
	f.Volume.Finalizers = []string{plan.Finalizer}
}

func csi(handle string) change {
	return func(f *Facts) {
		f.Volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: plan.KubevirtCSI, VolumeHandle: handle}}
		f.Volume.Annotations[plan.ProvisionedBy] = plan.KubevirtCSI
	}
}

// Breakages that were tried and caught by TestAdoptPrecedence: the list without directoryShared,
// identityMismatch, pathNotCanonical, noAffinity, aboutToBeRemoved or adoptedElsewhere.

// TestAdoptPrecedence tests the list: most cases break two rules and say which one speaks.
func TestAdoptPrecedence(t *testing.T) {
	name := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{us}}}}
	const several = "its affinity does not name one node"
	zoned := func(f *Facts) { f.NodeLabels["zone"] = "3" }
	for _, c := range []struct {
		name    string
		changes []change
		action  plan.Action
		says    string
	}{
		{"nothing in the way", nil, Adopt, ""},
		{"csi, before its missing path", []change{csi("pvc-1")}, plan.Refuse, "source csi"},
		{"csi, inline", []change{csi("csi-1")}, plan.Refuse, "inline volume"},
		{"csi of another node", []change{csi("pvc-1"), on(want("topology.hostpath.csi/node", corev1.NodeSelectorOpIn, them))}, plan.Ignore, ""},
		{"csi of another driver", []change{csi("pvc-1"), func(f *Facts) { f.Volume.Spec.CSI.Driver = "x" }}, plan.Ignore, ""},
		{"in another pool, before the affinity", []change{lies("/srv/faster/pvc-u-1"), anywhere}, plan.Ignore, ""},
		{"above the pool", []change{lies("/srv")}, plan.Ignore, ""},
		{"no path", []change{func(f *Facts) { f.Volume.Spec.HostPath = nil }}, plan.Ignore, ""},
		{"on another node, before its provisioner", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, them)), madeBy("x", "")}, plan.Ignore, ""},
		{"our own", []change{madeBy(plan.DefaultProvisioner, "")}, plan.Ignore, ""},
		{"no provisioner's, before the missing affinity", []change{madeBy("", ""), anywhere}, plan.Refuse, "no annotation"},
		{"not an alias", []change{madeBy(plan.Rancher, ""), anywhere}, plan.Refuse, `"rancher.io/local-path" is not one of`},
		{"kubevirt with a node's name", []change{madeBy(plan.Kubevirt, us)}, plan.Refuse, "kubevirt writes"},
		{"MaZderMind of another node, told that the data is here", []change{madeBy(plan.MaZderMind, them), anywhere, hasData}, plan.Refuse, "made on that node"},
		{"MaZderMind of this node", []change{madeBy(plan.MaZderMind, us), anywhere, hasData}, Adopt, ""},
		{"microk8s, whose program ran elsewhere", []change{madeBy(plan.Microk8s, them)}, Adopt, ""},
		{"block", []change{func(f *Facts) { m := corev1.PersistentVolumeBlock; f.Volume.Spec.VolumeMode = &m }}, plan.Refuse, "Block"},
		{"being deleted, before its release", []change{func(f *Facts) { now := metav1.Now(); f.Volume.DeletionTimestamp = &now }, adoptReleased, toldReleased}, plan.Refuse, "being deleted"},
		{"no claim", []change{func(f *Facts) { f.Volume.Spec.ClaimRef = nil }}, plan.Refuse, "no claim"},
		{"never bound", []change{func(f *Facts) { f.Volume.Spec.ClaimRef.UID = "" }}, plan.Refuse, "no claim"},
		{"dots that lead into the pool", []change{lies("/srv/fast/x/../pvc-u-1")}, plan.Refuse, `has a ".."`},
		{"dots that lead out of it", []change{lies("/srv/fast/../../etc")}, plan.Refuse, `has a ".."`},
		{"a slash behind", []change{lies("/srv/fast/pvc-u-1/")}, plan.Refuse, "plain form"},
		{"two slashes", []change{lies("/srv//fast/pvc-u-1")}, plan.Refuse, "plain form"},
		{"the pool", []change{lies("/srv/fast")}, plan.Refuse, "the pool itself"},
		{"the pool with a slash", []change{lies("/srv/fast/")}, plan.Refuse, "the pool itself"},
		{"nested", []change{lies("/srv/fast/default/data")}, plan.Refuse, "right in the pool"},
		{"hidden", []change{lies("/srv/fast/.hostpath-provisioner")}, plan.Refuse, "begins with a dot"},
		{"another node has it", []change{anywhere, hasData, func(f *Facts) { f.Volume.Labels = map[string]string{plan.NodeLabel: them, plan.PoolLabel: "fast"} }}, plan.Refuse, "of pool fast of node node-b already"},
		{"another node is adopting it", []change{anywhere, hasData, func(f *Facts) { f.Volume.Annotations[AdoptingAnnotation] = them }}, plan.Refuse, `"node-b" is adopting it`},
		{"this node was, nothing is asked again", []change{runs, func(f *Facts) { f.Volume.Annotations[AdoptingAnnotation] = us }}, Adopt, ""},
		{"all nodes may, in a pool of every node", []change{anywhere, hasData, func(f *Facts) {
			f.Pool.Scope, f.Volume.Annotations[AdoptingAnnotation] = plan.ScopeEveryNode, plan.ScopeEveryNode
		}}, Adopt, ""},
		{"of another scope", []change{anywhere, hasData, func(f *Facts) {
			f.Volume.Labels = map[string]string{plan.ScopeLabel: plan.ScopeEveryNode, plan.PoolLabel: "fast"}
		}}, plan.Refuse, "with scope every-node already"},
		{"of every node, and another node adopted its part", []change{anywhere, hasData, func(f *Facts) {
			f.Pool.Scope, f.Volume.Labels = plan.ScopeEveryNode, map[string]string{plan.ScopeLabel: plan.ScopeEveryNode, plan.PoolLabel: "fast"}
		}}, Adopt, ""},
		{"a record that cannot be read", []change{func(f *Facts) { f.Unreadable = "damaged" }, labelled}, plan.Refuse, "damaged"},
		{"ours", []change{recordedAlready, labelled, runs}, Ours, ""},
		{"a record, and no label: go on, nothing is asked again", []change{recordedAlready, runs}, Adopt, ""},
		{"a record and no finalizer", []change{recordedAlready, labelled, func(f *Facts) { f.Volume.Finalizers = nil }}, Adopt, ""},
		{"labels and no record", []change{labelled}, Adopt, ""},
		{"in the trash", []change{recordedAlready, func(f *Facts) { f.Record.Place = record.InTrash }}, plan.Refuse, "in the trash"},
		{"recorded for another claim", []change{recordedAlready, func(f *Facts) { f.Record.ClaimUID = "u-2" }}, plan.Refuse, "recorded as"},
		{"recorded elsewhere", []change{recordedAlready, func(f *Facts) { f.Record.Directory = "d" }}, plan.Refuse, "recorded as"},
		{"two volumes in one directory, before what is wrong with it", []change{otherHasIt, unusable}, plan.Refuse, "pvc-2 lies in the same"},
		{"no directory, before the word", []change{unusable, anywhere}, plan.Refuse, "no directory"},
		{"mounted elsewhere, before the word", []change{func(f *Facts) { f.Shown = "/mnt/x" }, anywhere}, plan.Refuse, "its directory is mounted at /mnt/x as well"},
		{"no affinity, before the program", []change{anywhere, runs}, plan.Refuse, "no affinity"},
		{"the word", []change{anywhere, hasData}, Adopt, ""},
		{"running", []change{runs}, plan.Refuse, "may still run: pod a/b"},
		{"running, and told", []change{runs, stopped}, Adopt, ""},
		{"not known", []change{notKnown}, plan.Refuse, "pods is forbidden"},
		{"not known, and told", []change{notKnown, stopped}, Adopt, ""},
		{"another one is stopped", []change{runs, func(f *Facts) { f.Overrides.Stopped = []string{plan.Rancher} }}, plan.Refuse, "may still run"},
		{"torchbox, which a host may run", []change{torchbox}, plan.Refuse, "torchbox.com/hostpath can run outside of the cluster"},
		{"torchbox, whose pod is there", []change{torchbox, runs, toldOutside}, plan.Refuse, "may still run: pod a/b"},
		{"torchbox, and told", []change{torchbox, toldOutside}, Adopt, ""},
		{"torchbox, told to be stopped", []change{torchbox, func(f *Facts) { f.Overrides.Stopped = []string{plan.Torchbox} }}, Adopt, ""},
		{"torchbox, and its record: nothing is asked again", []change{torchbox, recordedAlready}, Adopt, ""},
		{"an unknown name", []change{madeBy("ceph.example/x", ""), outsideAlias}, plan.Refuse, "ceph.example/x can run outside of the cluster"},
		{"in no cluster, before it is removed", []change{torchbox, adoptReleased}, plan.Refuse, "can run outside"},
		{"released", []change{adoptReleased}, plan.Refuse, "its data would be removed"},
		{"failed", []change{adoptFailed}, plan.Refuse, "its data would be removed"},
		{"released, kept", []change{adoptReleased, adoptRetain}, Adopt, ""},
		{"released, and told", []change{adoptReleased, toldReleased}, Adopt, ""},
		{"affinity by the node's name", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, us))}, Adopt, ""},
		{"affinity by field", []change{on(name)}, Adopt, ""},
		{"affinity by field and label", []change{on(name, want(plan.HostnameLabel, corev1.NodeSelectorOpIn, "host-a"))}, Adopt, ""},
		{"affinity by name and zone", []change{zoned, on(both(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, "host-a"), want("zone", corev1.NodeSelectorOpIn, "3")))}, Adopt, ""},
		{"affinity by name and another zone", []change{zoned, on(both(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, "host-a"), want("zone", corev1.NodeSelectorOpIn, "4")))}, plan.Ignore, ""},
		{"affinity by name and part of a zone's nodes", []change{zoned, on(both(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, "host-a"), want("zone", corev1.NodeSelectorOpGt, "2")))}, plan.Refuse, several},
		{"affinity by zone", []change{zoned, on(want("zone", corev1.NodeSelectorOpIn, "3"))}, plan.Refuse, several},
		{"affinity of several terms, one of them us", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, them), want(plan.HostnameLabel, corev1.NodeSelectorOpIn, "host-a"))}, plan.Refuse, several},
		{"affinity of several values, one of them us", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, them, "host-a"))}, plan.Refuse, several},
		{"affinity of several values, one of them our name", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, them, us))}, plan.Refuse, several},
		{"affinity of several values, and told", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, them, us)), hasData}, Adopt, ""},
		{"affinity by absence", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpNotIn, them)), runs}, plan.Refuse, several},
		{"affinity by absence, and told", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpNotIn, them)), hasData, runs}, plan.Refuse, "may still run"},
		{"affinity that excludes us", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpNotIn, "host-a", us)), hasData}, plan.Ignore, ""},
		{"affinity that excludes us by label", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpNotIn, "host-a")), hasData}, plan.Ignore, ""},
		{"affinity of a key that we have", []change{on(want(plan.HostnameLabel, corev1.NodeSelectorOpExists))}, plan.Refuse, several},
		{"affinity of a key that we have not", []change{on(want("zone", corev1.NodeSelectorOpExists))}, plan.Ignore, ""},
		{"affinity by a key that is not there", []change{on(want("zone", corev1.NodeSelectorOpDoesNotExist))}, plan.Refuse, several},
		{"affinity by number", []change{zoned, on(want("zone", corev1.NodeSelectorOpGt, "2"))}, plan.Refuse, several},
		{"affinity by a number that we have not", []change{zoned, on(want("zone", corev1.NodeSelectorOpLt, "2"))}, plan.Ignore, ""},
		{"no term", []change{on()}, plan.Ignore, ""},
		{"an empty term", []change{on(corev1.NodeSelectorTerm{})}, plan.Ignore, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := adoptable()
			for _, change := range c.changes {
				change(&f)
			}
			got := ForAdoption(f)
			if got.Action != c.action || !strings.Contains(got.Message, c.says) || c.action != plan.Refuse && got.Message != "" {
				t.Errorf("got %+v, want %s %q", got, c.action, c.says)
			}
		})
	}
}

func TestAdoptNotes(t *testing.T) {
	create := corev1.HostPathDirectoryOrCreate
	for name, c := range map[string]struct {
		change change
		says   string
	}{
		"nothing to say": {func(*Facts) {}, ""},
		"no type":        {func(f *Facts) { f.Volume.Spec.HostPath.Type = nil }, "type is unset"},
		"creating type":  {func(f *Facts) { f.Volume.Spec.HostPath.Type = &create }, "type is DirectoryOrCreate"},
		"node's name":    {on(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, us)), `has "host-a"`},
		"failed":         {func(f *Facts) { adoptFailed(f); toldReleased(f) }, "it is Failed"},
	} {
		f := adoptable()
		c.change(&f)
		got := ForAdoption(f)
		if text := strings.Join(got.Notes, "\n"); got.Action != Adopt || (c.says == "") != (text == "") || !strings.Contains(text, c.says) {
			t.Errorf("%s: %+v, want %q", name, got, c.says)
		}
	}
}

// What adopting puts on an object, giving up takes off again, and nothing else.
func TestMarks(t *testing.T) {
	for _, before := range [][]string{nil, {"kubernetes.io/pv-protection"}, {plan.Finalizer}, {"a", plan.Finalizer, "b"}} {
		v := adoptable().Volume
		v.Finalizers = before
		was := v.DeepCopy()
		for range 2 { // again, after a crash
			apply(v, AdoptedPatch(v, testPool("fast"), us))
		}
		if v.Labels[plan.NodeLabel] != us || v.Labels[plan.PoolLabel] != "fast" || !slices.Contains(v.Finalizers, plan.Finalizer) {
			t.Errorf("%q: %+v", before, v.ObjectMeta)
		}
		apply(v, UndoPatch(v))
		if v.Labels = nil; !reflect.DeepEqual(v.Annotations, was.Annotations) || !slices.Equal(v.Finalizers, before) {
			t.Errorf("%q: %+v", before, v.ObjectMeta)
		}
	}
	// In a pool that is not one node's, the scope stands in the node's place.
	v, pool := adoptable().Volume, testPool("fast")
	pool.Scope = plan.ScopeEveryNode
	apply(v, AdoptedPatch(v, pool, us))
	if v.Labels[plan.ScopeLabel] != plan.ScopeEveryNode || v.Labels[plan.PoolLabel] != "fast" || len(v.Labels) != 2 {
		t.Errorf("%q", v.Labels)
	}
	if apply(v, UndoPatch(v)); len(v.Labels) != 0 {
		t.Errorf("given up with %q", v.Labels)
	}
	// One that the daemon made under the other's name has no finalizer of theirs.
	v = adoptable().Volume
	v.Finalizers = []string{plan.Finalizer}
	if m := UndoPatch(v); len(m.Finalizers) != 0 {
		t.Errorf("%+v", m)
	}
}

func apply(v *corev1.PersistentVolume, m plan.MetadataPatch) {
	for _, part := range []struct {
		in *map[string]string
		by map[string]*string
	}{{&v.Labels, m.Labels}, {&v.Annotations, m.Annotations}} {
		if *part.in == nil {
			*part.in = map[string]string{}
		}
		for k, value := range part.by {
			if delete(*part.in, k); value != nil {
				(*part.in)[k] = *value
			}
		}
	}
	v.Finalizers = m.Finalizers
}

func TestForReturn(t *testing.T) {
	self := adoptable().Self
	adopted := record.Record{PV: "pvc-u-1", Directory: "pvc-u-1", Place: record.InPool}
	for name, c := range map[string]struct {
		change func(*record.Record, *corev1.PersistentVolume)
		says   string
	}{
		"adopted":         {func(*record.Record, *corev1.PersistentVolume) {}, ""},
		"marks taken off": {func(_ *record.Record, v *corev1.PersistentVolume) { v.Labels = nil }, ""},
		"another node's":  {func(_ *record.Record, v *corev1.PersistentVolume) { v.Labels[plan.NodeLabel] = them }, "node node-b's"},
		"in the trash":    {func(r *record.Record, _ *corev1.PersistentVolume) { r.Place = record.InTrash }, "in the trash"},
		"gone":            {func(r *record.Record, _ *corev1.PersistentVolume) { r.Place = record.Nowhere }, "its directory is gone"},
		"released":        {func(_ *record.Record, v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased }, "being removed"},
		"released, to be kept": {func(_ *record.Record, v *corev1.PersistentVolume) {
			v.Status.Phase, v.Spec.PersistentVolumeReclaimPolicy = corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain
		}, ""},
	} {
		r, v := adopted, adoptable().Volume
		apply(v, AdoptedPatch(v, testPool("fast"), us))
		c.change(&r, v)
		if got := ForUndo(r, v, self); (got.Action == Undo) != (c.says == "") || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v, want %q", name, got, c.says)
		}
	}
	if got := ForUndo(adopted, nil, self); got.Action != plan.Refuse {
		t.Errorf("no object: %+v", got)
	}
	adopted.Place = record.Nowhere
	if got := ForUndo(adopted, nil, self); got.Action != plan.Ignore {
		t.Errorf("no object and no directory: %+v", got)
	}
	own := adoptable().Volume
	apply(own, AdoptedPatch(own, testPool("fast"), us))
	own.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: self.Provisioner, VolumeHandle: own.Name}}
	adopted.Place = record.InPool
	if got := ForUndo(adopted, own, self); got.Action != plan.Ignore || Marked(self, own, testPool("fast")) {
		t.Errorf("of the daemon's own driver: %+v, %t", got, Marked(self, own, testPool("fast")))
	}
	for kind, want := range map[record.Kind]plan.Action{record.Inline: plan.Ignore, record.Snapshot: plan.Refuse} {
		adopted.Kind = kind
		if got := ForUndo(adopted, nil, self); got.Action != want || strings.Contains(got.Message, "no volume object") {
			t.Errorf("%s: %+v", kind, got)
		}
	}
	for recorded, want := range map[string]bool{plan.Rancher: true, "alias.example/x": true, plan.DefaultProvisioner: false, "": false, "other.example/x": false} {
		if got := Undoable(plan.Self{Provisioner: plan.DefaultProvisioner, Aliases: []string{"alias.example/x"}}, recorded); got != want {
			t.Errorf("%q: %t", recorded, got)
		}
	}
}

func TestRuns(t *testing.T) {
	container := func(c corev1.Container) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "p"}, Spec: corev1.PodSpec{NodeName: us, Containers: []corev1.Container{c}}}
	}
	image := func(name string) *corev1.Pod { return container(corev1.Container{Image: name}) }
	for name, c := range map[string]struct {
		pod         *corev1.Pod
		provisioner string
		want        bool
	}{
		"rancher":              {image("rancher/local-path-provisioner:v0.0.31"), plan.Rancher, true},
		"k3s, by digest":       {image("docker.io/rancher/local-path-provisioner@sha256:0123"), plan.Rancher, true},
		"a registry's port":    {image("registry:5000/local-path-provisioner"), plan.Rancher, true},
		"another system's":     {image("rancher/local-path-provisioner:v0.0.31"), plan.Torchbox, false},
		"one name for several": {image("quay.io/kubevirt/hostpath-provisioner:latest"), plan.Microk8s, true},
		"by argument":          {container(corev1.Container{Image: "x", Args: []string{"-name=torchbox.com/hostpath"}}), plan.Torchbox, true},
		"by a lone argument":   {container(corev1.Container{Image: "x", Command: []string{"run", "--name", "a.example/b"}}), "a.example/b", true},
		"by environment":       {container(corev1.Container{Image: "x", Env: []corev1.EnvVar{{Name: "N", Value: "a.example/b"}}}), "a.example/b", true},
		"a plain alias":        {image("rancher/local-path-provisioner"), "a.example/b", false},
		"anything":             {image("nginx"), plan.Rancher, false},
	} {
		if got := Runs(c.pod, c.provisioner); (got != "") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got, want := Runs(image("local-path-provisioner:v1"), plan.Rancher), `pod kube-system/p on node "node-a" with image local-path-provisioner:v1`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Whether somebody leads is told by the lock's changes, and no clock is asked.
func TestLeads(t *testing.T) {
	lease := func(holder string, renewed int64) *coordinationv1.Lease {
		at, seconds := metav1.NewMicroTime(time.Unix(renewed, 0)), int32(15)
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: LeaderLock(plan.Rancher)},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at,
				LeaseDurationSeconds: &seconds},
		}
	}
	never := lease("p", 0)
	never.Spec.RenewTime = nil
	const leads = "p holds the leader's lock kube-system/rancher.io-local-path"
	for name, c := range map[string]struct {
		before, now *coordinationv1.Lease
		want        string
		lasts       time.Duration
	}{
		"seen once":           {nil, lease("p", 1<<40), "", 15 * time.Second},
		"not renewed":         {lease("p", 1<<40), lease("p", 1<<40), "", 15 * time.Second},
		"renewed":             {lease("p", 1), lease("p", 3), leads, 15 * time.Second},
		"renewed, clock back": {lease("p", 3), lease("p", 1), leads, 15 * time.Second},
		"taken over":          {lease("q", 1), lease("p", 1), leads, 15 * time.Second},
		"given up":            {lease("p", 1), lease("", 3), "", 0},
		"that was never held": {lease("p", 1), never, "", 0},
	} {
		if got := Leads(c.before, c.now); got != c.want || Lasts(c.now) != c.lasts {
			t.Errorf("%s: %q, want %q; lasts %s", name, got, c.want, Lasts(c.now))
		}
	}
}
