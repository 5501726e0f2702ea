package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Breakages that were tried and caught: no second try after a sweep took the record
// (TestAdoptBesideSweep: 2 of 300 volumes not adopted), a directory opened without
// RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV (TestAdoptRefuses: a link, a mount), Forget of what is in
// the trash (TestAdoptRefuses).

// theirs makes a directory as another program leaves it: before the pool was prepared, or after.
func theirs(t testing.TB, r *rig) {
	prepared(t, r)
	write(t, filepath.Join(r.path, spec(pv).Directory, "below", "file"), "data")
}

func adopted(t testing.TB, r *rig) {
	theirs(t, r)
	must(t, r.Adopt(t.Context(), r.id, spec(pv).Record))
}

// replacing is the record with the object that it is adopted from.
func replacing() record.Record {
	r := spec(pv).Record
	r.Replaced = `{"metadata":{"name":"pvc-1"}}`
	return r
}

// What is replaced is noted in a record that is there already, kept by who does not know of it, and
// refused where the record could not be read any more.
func TestAdoptReplaced(t *testing.T) {
	r := onTmpfs(t)
	adopted(t, r)
	must(t, r.Adopt(t.Context(), r.id, replacing()))
	for range 2 {
		got, err := r.Lookup(t.Context(), r.id, pv)
		if err != nil || got.Replaced != replacing().Replaced {
			t.Errorf("%+v, %v", got, err)
		}
		must(t, r.Adopt(t.Context(), r.id, spec(pv).Record))
	}
	large := replacing()
	large.Replaced = strings.Repeat("x", record.MaxSize)
	if err := r.Adopt(t.Context(), r.id, large); err == nil || !strings.Contains(err.Error(), "larger than one that is read") {
		t.Error(err)
	}
	if got, err := r.Lookup(t.Context(), r.id, pv); err != nil || got.Replaced != replacing().Replaced {
		t.Errorf("%+v, %v", got, err)
	}
}

// Adopted, then a volume like every other: removed, archived, retained, forgotten.
func TestAdoptedLife(t *testing.T) {
	for name, c := range map[string]struct {
		calls []string
		want  string
	}{
		"adopted":            {nil, "default-data-pvc-1/ default-data-pvc-1/below/ default-data-pvc-1/below/file volumes/pvc-1.json"},
		"adopted twice":      {[]string{"Adopt"}, "default-data-pvc-1/ default-data-pvc-1/below/ default-data-pvc-1/below/file volumes/pvc-1.json"},
		"forgotten":          {[]string{"Forget", "Forget"}, "default-data-pvc-1/ default-data-pvc-1/below/ default-data-pvc-1/below/file"},
		"adopted again":      {[]string{"Forget", "Adopt"}, "default-data-pvc-1/ default-data-pvc-1/below/ default-data-pvc-1/below/file volumes/pvc-1.json"},
		"removed":            {[]string{"Trash", "Purge"}, ""},
		"retained and swept": {[]string{"Retain", "Sweep", "Purge"}, "default-data-pvc-1/ default-data-pvc-1/below/ default-data-pvc-1/below/file volumes/pvc-1.json"},
	} {
		t.Run(name, func(t *testing.T) {
			r := onTmpfs(t)
			empty := entries(contents(t, r.path))
			adopted(t, r)
			all := calls(r)
			all["Purge"] = func() error { _, err := r.Purge(t.Context(), r.id, pv); return err }
			all["Adopt"] = func() error { return r.Adopt(t.Context(), r.id, spec(pv).Record) }
			all["Forget"] = func() error { return r.Forget(t.Context(), r.id, pv) }
			for _, call := range c.calls {
				must(t, all[call]())
			}
			got := map[string]bool{}
			for e := range entries(contents(t, r.path)) {
				if !empty[e] {
					got[e] = true
				}
			}
			if want := entriesOf(c.want); len(got) != len(want) {
				t.Errorf("got %v, want %q", got, want)
			} else {
				for _, e := range want {
					if !got[e] {
						t.Errorf("got %v, want %q", got, want)
					}
				}
			}
		})
	}
}

// What is there instead of a plain directory is refused, and nothing is written.
func TestAdoptRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, r *rig)
		record func(*record.Record)
		want   error
	}{
		"nothing there": {nil, nil, unix.ENOENT},
		"a link":        {func(t *testing.T, r *rig) { must(t, os.Symlink("/etc", filepath.Join(r.path, spec(pv).Directory))) }, nil, ErrForeign},
		"a file":        {func(t *testing.T, r *rig) { write(t, filepath.Join(r.path, spec(pv).Directory), "") }, nil, ErrForeign},
		"a mount": {func(t *testing.T, r *rig) {
			theirs(t, r)
			dir := filepath.Join(r.path, spec(pv).Directory)
			hosttest.Mount(t, "-t", "tmpfs", "none", dir)
			t.Cleanup(func() { hosttest.Unmount(t, dir) })
		}, nil, ErrForeign},
		"our own directory":   {nil, func(r *record.Record) { r.Directory = ".hostpath-provisioner" }, record.ErrName},
		"two elements":        {nil, func(r *record.Record) { r.Directory = "a/b" }, record.ErrName},
		"dots":                {nil, func(r *record.Record) { r.Directory = ".." }, record.ErrName},
		"another claim's":     {func(t *testing.T, r *rig) { adopted(t, r) }, func(r *record.Record) { r.ClaimUID = "other" }, ErrConflict},
		"recorded elsewhere":  {func(t *testing.T, r *rig) { r.create(t, pv); write(t, filepath.Join(r.path, "d", "f"), "") }, func(r *record.Record) { r.Directory = "d" }, ErrConflict},
		"one in staging":      {func(t *testing.T, r *rig) { theirs(t, r); must(t, os.Mkdir(r.meta("staging", pv), 0o700)) }, nil, ErrPlace},
		"one in the trash":    {func(t *testing.T, r *rig) { theirs(t, r); must(t, os.Mkdir(r.meta("trash", pv), 0o700)) }, nil, ErrPlace},
		"a damaged record":    {func(t *testing.T, r *rig) { theirs(t, r); write(t, r.meta("volumes", pv+".json"), "{") }, nil, record.ErrDamaged},
		"another pool's disk": {func(t *testing.T, r *rig) { theirs(t, r); r.id.Inode++ }, nil, ErrDirectoryReplaced},
	} {
		t.Run(name, func(t *testing.T) {
			r, record := onTmpfs(t), spec(pv).Record
			if c.change != nil {
				c.change(t, r)
			}
			if c.record != nil {
				c.record(&record)
			}
			before := contents(t, r.path)
			if err := r.Adopt(t.Context(), r.id, record); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if got := contents(t, r.path); got != before {
				t.Errorf("got\n%swant\n%s", got, before)
			}
		})
	}
	// What is not in its place any more is not forgotten.
	r := onTmpfs(t)
	adopted(t, r)
	must(t, r.Trash(t.Context(), r.id, pv))
	if err := r.Forget(t.Context(), r.id, pv); !errors.Is(err, ErrPlace) {
		t.Errorf("in the trash: %v", err)
	}
}

// A daemon in another process sweeps all the while: it knows nothing of this one's locks.
func TestAdoptBesideSweep(t *testing.T) {
	r := onTmpfs(t)
	other := restarted(r)
	ctx, stop := context.WithCancel(t.Context())
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		for ctx.Err() == nil {
			if _, err := other.Sweep(context.Background(), other.id); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 300 {
		s := spec(pvName(i))
		must(t, os.Mkdir(filepath.Join(r.path, s.Directory), 0o755))
		if err := r.Adopt(t.Context(), r.id, s.Record); err != nil {
			t.Error(err)
		}
	}
	stop()
	sweeping.Wait()
	inventory, err := r.List(t.Context(), r.id)
	if err != nil || len(inventory.Volumes) != 300 || len(inventory.Foreign)+len(inventory.Leftovers)+len(inventory.Damaged) != 0 {
		t.Errorf("%d volumes, %+v, %v", len(inventory.Volumes), inventory.Foreign, err)
	}
}

// In a pool that daemons of several hosts work in each writes its records under names of its own,
// and gives that one its final name: once.
func TestAdoptInSharedPool(t *testing.T) {
	r, _ := two(t, hosttest.Dir(t))
	theirs(t, r)
	named := 0
	r.atCrashPoint = func(step string) {
		if step == "record named" {
			named++
		}
	}
	must(t, r.Adopt(t.Context(), r.id, spec(pv).Record))
	if got, err := r.Lookup(t.Context(), r.id, pv); err != nil || got.Place != record.InPool || got.PV != pv || named != 1 {
		t.Errorf("%+v, %v; named %d times", got, err, named)
	}
}
