package controllers

import (
	"context"
	"errors"
	"io/fs"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// measureEvery is how often what volumes take is read: as often as Prometheus usually asks, or
// less.
const measureEvery = 30 * time.Second

// measure reads what the volumes of a pool take, for the metrics and for the events about them. It
// has a goroutine of its own, because a filesystem that hangs keeps it until the pool closes.
func (c *pools) measure(ctx context.Context, w *poolWorker) {
	var watch usage.Watch
	for ctx.Err() == nil {
		c.measureOnce(ctx, w, &watch)
		wake.Wait(ctx, measureEvery, nil)
	}
	c.takes(w, usage.Pool{})
}

// takes keeps what was measured, for the status and for the metrics.
func (c *pools) takes(w *poolWorker, p usage.Pool) {
	w.takes.Store(&p)
	c.Metrics.Usage(w.Name, p)
}

// Takes is what the volumes of a pool take by their quotas, or else by their directories, as last
// measured; zero: not known.
func (c *pools) Takes(pool string) usage.Pool {
	if w := c.workers[pool]; w != nil {
		if p := w.takes.Load(); p != nil {
			return *p
		}
	}
	return usage.Pool{}
}

// measureOnce has no figures while the pool is closed: those of before may be of other storage.
func (c *pools) measureOnce(ctx context.Context, w *poolWorker, watch *usage.Watch) {
	h, ok := w.disk.Open(ctx)
	if !ok {
		c.takes(w, usage.Pool{})
		return
	}
	p, err := h.Usage()
	key := "usage/" + w.Name
	if err != nil {
		c.takes(w, usage.Pool{})
		if ctx.Err() == nil && c.said.New(key, err.Error()) {
			c.Log.Warn(err.Error(), "pool", w.Name)
		}
		return
	}
	c.said.Forget(key)
	c.takes(w, p)
	for _, v := range watch.Full(p) {
		if !c.nearlyFull(w.Name, v) {
			watch.Retract(v.PV)
		}
	}
	c.warnNode(w.Name, plan.ReasonQuotaEscaped, watch.Escape(p))
	c.warnNode(w.Name, plan.ReasonFewProjects, watch.Scarce(p))
}

// warnNode tells the node what was found in a pool, unless it is "".
func (c *pools) warnNode(pool, reason, message string) {
	if message == "" {
		return
	}
	message = "pool " + pool + ": " + message
	c.Log.Warn(message, "reason", reason, "pool", pool)
	c.Events.Event(report.Node(c.Node), corev1.EventTypeWarning, reason, message)
}

// nearlyFull tells the claim that a volume was made for. It is left out, which is false, if there
// was too much to say of the namespace.
func (c *pools) nearlyFull(pool string, v usage.Volume) bool {
	if !c.mayWarn(v.Namespace) {
		return false
	}
	message := usage.Nearly(v)
	c.Log.Warn(message, "reason", plan.ReasonVolumeNearlyFull, "claim", v.Namespace+"/"+v.Claim, "volume", v.PV, "pool", pool)
	c.Events.Event(report.RecordedClaim(v.Namespace, v.Claim, v.ClaimUID), corev1.EventTypeWarning, plan.ReasonVolumeNearlyFull, message)
	return true
}

const (
	// directoryEvery is how often a volume's directory is read at most.
	directoryEvery = time.Hour
	// directoryLook is how often it is looked whether one is due.
	directoryLook = 5 * time.Second
	// restFactor is how many times as long as a call read nothing is read after it, so that this
	// takes at most a tenth of a disk's time, and less of what responds slower.
	restFactor = 9
	leastRest  = 50 * time.Millisecond
	mostRest   = 30 * time.Second // also after a call that was left behind
	// callMost is when a call is left behind that gets no response.
	callMost = time.Minute
	// readMost is how long one volume is read, in all calls.
	readMost = 20 * time.Second
)

// errLags is why a volume was not read to its end.
var errLags = errors.New("the pool is slow or closed")

// measured reports whether a pool's volumes are measured by their directories: by a daemon that
// works in it, as no quota tells what they take.
func (c *pools) measured(w *poolWorker) bool {
	return c.Measure && w.Name != "" && w.Quota != plan.QuotaProject
}

// expectDirectories takes which volumes a pool has now: what went is told no more.
func (c *pools) expectDirectories(w *poolWorker, records []record.Record) {
	w.Figures.Expect(records)
	if c.measured(w) && c.Takes(w.Name).Measured != nil {
		c.takes(w, w.Figures.Pool())
	}
}

// measureDirectories reads what volumes without quotas take, one volume at a time of all pools. Of
// a pool that is slow or closed nothing is read; one that hangs in a call leaves the call behind.
func (c *pools) measureDirectories(ctx context.Context) {
	defer func() { // the next configuration may not have the pools
		for _, w := range c.workers {
			if c.measured(w) {
				c.tellFigures(w, usage.Pool{})
			}
		}
	}()
	for ctx.Err() == nil {
		w, r := c.nextDirectory(ctx, time.Now())
		if w == nil {
			wake.Wait(ctx, directoryLook, nil)
			continue
		}
		w.Figures.Begin(r.PV, time.Now())
		m, err := c.measureDirectory(ctx, w, r.PV)
		c.directoryDone(ctx, w, r, m, err)
	}
}

// nextDirectory returns the volume that was not measured for longest, if one is due. A pool that is
// closed has no figures: those of before may be of other storage.
func (c *pools) nextDirectory(ctx context.Context, now time.Time) (
	of *poolWorker, r record.Record) {
	var longest time.Time
	for _, w := range c.workers {
		if !c.measured(w) {
			continue
		}
		if _, open := w.disk.Open(ctx); !open || !w.elector.Leads() {
			c.tellFigures(w, usage.Pool{})
			continue
		}
		if c.Takes(w.Name).Measured == nil {
			c.tellFigures(w, w.Figures.Pool())
		}
		one, since, due := w.Figures.Next(now.Add(-directoryEvery))
		if due && !w.disk.Lags() && (of == nil || since.Before(longest)) {
			of, r, longest = w, one, since
		}
	}
	return of, r
}

// tellFigures is takes for what changed.
func (c *pools) tellFigures(w *poolWorker, p usage.Pool) {
	if p.Measured != nil || c.Takes(w.Name).Measured != nil {
		c.takes(w, p)
	}
}

// measureDirectory reads what a volume takes, in short calls with pauses.
func (c *pools) measureDirectory(ctx context.Context, w *poolWorker, pv string) (
	seen usage.Measured, err error) {
	var sample usage.Sample
	spent, err := c.readFor(ctx, w, func(h disk.Handle) (err error) {
		seen, err = h.Measure(pv)
		return err
	})
	if err != nil || !seen.Estimate {
		return seen, err
	}
	for spent < readMost && !sample.Enough() {
		took, err := c.readFor(ctx, w, func(h disk.Handle) error {
			more, err := h.Sample(pv)
			sample = sample.Plus(more)
			return err
		})
		if err != nil {
			return seen, err
		}
		spent += took
	}
	return sample.Estimate(seen), nil
}

// readFor makes one call in a pool that responds, and pauses after it.
func (c *pools) readFor(ctx context.Context, w *poolWorker,
	call func(disk.Handle) error) (took time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, callMost)
	defer cancel()
	h, open := w.disk.Open(limited)
	if !open || w.disk.Lags() {
		return 0, errLags
	}
	began := time.Now()
	err = call(h)
	took = time.Since(began)
	wake.Wait(ctx, min(max(leastRest, restFactor*took), mostRest), nil)
	return took, err
}

// directoryDone keeps a figure. Where there is none that of before stays, until an hour later.
func (c *pools) directoryDone(ctx context.Context, w *poolWorker, r record.Record,
	m usage.Measured, err error) {
	key := "usage/" + w.Name + "/" + r.PV
	if err == nil {
		c.said.Forget(key)
		w.Figures.Set(r.PV, m)
		c.tellFigures(w, w.Figures.Pool())
		return
	}
	moved := errors.Is(err, volume.ErrDirectoryReplaced) || errors.Is(err, volume.ErrNotRecorded) ||
		errors.Is(err, volume.ErrPlace) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errLags)
	if ctx.Err() == nil && !moved && c.said.New(key, err.Error()) {
		c.Log.Warn("what a volume takes could not be read: "+err.Error(),
			"volume", r.PV, "pool", w.Name)
	}
}
