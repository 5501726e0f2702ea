package crash

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// step is something that a person or a part of Kubernetes other than the daemon does.
type step func(*testCase)

// operation is one thing that the daemon does, from a state at rest to another.
type operation struct {
	name      string
	class     string
	fromBound bool    // the claim has its volume, with data in it, when the operation begins
	steps     []step  // what begins it
	boot      bool    // the operation is a start of the daemon: this is what it finds ...
	dies      string  // ... after it was killed at this point of the steps ("": before any of them)
	down      []step  // ... and this was done while it was dead
	lowers    bool    // it lowers a request, which API servers before Kubernetes 1.32 refuse
	clones    bool    // it needs a pool that makes clones, which one of scope every-node is not
	snapshot  bool    // it is of a snapshot, and no claim
	outcome   outcome // what the claim has to come to, wherever the daemon was killed
}

// Where the daemon dies first, so that a start has something to recover.
const (
	beforeRecord   = "write volumes/PV.json.new #1" // an empty file for a record
	beforeStaging  = "mkdir staging/PV #1"          // a record that has not its name
	beforeName     = "rename volumes/PV.json.new to volumes/PV.json #1"
	beforeVisible  = "rename staging/PV to pool/PV #1" // a record and a staging directory
	duringCopy     = "mkdir staging/PV/more #1"        // a record of a copy, and a directory with some of it
	afterCopied    = "syncfs staging/PV #1"            // the same, with all of it
	afterVisible   = "fsync pool #1"                   // a directory, in its place
	afterTrash     = "fsync trash #1"                  // a directory in the trash, with its object
	duringPurge    = "remove trash/PV~/data #1"        // one without its object
	beforeForget   = "remove volumes/PV.json #1"       // a record, and nothing else
	afterArchive   = "fsync archive #1"                // a directory in the archive
	afterExpanded  = "fsync volumes #1"                // a record with another size than its object
	beforeArchived = "rename volumes/PV.json to archive/PV.json #1"
)

var (
	ask        = []step{(*testCase).ask}
	clone      = []step{(*testCase).clone}
	snap       = []step{(*testCase).snap}
	restored   = []step{(*testCase).restore}
	chosen     = []step{(*testCase).askChosen}
	drop       = []step{(*testCase).drop}
	dropped    = []step{(*testCase).dropped}
	letGo      = []step{(*testCase).dropped, (*testCase).dropVolume}
	dropEarly  = []step{(*testCase).dropVolume, (*testCase).drop}
	goneEarly  = []step{(*testCase).dropVolume, (*testCase).dropped}
	forgetting = []step{(*testCase).forgetState}
	trashing   = []step{(*testCase).trashAgain}
	grow       = []step{(*testCase).grow}
	growTwice  = []step{(*testCase).grow, (*testCase).grow}
	tooMuch    = []step{(*testCase).growTooMuch}
	turn       = []step{(*testCase).turn}
	lower      = []step{(*testCase).lower}
)

// operations are everything that the daemon does to a pool.
var operations = []operation{
	{name: "create and publish", class: deleted, steps: ask, outcome: bound},
	{name: "take the claim, create and publish", class: consumer, steps: ask, outcome: bound},
	{name: "create and publish where the scheduler chose", class: consumer, steps: chosen, outcome: bound},
	{name: "clone", class: deleted, steps: clone, clones: true, outcome: bound},
	{name: "clone where the daemon takes the claim", class: consumer, steps: clone, clones: true, outcome: bound},
	{name: "clone, given up", class: deleted, steps: []step{givenUp((*testCase).clone)}, clones: true, outcome: gone},
	{name: "snapshot", steps: snap, clones: true, snapshot: true, outcome: bound},
	{name: "snapshot, given up", steps: []step{givenUp((*testCase).snap)}, clones: true, snapshot: true, outcome: gone},
	{name: "snapshot, delete", fromBound: true, steps: drop, clones: true, snapshot: true, outcome: gone},
	{name: "restore from a snapshot", class: deleted, steps: restored, clones: true, outcome: bound},
	{name: "delete and purge", class: deleted, fromBound: true, steps: drop, outcome: gone},
	{name: "volume deleted before its claim", class: deleted, fromBound: true, steps: dropEarly, outcome: gone},
	{name: "archive", class: archiving, fromBound: true, steps: drop, outcome: archived},
	{name: "create, publish and unhold", class: retaining, steps: ask, outcome: bound},
	{name: "hold", class: retaining, fromBound: true, steps: turn, outcome: bound},
	{name: "retain", class: retaining, fromBound: true, steps: letGo, outcome: retained},

	{name: "expand", class: deleted, fromBound: true, steps: grow, outcome: bound},
	{name: "expand again meanwhile", class: deleted, fromBound: true, steps: growTwice, outcome: bound},
	{name: "expand too much, then less", class: deleted, fromBound: true, steps: tooMuch, lowers: true, outcome: bound},

	{name: "start: nothing to do", class: deleted, fromBound: true, boot: true, outcome: bound},
	{name: "start: state directory lost", class: deleted, fromBound: true, boot: true, down: forgetting, outcome: bound},
	{name: "start: a claim waits", class: deleted, boot: true, down: ask, outcome: bound},
	{name: "start: torn record, go on", class: deleted, steps: ask, boot: true, dies: beforeRecord, outcome: bound},
	{name: "start: torn record, undo", class: deleted, steps: ask, boot: true, dies: beforeRecord, down: dropped, outcome: gone},
	{name: "start: unnamed record, go on", class: deleted, steps: ask, boot: true, dies: beforeStaging, outcome: bound},
	{name: "start: unnamed record, undo", class: deleted, steps: ask, boot: true, dies: beforeStaging, down: dropped, outcome: gone},
	{name: "start: unnamed record and staging, go on", class: deleted, steps: ask, boot: true, dies: beforeName, outcome: bound},
	{name: "start: unnamed record and staging, undo", class: deleted, steps: ask, boot: true, dies: beforeName, down: dropped, outcome: gone},
	{name: "start: staging, begin again", class: deleted, steps: ask, boot: true, dies: beforeVisible, outcome: bound},
	{name: "start: staging, undo", class: deleted, steps: ask, boot: true, dies: beforeVisible, down: dropped, outcome: gone},
	{name: "start: directory, publish", class: deleted, steps: ask, boot: true, dies: afterVisible, outcome: bound},
	{name: "start: directory where the scheduler chose, publish", class: consumer, steps: chosen, boot: true, dies: afterVisible, outcome: bound},
	{name: "start: directory where the scheduler chose, undo", class: consumer, steps: chosen, boot: true, dies: afterVisible, down: dropped, outcome: gone},
	{name: "start: directory, undo", class: deleted, steps: ask, boot: true, dies: afterVisible, down: dropped, outcome: gone},
	{name: "start: half a copy, begin again", class: deleted, steps: clone, boot: true, dies: duringCopy, clones: true, outcome: bound},
	{name: "start: half a copy, undo", class: deleted, steps: clone, boot: true, dies: duringCopy, down: dropped, clones: true, outcome: gone},
	{name: "start: a copy in staging, undo", class: deleted, steps: clone, boot: true, dies: afterCopied, down: dropped, clones: true, outcome: gone},
	{name: "start: a copy, publish", class: deleted, steps: clone, boot: true, dies: afterVisible, clones: true, outcome: bound},
	{name: "start: a copy, undo", class: deleted, steps: clone, boot: true, dies: afterVisible, down: dropped, clones: true, outcome: gone},
	{name: "start: half a snapshot, begin again", steps: snap, boot: true, dies: duringCopy, clones: true, snapshot: true, outcome: bound},
	{name: "start: half a snapshot, delete", steps: snap, boot: true, dies: duringCopy, down: drop, clones: true, snapshot: true, outcome: gone},
	{name: "start: a snapshot, say that it is ready", steps: snap, boot: true, dies: afterVisible, clones: true, snapshot: true, outcome: bound},
	{name: "start: a snapshot in the trash, delete", fromBound: true, steps: drop, boot: true, dies: afterTrash, clones: true, snapshot: true, outcome: gone},
	{name: "start: released meanwhile, delete", class: deleted, fromBound: true, boot: true, down: dropped, outcome: gone},
	{name: "start: both deleted meanwhile, delete", class: deleted, fromBound: true, boot: true, down: goneEarly, outcome: gone},
	{name: "start: more requested, expand", class: deleted, fromBound: true, boot: true, down: grow, outcome: bound},
	{name: "start: unnamed record of another size, expand", class: deleted, fromBound: true, steps: grow, boot: true, dies: beforeName, outcome: bound},
	{name: "start: record of another size, expand", class: deleted, fromBound: true, steps: grow, boot: true, dies: afterExpanded, outcome: bound},
	{name: "start: record of another size, expand by less", class: deleted, fromBound: true, steps: growTwice, boot: true, dies: afterExpanded, down: lower, lowers: true, outcome: bound},
	{name: "start: trash with object, finish delete", class: deleted, fromBound: true, steps: drop, boot: true, dies: afterTrash, outcome: gone},
	{name: "start: trash, purge", class: deleted, fromBound: true, steps: drop, boot: true, dies: duringPurge, outcome: gone},
	{name: "start: trash and bound again, put back", class: deleted, fromBound: true, boot: true, down: trashing, outcome: bound},
	{name: "start: record alone, forget", class: deleted, fromBound: true, steps: drop, boot: true, dies: beforeForget, outcome: gone},
	{name: "start: released meanwhile, archive", class: archiving, fromBound: true, boot: true, down: dropped, outcome: archived},
	{name: "start: directory archived, finish", class: archiving, fromBound: true, steps: drop, boot: true, dies: afterArchive, outcome: archived},
	{name: "start: record not archived, finish", class: archiving, fromBound: true, steps: drop, boot: true, dies: beforeArchived, outcome: archived},
	{name: "start: retained record not named, let go", class: retaining, fromBound: true, steps: letGo, boot: true, dies: beforeName, outcome: retained},
}

// givenUp asks for a copy and takes that back while the daemon is in the middle of it: the daemon
// waits there until it has been told. One that was killed before is told at its next start.
func givenUp(ask step) step {
	return func(t *testCase) {
		point, _, _ := strings.Cut(t.opt.first(duringCopy), " #")
		came, goOn := make(chan struct{}, 1), make(chan struct{})
		t.killer.Hold(func(what string) <-chan struct{} {
			if what != point {
				return nil
			}
			select {
			case came <- struct{}{}:
			default:
			}
			return goOn
		})
		defer t.killer.Hold(nil)
		defer close(goOn)
		ask(t)
		comes := func() bool { return len(came) > 0 || !t.Daemon.Running() }
		t.Must(harness.Eventually(t.Soon(), comes), "waiting until the daemon comes to "+point)
		t.dropped()
		t.until(func() bool { return t.killer.Quiet(calm) })
	}
}

// A case of an operation of a snapshot has a VolumeSnapshot in place of a claim, and a content in
// place of an object.

// content is what a VolumeSnapshotContent says.
type content struct{ ready, going bool }

func (w expectation) content() string { return "snapcontent-" + w.uid }

// addSnapshots has the cluster know snapshots, and makes one of the origin, from which claims are
// made.
func (e *environment) addSnapshots() {
	e.knowSnapshots()
	asked := harness.Need(e.snapshots.Ask(e.ctx, origin, e.origin, e.Node, "Delete"))
	name := asked(e, "asking for a snapshot")
	ready := func() bool { return e.contents()[name].ready }
	e.Must(harness.Eventually(e.Soon(), ready), "waiting for the origin's snapshot")
	e.Must(e.snapshots.Bind(e.ctx, origin, name), "binding a snapshot")
}

func (e *environment) knowSnapshots() {
	made := harness.Need(e.Cluster.Snapshots(e.Soon(), e.Namespace, e.Node))
	e.snapshots = made(e, "making the resources of snapshots")
}

// contents are all that there are, by name.
func (e *environment) contents() map[string]content {
	all := map[string]content{}
	if e.snapshots == nil {
		return all
	}
	list, err := e.snapshots.Of("volumesnapshotcontents").List(e.ctx, metav1.ListOptions{})
	e.Must(err, "listing contents")
	for _, one := range list.Items {
		ready, _, _ := unstructured.NestedBool(one.Object, "status", "readyToUse")
		all[one.GetName()] = content{ready, one.GetDeletionTimestamp() != nil}
	}
	return all
}

// snap asks for a snapshot of the origin.
func (t *testCase) snap() {
	t.data = originData
	asked := harness.Need(t.snapshots.Ask(t.ctx, t.claim, t.origin, t.Node, "Delete"))
	name := asked(t, "asking for a snapshot")
	t.asked(strings.TrimPrefix(name, "snapcontent-"))
}

// inspectSnapshot looks at the state while the daemon is dead: what is said to be ready is whole,
// and what is gone has no data that is taken for a snapshot.
func (t *testCase) inspectSnapshot() []fault {
	said, is := t.contents()[t.content()]
	d, err := readDir(t.volume)
	switch {
	case said.ready && !said.going && (err != nil || d.data != originData):
		return []fault{{loss, fmt.Sprintf("snapshot %s is said to be ready, and has %q, %v", t.claim, d.data, err)}}
	case t.outcome == gone && t.op.fromBound && !is && err == nil:
		return []fault{{leak, fmt.Sprintf("the content of snapshot %s was gone before its directory", t.claim)}}
	}
	return nil
}

// restore creates a claim that is made from the origin's snapshot. It names no node.
func (t *testCase) restore() {
	t.data = originData
	t.make(func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = cluster.FromSnapshot(origin) })
}

// scrubContents removes by force what is not in the baseline.
func (e *environment) scrubContents() {
	for name := range e.contents() {
		if e.baseline["content "+name] {
			continue
		}
		_ = e.snapshots.Of("volumesnapshotcontents").Delete(e.ctx, name, metav1.DeleteOptions{})
		_, _ = e.snapshots.Of("volumesnapshotcontents").Patch(e.ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
}
