package controllers

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// letGoAgain is the pause between two tries of finishLetGo.
const letGoAgain = 100 * time.Millisecond

// finishLetGo looks again at each volume that this process let go and got no response for, at its
// end, because the next process cannot know who removed the object, and keeps the directory. The
// pauses between two tries of the queue are up to half a minute; these are short, and all of it
// takes no longer than grace.
func (c *volumes) finishLetGo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { c.copies.finishContents(ctx) })
	for _, pv := range c.begun.Under(letGoKey("")) {
		for name, w := range c.workers {
			if name != "" {
				all.Go(func() { c.finish(ctx, w, pv) })
			}
		}
	}
	waitFor(&all, grace)
}

// finish has a volume's files go that this process let go, if they are in this pool.
func (c *volumes) finish(ctx context.Context, w *poolWorker, pv string) {
	for ctx.Err() == nil && c.begun.Has(letGoKey(pv)) {
		h, ok := w.disk.Open(ctx)
		if !ok {
			return
		}
		if rec, err := h.Lookup(pv); err != nil || rec == nil || rec.Place != record.InTrash {
			return
		}
		if _, err := c.volume(ctx, w, pv); err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(letGoAgain):
		}
	}
}

// staysAfterAll forgets that a volume was let go whose object the watch brings as one that is to
// stay: its policy was changed, or the API server was restored.
//
// The watch may be behind what was read from the API. Changes of one object come in their order,
// and an object that was let go is known by the version that it had then. A change between the one
// that the watch brought before and that version was made before the object was let go, and proves
// nothing: forgotten for it, the directory would be kept in the trash for ever. A restored server
// counts its versions on from an earlier one, so that its object is not newer than the known one,
// or is not known. Where the watch was behind that, too, the versions cannot tell the two apart:
// the API is asked.
func (c *volumes) staysAfterAll(was, now *corev1.PersistentVolume) {
	if plan.Going(now) || !c.begun.Has(letGoKey(now.Name)) {
		return
	}
	if uid, version, _ := strings.Cut(c.begun.Noted(letGoKey(now.Name)), " "); was != nil && was.UID == now.UID && string(now.UID) == uid &&
		earlier(was.ResourceVersion, now.ResourceVersion) && earlier(now.ResourceVersion, version) {
		c.workerOf(now).volumes.Add(item{name: now.Name})
		return
	}
	c.begun.End(letGoKey(now.Name))
}

// earlier compares resource versions, which are numbers that only grow (Kubernetes 1.35, KEP-5504).
// Of others it is false.
func earlier(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}
