package plan

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// toRestore is a claim that this node can make from a snapshot.
func toRestore() ClaimFacts {
	f, group := ready(), snapshotapi.GroupVersion.Group
	f.Nodes = 3
	f.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: snapshotapi.Kind, Name: "s"}
	f.Pool.Snapshots = SnapshotsLive
	yes, name := true, "snapcontent-u"
	snapshot := &snapshotapi.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "u"}, Status: &snapshotapi.SnapshotStatus{BoundContent: &name, ReadyToUse: &yes}}
	content := toTake().Content
	handle := "snapshot-u"
	content.Status = &snapshotapi.ContentStatus{ReadyToUse: &yes, SnapshotHandle: &handle}
	f.From = &SourceFacts{Taken: &SnapshotFacts{
		Asked: true, Snapshot: snapshot, Content: content, Pool: f.Pool.Name,
		Record: &record.Record{Kind: record.Snapshot, PV: "snapshot-u", ClaimUID: "u", Requested: 1 << 30, Place: record.InPool},
	}}
	return f
}

// TestRestoreRules breaks two rules or more in most cases, and names the one that decides.
func TestRestoreRules(t *testing.T) {
	type changes = []func(*ClaimFacts)
	off := func(f *ClaimFacts) { f.Pool.Snapshots = SnapshotsOff }
	scope := func(f *ClaimFacts) { f.Pool.Scope = ScopeEveryNode }
	namespace := func(f *ClaimFacts) {
		other, group := "other", snapshotapi.GroupVersion.Group
		f.Claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: snapshotapi.Kind, Name: "s", Namespace: &other}
	}
	unknown := func(f *ClaimFacts) { f.From = nil }
	elsewhere := func(f *ClaimFacts) { f.From.Taken.Record = nil }
	unread := func(f *ClaimFacts) { f.From.Taken.Unread = "pool slow: it is away" }
	named := func(f *ClaimFacts) { f.From.Taken.Content.Annotations[NodeLabel] = "node-b" }
	ours := func(f *ClaimFacts) { f.From.Taken.Content.Annotations[NodeLabel] = f.Node }
	source := func(f *ClaimFacts) { f.From.Taken.Source = true }
	contentless := func(f *ClaimFacts) { f.From.Taken.Content = nil }
	missing := func(f *ClaimFacts) { f.From.Taken.Snapshot = nil }
	going := func(f *ClaimFacts) { f.From.Taken.Snapshot.DeletionTimestamp = &metav1.Time{} }
	unready := func(f *ClaimFacts) { f.From.Taken.Snapshot.Status = nil }
	unsaid := func(f *ClaimFacts) { f.From.Taken.Content.Status = nil }
	half := func(f *ClaimFacts) { f.From.Taken.Record.Unpublished = true }
	forged := func(f *ClaimFacts) { f.From.Taken.Content.Spec.SnapshotRef.UID = "another" }
	pool := func(f *ClaimFacts) { f.From.Taken.Pool = "bulk" }
	small := func(f *ClaimFacts) { ask(f.Claim, "1Mi") }
	for _, c := range []struct {
		name    string
		changes changes
		action  Action
		reason  string
		message string
	}{
		{"nothing speaks against it", nil, Provision, "", ""},
		{"the pool's key before the namespace", changes{off, namespace}, Refuse, ReasonDataSource, "makes no volumes from snapshots"},
		{"the namespace before the scope", changes{namespace, scope}, Refuse, ReasonDataSource, "of the same namespace"},
		{"the scope before what is not known", changes{scope, unknown}, Refuse, ReasonDataSource, "scope every-node"},
		{"not known", changes{unknown}, Release, ReasonSource, "not this node's"},
		{"elsewhere", changes{elsewhere, going}, Release, ReasonSource, "not this node's"},
		{"elsewhere, and where", changes{elsewhere, named}, Release, ReasonSource, "on node node-b"},
		{"gone from here", changes{elsewhere, ours, pool}, Wait, ReasonSource, "its data is gone from this node"},
		{"said to be on another node, with its volume here", changes{elsewhere, named, source}, Wait,
			ReasonSource, `said to be ready on node "node-b", and this node, which has its volume, made none`},
		{"gone from here, or in a pool that is away", changes{elsewhere, ours, unread}, Release, ReasonPoolClosed, "pool slow"},
		{"still being made here", changes{elsewhere, ours, unsaid}, Release, ReasonSource, "on node"},
		{"perhaps in a pool that is away", changes{elsewhere, unread}, Release, ReasonPoolClosed, "pool slow"},
		{"of another driver", changes{elsewhere, contentless}, Release, ReasonSource, "another driver"},
		{"missing", changes{elsewhere, missing}, Wait, ReasonSource, "no snapshot of this name"},
		{"going before not ready", changes{going, unready}, Wait, ReasonSource, "being deleted"},
		{"not ready before its content is there", changes{unready, elsewhere, contentless}, Wait, ReasonSource, "not ready"},
		{"its content does not say so", changes{unsaid, pool}, Wait, ReasonSource, "not ready"},
		{"not whole", changes{half, pool}, Wait, ReasonSource, "not ready"},
		{"a content of another snapshot", changes{forged, small}, Wait, ReasonSource, "not ready"},
		{"another pool before its size", changes{pool, small}, Refuse, ReasonSource, "in pool bulk"},
		{"too small", changes{small}, Refuse, ReasonSource, "of a volume of 1Gi, and the claim requests 1Mi"},
	} {
		v := ForClaim(changed(toRestore(), c.changes))
		if v.Action != c.action || v.Reason != c.reason || !strings.Contains(v.Message, c.message) {
			t.Errorf("%s: got %s %s %q, want %s %s %q", c.name, v.Action, v.Reason, v.Message, c.action, c.reason, c.message)
		}
	}
}

// A restore without a node is taken by the node that has the snapshot, and left alone by all
// others.
func TestRestoreIsTaken(t *testing.T) {
	for _, mode := range []storagev1.VolumeBindingMode{storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate} {
		f := toRestore()
		f.Class.VolumeBindingMode = &mode
		f.Self.AwaitRequest, f.Age = true, time.Second
		delete(f.Claim.Annotations, SelectedNode)
		if mode == storagev1.VolumeBindingWaitForFirstConsumer {
			delete(f.Claim.Annotations, StorageProvisioner)
		}
		if !f.KeepClaim(f.Claim) || Unasked(f.Claim) || !SourceMatters(f) {
			t.Errorf("%s: it is not looked at", mode)
		}
		if v := ForClaim(f); v.Action != Assign {
			t.Errorf("%s: got %+v, want it taken", mode, v)
		}
		*f.From.Taken.Snapshot.Status.ReadyToUse = false
		if v := ForClaim(f); v.Action == Assign || v.After == 0 {
			t.Errorf("%s, before the snapshot is ready: %+v, want to look again", mode, v)
		}
		f.From.Taken.Record = nil
		if v := ForClaim(f); v.Action == Assign || v.Action == Provision || v.Message != "" {
			t.Errorf("%s, of another node's snapshot: %+v", mode, v)
		}
	}
}
