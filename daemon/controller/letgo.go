package controller

import (
	"context"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// letGoAgain is the pause between two tries of finishLetGo.
const letGoAgain = 100 * time.Millisecond

// finishLetGo looks again at each volume that this process let go and got no response for, at its end, because the next
// process cannot know who removed the object, and keeps the directory. The pauses between two tries of the queue are
// up to half a minute; these are short, and all of it takes no longer than grace.
func (c *Controller) finishLetGo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var all sync.WaitGroup
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
func (c *Controller) finish(ctx context.Context, w *poolWorker, pv string) {
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
