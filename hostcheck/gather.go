package hostcheck

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// expensiveEvery is how old the costly part of a look may be: the look under the mount point, which
// makes the kernel wait for a grace period of RCU when it drops the cloned mount
// (BenchmarkProbeExpensive), and the marker read past the page cache, which moves a disk.
//
// Keeping the first for that long is safe. The flag under the mount point says what would happen if
// the mount went away. While the mount is there the flag protects nothing yet; when it goes, the
// kernel says that the mount table changed, and whenever it says so nothing that was kept counts.
// It takes the kernel's word and not a comparison of the mounts, because an unmount and a mount
// between two looks give the same numbers again (TestProbeFollowsTheMount). Only "immutable" is
// kept: a flag that was set is seen at once.
const expensiveEvery = 5 * time.Second

// gatherer gathers the facts of one pool, one look at a time.
type gatherer struct {
	expect    Expect
	table     *mounts.Table
	seen      uint64 // generation of the table that was read last
	expensive expensiveFacts
	auto      trigger
	who       string           // whom ask asks
	now       func() time.Time // nil: time.Now

	ask func(point string, within time.Duration) Bare // nil: there is no other process to ask
}

// expensiveFacts is the costly part of an earlier look.
type expensiveFacts struct {
	at         time.Time
	generation uint64 // of the mount table
	under      Under
}

// enter is told what is asked before the asking, with what is known by then.
type enter func(question string, known Facts)

// facts looks at the pool; again, if the mounts changed between the look at the table and the look
// at the directories.
func (g *gatherer) facts(e enter) Facts {
	var f Facts
	for range 4 {
		f = Facts{}
		g.gather(&f, e)
		if !stale(g.expect, f) {
			break
		}
	}
	return f
}

// stale says that the table and the directories are of two moments, also where the table shows no
// mount and the mount was opened.
func stale(e Expect, f Facts) bool {
	v := newView(e, f)
	other := func(e Entry) bool { return e.Kind == Directory && e.MountID != v.on.ID }
	return f.Under.Trouble == LookFailed || other(f.MountPoint) || v.mounted && other(f.Path)
}

func (g *gatherer) gather(f *Facts, e enter) {
	e("reading the mount table", *f)
	f.Mounts = g.mounts(f)
	v := newView(g.expect, *f)
	if v.waits {
		if v = g.automount(f, v, e); v.waits {
			return
		}
	}
	e("finding device "+g.expect.Device, *f)
	g.lookAtDevice(f, v)
	if v.want.RequireMount {
		g.gatherMounted(f, v, e)
		return
	}
	e("opening "+v.want.Path, *f)
	fd, err := mounts.Open(v.want.Path, unix.O_PATH)
	g.gatherPool(f, fd, err, e, g.freshly())
}

func (g *gatherer) mounts(f *Facts) []mounts.Mount {
	var err error
	if g.table == nil {
		g.table, err = mounts.OpenTable()
	}
	if err == nil {
		var table []mounts.Mount
		if table, g.seen, err = g.table.Mounts(); err == nil {
			return table
		}
	}
	f.MountError = err.Error()
	return nil
}

// gatherMounted looks under the mount point before it looks at it: what lies under it is known even
// while the mounted filesystem hangs.
func (g *gatherer) gatherMounted(f *Facts, v view, e enter) {
	expensive := g.freshly()
	e("looking under "+v.want.MountPoint, *f)
	if v.mounted {
		f.Under = g.under(f, v, expensive, e)
	}
	e("opening "+v.want.MountPoint, *f)
	top, err := mounts.Open(v.want.MountPoint, unix.O_PATH)
	f.MountPoint = entry(top, err)
	if err != nil {
		return
	}
	defer unix.Close(top)
	if f.MountPoint.Kind != Directory {
		return
	}
	if !v.mounted {
		// Nothing else here is the pool's, and its sizes would be those of another disk.
		if f.MountPoint.MountID == v.on.ID {
			f.Under = underOf(top, nil)
		}
		return
	}
	rel, err := filepath.Rel(v.want.MountPoint, v.want.Path)
	if err != nil {
		rel = ".." // not beneath: openat2 refuses it
	}
	e("opening "+v.want.Path, *f)
	fd, err := mounts.OpenBeneath(top, rel, unix.O_PATH)
	g.gatherPool(f, fd, err, e, expensive)
	if f.Marker.Looked {
		g.keep(v, f.Under, expensive)
	}
}

// gatherPool asks the pool's directory, open at fd, which it closes.
func (g *gatherer) gatherPool(f *Facts, fd int, err error, e enter, expensive bool) {
	f.Path = entry(fd, err)
	if err != nil {
		f.Refused = refused(err)
		return
	}
	defer unix.Close(fd)
	if f.Path.Kind != Directory {
		return
	}
	question := "statfs of " + g.expect.Path
	e(question, *f)
	if f.Space, err = space(fd); err != nil {
		f.Failed = question + ": " + err.Error()
		return
	}
	g.askDevice(f, fd, e)
	f.Label = label(newView(g.expect, *f).pathOn, g.expect.SELinuxType, fd)
	if g.expect.Quota {
		e("asking "+g.expect.Path+" for its quotas", *f)
		f.Quota = quotaOf(fd)
	}
	question = "reading " + g.expect.Path + "/" + MarkerPath
	e(question, *f)
	if f.Marker, err = marker(fd, expensive); err != nil {
		f.Failed, f.Refused = question+": "+cause(err), refused(err)
	}
}

// refused reports whether an error is a permission that root lacks. A local filesystem has no such
// error: a file server refused.
func refused(err error) bool {
	return unix.Geteuid() == 0 && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM))
}

// freshly reports whether the costly part has to be looked at anew.
func (g *gatherer) freshly() bool {
	age := g.time().Sub(g.expensive.at)
	return age < 0 || age >= expensiveEvery || g.seen != g.expensive.generation
}

func (g *gatherer) keep(v view, u Under, expensive bool) {
	if !expensive {
		return
	}
	g.expensive = expensiveFacts{}
	if u.Immutable || v.want.Immutable == ImmutableOff {
		g.expensive = expensiveFacts{at: g.time(), generation: g.seen, under: u}
	}
}

func (g *gatherer) time() time.Time {
	if g.now != nil {
		return g.now()
	}
	return time.Now()
}

// autofs is the type of the filesystem that an automounter puts where another is mounted on first
// use: x-systemd.automount of fstab(5), and automount(8).
const autofs = "autofs"

// An automount point is opened at most triggerBurst times in triggerWindow. systemd starts a mount
// unit no more than five times in ten seconds (StartLimitBurst= of systemd.unit(5)), and then gives
// up the automount unit as well, for good (automount_trigger_notify in core/automount.c).
const (
	triggerBurst  = 4
	triggerWindow = 10 * time.Second
)

// trigger remembers the attempts to have an automount point mounted.
type trigger struct {
	tries []time.Time // the latest ones, the oldest first
	err   string      // of the last one, "" if something was mounted
}

// automount opens an automount point, so that its filesystem is mounted, and reads the mount table
// again. That waits for the automounter, which may never return: as every question, it is told
// before.
//
// Only opening it as a directory does it: O_PATH alone is served from the automounter's empty
// directory (follow_automount in fs/namei.c), which would pass for a filesystem without a marker.
func (g *gatherer) automount(f *Facts, v view, e enter) view {
	place := g.expect.place()
	if g.auto.again(g.time()) {
		e("waiting for the automount of "+place, *f)
		fd, err := mounts.Open(place, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			_ = unix.Close(fd)
		}
		f.Mounts = g.mounts(f)
		v = newView(g.expect, *f)
		g.auto.tried(err, v.waits)
	}
	if !v.waits {
		return v
	}
	f.Automount.Error = cmp.Or(g.auto.err, fmt.Sprintf("it was mounted %d times in %v, and did not stay", triggerBurst, triggerWindow))
	if v.want.RequireMount && len(v.stack) > 0 {
		f.Under = g.under(f, v, true, e)
	}
	return v
}

// tried notes what an attempt came to. An automounter that fails is told by the error of the open;
// without one, what it mounted went again at once, or stands where this process does not see it.
func (t *trigger) tried(err error, waits bool) {
	switch {
	case !waits:
		t.err = ""
	case err != nil:
		t.err = cause(err)
	default:
		t.err = "it was opened, and nothing is mounted there"
	}
}

// again reports whether one more attempt may be made now, and counts it.
func (t *trigger) again(now time.Time) bool {
	if len(t.tries) == triggerBurst {
		if age := now.Sub(t.tries[0]); age >= 0 && age < triggerWindow {
			return false
		}
		t.tries = t.tries[1:]
	}
	t.tries = append(t.tries, now)
	return true
}
