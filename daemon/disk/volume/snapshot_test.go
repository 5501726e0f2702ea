package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

const taken = "snapshot-1"

// snapshotOf is a snapshot of pv that is to be made.
func snapshotOf(fs string) Spec {
	s := copyOf(fs)
	s.Kind, s.PV, s.Claim, s.ClaimUID, s.Directory = record.Snapshot, taken, "snap", "uid-of-snap", taken
	return s
}

// restoreOf is a volume that is to be made from the snapshot.
func restoreOf(fs string) Spec {
	s := copyOf(fs)
	s.Origin = record.Origin{Kind: record.Snapshot, Name: taken, UID: snapshotOf(fs).ClaimUID}
	return s
}

// take makes the snapshot, which is whole then.
func (r *rig) take(t testing.TB, fs string) {
	t.Helper()
	_, err := r.Create(t.Context(), r.id, snapshotOf(fs))
	must(t, err)
	must(t, r.Published(t.Context(), r.id, taken))
}

// A snapshot has what its source had, outlives it, and volumes are made from it; it is not opened
// as a volume.
func TestSnapshot(t *testing.T) {
	onEach(t, func(t *testing.T, fs, base string) {
		r := onDisk(t, base)
		withData(t, r)
		want := contents(t, filepath.Join(r.path, spec(pv).Directory))
		r.take(t, fs)
		if fd, _, err := r.Open(t.Context(), r.id, taken); fd != -1 || !errors.Is(err, ErrNotRecorded) {
			t.Errorf("opened as a volume: %d, %v", fd, err)
		}
		must(t, errors.Join(r.Trash(t.Context(), r.id, pv), r.Discard(t.Context(), r.id, pv)))
		r.purgeAll(t)
		_, err := r.Create(t.Context(), r.id, restoreOf(fs))
		must(t, err)
		for _, dir := range []string{taken, restoreOf(fs).Directory} {
			if got := contents(t, filepath.Join(r.path, dir)); got != want {
				t.Errorf("%s has\n%swant:\n%s", dir, got, want)
			}
		}
		must(t, errors.Join(r.Trash(t.Context(), r.id, taken), r.Discard(t.Context(), r.id, taken)))
		r.purgeAll(t)
		if got := contents(t, filepath.Join(r.path, restoreOf(fs).Directory)); got != want {
			t.Errorf("without its snapshot the volume has\n%swant:\n%s", got, want)
		}
	})
}

// What is no snapshot, or none that is whole, is no source: not a volume of its name, not one of
// another UID.
func TestRestoreWithoutSnapshot(t *testing.T) {
	for name, change := range map[string]func(r *rig, s *Spec){
		"none":           func(_ *rig, s *Spec) { s.Origin.Name = "snapshot-2" },
		"a volume":       func(_ *rig, s *Spec) { s.Origin.Name, s.Origin.UID = pv, spec(pv).ClaimUID },
		"a snapshot":     func(_ *rig, s *Spec) { s.Origin.Kind = record.Volume },
		"of another UID": func(_ *rig, s *Spec) { s.Origin.UID = "other" },
		"not whole": func(r *rig, _ *Spec) {
			must(t, r.Undo(t.Context(), r.id, taken))
			r.purgeAll(t)
			_, err := r.Create(t.Context(), r.id, snapshotOf("tmpfs"))
			must(t, err)
		},
		"in the trash": func(r *rig, _ *Spec) { must(t, r.Trash(t.Context(), r.id, taken)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := onTmpfs(t)
			withData(t, r)
			_, err := r.Create(t.Context(), r.id, snapshotOf("tmpfs"))
			must(t, err)
			if name != "not whole" {
				must(t, r.Published(t.Context(), r.id, taken))
			}
			s := restoreOf("tmpfs")
			change(r, &s)
			if _, err := r.Create(t.Context(), r.id, s); !errors.Is(err, ErrSource) {
				t.Errorf("got %v, want ErrSource", err)
			}
			if _, err := os.Lstat(filepath.Join(r.path, s.Directory)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the volume is there: %v", err)
			}
		})
	}
}

// A snapshot that goes while a volume is made from it makes that fail, whole.
func TestSnapshotGoesMeanwhile(t *testing.T) {
	r := onTmpfs(t)
	withData(t, r)
	r.take(t, "tmpfs")
	r.atCrashPoint = func(step string) {
		if step == "copied" {
			r.atCrashPoint = nil
			must(t, errors.Join(r.Trash(t.Context(), r.id, taken), r.Discard(t.Context(), r.id, taken)))
		}
	}
	if _, err := r.Create(t.Context(), r.id, restoreOf("tmpfs")); !errors.Is(err, ErrSource) {
		t.Errorf("got %v, want ErrSource", err)
	}
	r.purgeAll(t)
	if _, err := r.Lookup(t.Context(), r.id, clone); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("the volume is recorded: %v", err)
	}
}

// A process that dies while it makes a snapshot, or removes one, leaves nothing that is taken for a
// whole one.
func TestSnapshotCrash(t *testing.T) {
	onEach(t, func(t *testing.T, fs, base string) {
		r := onDisk(t, base)
		withData(t, r)
		before := contents(t, r.path)
		life := func(r *rig) error {
			_, err := r.Create(context.Background(), r.id, snapshotOf(fs))
			if err == nil {
				err = r.Published(t.Context(), r.id, taken)
			}
			return errors.Join(err, r.Trash(t.Context(), r.id, taken), r.Discard(t.Context(), r.id, taken))
		}
		for n := 1; ; n++ {
			died, err := stopAt(r, fmt.Sprint("#", n), func() error { return life(r) })
			must(t, err)
			r = restarted(r)
			must(t, second(r.Sweep(t.Context(), r.id)))
			if rec, err := r.Lookup(t.Context(), r.id, taken); err == nil && rec.Place == record.InPool && !rec.Unpublished &&
				contents(t, filepath.Join(r.path, taken)) != contents(t, filepath.Join(r.path, spec(pv).Directory)) {
				t.Errorf("died at %q: a snapshot is said to be whole and is not", died)
			}
			r.purgeAll(t)
			must(t, life(r))
			r.purgeAll(t)
			if got := contents(t, r.path); got != before {
				t.Errorf("after %q:\n%swant:\n%s", died, got, before)
			}
			if died == "" {
				if n < 12 {
					t.Errorf("only %d steps", n)
				}
				break
			}
		}
	})
}

// A copy that is made anew in the moment in which the last try is gone from the trash, and its
// record is not, waits for that: else the record that goes would be the new one's (seen by
// test/crash).
func TestCopyWhilePurged(t *testing.T) {
	r := onTmpfs(t)
	withData(t, r)
	_, err := r.Create(t.Context(), r.id, snapshotOf("tmpfs"))
	must(t, err)
	must(t, r.Undo(t.Context(), r.id, taken))
	r.atCrashPoint = func(step string) {
		if step == "emptied" {
			r.atCrashPoint = nil
			if _, err := r.Create(t.Context(), r.id, snapshotOf("tmpfs")); !errors.Is(err, ErrPlace) {
				t.Errorf("got %v, want ErrPlace", err)
			}
		}
	}
	r.purgeAll(t)
	r.take(t, "tmpfs")
	if rec, err := r.Lookup(t.Context(), r.id, taken); err != nil || rec.Unpublished {
		t.Errorf("%+v, %v", rec, err)
	}
}
