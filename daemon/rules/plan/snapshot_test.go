package plan

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// toTake is a content whose snapshot this node can make.
func toTake() ContentFacts {
	volume, class := "pvc-1", "snap"
	content := &snapshotapi.Content{
		ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-u", UID: "content-u", Finalizers: []string{"other", snapshotapi.Finalizer}, Annotations: map[string]string{}},
		Spec: snapshotapi.ContentSpec{
			Driver: DefaultProvisioner, DeletionPolicy: snapshotapi.PolicyDelete, Class: &class,
			SnapshotRef: snapshotapi.SnapshotRef{Namespace: "default", Name: "s", UID: "u"}, Source: snapshotapi.ContentSource{VolumeHandle: &volume},
		},
	}
	pool := testPool("fast")
	pool.Snapshots = SnapshotsLive
	return ContentFacts{
		Self: self, Content: content, Pool: pool, Room: capacity.Room{Free: 2 << 30}, Nodes: 3,
		Class:  &snapshotapi.Class{ObjectMeta: metav1.ObjectMeta{Name: class}, Driver: DefaultProvisioner},
		Source: &record.Record{PV: volume, ClaimUID: "c", Requested: 1 << 30, Place: record.InPool},
	}
}

func takenRecord(change ...func(*record.Record)) func(*ContentFacts) {
	return func(f *ContentFacts) {
		f.Snapshot = &record.Record{Kind: record.Snapshot, PV: "snapshot-u", ClaimUID: "u", Requested: 1 << 30, Place: record.InPool}
		for _, c := range change {
			c(f.Snapshot)
		}
	}
}

type contentCase struct {
	name    string
	changes []func(*ContentFacts)
	action  Action
	message string
}

// saidReady is a content of which the driver has said that its snapshot is ready.
func saidReady(f *ContentFacts) {
	yes, handle := true, "snapshot-u"
	f.Content.Status = &snapshotapi.ContentStatus{ReadyToUse: &yes, SnapshotHandle: &handle}
}

// Changes of both lists.
var (
	taken  = func(f *ContentFacts) { f.Content.Annotations[NodeLabel] = "node-b" }
	ours   = func(f *ContentFacts) { f.Content.Annotations[NodeLabel] = us }
	former = func(f *ContentFacts) { taken(f); f.Former = []string{"node-b"} }
	space  = func(f *ContentFacts) { f.Pool.SnapshotSpace, f.Origin.Promised = 2<<30, 3<<29 }
	common = func(f *ContentFacts) { f.Shared = true }
	moved  = func(at record.Place) func(*record.Record) { return func(r *record.Record) { r.Place = at } }
)

// boundTo has the volume be bound to a claim, which was made so much later than the content.
func boundTo(namespace, claim string, later time.Duration) func(*ContentFacts) {
	return func(f *ContentFacts) {
		at, asked := time.Unix(1000, 0), "db"
		f.Content.CreationTimestamp = metav1.NewTime(at)
		f.Origin = &Origin{Snapshot: &snapshotapi.Snapshot{}, Volume: &corev1.PersistentVolume{},
			Claim: &corev1.PersistentVolumeClaim{}}
		f.Origin.Snapshot.Spec.Source.Claim = &asked
		f.Origin.Volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: claim}
		f.Origin.Claim.CreationTimestamp = metav1.NewTime(at.Add(later))
	}
}

// untold is the message of a case that has none.
const untold = "-"

func (c contentCase) says(message string) bool {
	return strings.Contains(message, c.message) && c.message != untold || message == "" && c.message == untold
}

func (c contentCase) check(t *testing.T) {
	t.Helper()
	if v := ForContent(changed(toTake(), c.changes)); v.Action != c.action || !c.says(v.Message) || (v.Action == Refuse || v.Message != "") && v.Reason == "" {
		t.Errorf("%s: got %s %s %q, want %s %q", c.name, v.Action, v.Reason, v.Message, c.action, c.message)
	}
}

// TestContentRules breaks two rules or more in most cases, and names the one that decides.
func TestContentRules(t *testing.T) {
	type changes = []func(*ContentFacts)
	unpublished := func(r *record.Record) { r.Unpublished = true }
	imported := func(f *ContentFacts) {
		handle := "snapshot-u"
		f.Content.Spec.Source, f.Source = snapshotapi.ContentSource{SnapshotHandle: &handle}, nil
	}
	driver := func(f *ContentFacts) { f.Content.Spec.Driver = "example.com" }
	byPeople := func(f *ContentFacts) { yes := true; f.Content.Status = &snapshotapi.ContentStatus{ReadyToUse: &yes} }
	elsewhere := func(f *ContentFacts) { f.Source = nil }
	unread := func(f *ContentFacts) { f.Unread = "pool slow: it is away" }
	ofNode := func(f *ContentFacts) { f.Ours = true }
	classUnread := func(f *ContentFacts) { f.Class, f.NoClass = nil, "reading it failed" }
	off := func(f *ContentFacts) { f.Pool.Snapshots = SnapshotsOff }
	subvolumes := func(f *ContentFacts) { f.Pool.Snapshots = SnapshotsSnapshot }
	pausing := func(f *ContentFacts) { f.Pool.Snapshots = SnapshotsPaused }
	copying := func(f *ContentFacts) { f.Pool.Snapshots = SnapshotsCopy }
	classless := func(f *ContentFacts) { f.Class = nil }
	parameter := func(key, value string) func(*ContentFacts) {
		return func(f *ContentFacts) { f.Class.Parameters = map[string]string{key: value} }
	}
	trashed := func(f *ContentFacts) { f.Source.Place = record.InTrash }
	closed := func(f *ContentFacts) { f.Closed = "it is away" }
	full := func(f *ContentFacts) { f.Room.Free = 1 }
	for _, c := range []contentCase{
		{"nothing speaks against it", nil, Provision, ""},
		{"another driver's", changes{driver, takenRecord()}, Ignore, ""},
		{"ready before its pool's key", changes{saidReady, ours, takenRecord(), off}, Ignore, ""},
		{"ready under an earlier name of the node", changes{saidReady, former, takenRecord()}, Ignore, ""},
		{"ready, and gone", changes{saidReady, ours, elsewhere}, Wait, "its data is gone from this node"},
		{"ready, and gone from another node", changes{saidReady, taken, elsewhere}, Ignore, ""},
		{"ready, and half removed", changes{saidReady, ours, takenRecord(moved(record.Emptying))}, Wait, "in the trash, and its files are going; restore"},
		{"ready by another node, with its volume here", changes{saidReady, taken}, Wait, `ready on node "node-b", and this node, which has its volume, made none`},
		{"ready by another node, with it here", changes{saidReady, taken, takenRecord()}, Wait, "node node-b has taken its VolumeSnapshotContent"},
		{"ready, and in the trash", changes{saidReady, ours, takenRecord(moved(record.InTrash))}, PutBack, "was being deleted, and it is to stay"},
		{"imported, and in the trash", changes{imported, takenRecord(moved(record.InTrash))}, PutBack, ""},
		{"taken, and the volume went", changes{ours, elsewhere}, Refuse, "node node-a has taken it, and has neither"},
		{"ready by people's word", changes{byPeople}, Provision, ""},
		{"whole, and not said to be", changes{takenRecord(), off, classless}, Publish, ""},
		{"half, of an earlier try", changes{takenRecord(unpublished), full}, Provision, ""},
		{"imported", changes{imported, takenRecord()}, Publish, ""},
		{"imported, and not whole", changes{imported, takenRecord(unpublished)}, Ignore, ""},
		{"imported, and nowhere here", changes{imported}, Ignore, ""},
		{"elsewhere before its class", changes{elsewhere, classless}, Ignore, ""},
		{"perhaps in a pool that is away", changes{elsewhere, unread}, Wait, ""},
		{"ours by its volume, in a pool that is away", changes{elsewhere, unread, ofNode}, Wait, "cannot look for it: pool slow: it is away"},
		{"ready, in a pool that is away", changes{elsewhere, unread, ofNode, saidReady}, Wait, untold},
		{"kubevirt's class, of the volume's pool", changes{parameter("storagePool", "fast")},
			Provision, ""},
		{"kubevirt's class, of another pool", changes{parameter("storagePool", "slow")}, Refuse,
			`storagePool: "slow" is not the volume's pool, which is fast`},
		{"the pool's key before the class", changes{off, classless}, Refuse, "pool fast makes no snapshots"},
		{"a class that is not known to be missing", changes{classUnread, trashed}, Wait, "reading it failed"},
		{"the class before the source", changes{classless, trashed}, Refuse, `no VolumeSnapshotClass "snap"`},
		{"another consistency", changes{parameter("consistency", "other"), trashed}, Refuse, `consistency: "other" is not supported`},
		{"a consistency of other pools", changes{parameter("consistency", "paused"), trashed}, Refuse, `consistency: pool fast has snapshots = "live", and "paused" takes a pool of that`},
		{"the pool's", changes{pausing, parameter("consistency", "paused")}, Provision, ""},
		{"less than the pool's", changes{pausing, parameter("consistency", "live")}, Provision, ""},
		{"an unknown parameter", changes{parameter("copy", "true"), trashed}, Refuse, `unknown parameter "copy"`},
		{"Kubernetes' own parameter", changes{parameter("csi.storage.k8s.io/snapshotter-secret-name", "x")}, Provision, ""},
		{"the consistency that there is", changes{parameter("consistency", "live")}, Provision, ""},
		{"more than the pool makes", changes{copying, parameter("consistency", "live"), trashed}, Refuse, `consistency: pool fast has snapshots = "copy", in which a file`},
		{"none, of a pool that copies", changes{copying}, Provision, ""},
		{"one moment, of a pool that makes none of one", changes{parameter("consistency", "snapshot"), trashed}, Refuse, `pool fast has snapshots = "live"`},
		{"one moment, of subvolumes", changes{subvolumes, parameter("consistency", "snapshot")}, Provision, ""},
		{"less than the pool makes", changes{subvolumes, parameter("consistency", "live")}, Provision, ""},
		{"the source before a closed pool", changes{trashed, closed}, Refuse, "not in the pool any more"},
		{"a closed pool before a full one", changes{closed, full}, Wait, "pool fast: it is away"},
		{"full", changes{full}, Wait, "promised 1.0 GiB"},
		{"full before its claim is asked for", changes{full, boundTo("b", "db", 0)}, Wait, "promised"},
		{"of its claim", changes{boundTo("default", "db", 0)}, Provision, ""},
		{"of a claim of another namespace", changes{boundTo("b", "db", 0)}, Refuse, "another claim's than when"},
		{"of another claim", changes{boundTo("default", "other", 0)}, Refuse, "another claim's than when"},
		{"of a claim that is made anew", changes{boundTo("default", "db", time.Second)}, Refuse, "another claim's"},
		{"of no claim", changes{boundTo("default", "db", 0), func(f *ContentFacts) {
			f.Origin.Volume.Spec.ClaimRef = nil
		}}, Refuse, "the volume has no claim any more"},
		{"more than a namespace may have", changes{boundTo("default", "db", 0), space}, Wait,
			"of 2.0 GiB for all snapshots of a namespace (snapshots_per_namespace) 1.5 GiB are promised"},
		{"of no volume", changes{boundTo("default", "db", 0), func(f *ContentFacts) { f.Origin.Volume = nil }},
			Refuse, "the volume has no claim any more"},
	} {
		c.check(t)
	}
}

// A content that goes is let go by the node that has its data, and no data goes that is to be kept
// or that its VolumeSnapshot has.
func TestContentGoes(t *testing.T) {
	type changes = []func(*ContentFacts)
	going := func(f *ContentFacts) {
		f.Content.DeletionTimestamp = &metav1.Time{}
		f.Content.Annotations[snapshotapi.BeingDeleted] = "yes"
	}
	byHand := func(f *ContentFacts) { delete(f.Content.Annotations, snapshotapi.BeingDeleted) }
	retain := func(f *ContentFacts) { f.Content.Spec.DeletionPolicy = snapshotapi.PolicyRetain }
	unpublished := func(r *record.Record) { r.Unpublished = true }
	emptying := func(r *record.Record) { r.Place = record.Emptying }
	released := func(f *ContentFacts) { f.Content.Finalizers = []string{"other"} }
	elsewhere := func(f *ContentFacts) { f.Source = nil }
	named := func(f *ContentFacts) {
		handle := "snapshot-u"
		f.Content.Status = &snapshotapi.ContentStatus{SnapshotHandle: &handle}
	}
	imported := func(f *ContentFacts) {
		handle := "snapshot-u"
		f.Content.Spec.Source, f.Source, f.Content.Spec.SnapshotRef.UID = snapshotapi.ContentSource{SnapshotHandle: &handle}, nil, ""
	}
	late := func(f *ContentFacts) { f.Age = time.Hour }
	unread := func(f *ContentFacts) { f.Unread = "pool slow: it is away" }
	for _, c := range []contentCase{
		{"with its snapshot", changes{going, takenRecord()}, Delete, ""},
		{"with half a snapshot, to keep", changes{going, takenRecord(unpublished), retain}, Delete, ""},
		{"with what is left of one", changes{going, takenRecord(emptying)}, Delete, ""},
		{"to keep", changes{going, takenRecord(), retain}, Retain, ""},
		{"to keep, and in the trash", changes{going, takenRecord(moved(record.InTrash)), retain}, PutBack, "deletion policy is Retain now"},
		{"to keep, in the trash and released", changes{going, released, takenRecord(moved(record.InTrash)), retain}, PutBack, ""},
		{"with its snapshot in the trash", changes{going, takenRecord(moved(record.InTrash))}, Delete, ""},
		{"by hand, and in the trash", changes{going, byHand, takenRecord(moved(record.InTrash))}, PutBack, ""},
		{"with what another content has", changes{going, takenRecord(), common}, LetGo, ""},
		{"with half of what another content has", changes{going, takenRecord(unpublished), common}, Delete, ""},
		{"by hand", changes{going, byHand, takenRecord(), saidReady}, Ignore, ""},
		{"by hand, before it was ready", changes{going, byHand}, Refuse, "delete the VolumeSnapshot, too"},
		{"by hand, imported and not bound", changes{going, byHand, imported, takenRecord()}, Delete, ""},
		{"done", changes{going, released, takenRecord()}, Ignore, ""},
		{"never made", changes{going}, LetGo, ""},
		{"never made, and its volume is gone", changes{going, elsewhere}, Wait, ""},
		{"never made, its volume gone for long", changes{going, elsewhere, late}, LetGo, ""},
		{"another node's", changes{going, elsewhere, late, taken}, Ignore, ""},
		{"another node's, which was ready", changes{going, elsewhere, late, named}, Ignore, ""},
		{"another node's, which says so", changes{going, elsewhere, late, named, taken}, Ignore, ""},
		{"was ready here, and its data is gone", changes{going, elsewhere, named, ours}, Wait, ""},
		{"was ready here, and its data is gone for long", changes{going, elsewhere, named, ours, late}, LetGo, ""},
		{"was ready here, perhaps in a pool that is away", changes{going, elsewhere, named, ours, late, unread}, Wait, "cannot look for it: pool slow"},
		{"by hand, perhaps in a pool that is away", changes{going, byHand, elsewhere, named, ours, unread}, Wait, untold},
		{"perhaps in a pool that is away", changes{going, elsewhere, late, unread}, Wait, ""},
	} {
		c.check(t)
	}
}

// Without a content only a snapshot that may not be whole goes, and nothing as long as it is not
// known whether there is one.
func TestSnapshotRecords(t *testing.T) {
	content := toTake().Content
	going := content.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{}
	released := going.DeepCopy()
	released.Finalizers = []string{"other"}
	ready := toTake()
	saidReady(&ready)
	said := ready.Content
	for _, c := range []struct {
		name   string
		change func(*RecordFacts)
		want   Action
		reason string
	}{
		{"whole", func(*RecordFacts) {}, Keep, ReasonOrphaned},
		{"half", func(f *RecordFacts) { f.Record.Unpublished = true }, Undo, ReasonUnpublishedRemoved},
		{"half, of a content", func(f *RecordFacts) { f.Record.Unpublished, f.Content = true, content }, Keep, ""},
		{"half, and not known", func(f *RecordFacts) { f.Record.Unpublished, f.ContentUnknown = true, true }, Keep, ""},
		{"half, perhaps of another cluster", func(f *RecordFacts) { f.Record.Unpublished, f.Unsure = true, true }, Keep, ""},
		{"half, of another node", func(f *RecordFacts) { f.Record.Unpublished, f.Record.Node = true, "node-b" }, Keep, ""},
		{"kept", func(f *RecordFacts) { f.Record.Unpublished, f.Record.Retained = true, true }, Keep, ""},
		{"going", func(f *RecordFacts) { f.Record.Place = record.Emptying }, Finish, ""},
		{"going before its content", func(f *RecordFacts) { f.Record.Place, f.Content = record.Emptying, going }, Keep, ""},
		{"going, to be made anew", func(f *RecordFacts) { f.Record.Place, f.Content = record.Emptying, content }, Finish, ""},
		{"going, of one that is ready", func(f *RecordFacts) { f.Record.Place, f.Content = record.Emptying, said }, Keep, ""},
		{"going, of one that was let go", func(f *RecordFacts) { f.Record.Place, f.Content = record.Emptying, released }, Finish, ""},
		{"whole in the trash", func(f *RecordFacts) { f.Record.Place = record.InTrash }, Keep, ReasonOrphaned},
		{"gone", func(f *RecordFacts) { f.Record.Place = record.Nowhere }, Undo, ReasonUnpublishedRemoved},
	} {
		f := RecordFacts{Self: self, Scope: ScopeNode, Record: record.Record{Kind: record.Snapshot, PV: "snapshot-u", Node: us, Scope: ScopeNode, Place: record.InPool}}
		c.change(&f)
		if v := ForRecord(f); v.Action != c.want || v.Reason != c.reason {
			t.Errorf("%s: got %+v, want %s %s", c.name, v, c.want, c.reason)
		}
	}
}

// Pods are paused where their pool has that, unless the class wants less.
func TestPausesFor(t *testing.T) {
	for _, c := range []struct {
		pool, class string
		want        bool
	}{{SnapshotsPaused, "", true}, {SnapshotsPaused, "paused", true}, {SnapshotsPaused, "live", false}, {SnapshotsLive, "", false}, {SnapshotsCopy, "live", false}} {
		if got := (Pool{Snapshots: c.pool}).PausesFor(&snapshotapi.Class{Parameters: map[string]string{"consistency": c.class}}); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// What the snapshots of a namespace are promised is that of its own, without the one in question.
func TestSnapshotsOf(t *testing.T) {
	of := func(kind record.Kind, pv, namespace string, place record.Place) record.Record {
		return record.Record{Kind: kind, PV: pv, Namespace: namespace, Place: place, Requested: 10}
	}
	all := []record.Record{
		of(record.Snapshot, "a", "ns", record.InPool), of(record.Snapshot, "b", "ns", record.InTrash),
		of(record.Snapshot, "c", "ns", record.Nowhere), of(record.Snapshot, "d", "other", record.InPool),
		of(record.Volume, "e", "ns", record.InPool), of(record.Snapshot, "f", "ns", record.InPool),
	}
	if got := SnapshotsOf("ns", "f", all); got != 20 {
		t.Errorf("promised %d, want 20", got)
	}
}
