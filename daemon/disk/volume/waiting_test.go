package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// A call to which the filesystem does not reply is known while it waits and not after it; that of a
// purge is given more time. Calls that come and go are never waiting.
func TestWaiting(t *testing.T) {
	const limit = 20 * time.Millisecond
	for _, c := range []struct {
		op    hungfs.Op
		call  func(*rig) error
		about string
	}{
		{hungfs.Mkdir, func(r *rig) error { _, err := r.Create(t.Context(), r.id, spec("pvc-2")); return err }, "volume pvc-2"},
		{hungfs.Fsyncdir, func(r *rig) error { _, err := r.Create(t.Context(), r.id, spec("pvc-2")); return err }, "volume pvc-2"},
		{hungfs.Lookup, func(r *rig) error { _, err := r.Sweep(t.Context(), r.id); return err }, "sweeping"},
		{hungfs.Opendir, func(r *rig) error { _, err := r.List(t.Context(), r.id); return err }, "reading the records"},
		{hungfs.Unlink, func(r *rig) error { _, err := r.Purge(t.Context(), r.id, pv); return err }, "removing volume pvc-1"},
	} {
		t.Run(c.about, func(t *testing.T) {
			dir := filepath.Join(hosttest.Dir(t), "pool")
			must(t, os.Mkdir(dir, 0o700))
			fs := hungfs.Mount(t, dir)
			r := onDisk(t, dir)
			write(t, filepath.Join(r.create(t, pv), "file"), "x")
			must(t, r.Trash(t.Context(), r.id, pv))
			if w := r.Waiting(0); w != (Waiting{}) {
				t.Errorf("with nothing under way: %+v", w)
			}
			fs.Hold(c.op)
			done := make(chan error, 1)
			began := time.Now()
			go func() { done <- c.call(r) }()
			fs.AwaitHeld()
			var w Waiting
			for ; w.For == 0; time.Sleep(time.Millisecond) {
				w = r.Waiting(limit)
			}
			allowed := limit
			if c.op == hungfs.Unlink {
				allowed *= backgroundFactor
			}
			if w.About != c.about || w.Where != r.id || w.Limit != allowed || w.For < allowed || w.For > time.Since(began) {
				t.Errorf("%+v after %s", w, time.Since(began))
			}
			fs.Resume()
			must(t, <-done)
			if w := r.Waiting(0); w != (Waiting{}) {
				t.Errorf("after it ended: %+v", w)
			}
		})
	}
}

// A purge goes on as long as its entries do.
func TestWaitingIsOfEntries(t *testing.T) {
	r := onTmpfs(t)
	dir := r.create(t, pv)
	for _, name := range []string{"a", "b", "c", "d"} {
		write(t, filepath.Join(dir, name, "file"), "x")
	}
	must(t, r.Trash(t.Context(), r.id, pv))
	const entry = 30 * time.Millisecond
	// An entry's time begins with the end of the one before, and a directory's with its last
	// entry's, however slow the machine is.
	before, last, entries := time.Now(), time.Now(), 0
	r.atCrashPoint = func(step string) {
		if step != "directory emptied" {
			return
		}
		time.Sleep(entry) // what a slow disk takes; nothing else tells the time here
		if waited, most := r.Waiting(0).For, time.Since(before); waited > most || waited < entry {
			t.Errorf("entry %d waited %s of %s", entries, waited, most)
		}
		before, last, entries = last, time.Now(), entries+1
	}
	_, err := r.Purge(t.Context(), r.id, pv)
	must(t, err)
	if entries < 4 {
		t.Errorf("only %d entries", entries)
	}
	if _, err := r.Sweep(t.Context(), pool.Identity(t, hosttest.Dir(t))); !errors.Is(err, ErrDirectoryReplaced) || r.Waiting(0) != (Waiting{}) {
		t.Errorf("%v, and it is still under way: %+v", err, r.Waiting(0))
	}
}
