package hostcheck

import (
	"cmp"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

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
