package controllers

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// removeSnapshot takes the data of a snapshot out of the way, durably, then lets its content go,
// and then has the trash know that, as letGo does for a volume, and for the same reason. After a
// crash:
//
//	trashed         whole in the trash, with its content: all is done again, or it is put back
//	content gone    whole in the trash, and without a content: kept and told (plan.ForRecord)
//	discarded       its files may go: purged
//
// What never was ready has no user, and is discarded at once.
func (c *copies) removeSnapshot(ctx context.Context, f plan.ContentFacts, t takenIn) error {
	rec := *f.Snapshot
	var err error
	switch {
	case rec.Place == record.Emptying:
	case rec.Place == record.InStaging, rec.Place == record.InPool && rec.Unpublished:
		err = t.h.Undo(rec.PV)
	default: // a retained one is not retained any more
		err = t.h.Trash(rec.PV)
	}
	if err != nil {
		return err
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	key := contentKey(string(f.Content.UID)) + f.Pool.Name + "/" + rec.PV
	released, err := c.letContentGo(ctx, f.Content, key)
	if !released || err != nil {
		return err
	}
	c.Log.Info("removed a snapshot", "reason", plan.ReasonDeleted, "snapshot", rec.PV, "pool", f.Pool.Name)
	return c.discardSnapshot(ctx, key)
}

// contentKeys begin what this process remembers of a content that it let go, until the trash knows
// it. The content's UID follows, the pool and the handle of its snapshot.
const contentKeys = "let content go/"

func contentKey(uid string) string { return contentKeys + uid + "/" }

// letContentGo takes our finalizer off a content, and remembers by key that it may have been done, as
// long as it is not known.
func (c *copies) letContentGo(ctx context.Context, of *snapshotapi.Content, key string) (released bool, err error) {
	now, err := c.clearContent(ctx, of)
	if err != nil {
		return false, err
	}
	known := !c.begun.Begin(key)
	c.begun.Note(key, now.ResourceVersion)
	was, err := c.Snapshots.ReleaseContent(ctx, now)
	if err != nil && refused(err) || err == nil && !was && !known { // the latter: another client did it
		c.begun.End(key)
	}
	return was || known, err
}

// letsContentGo reports whether this process is about to let a content of a handle go, or to
// discard its snapshot.
func (c *copies) letsContentGo(handle string) bool {
	return slices.ContainsFunc(c.begun.Under(contentKeys), func(rest string) bool {
		return strings.HasSuffix(rest, "/"+handle)
	})
}

// contentLetGo looks at a content that this process let go without a response, and that the watch
// has. It is done if it went, but for the finalizers of others. If it is to stay after all, that it
// was let go is forgotten.
func (c *copies) contentLetGo(ctx context.Context, i item) (done bool, err error) {
	if len(c.begun.Under(contentKey(i.uid))) == 0 {
		return false, nil
	}
	now, err := c.Snapshots.GetContent(ctx, i.name)
	switch {
	case err != nil:
		return false, err
	case now == nil, string(now.UID) != i.uid, plan.GoesWithData(now) && !plan.HoldsData(now):
		_, err := c.finishContent(ctx, i.uid)
		return true, err
	case !plan.GoesWithData(now):
		c.contentStays(i.uid)
	}
	return false, nil
}

func (c *copies) contentStays(uid string) {
	for _, rest := range c.begun.Under(contentKey(uid)) {
		c.begun.End(contentKey(uid) + rest)
	}
}

// contentStaysAfterAll is staysAfterAll for contents. What the watch brings of before the content
// was let go proves nothing.
func (c *copies) contentStaysAfterAll(now *snapshotapi.Content) {
	if plan.GoesWithData(now) {
		return
	}
	uid := string(now.UID)
	for _, rest := range c.begun.Under(contentKey(uid)) {
		key := contentKey(uid) + rest
		if !plan.Newer(c.begun.Noted(key), now.ResourceVersion, false) {
			c.begun.End(key)
		}
	}
}

// finishContent has the data go of each content with this UID that this process let go, and that is
// gone.
func (c *copies) finishContent(ctx context.Context, uid string) (time.Duration, error) {
	for _, rest := range c.begun.Under(contentKey(uid)) {
		if err := c.discardSnapshot(ctx, contentKey(uid)+rest); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// finishContents is finishLetGo for contents.
func (c *copies) finishContents(ctx context.Context) {
	if c.Contents == nil {
		return
	}
	names := map[string]string{} // by UID
	for _, one := range c.Contents.List() {
		names[string(one.UID)] = one.Name
	}
	for ctx.Err() == nil {
		for _, rest := range c.begun.Under(contentKeys) {
			uid, _, _ := strings.Cut(rest, "/")
			c.content(ctx, item{name: names[uid], uid: uid})
		}
		if len(c.begun.Under(contentKeys)) == 0 {
			return
		}
		wake.Wait(ctx, letGoAgain, nil)
	}
}

// discardSnapshot has the files of a snapshot go whose content this process let go. It opens the
// pool anew, as discard does.
func (c *copies) discardSnapshot(ctx context.Context, key string) error {
	at := strings.Split(key, "/") // no name of a pool, and no handle that has a record, has a slash
	w, handle := c.workers[at[len(at)-2]], at[len(at)-1]
	h, _ := w.disk.Open(ctx)
	if err := h.Discard(handle); err != nil {
		return err
	}
	c.begun.End(key)
	w.purges.Add(item{name: handle})
	return nil
}

// clearContent takes from a content's status what says that there is a snapshot, and returns the
// content as it is then: what was changed since it was decided is a conflict, here and in the next
// request.
func (c *copies) clearContent(ctx context.Context, of *snapshotapi.Content) (*snapshotapi.Content, error) {
	if of.Status == nil {
		return of, nil
	}
	return c.Snapshots.ClearContentStatus(ctx, of)
}

// putSnapshotBack takes a snapshot out of the trash whose content stays, or is to go without its
// data.
func (c *copies) putSnapshotBack(f plan.ContentFacts, t takenIn, v plan.Verdict) error {
	if err := t.h.PutBack(f.Snapshot.PV, f.Snapshot.ClaimUID); err != nil {
		return err
	}
	c.contentStays(string(f.Content.UID))
	c.requeueContent(f.Content) // it is said to be ready, or goes on
	c.Log.Info(v.Message, "reason", v.Reason, "snapshot", f.Snapshot.PV, "pool", f.Pool.Name)
	c.Events.Event(report.Snapshot(f.Content.Spec.SnapshotRef), corev1.EventTypeNormal, v.Reason, v.Message)
	return nil
}

// contentOf is the VolumeSnapshotContent of a snapshot, nil if the cluster has none; unknown is
// true as long as that cannot be told. Of several it is one that is in the way of the snapshot
// going, if one is.
func (c *copies) contentOf(handle string) (of *snapshotapi.Content, unknown bool) {
	if c.Contents == nil || !c.Contents.Watched() {
		return nil, true
	}
	for _, one := range c.Contents.List() {
		if one.Handle() == handle && (of == nil || plan.HoldsData(one)) {
			of = one
		}
	}
	return of, false
}

// holder is a content that is in the way of the files of its snapshot going, as far as the watch
// has it, nil for none.
func (c *copies) holder(handle string) *snapshotapi.Content {
	if of, unknown := c.contentOf(handle); !unknown && plan.HoldsData(of) {
		return of
	}
	return nil
}
