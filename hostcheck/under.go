package hostcheck

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Bare is what was seen of the bare directory of a mount point, and which directory that is.
type Bare struct {
	Under
	// On is the bare directory by its filesystem and its path in that, which are the same in every
	// mount namespace.
	On mounts.Location `json:"on"`
}

// LookUnder looks at the bare directory of a mount point: at the one that is covered, or at the
// mount point itself where nothing is mounted. It reads the mount table itself, and needs
// CAP_SYS_ADMIN. It waits for as long as the filesystem that holds the mount point hangs.
func LookUnder(point string) (b Bare) {
	for range 4 {
		if b = lookUnder(point); b.Trouble != LookFailed {
			break
		}
	}
	return b
}

func lookUnder(point string) Bare {
	table, err := mounts.Read()
	if err != nil {
		return Bare{Under: underOf(-1, err)}
	}
	stack, parent, covered := mounts.At(table, point)
	if covered {
		return Bare{Under: underMount(stack[0], parent), On: parent.Locate(point)}
	}
	on, known := mounts.Covering(table, point)
	if !known || on.Point == point {
		return Bare{Under: underOf(-1, fmt.Errorf("no mount holds %q", point))}
	}
	if on.FSType == autofs {
		return Bare{Under: underOf(-1, errAutofs), On: on.Locate(point)}
	}
	fd, err := openOn(on, point)
	if err == nil {
		defer unix.Close(fd)
	}
	return Bare{Under: underOf(fd, err), On: on.Locate(point)}
}

// errAutofs: a directory of the automounter's own would be mounted by looking at it.
var errAutofs = fmt.Errorf("a directory of autofs: %w", mounts.ErrCannotTell)

func underMount(m, parent mounts.Mount) Under {
	if parent.FSType == autofs {
		return underOf(-1, errAutofs)
	}
	fd, err := mounts.Under(m, parent)
	if err == nil {
		defer unix.Close(fd)
	}
	return underOf(fd, err)
}

// openOn opens a directory that lies on this mount, with O_PATH.
func openOn(m mounts.Mount, dir string) (int, error) {
	fd, err := mounts.Open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	id, err := mounts.IDOf(fd)
	if err == nil && id != m.ID {
		err = fmt.Errorf("%q: %w", dir, mounts.ErrTableChanged)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (g *gatherer) under(f *Facts, v view, expensive bool, e enter) Under {
	if v.want.Immutable == ImmutableOff {
		return Under{}
	}
	if !expensive {
		return g.expensive.under
	}
	if len(v.stack) == 0 { // mounted on nothing: the root, which rootFilesystem refuses
		return Under{}
	}
	if g.ask == nil || mounts.Permitted() {
		if u := underMount(v.stack[0], v.parent); g.ask == nil || u.Trouble != NotPermitted {
			return u
		}
	}
	return g.asked(f, v, e)
}

// asked is the look of another process, which may look where this one may not. Its mount namespace
// is another one, so that numbers of mounts mean nothing there; the response counts only for the
// directory that this process's own table has under the mount point.
//
// What is seen there is as new as if it was seen here. The kernel changes a shared mount's copies
// in all namespaces together, and counts the change in each of them, under namespace_sem and
// mount_lock (attach_recursive_mnt and umount_tree in fs/namespace.c); a path walk that ran beside
// it is repeated (mount_lock is a sequence lock). So a look that saw a change comes after the
// change was counted here, too, and one that did not see it comes before: then the table's
// generation differs at the next look, and nothing that was kept counts. The process that is asked
// has to begin its look after it was asked. A mount that is not shared is seen in neither
// namespace, or in the one that is newer: then the two directories differ (TestStorm in
// daemon/host/mountpoint).
func (g *gatherer) asked(f *Facts, v view, e enter) Under {
	question := fmt.Sprintf("asking %s what lies under %s", g.who, v.want.MountPoint)
	e(question, *f)
	within := responseWithin
	if v.want.Immutable == ImmutableWarn {
		within = warningWithin
	}
	b := g.ask(v.want.MountPoint, within)
	u := b.Under
	u.Looked = true
	switch here := v.parent.Locate(v.want.MountPoint); {
	case u.Trouble == NoResponse && v.want.Immutable == ImmutableWarn:
		u.Trouble = NotPermitted
	case u.Trouble == NoResponse:
		f.Unanswered, f.Waited = question, within
		return Under{}
	case u.Trouble == "" && b.On != here:
		return Under{Looked: true, Trouble: LookFailed, Error: fmt.Sprintf("asked for %s of device %s, told of %s of %s",
			here.Path, number(here.Major, here.Minor), b.On.Path, number(b.On.Major, b.On.Minor))}
	}
	return u
}

// underOf reads the flag of the directory that is open at fd.
func underOf(fd int, err error) Under {
	u := Under{Looked: true}
	if err == nil {
		u.Immutable, err = mounts.Immutable(fd)
	}
	if err == nil || errors.Is(err, mounts.ErrCannotTell) {
		u.Identity, _ = mounts.IdentityOf(fd)
	}
	switch {
	case err == nil:
		return u
	case errors.Is(err, mounts.ErrCannotTell):
		u.Trouble = CannotTell
	case errors.Is(err, mounts.ErrNotPermitted):
		u.Trouble = NotPermitted
	default:
		u.Trouble = LookFailed
	}
	u.Error = err.Error()
	return u
}
