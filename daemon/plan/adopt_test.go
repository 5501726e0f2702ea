package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// adoptable is a volume that kubevirt made and this node may adopt: with affinity, a directory in the
// pool, and nothing that runs.
func adoptable() AdoptFacts {
	directory := corev1.HostPathDirectory
	return AdoptFacts{
		Volume: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-u-1", Annotations: map[string]string{ProvisionedBy: Kubevirt, HostPathIdentity: Kubevirt}},
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				ClaimRef:                      &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "u-1"},
				NodeAffinity:                  affinity("host-a"),
				PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/fast/pvc-u-1", Type: &directory}},
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		},
		Pool: testPool("fast"), NodeLabels: map[string]string{HostnameLabel: "host-a", "topology.hostpath.csi/node": us},
		Self: Self{Provisioner: DefaultProvisioner, Aliases: []string{Kubevirt, MaZderMind, Microk8s, KubevirtCSI, Torchbox}, Node: us},
	}
}

type adoptChange = func(*AdoptFacts)

func lies(path string) adoptChange {
	return func(f *AdoptFacts) { f.Volume.Spec.HostPath.Path = path }
}

func madeBy(provisioner, identity string) adoptChange {
	return func(f *AdoptFacts) {
		f.Volume.Annotations = map[string]string{ProvisionedBy: provisioner, HostPathIdentity: identity}
	}
}

func on(terms ...corev1.NodeSelectorTerm) adoptChange {
	return func(f *AdoptFacts) {
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

func anywhere(f *AdoptFacts)      { f.Volume.Spec.NodeAffinity = nil }
func hasData(f *AdoptFacts)       { f.Told.HasData = true }
func runs(f *AdoptFacts)          { f.Running = "pod a/b" }
func notKnown(f *AdoptFacts)      { f.NotKnown = "pods is forbidden" }
func stopped(f *AdoptFacts)       { f.Told.Stopped = []string{Kubevirt} }
func torchbox(f *AdoptFacts)      { madeBy(Torchbox, "")(f) }
func toldOutside(f *AdoptFacts)   { f.Told.Outside = true }
func outsideAlias(f *AdoptFacts)  { f.Aliases = append(f.Aliases, "ceph.example/x") }
func adoptReleased(f *AdoptFacts) { f.Volume.Status.Phase = corev1.VolumeReleased }
func adoptFailed(f *AdoptFacts)   { f.Volume.Status.Phase = corev1.VolumeFailed }
func toldReleased(f *AdoptFacts)  { f.Told.Released = true }
func adoptRetain(f *AdoptFacts) {
	f.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func unusable(f *AdoptFacts)   { f.Unusable = "no directory" }
func otherHasIt(f *AdoptFacts) { f.Other = "pvc-2" }
func recordedAlready(f *AdoptFacts) {
	f.Record = &record.Record{PV: "pvc-u-1", ClaimUID: "u-1", Directory: "pvc-u-1", Place: record.InPool}
}

func labelled(f *AdoptFacts) {
	f.Volume.Labels = map[string]string{NodeLabel: us, PoolLabel: "fast"}
	f.Volume.Finalizers = []string{Finalizer}
}

func csi(handle string) adoptChange {
	return func(f *AdoptFacts) {
		f.Volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: KubevirtCSI, VolumeHandle: handle}}
		f.Volume.Annotations[ProvisionedBy] = KubevirtCSI
	}
}

// Breakages that were tried and caught by TestAdoptPrecedence: the list without sharedDirectory,
// wrongIdentity, crookedPath, noAffinity, aboutToBeRemoved or othersAdopted.

// TestAdoptPrecedence tests the list: most cases break two rules and say which one speaks.
func TestAdoptPrecedence(t *testing.T) {
	name := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{us}}}}
	const several = "its affinity does not name one node"
	zoned := func(f *AdoptFacts) { f.NodeLabels["zone"] = "3" }
	for _, c := range []struct {
		name    string
		changes []adoptChange
		action  Action
		says    string
	}{
		{"nothing in the way", nil, Adopt, ""},
		{"csi, before its missing path", []adoptChange{csi("pvc-1")}, Refuse, "source csi"},
		{"csi, inline", []adoptChange{csi("csi-1")}, Refuse, "inline volume"},
		{"csi of another node", []adoptChange{csi("pvc-1"), on(want("topology.hostpath.csi/node", corev1.NodeSelectorOpIn, them))}, Ignore, ""},
		{"csi of another driver", []adoptChange{csi("pvc-1"), func(f *AdoptFacts) { f.Volume.Spec.CSI.Driver = "x" }}, Ignore, ""},
		{"in another pool, before the affinity", []adoptChange{lies("/srv/faster/pvc-u-1"), anywhere}, Ignore, ""},
		{"above the pool", []adoptChange{lies("/srv")}, Ignore, ""},
		{"no path", []adoptChange{func(f *AdoptFacts) { f.Volume.Spec.HostPath = nil }}, Ignore, ""},
		{"on another node, before its provisioner", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpIn, them)), madeBy("x", "")}, Ignore, ""},
		{"our own", []adoptChange{madeBy(DefaultProvisioner, "")}, Ignore, ""},
		{"nobody's, before the missing affinity", []adoptChange{madeBy("", ""), anywhere}, Refuse, "no annotation"},
		{"not an alias", []adoptChange{madeBy(Rancher, ""), anywhere}, Refuse, `"rancher.io/local-path" is not one of`},
		{"kubevirt with a node's name", []adoptChange{madeBy(Kubevirt, us)}, Refuse, "kubevirt writes"},
		{"MaZderMind of another node, told that the data is here", []adoptChange{madeBy(MaZderMind, them), anywhere, hasData}, Refuse, "made on that node"},
		{"MaZderMind of this node", []adoptChange{madeBy(MaZderMind, us), anywhere, hasData}, Adopt, ""},
		{"microk8s, whose program ran elsewhere", []adoptChange{madeBy(Microk8s, them)}, Adopt, ""},
		{"block", []adoptChange{func(f *AdoptFacts) { m := corev1.PersistentVolumeBlock; f.Volume.Spec.VolumeMode = &m }}, Refuse, "Block"},
		{"being deleted, before its release", []adoptChange{func(f *AdoptFacts) { now := metav1.Now(); f.Volume.DeletionTimestamp = &now }, adoptReleased, toldReleased}, Refuse, "being deleted"},
		{"no claim", []adoptChange{func(f *AdoptFacts) { f.Volume.Spec.ClaimRef = nil }}, Refuse, "no claim"},
		{"never bound", []adoptChange{func(f *AdoptFacts) { f.Volume.Spec.ClaimRef.UID = "" }}, Refuse, "no claim"},
		{"dots that lead into the pool", []adoptChange{lies("/srv/fast/x/../pvc-u-1")}, Refuse, `has a ".."`},
		{"dots that lead out of it", []adoptChange{lies("/srv/fast/../../etc")}, Refuse, `has a ".."`},
		{"a slash behind", []adoptChange{lies("/srv/fast/pvc-u-1/")}, Refuse, "plain form"},
		{"two slashes", []adoptChange{lies("/srv//fast/pvc-u-1")}, Refuse, "plain form"},
		{"the pool", []adoptChange{lies("/srv/fast")}, Refuse, "the pool itself"},
		{"the pool with a slash", []adoptChange{lies("/srv/fast/")}, Refuse, "the pool itself"},
		{"nested", []adoptChange{lies("/srv/fast/default/data")}, Refuse, "right in the pool"},
		{"hidden", []adoptChange{lies("/srv/fast/.hostpath-provisioner")}, Refuse, "begins with a dot"},
		{"another node has it", []adoptChange{anywhere, hasData, func(f *AdoptFacts) { f.Volume.Labels = map[string]string{NodeLabel: them, PoolLabel: "fast"} }}, Refuse, "of pool fast of node node-b already"},
		{"another node is adopting it", []adoptChange{anywhere, hasData, func(f *AdoptFacts) { f.Volume.Annotations[AdoptingAnnotation] = them }}, Refuse, `"node-b" is adopting it`},
		{"this node was, nobody is asked again", []adoptChange{runs, func(f *AdoptFacts) { f.Volume.Annotations[AdoptingAnnotation] = us }}, Adopt, ""},
		{"all nodes may, in a pool of every node", []adoptChange{anywhere, hasData, func(f *AdoptFacts) {
			f.Pool.Scope, f.Volume.Annotations[AdoptingAnnotation] = ScopeEveryNode, ScopeEveryNode
		}}, Adopt, ""},
		{"of another scope", []adoptChange{anywhere, hasData, func(f *AdoptFacts) {
			f.Volume.Labels = map[string]string{ScopeLabel: ScopeEveryNode, PoolLabel: "fast"}
		}}, Refuse, "with scope every-node already"},
		{"of every node, and another node adopted its part", []adoptChange{anywhere, hasData, func(f *AdoptFacts) {
			f.Pool.Scope, f.Volume.Labels = ScopeEveryNode, map[string]string{ScopeLabel: ScopeEveryNode, PoolLabel: "fast"}
		}}, Adopt, ""},
		{"a record that cannot be read", []adoptChange{func(f *AdoptFacts) { f.Unreadable = "damaged" }, labelled}, Refuse, "damaged"},
		{"ours", []adoptChange{recordedAlready, labelled, runs}, Ours, ""},
		{"a record, and no label: go on, nobody is asked again", []adoptChange{recordedAlready, runs}, Adopt, ""},
		{"a record and no finalizer", []adoptChange{recordedAlready, labelled, func(f *AdoptFacts) { f.Volume.Finalizers = nil }}, Adopt, ""},
		{"labels and no record", []adoptChange{labelled}, Adopt, ""},
		{"in the trash", []adoptChange{recordedAlready, func(f *AdoptFacts) { f.Record.Place = record.InTrash }}, Refuse, "in the trash"},
		{"recorded for another claim", []adoptChange{recordedAlready, func(f *AdoptFacts) { f.Record.ClaimUID = "u-2" }}, Refuse, "recorded as"},
		{"recorded elsewhere", []adoptChange{recordedAlready, func(f *AdoptFacts) { f.Record.Directory = "d" }}, Refuse, "recorded as"},
		{"two volumes in one directory, before what is wrong with it", []adoptChange{otherHasIt, unusable}, Refuse, "pvc-2 lies in the same"},
		{"no directory, before the word", []adoptChange{unusable, anywhere}, Refuse, "no directory"},
		{"mounted elsewhere, before the word", []adoptChange{func(f *AdoptFacts) { f.Shown = "/mnt/x" }, anywhere}, Refuse, "its directory is mounted at /mnt/x as well"},
		{"no affinity, before the program", []adoptChange{anywhere, runs}, Refuse, "no affinity"},
		{"the word", []adoptChange{anywhere, hasData}, Adopt, ""},
		{"running", []adoptChange{runs}, Refuse, "may still run: pod a/b"},
		{"running, and told", []adoptChange{runs, stopped}, Adopt, ""},
		{"nobody can tell", []adoptChange{notKnown}, Refuse, "pods is forbidden"},
		{"nobody can tell, and told", []adoptChange{notKnown, stopped}, Adopt, ""},
		{"another one is stopped", []adoptChange{runs, func(f *AdoptFacts) { f.Told.Stopped = []string{Rancher} }}, Refuse, "may still run"},
		{"torchbox, which a host may run", []adoptChange{torchbox}, Refuse, "torchbox.com/hostpath can run outside of the cluster"},
		{"torchbox, whose pod is there", []adoptChange{torchbox, runs, toldOutside}, Refuse, "may still run: pod a/b"},
		{"torchbox, and told", []adoptChange{torchbox, toldOutside}, Adopt, ""},
		{"torchbox, told to be stopped", []adoptChange{torchbox, func(f *AdoptFacts) { f.Told.Stopped = []string{Torchbox} }}, Adopt, ""},
		{"torchbox, and its record: nobody is asked again", []adoptChange{torchbox, recordedAlready}, Adopt, ""},
		{"a name that nobody knows", []adoptChange{madeBy("ceph.example/x", ""), outsideAlias}, Refuse, "ceph.example/x can run outside of the cluster"},
		{"in no cluster, before it is removed", []adoptChange{torchbox, adoptReleased}, Refuse, "can run outside"},
		{"released", []adoptChange{adoptReleased}, Refuse, "its data would be removed"},
		{"failed", []adoptChange{adoptFailed}, Refuse, "its data would be removed"},
		{"released, kept", []adoptChange{adoptReleased, adoptRetain}, Adopt, ""},
		{"released, and told", []adoptChange{adoptReleased, toldReleased}, Adopt, ""},
		{"affinity by the node's name", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpIn, us))}, Adopt, ""},
		{"affinity by field", []adoptChange{on(name)}, Adopt, ""},
		{"affinity by field and label", []adoptChange{on(name, want(HostnameLabel, corev1.NodeSelectorOpIn, "host-a"))}, Adopt, ""},
		{"affinity by name and zone", []adoptChange{zoned, on(both(want(HostnameLabel, corev1.NodeSelectorOpIn, "host-a"), want("zone", corev1.NodeSelectorOpIn, "3")))}, Adopt, ""},
		{"affinity by name and another zone", []adoptChange{zoned, on(both(want(HostnameLabel, corev1.NodeSelectorOpIn, "host-a"), want("zone", corev1.NodeSelectorOpIn, "4")))}, Ignore, ""},
		{"affinity by name and part of a zone's nodes", []adoptChange{zoned, on(both(want(HostnameLabel, corev1.NodeSelectorOpIn, "host-a"), want("zone", corev1.NodeSelectorOpGt, "2")))}, Refuse, several},
		{"affinity by zone", []adoptChange{zoned, on(want("zone", corev1.NodeSelectorOpIn, "3"))}, Refuse, several},
		{"affinity of several terms, one of them us", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpIn, them), want(HostnameLabel, corev1.NodeSelectorOpIn, "host-a"))}, Refuse, several},
		{"affinity of several values, one of them us", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpIn, them, "host-a"))}, Refuse, several},
		{"affinity of several values, one of them our name", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpIn, them, us))}, Refuse, several},
		{"affinity of several values, and told", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpIn, them, us)), hasData}, Adopt, ""},
		{"affinity by absence", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpNotIn, them)), runs}, Refuse, several},
		{"affinity by absence, and told", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpNotIn, them)), hasData, runs}, Refuse, "may still run"},
		{"affinity that excludes us", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpNotIn, "host-a", us)), hasData}, Ignore, ""},
		{"affinity that excludes us by label", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpNotIn, "host-a")), hasData}, Ignore, ""},
		{"affinity of a key that we have", []adoptChange{on(want(HostnameLabel, corev1.NodeSelectorOpExists))}, Refuse, several},
		{"affinity of a key that we have not", []adoptChange{on(want("zone", corev1.NodeSelectorOpExists))}, Ignore, ""},
		{"affinity by a key that is not there", []adoptChange{on(want("zone", corev1.NodeSelectorOpDoesNotExist))}, Refuse, several},
		{"affinity by number", []adoptChange{zoned, on(want("zone", corev1.NodeSelectorOpGt, "2"))}, Refuse, several},
		{"affinity by a number that we have not", []adoptChange{zoned, on(want("zone", corev1.NodeSelectorOpLt, "2"))}, Ignore, ""},
		{"no term", []adoptChange{on()}, Ignore, ""},
		{"an empty term", []adoptChange{on(corev1.NodeSelectorTerm{})}, Ignore, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := adoptable()
			for _, change := range c.changes {
				change(&f)
			}
			got := ForAdoption(f)
			if got.Action != c.action || !strings.Contains(got.Message, c.says) || c.action != Refuse && got.Message != "" {
				t.Errorf("got %+v, want %s %q", got, c.action, c.says)
			}
		})
	}
}

func TestAdoptNotes(t *testing.T) {
	create := corev1.HostPathDirectoryOrCreate
	for name, c := range map[string]struct {
		change adoptChange
		says   string
	}{
		"nothing to say": {func(*AdoptFacts) {}, ""},
		"no type":        {func(f *AdoptFacts) { f.Volume.Spec.HostPath.Type = nil }, "type is unset"},
		"creating type":  {func(f *AdoptFacts) { f.Volume.Spec.HostPath.Type = &create }, "type is DirectoryOrCreate"},
		"node's name":    {on(want(HostnameLabel, corev1.NodeSelectorOpIn, us)), `has "host-a"`},
		"failed":         {func(f *AdoptFacts) { adoptFailed(f); toldReleased(f) }, "it is Failed"},
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
	for _, before := range [][]string{nil, {"kubernetes.io/pv-protection"}, {Finalizer}, {"a", Finalizer, "b"}} {
		v := adoptable().Volume
		v.Finalizers = before
		was := v.DeepCopy()
		for range 2 { // again, after a crash
			apply(v, AdoptMarks(v, testPool("fast"), us))
		}
		if v.Labels[NodeLabel] != us || v.Labels[PoolLabel] != "fast" || !slices.Contains(v.Finalizers, Finalizer) {
			t.Errorf("%q: %+v", before, v.ObjectMeta)
		}
		apply(v, ReturnMarks(v))
		if v.Labels = nil; !reflect.DeepEqual(v.Annotations, was.Annotations) || !slices.Equal(v.Finalizers, before) {
			t.Errorf("%q: %+v", before, v.ObjectMeta)
		}
	}
	// In a pool that is not one node's, the scope stands in the node's place.
	v, pool := adoptable().Volume, testPool("fast")
	pool.Scope = ScopeEveryNode
	apply(v, AdoptMarks(v, pool, us))
	if v.Labels[ScopeLabel] != ScopeEveryNode || v.Labels[PoolLabel] != "fast" || len(v.Labels) != 2 {
		t.Errorf("%q", v.Labels)
	}
	if apply(v, ReturnMarks(v)); len(v.Labels) != 0 {
		t.Errorf("given up with %q", v.Labels)
	}
	// One that the daemon made under the other's name has no finalizer of theirs.
	v = adoptable().Volume
	v.Finalizers = []string{Finalizer}
	if m := ReturnMarks(v); len(m.Finalizers) != 0 {
		t.Errorf("%+v", m)
	}
}

func apply(v *corev1.PersistentVolume, m Marks) {
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
	adopted := record.Record{PV: "pvc-u-1", Directory: "pvc-u-1", Place: record.InPool}
	for name, c := range map[string]struct {
		change func(*record.Record, *corev1.PersistentVolume)
		says   string
	}{
		"adopted":         {func(*record.Record, *corev1.PersistentVolume) {}, ""},
		"marks taken off": {func(_ *record.Record, v *corev1.PersistentVolume) { v.Labels = nil }, ""},
		"another node's":  {func(_ *record.Record, v *corev1.PersistentVolume) { v.Labels[NodeLabel] = them }, "node node-b's"},
		"in the trash":    {func(r *record.Record, _ *corev1.PersistentVolume) { r.Place = record.InTrash }, "in the trash"},
		"gone":            {func(r *record.Record, _ *corev1.PersistentVolume) { r.Place = record.Nowhere }, "its directory is gone"},
		"released":        {func(_ *record.Record, v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased }, "being removed"},
		"released, to be kept": {func(_ *record.Record, v *corev1.PersistentVolume) {
			v.Status.Phase, v.Spec.PersistentVolumeReclaimPolicy = corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain
		}, ""},
	} {
		r, v := adopted, adoptable().Volume
		apply(v, AdoptMarks(v, testPool("fast"), us))
		c.change(&r, v)
		if got := ForReturn(r, v, us); (got.Action == Return) != (c.says == "") || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v, want %q", name, got, c.says)
		}
	}
	if got := ForReturn(adopted, nil, us); got.Action != Refuse {
		t.Errorf("no object: %+v", got)
	}
	adopted.Place = record.Nowhere
	if got := ForReturn(adopted, nil, us); got.Action != Ignore {
		t.Errorf("no object and no directory: %+v", got)
	}
	for recorded, want := range map[string]bool{Rancher: true, "alias.example/x": true, DefaultProvisioner: false, "": false, "other.example/x": false} {
		if got := (Self{Provisioner: DefaultProvisioner, Aliases: []string{"alias.example/x"}}).Returnable(recorded); got != want {
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
		"rancher":              {image("rancher/local-path-provisioner:v0.0.31"), Rancher, true},
		"k3s, by digest":       {image("docker.io/rancher/local-path-provisioner@sha256:0123"), Rancher, true},
		"a registry's port":    {image("registry:5000/local-path-provisioner"), Rancher, true},
		"another system's":     {image("rancher/local-path-provisioner:v0.0.31"), Torchbox, false},
		"one name for several": {image("quay.io/kubevirt/hostpath-provisioner:latest"), Microk8s, true},
		"by argument":          {container(corev1.Container{Image: "x", Args: []string{"-name=torchbox.com/hostpath"}}), Torchbox, true},
		"by a lone argument":   {container(corev1.Container{Image: "x", Command: []string{"run", "--name", "a.example/b"}}), "a.example/b", true},
		"by environment":       {container(corev1.Container{Image: "x", Env: []corev1.EnvVar{{Name: "N", Value: "a.example/b"}}}), "a.example/b", true},
		"a plain alias":        {image("rancher/local-path-provisioner"), "a.example/b", false},
		"anything":             {image("nginx"), Rancher, false},
	} {
		if got := Runs(c.pod, c.provisioner); (got != "") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got, want := Runs(image("local-path-provisioner:v1"), Rancher), `pod kube-system/p on node "node-a" with image local-path-provisioner:v1`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestLeads(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	lease := func(holder string, age time.Duration) *coordinationv1.Lease {
		renewed, seconds := metav1.NewMicroTime(now.Add(-age)), int32(15)
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: LeaderLock(Rancher)},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: &seconds},
		}
	}
	never := lease("p", 0)
	never.Spec.RenewTime = nil
	for name, c := range map[string]struct {
		lease *coordinationv1.Lease
		want  string
	}{
		"renewed":               {lease("p", 2*time.Second), "p holds the leader's lock kube-system/rancher.io-local-path"},
		"within a minute":       {lease("p", 74*time.Second), "p holds the leader's lock kube-system/rancher.io-local-path"},
		"from a clock ahead":    {lease("p", -time.Hour), "p holds the leader's lock kube-system/rancher.io-local-path"},
		"long ago":              {lease("p", 76*time.Second), ""},
		"given up":              {lease("", time.Second), ""},
		"that nobody ever held": {never, ""},
	} {
		if got := Leads(c.lease, now); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
