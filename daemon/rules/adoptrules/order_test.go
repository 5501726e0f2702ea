package adoptrules

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// breach is one thing that is wrong with a volume, and the whole verdict of the rule that is about
// it.
type breach struct {
	name   string
	change change
	want   Verdict
}

func ignored() Verdict { return Verdict{Action: plan.Ignore} }

func refusal(reason, message string) Verdict {
	return Verdict{Action: plan.Refuse, Reason: reason, Message: message}
}

// inOrder breaks each rule together with all later ones, and wants the verdict of the earliest.
// Each rule of the list has to have a breach.
func inOrder(t *testing.T, list []rule, base func() Facts, decide func(Facts) Verdict, breaches []breach) {
	t.Helper()
	reached := map[int]bool{}
	for i, b := range breaches {
		t.Run(b.name, func(t *testing.T) {
			f := base()
			for _, later := range slices.Backward(breaches[i:]) {
				later.change(&f)
			}
			got := decide(f)
			if got.Action != b.want.Action || got.Reason != b.want.Reason || got.Action == plan.Refuse && got.Message != b.want.Message {
				t.Errorf("%+v\nwant %+v", got, b.want)
			}
			reached[slices.IndexFunc(list, func(r rule) bool { _, applies := r(f); return applies })] = true
		})
	}
	for i := range list {
		if !reached[i] {
			t.Errorf("no case is decided by rule %d of the list", i)
		}
	}
}

func block(f *Facts)      { m := corev1.PersistentVolumeBlock; f.Volume.Spec.VolumeMode = &m }
func deleted(f *Facts)    { now := metav1.Now(); f.Volume.DeletionTimestamp = &now }
func unbound(f *Facts)    { f.Volume.Spec.ClaimRef = nil }
func unreadable(f *Facts) { f.Unreadable = "its record is damaged" }
func mounted(f *Facts)    { f.Shown = "/mnt/x" }
func here(f *Facts)       { f.Volume.Spec.NodeAffinity = plan.NodeAffinity("host-a") }
func elsewhere(f *Facts)  { f.Volume.Spec.NodeAffinity = plan.NodeAffinity("host-b") }
func maker(name string) change {
	return func(f *Facts) { f.Volume.Annotations[plan.ProvisionedBy] = name }
}
func ofTheirs(f *Facts) {
	f.Volume.Labels = map[string]string{plan.NodeLabel: them, plan.PoolLabel: "fast"}
}
func adoptedBy(f *Facts) { f.Volume.Annotations[AdoptingAnnotation] = them }
func allOf(all ...change) change {
	return func(f *Facts) {
		for _, change := range all {
			change(f)
		}
	}
}

func TestAdoptionInOrder(t *testing.T) {
	inOrder(t, adoptRules, adoptable, ForAdoption, []breach{
		{"source of the CSI driver", allOf(here, csi("pvc-1")), refusal(ReasonCSI, "source csi: kubelet asks driver kubevirt.io.hostpath-provisioner for it, not this host's disk")},
		{"another pool", lies("/srv/faster/pvc-u-1"), ignored()},
		{"another node", allOf(lies("/srv/fast/a/b"), elsewhere), ignored()},
		{"our own", allOf(here, maker(plan.DefaultProvisioner)), ignored()},
		{"no maker", maker(""), refusal("", "nothing says which program made it: no annotation pv.kubernetes.io/provisioned-by")},
		{"no alias", maker("x"), refusal(ReasonNotAlias, `its provisioner "x" is not one of this node's aliases`)},
		{"made on another node by MaZderMind's", madeBy(plan.MaZderMind, them), refusal("", `its hostPathProvisionerIdentity is "node-b": it was made on that node, not on node-a`)},
		{"identity that kubevirt does not write", madeBy(plan.Kubevirt, us), refusal("", `its hostPathProvisionerIdentity is "node-a", and kubevirt writes "kubevirt.io/hostpath-provisioner"`)},
		{"a block device", allOf(madeBy(plan.Torchbox, ""), block), refusal("", "volumeMode Block")},
		{"deleted", deleted, refusal("", "it is being deleted")},
		{"no claim", unbound, refusal("", "no claim was bound to it, so nothing says whose data it is")},
		{"nested path", lies("/srv/fast/a/b"), refusal("", `"/srv/fast/a/b" is not right in the pool: a volume is one directory below /srv/fast`)},
		{"labels of another node", allOf(lies("/srv/fast/pvc-u-1"), ofTheirs), refusal("", "it is of pool fast of node node-b already")},
		{"call of another node", adoptedBy, refusal("", `"node-b" is adopting it: run adopt there again, or adopt --undo`)},
		{"unreadable record", unreadable, refusal("", "its record is damaged")},
		{"directory of two volumes", otherHasIt, refusal("", "volume pvc-2 lies in the same directory")},
		{"directory that cannot be one", unusable, refusal("", "no directory")},
		{"mounted elsewhere", mounted, refusal("", "its directory is mounted at /mnt/x as well")},
		{"no affinity", anywhere, refusal(ReasonNoAffinity, "no affinity: nothing says which node has its data")},
		{"affinity of two nodes", on(want(plan.HostnameLabel, corev1.NodeSelectorOpIn, "host-a", them)), refusal(ReasonNoAffinity, "its affinity does not name one node: nothing says which node has its data")},
		{"still running", allOf(here, runs), refusal(ReasonRunning, "torchbox.com/hostpath may still run: pod a/b")},
		{"not known to be stopped", notKnown, refusal(ReasonNotKnown, "it is not known whether torchbox.com/hostpath still runs: pods is forbidden")},
		{"may run outside", torchbox, refusal(ReasonOutside, "torchbox.com/hostpath can run outside of the cluster, where nothing shows it")},
		{"released", adoptReleased, refusal(ReasonReleased, "it is Released and its policy is Delete: its data would be removed once it is adopted")},
	})
}

// replaceable is a volume of kubevirt's CSI driver, as OfHost has it, that this node may replace.
func replaceable() Facts {
	f := adoptable()
	v := ofDriver()
	v.DeletionTimestamp, v.Finalizers, v.Spec.NodeAffinity = nil, []string{plan.PVProtection}, plan.NodeAffinity("host-a")
	f.Volume = OfHost(v, f.Pool)
	return f
}

func TestReplacementInOrder(t *testing.T) {
	if got := ForReplacement(replaceable()); got.Action != Adopt {
		t.Fatalf("nothing in the way: %+v", got)
	}
	inOrder(t, replacementRules, replaceable, ForReplacement, []breach{
		{"inline volume", allOf(here, lies("/srv/fast/csi-1")), refusal("", `handle "csi-1" is one of an inline volume, which its pod takes along`)},
		{"another pool", lies("/srv/faster/pvc-1"), ignored()},
		{"another node", allOf(lies("/srv/fast/a/b"), elsewhere), ignored()},
		{"no maker", allOf(here, maker("")), refusal("", "nothing says which program made it: no annotation pv.kubernetes.io/provisioned-by")},
		{"no alias", maker("x"), refusal(ReasonNotAlias, `its provisioner "x" is not one of this node's aliases`)},
		{"a block device", allOf(maker(plan.KubevirtCSI), block), refusal("", "volumeMode Block")},
		{"read-only", func(f *Facts) { f.ReadOnly = true }, refusal("", "it is read-only, which a volume of this pool would not be")},
		{"deleted by others", deleted, refusal("", "it is being deleted")},
		{"no claim", unbound, refusal("", "no claim was bound to it, so nothing says whose data it is")},
		{"nested path", lies("/srv/fast/a/b"), refusal("", `"/srv/fast/a/b" is not right in the pool: a volume is one directory below /srv/fast`)},
		{"labels of another node", allOf(lies("/srv/fast/pvc-1"), ofTheirs), refusal("", "it is of pool fast of node node-b already")},
		{"call of another node", adoptedBy, refusal("", `"node-b" is adopting it: run adopt there again, or adopt --undo`)},
		{"unreadable record", unreadable, refusal("", "its record is damaged")},
		{"finalizer of others", func(f *Facts) { f.Volume.Finalizers = []string{"backup.example/hold"} }, refusal("", `it has the finalizer "backup.example/hold": its owner has to take it off first`)},
		{"directory of two volumes", otherHasIt, refusal("", "volume pvc-2 lies in the same directory")},
		{"directory that cannot be one", unusable, refusal("", "no directory")},
		{"mounted elsewhere", mounted, refusal("", "its directory is mounted at /mnt/x as well")},
		{"no affinity", anywhere, refusal(ReasonNoAffinity, "no affinity: nothing says which node has its data")},
		{"driver runs", allOf(here, runs), refusal(ReasonDriverRuns, "its driver runs: pod a/b")},
		{"driver not known to be stopped", notKnown, refusal(ReasonDriverNotKnown, "it is not known whether its driver runs: pods is forbidden")},
		{"in use", func(f *Facts) { f.Used = "default/shop" }, refusal(ReasonUsed, "pod default/shop uses it")},
		{"its claim is gone, which the phase does not tell yet", func(f *Facts) { f.ClaimGone = true }, refusal(ReasonReleased, "it is Released and its policy is Delete: its data would be removed once it is adopted")},
	})
}

// What an operator says of a program that may run is no word about a driver: a driver that mounts
// would lose its object.
func TestNoFlagOverridesTheDriver(t *testing.T) {
	for name, change := range map[string]change{"running": runs, "not known": notKnown, "in use": func(f *Facts) { f.Used = "a/b" }} {
		t.Run(name, func(t *testing.T) {
			f := replaceable()
			f.Overrides = Overrides{HasData: true, Stopped: []string{plan.KubevirtCSI}, Outside: true, Released: true}
			f.Record = &record.Record{Directory: "pvc-1", ClaimUID: "u-1", Place: record.InPool, Replaced: "{}"}
			if change(&f); ForReplacement(f).Action != plan.Refuse {
				t.Errorf("%+v", ForReplacement(f))
			}
		})
	}
}

// A deletion is finished only by the node whose call began it, and only after it recorded what it
// replaces.
func TestDeletionThatACallBegan(t *testing.T) {
	began := &record.Record{Directory: "pvc-1", ClaimUID: "u-1", Place: record.InPool, Replaced: "{}"}
	for name, c := range map[string]struct {
		holder string
		record *record.Record
		want   plan.Action
	}{
		"held and recorded by this node": {us, began, Adopt},
		"held by another node":           {them, began, plan.Refuse},
		"held, nothing recorded":         {us, nil, plan.Refuse},
		"recorded without an object":     {us, &record.Record{Directory: "pvc-1", ClaimUID: "u-1", Place: record.InPool}, plan.Refuse},
	} {
		t.Run(name, func(t *testing.T) {
			f := replaceable()
			deleted(&f)
			f.Volume.Annotations[plan.HeldAnnotation], f.Volume.Annotations[AdoptingAnnotation], f.Record = "Delete", c.holder, c.record
			if got := ForReplacement(f); got.Action != c.want {
				t.Errorf("%+v, want %s", got, c.want)
			}
		})
	}
}

// What removes the entry removes the data: however a path is written, the entry is found.
func TestEntryAndDirectory(t *testing.T) {
	for name, c := range map[string]struct{ path, entry, directory string }{
		"right in the pool":          {"/srv/fast/pvc-1", "pvc-1", "pvc-1"},
		"nested":                     {"/srv/fast/default/data", "default", ""},
		"with a slash behind":        {"/srv/fast/pvc-1/", "pvc-1", ""},
		"through another directory":  {"/srv/fast/x/../pvc-1", "pvc-1", ""},
		"out of the pool":            {"/srv/fast/../etc", "", ""},
		"into the pool from outside": {"/srv/x/../fast/pvc-1", "pvc-1", ""},
		"hidden":                     {"/srv/fast/.trash", ".trash", ""},
		"the pool itself":            {"/srv/fast", "", ""},
		"another pool":               {"/srv/faster/pvc-1", "", ""},
		"no path":                    {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := adoptable()
			lies(c.path)(&f)
			if entry, directory := EntryOf(f.Pool, f.Volume), DirectoryOf(f.Pool, f.Volume); entry != c.entry || directory != c.directory {
				t.Errorf("entry %q, directory %q", entry, directory)
			}
			f.Volume.Annotations[AdoptingAnnotation] = us
			if got := Begun(f.Volume, f.Pool, us); got != (c.directory != "") || Begun(f.Volume, f.Pool, them) {
				t.Errorf("begun here: %t, begun on another node: %t", got, Begun(f.Volume, f.Pool, them))
			}
		})
	}
}
