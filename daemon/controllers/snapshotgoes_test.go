package controllers

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// A content that was let go without a response is asked for: what is gone goes with its data, what
// is to stay keeps it, also if the watch is late or brings it.
func TestContentLetGoWithoutResponse(t *testing.T) {
	for name, c := range map[string]struct {
		then func(c *Controller, a *album)
		done string
	}{
		"it is gone": {func(c *Controller, a *album) {
			c.Contents, a.content = one[*snapshotapi.Content]{&snapshotapi.Content{}}, nil
		}, ", discard"},
		"it is gone, and still watched": {func(_ *Controller, a *album) { a.content = nil }, ", discard"},
		"only others hold it": {func(_ *Controller, a *album) {
			a.content = a.content.DeepCopy()
			a.content.Finalizers = []string{"other"}
		}, ", discard"},
		"it was not done": {func(_ *Controller, a *album) { a.lost = false }, ", " + strings.TrimPrefix(removal, take+", ")},
		"it is to be kept": {func(c *Controller, a *album) {
			now := a.content.DeepCopy()
			now.Spec.DeletionPolicy = snapshotapi.PolicyRetain
			c.Contents, a.content = one[*snapshotapi.Content]{now}, now
			a.records[handle] = record.Record{PV: handle, Kind: record.Snapshot, Place: record.InTrash}
		}, ", put back"},
		"it was to be kept, and is gone": {func(c *Controller, a *album) {
			now := a.content.DeepCopy()
			now.Spec.DeletionPolicy = snapshotapi.PolicyRetain
			c.ContentChanged(a.content, now)
			c.Contents, a.content = one[*snapshotapi.Content]{&snapshotapi.Content{}}, nil
		}, ""},
		"what is told late": {func(c *Controller, a *album) {
			late := a.content.DeepCopy()
			late.DeletionTimestamp, late.ResourceVersion = nil, "3"
			c.ContentChanged(a.content, late)
			c.Contents, a.content = one[*snapshotapi.Content]{&snapshotapi.Content{}}, nil
		}, ", discard"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctl, w, a, _ := snapshotting(t)
			whole(record.InPool)(ctl, w, a)
			going(ctl, w, a)
			a.content.Annotations[plan.NodeLabel], a.content.ResourceVersion, a.lost = "node-a", "4", true
			i := item{name: "snapcontent-u", uid: "content"}
			if _, err := ctl.content(t.Context(), i); !errors.Is(err, errAway) {
				t.Fatalf("%s: %v", name, err)
			}
			before := a.done.String()
			c.then(ctl, a)
			if _, err := ctl.content(t.Context(), i); err != nil || a.done.String() != before+c.done {
				t.Errorf("%s: did %q, %v, want %q more than %q", name, a.done.String(), err, c.done, before)
			}
			if c.done != "" && len(ctl.begun.Under(contentKeys)) > 0 {
				t.Errorf("%s: it is remembered", name)
			}
		})
	}
}

// A daemon that is told to end has the data of contents go that it let go.
func TestContentsAreFinishedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl, _, a, _ := snapshotting(t)
		ctl.begun.Begin(contentKey("content") + "fast/" + handle)
		a.content = nil
		ctl.finishLetGo(t.Context())
		if a.done.String() != "discard" {
			t.Errorf("did %q", a.done.String())
		}
	})
}
