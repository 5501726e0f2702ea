package controllers

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// Inline volumes are made and removed without the API, so that none of this waits for it.

// InlineVolume is one that a pod asks for. It comes from the CSI node service, and nothing of it is
// a path.
type InlineVolume struct {
	Driver, Handle      string
	Pool, Size          string // as the pod says them
	Namespace, Pod, UID string // of the pod
}

const (
	// inlineWithin is how long the work on one request may take. kubelet waits for 2 minutes, and
	// then asks again.
	inlineWithin = 10 * time.Second
	// sweepEvery is how often inline volumes are looked for that no pod has: the node service did
	// not tell of their ends.
	sweepEvery = 5 * time.Minute
)

// MakeInline makes an inline volume, unless it is there. The error says in a sentence for the pod's
// event why there is none.
//
//	made      a record and a directory: mounted for the pod, or swept when the pod is gone
func (c *volumes) MakeInline(ctx context.Context, v InlineVolume) error {
	ctx, cancel := context.WithTimeout(ctx, inlineWithin)
	defer cancel()
	w := c.workers[v.Pool]
	if w == nil || w.Name == "" {
		return errors.New("the daemon has no pool " + words.Quoted(v.Pool))
	}
	w.inline.Lock()
	defer w.inline.Unlock()
	h, _ := w.disk.Open(ctx)
	facts, err := inlineFacts(w, h, v)
	if err != nil {
		return err
	}
	size, refused := plan.ForInline(facts)
	if refused != "" {
		c.Log.Warn("inline volume: "+refused, "volume", v.Handle, "pod", v.Namespace+"/"+v.Pod, "pool", w.Name)
		return errors.New(refused)
	}
	if err := h.Create(c.inlineSpec(w, v, size)); err != nil {
		if errors.Is(err, volume.ErrDirectoryReplaced) {
			wake.Signal(w.kick)
		}
		return err
	}
	c.Log.Info("made an inline volume", "volume", v.Handle, "pod", v.Namespace+"/"+v.Pod, "pool", w.Name)
	return nil
}

func inlineFacts(w *poolWorker, h disk.Handle, v InlineVolume) (f plan.InlineFacts, err error) {
	f = plan.InlineFacts{Handle: v.Handle, Size: v.Size, UID: v.UID, Pool: w.Pool}
	if _, f.Closed = h.State.Closed(); f.Closed != "" {
		return f, nil
	}
	f.Records, err = h.Records()
	f.Room = h.RoomFor(v.Handle)
	return f, err
}

// inlineSpec is the volume to be made.
func (c *volumes) inlineSpec(w *poolWorker, v InlineVolume, size int64) volume.Spec {
	made := volume.Spec{
		Record: record.Record{
			Kind: record.Inline, PV: v.Handle, Directory: v.Handle, Namespace: v.Namespace, Claim: v.Pod, ClaimUID: v.UID, Requested: size,
			Provisioner: v.Driver, Node: c.Node, Scope: w.Scope, Source: w.Source, OnDelete: plan.OnDeleteDelete,
		},
		Mode: w.Mode, UID: w.UID, GID: w.GID,
	}
	if w.Quota == plan.QuotaCeph || w.Quota == plan.QuotaProject {
		made.Quota, made.Project = size, w.Quota == plan.QuotaProject
	}
	return made
}

// EndInline takes an inline volume out of its pool that was unpublished, if a pool has one of this
// handle. Its files follow.
func (c *volumes) EndInline(ctx context.Context, handle string) error {
	ctx, cancel := context.WithTimeout(ctx, inlineWithin)
	defer cancel()
	var first error
	for _, p := range c.configured {
		w := c.workers[p.Name]
		h, ok := w.disk.Open(ctx)
		if !ok || !plan.InlineHandle(handle) || !p.OfOneNode() {
			continue // the records are gone through when it opens
		}
		rec, err := h.LookupInline(handle)
		if err == nil && rec != nil {
			_, err = c.dropInline(w, h, handle, true)
			wake.Signal(w.sweep)
		}
		first = cmp.Or(first, err)
	}
	return first
}

// dropInline takes an inline volume out of the pool, unless a pod has it. ended: the node service
// has unpublished it. purge is whether it has files that may go. A crash in between leaves it in
// the trash, from where the next pass goes on:
//
//	trashed      whole in the trash: discarded, or put back for its pod, which was started again
//	discarded    its files may go
func (c *volumes) dropInline(w *poolWorker, h disk.Handle, handle string, ended bool) (purge bool, err error) {
	w.inline.Lock()
	defer w.inline.Unlock()
	rec, err := h.LookupInline(handle)
	if err != nil || rec == nil {
		return false, err
	}
	facts, err := c.inlineRecordFacts(w, h, *rec, ended)
	verdict := plan.ForInlineRecord(facts)
	switch verdict.Action {
	case plan.Finish:
		return true, nil
	case plan.Undo:
		return false, h.Undo(handle)
	case plan.Delete:
		if err := h.Trash(handle); err != nil {
			return false, err
		}
		if err := h.Discard(handle); err != nil {
			return false, err
		}
		c.Metrics.Volume(w.Name, verdict.Reason)
		c.Log.Info("removed an inline volume", "reason", verdict.Reason, "volume", handle, "pod", rec.Namespace+"/"+rec.Claim, "pool", w.Name)
		return true, nil
	}
	return false, err
}

func (c *volumes) inlineRecordFacts(w *poolWorker, h disk.Handle, rec record.Record, ended bool) (plan.InlineRecordFacts, error) {
	f := plan.InlineRecordFacts{Self: c.Self, Record: rec, Former: h.State.Report.Mark.Former(), Pod: !ended, Mounted: true}
	if c.Inline == nil {
		return f, nil
	}
	var noTable, noPods error
	f.Mounted, noTable = c.Inline.Mounted(path.Join(w.Path, rec.Directory))
	if !ended && !f.Mounted {
		f.Pod, noPods = c.Inline.Pod(rec.ClaimUID)
	}
	return f, errors.Join(noTable, noPods)
}

// keepInline removes a pool's inline volumes that no pod has, whenever the pool opens, one was
// unpublished, or time has passed. Of a pool that makes none any more that begins when its records
// are compared.
func (c *volumes) keepInline(ctx context.Context, w *poolWorker) {
	var tick <-chan time.Time
	if w.Inline > 0 {
		tick = time.Tick(sweepEvery)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.sweep:
		case <-tick:
		}
		switch err := c.sweepInline(ctx, w); {
		case err == nil:
			c.said.Forget("inline/" + w.Name)
			continue
		case ctx.Err() != nil:
			return
		case errors.Is(err, volume.ErrDirectoryReplaced):
			wake.Signal(w.kick)
		default:
			c.warnOnce("inline", w.Name, err, "removing inline volumes of pods that are gone")
		}
		time.AfterFunc(recheckAgain, func() { wake.Signal(w.sweep) })
	}
}

func (c *volumes) sweepInline(ctx context.Context, w *poolWorker) error {
	h, ok := w.disk.Open(ctx)
	if !ok {
		return nil // it comes again when the pool opens
	}
	records, err := h.Records()
	if err != nil {
		return err
	}
	var first error
	for _, rec := range records {
		if rec.Kind != record.Inline {
			continue
		}
		purge, err := c.dropInline(w, h, rec.PV, false)
		if err == nil && purge {
			err = h.Purge(rec.PV)
		}
		first = cmp.Or(first, err)
	}
	return first
}

// withoutInline are the records that are compared with the API.
func withoutInline(records []record.Record) []record.Record {
	return slices.DeleteFunc(slices.Clone(records), func(r record.Record) bool { return r.Kind == record.Inline })
}
