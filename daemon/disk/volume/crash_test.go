package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// filesystems are what pools lie on. Each gives a directory on a filesystem of its own.
var filesystems = []struct {
	name string
	dir  func(t testing.TB) string
}{
	{"tmpfs", func(t testing.TB) string { return hosttest.Dir(t) }},
	{"ext4", func(t testing.TB) string { return mounted(t, "ext4", 64) }},
	{"xfs", func(t testing.TB) string { return mounted(t, "xfs", 320) }},
	{"btrfs", func(t testing.TB) string { return mounted(t, "btrfs", 160) }},
	{"subvolumes", func(t testing.TB) string {
		dir := filepath.Join(mounted(t, "btrfs", 160), inSubvolumes)
		must(t, os.Mkdir(dir, 0o700))
		return dir
	}},
}

// inSubvolumes is the name of a directory in which pools make volumes as subvolumes.
const inSubvolumes = "subvolumes"

// Create makes a volume as the pool makes them.
func (r *rig) Create(ctx context.Context, id mounts.Identity, s Spec) (string, error) {
	s.Subvolume = strings.Contains(r.path, "/"+inSubvolumes)
	return r.Pool.Create(ctx, id, s)
}

// mounted is a filesystem that is unmounted plainly after the test: a descriptor that was kept
// fails it.
func mounted(t testing.TB, fstype string, mib int) string {
	t.Helper()
	dir := hosttest.PoolMount(t, hosttest.Mkfs(t, fstype, mib))
	t.Cleanup(func() { hosttest.Unmount(t, dir) })
	return dir
}

const pv = "pvc-1"

// operations are all calls that change something, each with what was there before and what must be
// there at last, however often the call died on the way.
var operations = []struct {
	name   string
	before func(t testing.TB, r *rig)
	call   func(r *rig) error
}{
	{"prepare", nil, func(r *rig) error { return r.InitMarker(context.Background(), r.id, marker) }},
	{"create", prepared, func(r *rig) error { _, err := r.Create(context.Background(), r.id, spec(pv)); return err }},
	{"create over an older attempt", older, func(r *rig) error { _, err := r.Create(context.Background(), r.id, spec(pv)); return err }},
	{"undo", volume, func(r *rig) error { return r.Undo(context.Background(), r.id, pv) }},
	{"trash", data, trashing},
	{"trash what is retained", retained, trashing},
	{"put back", trashed, func(r *rig) error { return r.PutBack(context.Background(), r.id, pv) }},
	{"create what is in the trash", trashed, func(r *rig) error { _, err := r.Create(context.Background(), r.id, spec(pv)); return err }},
	{"put back what is half archived", archivedHalf, func(r *rig) error { return r.PutBack(context.Background(), r.id, pv) }},
	{"put back what is archived", archivedWhole, func(r *rig) error { return r.PutBack(context.Background(), r.id, pv) }},
	{"create what is archived", archivedWhole, func(r *rig) error { _, err := r.Create(context.Background(), r.id, spec(pv)); return err }},
	{"discard", trashed, func(r *rig) error { return r.Discard(context.Background(), r.id, pv) }},
	{"purge", trashed, func(r *rig) error { _, err := r.Purge(context.Background(), r.id, pv); return err }},
	{"archive", data, func(r *rig) error { return r.Archive(context.Background(), r.id, pv) }},
	{"purge what is archived", archivedHalf, func(r *rig) error { _, err := r.Purge(context.Background(), r.id, pv); return err }},
	{"retain", data, func(r *rig) error { return r.Retain(context.Background(), r.id, pv) }},
	{"unhold", data, holding(false)}, {"hold", unheld, holding(true)},
	{"trash what is not held", unheld, trashing},
	{"published", unpublished, func(r *rig) error { return r.Published(context.Background(), r.id, pv) }},
	{"resize to more", data, func(r *rig) error { return r.Resize(context.Background(), r.id, pv, 2<<30) }},
	{"resize to less", grown, func(r *rig) error { return r.Resize(context.Background(), r.id, pv, 2<<30) }},
	{"adopt", theirs, func(r *rig) error { return r.Adopt(context.Background(), r.id, spec(pv).Record) }},
	{"adopt, with what is replaced", adopted, func(r *rig) error { return r.Adopt(context.Background(), r.id, replacing()) }},
	{"moving", data, func(r *rig) error { return r.Moving(context.Background(), r.id, pv, "{}") }},
	{"moved", moving, func(r *rig) error { return r.Moved(context.Background(), r.id, pv, "b") }},
	{"forget", adopted, func(r *rig) error { return r.Forget(context.Background(), r.id, pv) }},
}

func prepared(t testing.TB, r *rig) {
	if err := r.InitMarker(t.Context(), r.id, marker); err != nil {
		t.Fatal(err)
	}
}

func older(t testing.TB, r *rig) {
	prepared(t, r)
	s := spec(pv)
	s.Directory = "another-pattern-" + pv
	stopAt(r, "record named", func() error { _, err := r.Create(t.Context(), r.id, s); return err })
}

func volume(t testing.TB, r *rig) { prepared(t, r); r.create(t, pv) }

func data(t testing.TB, r *rig) {
	volume(t, r)
	write(t, filepath.Join(r.path, spec(pv).Directory, "below", "file"), "data")
}

func unpublished(t testing.TB, r *rig) {
	prepared(t, r)
	s := spec(pv)
	s.Unpublished = true
	_, err := r.Create(t.Context(), r.id, s)
	must(t, err)
}

func holding(held bool) func(r *rig) error {
	return func(r *rig) error { return r.Hold(context.Background(), r.id, pv, held) }
}

func trashing(r *rig) error { return r.Trash(context.Background(), r.id, pv) }

func unheld(t testing.TB, r *rig) { data(t, r); must(t, r.Hold(t.Context(), r.id, pv, false)) }

func retained(t testing.TB, r *rig) { data(t, r); must(t, r.Retain(t.Context(), r.id, pv)) }
func trashed(t testing.TB, r *rig)  { data(t, r); must(t, r.Trash(t.Context(), r.id, pv)) }

func archivedHalf(t testing.TB, r *rig) {
	data(t, r)
	stopAt(r, "moved", func() error { return r.Archive(t.Context(), r.id, pv) })
}

func archivedWhole(t testing.TB, r *rig) { data(t, r); must(t, r.Archive(t.Context(), r.id, pv)) }

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type crash struct{ step string }

// stopAt plays a process that dies right after a step: nothing that the call would still do
// happens. "#3" is the third step. It returns the step's name and whether it was reached.
func stopAt(r *rig, step string, call func() error) (died string, err error) {
	n := 0
	r.atCrashPoint = func(name string) {
		if n++; name == step || fmt.Sprint("#", n) == step {
			panic(crash{name})
		}
	}
	defer func() {
		r.atCrashPoint = nil
		if c, is := recover().(crash); is {
			died = c.step
		}
	}()
	return "", call()
}

// restarted is the pool as a new process has it.
func restarted(r *rig) *rig {
	return &rig{Pool: New(Options{Name: "fast", Path: r.path}), path: r.path, id: r.id}
}

// TestCrash lets every call die after each of its steps, on every filesystem, sweeps as a new
// process does, calls again, and compares the whole tree with that of a call that nothing happened
// to. Beside it lie directories that are not ours.
func TestCrash(t *testing.T) {
	for _, fs := range filesystems {
		t.Run(fs.name, func(t *testing.T) {
			base := fs.dir(t)
			for i, op := range operations {
				t.Run(op.name, func(t *testing.T) {
					fresh := func(n int) *rig {
						dir := filepath.Join(base, fmt.Sprintf("pool-%d-%d", i, n))
						must(t, os.Mkdir(dir, 0o700))
						write(t, filepath.Join(dir, "foreign", "file"), "not ours")
						r := restarted(&rig{path: dir, id: pool.Identity(t, dir)})
						if op.before != nil {
							op.before(t, r)
						}
						return r
					}
					r := fresh(0)
					must(t, op.call(r))
					want := contents(t, r.path)
					steps := 0
					for n := 1; ; n++ {
						r := fresh(n)
						died, err := stopAt(r, fmt.Sprint("#", n), func() error { return op.call(r) })
						must(t, err)
						if died == "" {
							break
						}
						steps++
						recoverFrom(t, died, restarted(r), op.name != "prepare", op.call, want)
						must(t, os.RemoveAll(r.path))
					}
					if steps == 0 {
						t.Fatal("the call has no steps: nothing was tried")
					}
				})
			}
		})
	}
}

func recoverFrom(t *testing.T, died string, r *rig, sweep bool, call func(*rig) error, want string) {
	t.Helper()
	if sweep {
		if _, err := r.Sweep(t.Context(), r.id); err != nil {
			t.Errorf("sweeping after %q: %v", died, err)
		}
	}
	for range 2 {
		if err := call(r); err != nil {
			t.Errorf("calling again after %q: %v", died, err)
		}
		if got := contents(t, r.path); got != want {
			t.Errorf("after a crash at %q:\n%swant:\n%s", died, got, want)
		}
	}
}

// A volume that no claim wants after the crash is undone, and nothing is left of it.
func TestCrashUnwanted(t *testing.T) {
	for _, fs := range filesystems {
		t.Run(fs.name, func(t *testing.T) {
			r := onDisk(t, fs.dir(t))
			write(t, filepath.Join(r.path, "foreign", "file"), "not ours")
			want := contents(t, r.path)
			for n := 1; ; n++ {
				died, err := stopAt(r, fmt.Sprint("#", n), func() error { _, err := r.Create(t.Context(), r.id, spec(pv)); return err })
				must(t, err)
				r := restarted(r)
				swept := errors.Join(second(r.Sweep(t.Context(), r.id)), r.undoAll(t))
				if got := contents(t, r.path); swept != nil || got != want {
					t.Fatalf("after a crash at %q: %v\n%swant:\n%s", died, swept, got, want)
				}
				if died == "" {
					break
				}
			}
		})
	}
}

func (r *rig) undoAll(t *testing.T) error {
	inventory, err := r.List(t.Context(), r.id)
	for _, v := range inventory.Volumes {
		err = errors.Join(err, r.Undo(t.Context(), r.id, v.PV))
	}
	return err
}

func second[T any](_ T, err error) error { return err }

// A directory that is not ours has the volume's name, and the process dies wherever it does: the
// next one refuses the volume, also where it makes the volume before it sweeps.
func TestCrashBesideAStranger(t *testing.T) {
	for n := 1; ; n++ {
		r := onTmpfs(t)
		stranger := filepath.Join(r.path, spec(pv).Directory)
		write(t, filepath.Join(stranger, "file"), "not ours")
		want := contents(t, stranger)
		died, _ := stopAt(r, fmt.Sprint("#", n), func() error { return second(r.Create(t.Context(), r.id, spec(pv))) })
		if _, err := restarted(r).Create(t.Context(), r.id, spec(pv)); !errors.Is(err, ErrForeign) {
			t.Errorf("died at %q: got %v, want ErrForeign", died, err)
		}
		if got := contents(t, stranger); got != want {
			t.Errorf("died at %q: the stranger's directory was touched:\n%s", died, got)
		}
		if died == "" {
			return
		}
	}
}

// Another process takes the volume's name between the look and the rename. The volume is refused,
// and at no moment, whenever the process dies, is there a record that would make the stranger's
// directory ours.
func TestCrashAfterLosingTheName(t *testing.T) {
	stranger := func(r *rig) { write(t, filepath.Join(r.path, spec(pv).Directory, "file"), "not ours") }
	for n := 1; ; n++ {
		r := onTmpfs(t)
		died, err := lose(r, n, func() { stranger(r) })
		want := contents(t, filepath.Join(r.path, spec(pv).Directory))
		if died == "" && !errors.Is(err, ErrForeign) {
			t.Fatalf("got %v, want ErrForeign", err)
		}
		r = restarted(r)
		for _, call := range []func() error{
			func() error { return second(r.Sweep(t.Context(), r.id)) },
			func() error { return r.undoAll(t) },
		} {
			must(t, call())
			if got := contents(t, filepath.Join(r.path, spec(pv).Directory)); got != want {
				t.Fatalf("died at %q: the stranger's directory was touched:\n%s", died, got)
			}
		}
		inventory, err := r.List(t.Context(), r.id)
		must(t, err)
		if len(inventory.Volumes) > 0 || len(inventory.Leftovers) > 0 || fmt.Sprint(inventory.Foreign) != "["+spec(pv).Directory+"]" {
			t.Fatalf("died at %q: %+v", died, inventory)
		}
		if died == "" {
			return
		}
	}
}

// lose makes a volume, lets the stranger in after the record has its name, and dies n steps later.
func lose(r *rig, n int, stranger func()) (died string, err error) {
	lost := 0
	r.atCrashPoint = func(name string) {
		if name == "record named" {
			stranger()
		}
		if lost > 0 || name == "record named" {
			if lost++; lost == n {
				panic(crash{name})
			}
		}
	}
	defer func() {
		r.atCrashPoint = nil
		if c, is := recover().(crash); is {
			died = c.step
		}
	}()
	_, err = r.Create(context.Background(), r.id, spec(pv))
	return "", err
}
