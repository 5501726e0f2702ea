package model

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// What the stage has for storage that is exchanged: another filesystem in place of the pool's, on
// each node that has the pool.

// exchanging are the events in which that happens. No daemon may have a file of the pool open then.
// One that waits for a response has none.
var exchanging = map[string]bool{
	"another filesystem is mounted as the pool": true, "the pool's own filesystem is mounted again": true,
}

// atDisk reports whether a daemon is about to call the disk, in its work or in what it has not
// taken up yet. A real one has begun with the call.
func (w *worker) atDisk(s *state) (is bool) {
	for node := range s.daemons {
		switch d := &s.daemons[node]; {
		case d.task != 0:
			is = is || w.asked(s, node).kind == onDisk
		case d.up:
			w.jobs(s, node, w.view(s, node), func(j job, _ string) {
				is = is || j.kind == controllers.WorkClaim || j.kind == controllers.WorkPurge
			})
		}
	}
	return is
}

// makesOther makes a filesystem that was prepared as another pool, with a directory of people.
func (st *stage) makesOther() {
	st.placed = st.images[0].File
	if st.first.spare.kind != marked {
		return
	}
	st.Helper()
	st.other = hosttest.Mkfs(st, "ext4", 64)
	dir := hosttest.PoolMount(st, st.other)
	id := identity(st, dir)
	text, err := hostcheck.EncodeMarker(hostcheck.NewMarker(poolNames[st.pool], time.Now()))
	st.Must(err)
	st.Must(volume.New(volume.Options{Name: poolNames[st.pool], Path: dir}).InitMarker(st.Ctx, id, text))
	st.Must(os.Mkdir(filepath.Join(dir, "people"), 0o700))
	st.Must(os.WriteFile(filepath.Join(dir, "people", "data"), []byte(byPeople), 0o600))
	hosttest.Unmount(st, dir)
}

// diskCopied copies the pool's filesystem block by block, which stands still for that.
func (st *stage) diskCopied(state, int) error {
	st.other = hosttest.Image{File: filepath.Join(hosttest.Dir(st), "copy.img"), Type: st.images[0].Type}
	on := &machine{stage: st}
	if err := on.runs("fsfreeze", "--freeze", st.mount); err != nil {
		return err
	}
	err := on.runs("cp", "--sparse=always", st.images[0].File, st.other.File)
	return errors.Join(err, on.runs("fsfreeze", "--unfreeze", st.mount))
}

func (st *stage) diskSwapped(before state, _ int) error { return st.exchanges(before, st.other) }

func (st *stage) diskBack(before state, _ int) error { return st.exchanges(before, st.images[0]) }

// exchanges mounts an image in place of what is mounted as the pool.
func (st *stage) exchanges(before state, with hosttest.Image) error {
	for _, on := range st.machines {
		if before.daemons[on.number].task != 0 && on.untold == nil && on.worker.asked(&before, on.number).kind == onDisk {
			return errAtWork
		}
	}
	return st.puts(with)
}

// puts mounts an image in place of what is mounted as the pool, everywhere. The daemons stand still
// for that: they find it in the place of the other one at once.
func (st *stage) puts(image hosttest.Image) error {
	defer st.signals(syscall.SIGCONT)
	st.placed = ""
	if err := st.cleared(); err != nil {
		return err
	}
	image.Mount(st, st.mount)
	for _, on := range st.machines {
		if on.namespace != nil {
			on.mounts()
		}
	}
	st.placed = image.File
	return nil
}

// ownAgain has the pool's own filesystem mounted, if another one or none was left there.
func (st *stage) ownAgain() {
	if st.first.exchanges() && st.placed != st.images[0].File {
		st.Must(st.puts(st.images[0]))
	}
}

// cleared unmounts the pool everywhere, with the daemons standing still. One that looks at the pool
// just now is let go on first.
func (st *stage) cleared() error {
	where := []*machine{{stage: st}} // this process, and each node with mounts of its own
	for _, on := range st.machines {
		if on.namespace != nil {
			where = append(where, on)
		}
	}
	for ctx := st.soon(); ctx.Err() == nil; st.pause() {
		st.signals(syscall.SIGSTOP)
		for len(where) > 0 && (where[0].runs("mountpoint", "-q", st.mount) != nil || where[0].runs("umount", st.mount) == nil) {
			where = where[1:]
		}
		if len(where) == 0 {
			return nil
		}
		st.signals(syscall.SIGCONT)
	}
	return fmt.Errorf("%w: the pool is in use on %q", errAtWork, where[0].name)
}

// signals sends a signal to the daemons that run.
func (st *stage) signals(s os.Signal) {
	for _, on := range st.machines {
		if on.daemon.Running() {
			_ = on.daemon.Signal(s)
		}
	}
}

// openElsewhere is which gate is open while the filesystem with another marker is mounted, "" if
// none is.
func (s *state) openElsewhere() string {
	for node := range s.daemons {
		if s.spare.kind == marked && s.inPlace != 0 && s.daemons[node].open[s.spare.pool] {
			return fmt.Sprintf("OtherDiskStays: the gate on %s is open, and what is mounted has another marker", nodeName(node))
		}
	}
	return ""
}

// otherDisk is what there is of volumes on the filesystem with another marker when all has settled,
// "" if nothing is.
func (st *stage) otherDisk() string {
	if st.first.spare.kind != marked {
		return ""
	}
	dir := hosttest.Dir(st)
	st.other.Mount(st, dir, "ro")
	defer hosttest.Unmount(st, dir)
	wrong := ""
	st.Must(filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, "pvc-") {
			wrong = "OtherDiskStays: it has " + path
		}
		return err
	}))
	return wrong
}
