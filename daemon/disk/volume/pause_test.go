package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// pausing is the copy of a volume that is written to before its pause, and whose pods go on at the
// end with an error, or not.
func pausing(t *testing.T, r *rig, fs string, ended error) Spec {
	s := copyOf(fs)
	at := filepath.Join(r.path, spec(pv).Directory)
	s.Pause = func(ctx context.Context) (context.Context, func() error, error) {
		must(t, errors.Join(os.WriteFile(filepath.Join(at, "late"), []byte("before the pause"), 0o600), os.MkdirAll(filepath.Join(at, "late below/it"), 0o700)))
		return ctx, func() error { return ended }, nil
	}
	return s
}

// What was written before the pause is in the copy. If the pods went on before it was whole, or did
// not stand still, there is no copy.
func TestPause(t *testing.T) {
	onEach(t, func(t *testing.T, fs, base string) {
		if fs == "subvolumes" { // is copied at one moment without a pause
			return
		}
		r := onDisk(t, base)
		withData(t, r)
		early := errors.New("they went on")
		refused := copyOf(fs)
		refused.Pause = func(context.Context) (context.Context, func() error, error) { return nil, nil, early }
		for _, s := range []Spec{refused, pausing(t, r, fs, early)} {
			if _, err := r.Create(t.Context(), r.id, s); !errors.Is(err, ErrPause) || !errors.Is(err, early) {
				t.Error(err)
			}
			r.purgeAll(t)
			if inventory, err := r.List(t.Context(), r.id); err != nil || len(inventory.Volumes) != 1 || len(inventory.Leftovers) > 0 {
				t.Errorf("%v: %+v", err, inventory)
			}
		}
		must(t, second(r.Create(t.Context(), r.id, pausing(t, r, fs, nil))))
		got, want := contents(t, filepath.Join(r.path, copyOf(fs).Directory)), contents(t, filepath.Join(r.path, spec(pv).Directory))
		if got != want {
			t.Errorf("the copy has\n%swant:\n%s", got, want)
		}
	})
}

// A copy that dies before, in or after the pause leaves nothing.
func TestPauseCrash(t *testing.T) {
	onEach(t, func(t *testing.T, fs, base string) {
		if fs == "subvolumes" { // is copied at one moment without a pause
			return
		}
		r := onDisk(t, base)
		withData(t, r)
		must(t, second(r.Create(t.Context(), r.id, pausing(t, r, fs, nil))))
		must(t, r.Undo(t.Context(), r.id, clone))
		r.purgeAll(t)
		want := contents(t, r.path)
		for _, step := range []string{"copied for the most part", "copied in the pause"} {
			died, err := stopAt(r, step, func() error { return second(r.Create(t.Context(), r.id, pausing(t, r, fs, nil))) })
			must(t, err)
			if died != step {
				t.Errorf("died at %q, want %q", died, step)
			}
			r := restarted(r)
			must(t, second(r.Sweep(t.Context(), r.id)))
			r.purgeAll(t)
			if got := contents(t, r.path); got != want {
				t.Errorf("after a crash at %q:\n%swant:\n%s", step, got, want)
			}
		}
	})
}
