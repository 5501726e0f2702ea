package model

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// What the stage has for the snapshot. It plays people and the snapshot-controller, in the same
// steps as snapshot_events.go.

const (
	snapshotsOf = "volumesnapshots"
	contentsOf  = "volumesnapshotcontents"
	// keepsSnapshot is the snapshot-controller's finalizer, of a VolumeSnapshot.
	keepsSnapshot = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
)

// shot is the snapshot of a stage.
type shot struct {
	api *cluster.Snapshots // nil in a world without snapshots
	uid string             // of the VolumeSnapshot, "" before it was made
	of  int                // the cell of its volume

	whole bool // it was, when everything settles
}

// newShot has the API server know of snapshots.
func newShot(st *stage) shot {
	st.Helper()
	if !st.first.snapshots {
		return shot{}
	}
	api := hosttest.Need(st.Snapshots(st.Soon(), st.Namespace, st.Provisioner))(st)
	return shot{api: api}
}

// taken is what there is of the snapshot, once it was made.
func (st *stage) taken() shot {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.shot
}

// content is the name of the snapshot's content.
func (s shot) content() string { return "snapcontent-" + s.uid }

// modelled puts the model's name of the snapshot in a text in place of the real one.
func (s shot) modelled(text string) string {
	if s.uid == "" {
		return text
	}
	return strings.ReplaceAll(text, s.uid, snapshotUID)
}

func (st *stage) snapshotTaken(_ state, cell int) error {
	content, err := st.shot.api.Ask(st.Ctx, snapshotName, st.real(cell), st.Provisioner, snapshotapi.PolicyDelete)
	if err != nil {
		return err
	}
	st.mu.Lock()
	st.shot.uid, st.shot.of = strings.TrimPrefix(content, "snapcontent-"), cell
	st.mu.Unlock()
	return st.patchSnapshot(snapshotsOf, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, keepsSnapshot))
}

// patchSnapshot patches the VolumeSnapshot or its content.
func (st *stage) patchSnapshot(resource, patch string, subresource ...string) error {
	name := snapshotName
	if resource == contentsOf {
		name = st.taken().content()
	}
	_, err := st.shot.api.Of(resource).Patch(st.Ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
	return err
}

func (st *stage) snapshotDeleted(state, int) error {
	return st.shot.api.Of(snapshotsOf).Delete(st.Ctx, snapshotName, metav1.DeleteOptions{})
}

func (st *stage) contentDeleted(state, int) error {
	return st.shot.api.Of(contentsOf).Delete(st.Ctx, st.taken().content(), metav1.DeleteOptions{})
}

func (st *stage) contentPolicyChanged(before state, _ int) error {
	policy := "Retain"
	if before.api.snapshot.retain {
		policy = snapshotapi.PolicyDelete
	}
	return st.patchSnapshot(contentsOf, fmt.Sprintf(`{"spec":{"deletionPolicy":%q}}`, policy))
}

func (st *stage) contentForced(state, int) error {
	return st.patchSnapshot(contentsOf, `{"metadata":{"finalizers":null}}`)
}

// contentFollows is the next step of the snapshot-controller with a VolumeSnapshot that is being
// deleted.
func (st *stage) contentFollows(before state, i int) error {
	switch c := before.api.snapshot; {
	case !c.withdrawn:
		return nil
	case !c.exists, c.going && c.retain && !c.deleting:
		return st.patchSnapshot(snapshotsOf, `{"metadata":{"finalizers":null}}`)
	case !c.going:
		return st.patchSnapshot(contentsOf, fmt.Sprintf(`{"metadata":{"annotations":{%q:"yes"}}}`, snapshotapi.BeingDeleted))
	case !c.deleting:
		return st.contentDeleted(before, i)
	}
	return nil
}

// snapshotSettles is what the snapshot-controller goes on to do by itself after a state. What it
// meant to change may have gone meanwhile. It notes whether the snapshot was whole by then.
func (st *stage) snapshotSettles(after, seen state, real *state) {
	st.Helper()
	if !st.first.snapshots {
		return
	}
	st.shot.whole = st.shot.whole || after.whole || st.worker.image(&seen, nodePool).snapshot.snapshotWhole()
	real.whole = st.shot.whole
	if err := st.contentFollows(seen, 0); !apierrors.IsNotFound(err) {
		st.Must(err)
	}
}

// read reads the VolumeSnapshot or its content into an object, false if there is none.
func (st *stage) read(resource, name string, into any) (bool, error) {
	o, err := st.shot.api.Of(resource).Get(st.Ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, runtime.DefaultUnstructuredConverter.FromUnstructured(o.UnstructuredContent(), into)
}

// seenSnapshot notes the VolumeSnapshot and its content. What the snapshot-controller does at once
// it has done then: the status of the VolumeSnapshot has what its content's says, and it goes with
// its content where it does so in the model.
func (st *stage) seenSnapshot(s *state, in content) error {
	shot := st.taken()
	if shot.uid == "" {
		return nil
	}
	var of snapshotapi.Content
	var ask snapshotapi.Snapshot
	exists, err := st.read(contentsOf, shot.content(), &of)
	asked, err2 := st.read(snapshotsOf, snapshotName, &ask)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	c := &s.api.snapshot
	if exists {
		*c = contentOf(&of)
		c.of = uint8(shot.of)
	}
	c.asked, c.withdrawn = asked, asked && ask.DeletionTimestamp != nil
	if c.withdrawn && !exists && !in.asked {
		c.asked, c.withdrawn = false, false
		return st.contentFollows(state{api: etcd{snapshot: content{withdrawn: true}}}, 0)
	}
	if !asked {
		return nil
	}
	return st.saysReady(&ask, c)
}

// saysReady has the status of the VolumeSnapshot say what its content's does.
func (st *stage) saysReady(ask *snapshotapi.Snapshot, c *content) error {
	name, bound, ready := "null", "", false
	if c.exists {
		name = fmt.Sprintf("%q", st.taken().content())
	}
	if s := ask.Status; s != nil {
		if s.BoundContent != nil {
			bound = *s.BoundContent
		}
		ready = s.ReadyToUse != nil && *s.ReadyToUse
	}
	if c.exists == (bound != "") && c.ready == ready {
		return nil
	}
	return st.patchSnapshot(snapshotsOf, fmt.Sprintf(`{"status":{"readyToUse":%t,"boundVolumeSnapshotContentName":%s}}`, c.ready, name), "status")
}

// compared is a content without what tells nothing.
func (c content) compared() content {
	if !c.exists {
		c.of = 0
	}
	return c
}

// namedSnapshot is the name of a request about the snapshot.
func (on *machine) namedSnapshot(r *http.Request) string {
	of, is := strings.CutPrefix(r.URL.Path, "/apis/"+snapshotapi.GroupVersion.String()+"/")
	content, about := strings.CutPrefix(of, contentsOf+"/snapcontent-")
	switch {
	case is && about && r.Method == http.MethodGet:
		return op{kind: getContent}.verb() + " " + snapshotapi.HandlePrefix + content
	case is && about && r.Method == http.MethodPatch:
		uid, _, _ := strings.Cut(content, "/")
		does := writeContent
		if bytes.Contains(body(r), []byte(`"finalizers"`)) {
			does = releaseContent
		}
		return op{kind: does}.verb() + " " + snapshotapi.HandlePrefix + uid
	case is && r.Method == http.MethodGet && strings.HasSuffix(of, "/"+snapshotsOf+"/"+snapshotName):
		return op{kind: getSnapshot}.String()
	}
	return ""
}

// outlineOfRecord is what matters of the text of a record.
func outlineOfRecord(path, text string) string {
	r := recordIn(text)
	of := fmt.Sprint("retained: ", r.Retained, ", units: ", 1+sizeIn(r))
	if strings.Contains(path, snapshotapi.HandlePrefix) {
		of += fmt.Sprint(", whole: ", !r.Unpublished)
	}
	return of
}
