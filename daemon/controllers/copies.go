package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/subvolume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// copies makes clones, snapshots and restores, and has snapshots go.
type copies struct {
	*frame
	claims  *claims
	pools   *pools
	cluster *cluster

	running
	contents queue                                 // nil without Options.Contents
	unready  lately[*corev1.PersistentVolumeClaim] // sources without a volume, by namespace and name
}

// running are the clones, restores and snapshots that this process makes, by the UID of their claims
// and contents. A copy takes as long as there are files, so no worker waits for it: it goes on
// beside them, one in each pool, and its object comes to a worker again when it ends.
type running struct {
	mu    sync.Mutex
	all   map[string]*oneCopy
	fails map[string]int // how often in a row, by UID
	going sync.WaitGroup // the copies that have not ended
}

type oneCopy struct {
	cancel context.CancelFunc
	ended  bool
	err    error
	until  time.Time // no other try begins before, of a copy that failed and would write everything again
	copied treecopy.Copied
	paused *Paused // nil if no pod was stopped for it
}

// begin notes a copy that begins; one that there is already is returned, also one that failed and
// is left alone for a while: whatever is written to its object meanwhile, a copy costs the disk as
// much as there is data.
func (c *running) begin(uid string, cancel context.CancelFunc) (known *oneCopy, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.all[uid]; known.stands() {
		return known, false
	}
	put(&c.all, uid, &oneCopy{cancel: cancel})
	return c.all[uid], true
}

// end notes how a copy ended. One that failed is tried again at once, and then less and less often:
// what it failed by may be up to the source's owner.
func (c *running) end(uid string, o *oneCopy, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.ended, o.err = true, err
	if err == nil || errors.Is(err, context.Canceled) || c.all[uid] != o {
		return
	}
	put(&c.fails, uid, c.fails[uid]+1)
	switch again := c.fails[uid] - 2; {
	case writesAgain(err):
		o.until = time.Now().Add(copyAgain)
	case again >= 0:
		o.until = time.Now().Add(min(time.Second<<min(again, 10), copyAgain))
	}
}

// result returns how a copy ended, and forgets one that failed and may be tried at once; ended is
// false while it goes on.
func (c *running) result(uid string, o *oneCopy) (ended bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.ended && o.err != nil && o.until.IsZero() {
		delete(c.all, uid)
	}
	return o.ended, o.err
}

// known reports whether a copy goes on, or has ended and was not looked at since, or is left alone
// for a while.
func (c *running) known(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[uid].stands()
}

// stands reports whether no other try begins.
func (o *oneCopy) stands() bool {
	return o != nil && (o.until.IsZero() || time.Now().Before(o.until))
}

// cancel ends the copy for a claim, if there is one, and forgets it.
func (c *running) cancel(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.all[uid]; o != nil {
		o.cancel()
		delete(c.all, uid)
	}
	delete(c.fails, uid)
}

// take forgets a copy that ended, and returns it; nil if this process did not make it.
func (c *running) take(uid string) *oneCopy {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.all[uid]
	delete(c.all, uid)
	delete(c.fails, uid)
	return o
}

// takeNotes returns what the event about a copy says besides, how it was made and what it lacks,
// and forgets the copy.
func (c *running) takeNotes(f plan.ClaimFacts) string {
	if !plan.IsCopy(f.Claim) {
		return ""
	}
	source, o := words.Name(plan.SourceOfCopy(f.Claim)), c.take(string(f.Claim.UID))
	switch {
	case plan.IsRestore(f.Claim):
		return ", made from snapshot " + source + o.lacking()
	case o != nil && o.copied.Atomic:
		return ", copied from claim " + source + atOnce + o.lacking()
	}
	return ", copied from claim " + source + " one file after another: what wrote to it " +
		"meanwhile may be in some files and not in others" + o.lacking()
}

// pausedFor notes that pods stood still for a copy.
func (c *running) pausedFor(uid string, p Paused) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.all[uid]; o != nil {
		o.paused = &p
	}
}

// howMade returns how a snapshot's copy was made, "" if this process did not make it.
func (o *oneCopy) howMade() string {
	switch {
	case o == nil:
		return ""
	case o.paused == nil:
		return oneByOne
	default:
		return fmt.Sprintf(", all files of one moment: for %s nothing ran in the pods that have the volume mounted (%d)", o.paused.For.Round(time.Millisecond/10), o.paused.Pods)
	}
}

// lacking is what a copy lacks, "" if nothing.
func (o *oneCopy) lacking() string {
	if o == nil {
		return ""
	}
	c := o.copied
	var all []string
	for _, of := range []struct {
		n    int
		what string
	}{
		{c.Sockets, "sockets"}, {c.Devices, "devices"}, {c.Mounts, "places where something is mounted"}, {c.Gone, "entries that were removed meanwhile"},
		{c.Subvolumes, "subvolumes that were made in it"}, {c.Lost, "set-id bits, owners of links, or attributes that the daemon may not set"}, {c.Changed, "files were written to while they were copied"},
	} {
		if of.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", of.n, of.what))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "; not as in the source: " + strings.Join(all, ", ")
}

// ended returns the copies that ended, by the UID of their claims: nil for one that is whole.
func (c *running) ended() map[string]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]error{}
	for uid, o := range c.all {
		if o.ended {
			all[uid] = o.err
		}
	}
	return all
}

// remember puts these in the place of the copies that ended.
func (c *running) remember(ended map[string]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails = nil
	maps.DeleteFunc(c.all, func(_ string, o *oneCopy) bool { return o.ended })
	for uid, err := range ended {
		put(&c.all, uid, &oneCopy{cancel: func() {}, ended: true, err: err})
	}
}

// pauses has the pods of a volume stand still, for volume.Spec.Pause.
func (c *copies) pauses(uid, pool, volume string) func(context.Context) (context.Context, func() error, error) {
	return func(ctx context.Context) (context.Context, func() error, error) {
		paused, end, err := c.Pauser.Pause(ctx, pool, volume)
		return paused, func() error {
			took, err := end()
			c.running.pausedFor(uid, took)
			return err
		}, err
	}
}

// copied reports whether the copy for the object with this UID is whole in the pool. If not, it
// begins, or goes on, or has failed. again is called when it ends.
func (c *copies) copied(ctx context.Context, w *poolWorker, uid string, made volume.Spec, again func()) (bool, error) {
	running, cancel := context.WithCancel(ctx)
	o, first := c.running.begin(uid, cancel)
	if !first {
		cancel()
		return c.running.result(uid, o)
	}
	made.Copied = func(copied treecopy.Copied) { o.copied = copied }
	c.running.going.Go(func() {
		defer cancel()
		err := c.copy(running, w, made)
		c.running.end(uid, o, err)
		if err != nil && !errors.Is(err, context.Canceled) { // its object may be refused by now, and not come to copyFailed
			w.purges.Add(item{name: made.PV})
		}
		again()
	})
	return false, nil
}

// copy makes one copy, when the pool makes no other one.
func (c *copies) copy(ctx context.Context, w *poolWorker, made volume.Spec) error {
	if err := w.copying.take(ctx, made.Namespace); err != nil {
		return err
	}
	defer w.copying.give()
	h, ok := w.disk.Open(ctx)
	if !ok || !h.State.Open() {
		return volume.ErrDirectoryReplaced
	}
	if err := snapshotFits(w, h, made); err != nil {
		return err
	}
	lookup := h.Lookup
	if made.Origin.Kind == record.Snapshot {
		lookup = h.LookupSnapshot
	}
	source, err := lookup(made.Origin.Name)
	switch {
	case err != nil:
		return err
	case source == nil:
		return fmt.Errorf("volume %s: %w", made.Origin.Name, volume.ErrSource)
	}
	made.Origin.UID = source.ClaimUID // of an adopted or retained volume that is not the present claim's
	if seen, is := c.pools.Takes(w.Name).Measured[made.Origin.Name]; is {
		made.Expected.Files, made.Expected.Bytes = seen.Inodes, seen.Bytes
	}
	c.Log.Info("copying volume "+made.Origin.Name, "volume", made.PV, "pool", w.Name, "claim", made.Namespace+"/"+made.Claim)
	began := time.Now()
	if err := h.Create(made); err != nil {
		return err
	}
	c.Log.Info(fmt.Sprintf("copied volume %s in %s", made.Origin.Name, time.Since(began).Round(time.Millisecond)), "volume", made.PV, "pool", w.Name)
	return nil
}

// errSnapshotSpace: plan.ForContent has more to say about it, when it is asked next.
var errSnapshotSpace = errors.New("the snapshots of the namespace are promised what they may be together (snapshots_per_namespace)")

// snapshotFits looks once more, when the copy has its turn, whether a snapshot fits beside its
// namespace's others: these may have been made while it waited.
func snapshotFits(w *poolWorker, h disk.Handle, made volume.Spec) error {
	if made.Kind != record.Snapshot || w.SnapshotSpace == 0 {
		return nil
	}
	records, err := h.Records()
	if err != nil {
		return err
	}
	taken := plan.SnapshotsOf(made.Namespace, made.PV, records)
	if size := made.Reserved(); taken > w.SnapshotSpace || size > w.SnapshotSpace-taken {
		return errSnapshotSpace
	}
	return nil
}

// writesAgain reports whether another try of a copy that failed would write everything again, and
// most likely fail again.
func writesAgain(err error) bool {
	return slices.ContainsFunc([]error{treecopy.ErrLimit, treecopy.ErrNoReflink, volume.ErrPause, treecopy.ErrWritten, subvolume.ErrNone, syscall.ENOSPC, syscall.EDQUOT}, func(tooMuch error) bool { return errors.Is(err, tooMuch) })
}

// copyAgain is how long a copy is left alone that does not fit, that this filesystem cannot make,
// or whose pods could not be paused.
const copyAgain = 5 * time.Minute
