package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// adoptedNames are directories of other people's making, and PVs of their naming: the names of
// directories and of records meet.
func TestArchiveNames(t *testing.T) {
	r := onTmpfs(t)
	names := []string{"data", "data.json", "data.json.json", "data~2"}
	for round := range 2 { // each name comes again
		for _, directory := range names {
			s := spec("pv-of-" + directory)
			if directory != "data~2" {
				s.PV = directory
			}
			s.Directory, s.ClaimUID = directory, "uid-of-"+directory+string(rune('a'+round))
			write(t, filepath.Join(r.path, directory, "file"), s.ClaimUID)
			must(t, r.Adopt(t.Context(), r.id, s.Record))
			if found, err := r.Lookup(t.Context(), r.id, s.PV); found.Place != record.InPool || err != nil {
				t.Errorf("%s of round %d is in its place, and said to be %q, %v", directory, round, found.Place, err)
			}
		}
		if inventory, err := r.List(t.Context(), r.id); err != nil || len(inventory.Foreign)+len(inventory.Leftovers)+len(inventory.Damaged) > 0 {
			t.Errorf("%v, %+v", err, inventory)
		}
		for _, directory := range names {
			pv := directory
			if directory == "data~2" {
				pv = "pv-of-" + directory
			}
			must(t, r.Archive(t.Context(), r.id, pv))
		}
	}
	inventory, err := r.List(t.Context(), r.id)
	if err != nil || len(inventory.Archived) != 2*len(names) || len(inventory.Leftovers)+len(inventory.Damaged)+len(inventory.Volumes) > 0 {
		t.Errorf("%v, %+v", err, inventory)
	}
	for _, a := range inventory.Archived {
		found, err := r.LookupArchived(t.Context(), r.id, a.PV, a.ClaimUID)
		if err != nil || found.ClaimUID != a.ClaimUID {
			t.Errorf("%s of %s: %+v, %v", a.PV, a.ClaimUID, found, err)
		}
		must(t, r.Pool.PutBack(t.Context(), r.id, a.PV, a.ClaimUID))
		if text, err := os.ReadFile(filepath.Join(r.path, a.Directory, "file")); string(text) != a.ClaimUID {
			t.Errorf("%s of %s came back with %q, %v", a.PV, a.ClaimUID, text, err)
		}
		must(t, r.Archive(t.Context(), r.id, a.PV))
	}
	if _, err := r.LookupArchived(t.Context(), r.id, "data", "another"); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("another claim's: %v", err)
	}
}

// A foreign directory has the volume's name in the pool by now: nothing moves.
func TestPutBackBesideAStranger(t *testing.T) {
	for _, before := range []func(testing.TB, *rig){trashed, archivedHalf, archivedWhole} {
		r := onTmpfs(t)
		before(t, r)
		write(t, filepath.Join(r.path, spec(pv).Directory, "file"), "not ours")
		was := contents(t, r.path)
		if err := r.PutBack(t.Context(), r.id, pv); !errors.Is(err, ErrForeign) {
			t.Errorf("got %v, want ErrForeign", err)
		}
		if now := contents(t, r.path); now != was {
			t.Errorf("touched:\n%swas:\n%s", now, was)
		}
	}
}

// What is whole in the trash is not purged by who did not let its object go, and what is retained
// is not emptied further.
func TestPurgeOnlyWhatIsDiscarded(t *testing.T) {
	r := onTmpfs(t)
	trashed(t, r)
	was := contents(t, r.path)
	if _, err := r.Pool.Purge(t.Context(), r.id, pv); !errors.Is(err, ErrPlace) || contents(t, r.path) != was {
		t.Errorf("%v\n%s", err, contents(t, r.path))
	}
	must(t, r.Discard(t.Context(), r.id, pv))
	must(t, r.Retain(t.Context(), r.id, pv))
	was = contents(t, r.path)
	if _, err := r.Pool.Purge(t.Context(), r.id, pv); err != nil || contents(t, r.path) != was {
		t.Errorf("%v\n%s", err, contents(t, r.path))
	}
	must(t, r.Trash(t.Context(), r.id, pv)) // with policy Delete after all
	if _, err := r.Pool.Purge(t.Context(), r.id, pv); err != nil {
		t.Error(err)
	}
	if _, err := r.Lookup(t.Context(), r.id, pv); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("it is purged, and there is %v", err)
	}
}
