package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// calls are all calls, made on a volume that is there.
func calls(r *rig) map[string]func() error {
	ctx := context.Background()
	return map[string]func() error{
		"Create":     func() error { _, err := r.Create(ctx, r.id, spec("pvc-new")); return err },
		"Undo":       func() error { return r.Undo(ctx, r.id, pv) },
		"Trash":      func() error { return r.Trash(ctx, r.id, pv) },
		"PutBack":    func() error { return r.PutBack(ctx, r.id, pv) },
		"Archive":    func() error { return r.Archive(ctx, r.id, pv) },
		"Retain":     func() error { return r.Retain(ctx, r.id, pv) },
		"Published":  func() error { return r.Published(ctx, r.id, pv) },
		"Unhold":     func() error { return r.Hold(ctx, r.id, pv, false) },
		"Purge":      func() error { _, err := r.Pool.Purge(ctx, r.id, "pvc-trashed"); return err },
		"Discard":    func() error { return r.Discard(ctx, r.id, "pvc-trashed") },
		"Lookup":     func() error { _, err := r.Lookup(ctx, r.id, pv); return err },
		"Exists":     func() error { _, err := r.Exists(ctx, r.id, pv); return err },
		"List":       func() error { _, err := r.List(ctx, r.id); return err },
		"Sweep":      func() error { _, err := r.Sweep(ctx, r.id); return err },
		"InitMarker": func() error { return r.InitMarker(ctx, r.id, marker) },
	}
}

// populate makes volumes in several places, and a foreign directory.
func populate(t *testing.T, r *rig) {
	data(t, r)
	r.create(t, "pvc-trashed")
	must(t, r.Trash(t.Context(), r.id, "pvc-trashed"))
	write(t, r.meta("staging", "pvc-staged", "x"), "")
	must(t, os.Remove(r.meta("staging", "pvc-staged", "x")))
	write(t, filepath.Join(r.path, "foreign", "file"), "not ours")
}

// Whatever stands at the pool's path: if it is not the directory that was checked, no call touches
// it, nor what was there before.
func TestMoved(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, path string, twin string){
		"unmounted":         func(t *testing.T, path, _ string) { hosttest.Unmount(t, path) },
		"unmounted lazily":  func(t *testing.T, path, _ string) { hosttest.UnmountLazy(t, path) },
		"another mounted":   func(t *testing.T, path, twin string) { hosttest.Mount(t, "--bind", twin, path) },
		"itself mounted":    func(t *testing.T, path, _ string) { hosttest.Mount(t, "--bind", path, path) },
		"remounted":         remount,
		"a link to another": link,
		"a link on the way to it": func(t *testing.T, path, _ string) {
			above := filepath.Dir(path)
			must(t, errors.Join(os.Rename(above, above+"-moved"), os.Symlink(above+"-moved", above)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			parent := hosttest.Dir(t)
			path, twin := filepath.Join(parent, "pool"), filepath.Join(parent, "twin")
			must(t, errors.Join(os.Mkdir(path, 0o700), os.Mkdir(twin, 0o700)))
			populate(t, onDisk(t, path)) // what lies under the mount, writable, so that a write would succeed
			populate(t, onDisk(t, twin))
			image := hosttest.Mkfs(t, "ext4", 16)
			image.Mount(t, path)
			t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH); _ = unix.Unmount(path, unix.MNT_DETACH) })
			r := onDisk(t, path)
			populate(t, r)
			replace(t, path, twin)
			before := contents(t, parent)
			for name, call := range calls(r) {
				if err := call(); !errors.Is(err, ErrDirectoryReplaced) {
					t.Errorf("%s: got %v, want ErrDirectoryReplaced", name, err)
				}
			}
			if after := contents(t, parent); after != before {
				t.Errorf("something was touched:\n%swas:\n%s", after, before)
			}
		})
	}
}

// A call that is denied what it wants because the mount was detached meanwhile has not found a
// damaged record: the pool is gone. Denied on a pool that is there, it has.
func TestDeniedOnADetachedMount(t *testing.T) {
	path := hosttest.Dir(t)
	hosttest.Mkfs(t, "ext4", 16).Mount(t, path)
	r := onDisk(t, path)
	data(t, r)
	denied := func(*session) error { return fmt.Errorf("%w: %w", record.ErrDamaged, unix.EACCES) }
	if err := r.on(t.Context(), r.id, pv, denied); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("in the pool: %v", err)
	}
	err := r.on(t.Context(), r.id, pv, func(s *session) error {
		hosttest.UnmountLazy(t, path)
		return denied(s)
	})
	if !errors.Is(err, ErrDirectoryReplaced) || errors.Is(err, record.ErrDamaged) {
		t.Errorf("on a detached mount: %v", err)
	}
}

// remount unmounts the very same filesystem and mounts it again: what was checked is stale all the
// same.
func remount(t *testing.T, path, _ string) {
	images, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(path)), "*", "ext4.img"))
	must(t, err)
	hosttest.Unmount(t, path)
	for _, image := range images {
		if strings.HasPrefix(filepath.Base(filepath.Dir(image)), strings.ReplaceAll(t.Name(), "/", "_")) {
			hosttest.Image{File: image, Type: "ext4"}.Mount(t, path)
		}
	}
}

func link(t *testing.T, path, twin string) {
	must(t, unix.Unmount(path, 0))
	must(t, errors.Join(os.Rename(path, path+"-old"), os.Symlink(twin, path)))
}

// What appears where a volume should be is refused, and stays as it is.
func TestForeign(t *testing.T) {
	name := spec(pv).Directory
	for kind, make := range map[string]func(t *testing.T, path string){
		"directory":      func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o755)) },
		"full directory": func(t *testing.T, path string) { write(t, filepath.Join(path, "file"), "not ours") },
		"file":           func(t *testing.T, path string) { write(t, path, "not ours") },
		"link":           func(t *testing.T, path string) { must(t, os.Symlink("/media", path)) },
		"dangling link":  func(t *testing.T, path string) { must(t, os.Symlink("/nowhere", path)) },
		"fifo":           func(t *testing.T, path string) { must(t, unix.Mkfifo(path, 0o600)) },
		"socket":         func(t *testing.T, path string) { must(t, unix.Mknod(path, unix.S_IFSOCK|0o600, 0)) },
	} {
		t.Run(kind, func(t *testing.T) {
			r := onTmpfs(t)
			make(t, filepath.Join(r.path, name))
			before := contents(t, r.path)
			if _, err := r.Create(t.Context(), r.id, spec(pv)); !errors.Is(err, ErrForeign) {
				t.Errorf("got %v, want ErrForeign", err)
			}
			for _, call := range []func() error{
				func() error { return r.Undo(t.Context(), r.id, pv) },
				func() error { return r.Trash(t.Context(), r.id, pv) },
				func() error { return r.Archive(t.Context(), r.id, pv) },
				func() error { return r.Retain(t.Context(), r.id, pv) },
				func() error { return r.Published(t.Context(), r.id, pv) },
				func() error { _, err := r.Purge(t.Context(), r.id, pv); return err },
				func() error { return second(r.Sweep(t.Context(), r.id)) },
			} {
				must(t, call())
			}
			if after := contents(t, r.path); after != before {
				t.Errorf("touched:\n%swas:\n%s", after, before)
			}
			inventory, err := r.List(t.Context(), r.id)
			if err != nil || fmt.Sprint(inventory.Foreign) != "["+name+"]" {
				t.Errorf("%v, %+v", err, inventory)
			}
		})
	}
}

// A volume's directory is swapped for something else between two calls: nothing but names in the
// pool's own directory could be reached through it, and not even those are touched.
func TestSwapped(t *testing.T) {
	outside := hosttest.Dir(t)
	write(t, filepath.Join(outside, "file"), "not ours")
	for kind, swap := range map[string]func(t *testing.T, path string){
		"link": func(t *testing.T, path string) {
			must(t, os.Rename(path, path+"-old"))
			must(t, os.Symlink(outside, path))
		},
		"file": func(t *testing.T, path string) { must(t, os.Rename(path, path+"-old")); write(t, path, "not ours") },
		"mount": func(t *testing.T, path string) {
			hosttest.Mount(t, "--bind", outside, path)
			t.Cleanup(func() { hosttest.Unmount(t, path) })
		},
	} {
		for _, name := range []string{"Undo", "Trash", "Archive"} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				r := onTmpfs(t)
				dir := r.create(t, pv)
				swap(t, dir)
				before := contents(t, r.path)
				if err := calls(r)[name](); !errors.Is(err, ErrForeign) {
					t.Errorf("got %v, want ErrForeign", err)
				}
				if after := contents(t, r.path); after != before {
					t.Errorf("touched:\n%swas:\n%s", after, before)
				}
			})
		}
	}
}

// The same in the middle of a call, between the look and the rename: it is put back.
func TestSwappedMeanwhile(t *testing.T) {
	for _, name := range []string{"Trash", "Archive"} {
		r := onTmpfs(t)
		dir := r.create(t, pv)
		before := ""
		r.atCrashPoint = func(step string) {
			if step == "checked" {
				must(t, os.Rename(dir, dir+"-old"))
				write(t, filepath.Join(dir, "file"), "not ours")
				before = contents(t, r.path)
			}
		}
		if err := calls(r)[name](); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: got %v, want ErrForeign", name, err)
		}
		if after := contents(t, r.path); after != before {
			t.Errorf("%s touched:\n%swas:\n%s", name, after, before)
		}
	}
}

// Names come from the API. None leads anywhere but to one element of the pool.
func TestNames(t *testing.T) {
	bad := []string{"", ".", "..", "a/b", "/etc", "../x", "a\x00b", strings.Repeat("x", 256), metaDir, metaDir + "x"}
	for _, name := range bad {
		r := onTmpfs(t)
		before := contents(t, r.path)
		s := spec(pv)
		s.Directory = name
		if _, err := r.Create(t.Context(), r.id, s); !errors.Is(err, record.ErrName) {
			t.Errorf("directory %q: got %v, want ErrName", name, err)
		}
		if _, err := r.Exists(t.Context(), r.id, name); !errors.Is(err, record.ErrName) {
			t.Errorf("Exists(%q): got %v, want ErrName", name, err)
		}
		s = spec(name)
		s.Directory = "d"
		for call, err := range map[string]error{
			"Create":  func() error { _, err := r.Create(t.Context(), r.id, s); return err }(),
			"Undo":    r.Undo(t.Context(), r.id, name),
			"Trash":   r.Trash(t.Context(), r.id, name),
			"Archive": r.Archive(t.Context(), r.id, name),
			"Retain":  r.Retain(t.Context(), r.id, name),
			"Unhold":  r.Hold(t.Context(), r.id, name, false),
			"Purge":   func() error { _, err := r.Purge(t.Context(), r.id, name); return err }(),
		} {
			if !errors.Is(err, record.ErrName) {
				t.Errorf("%s of volume %q: got %v, want ErrName", call, name, err)
			}
		}
		if _, err := r.Lookup(t.Context(), r.id, name); !errors.Is(err, ErrNotRecorded) {
			t.Errorf("Lookup(%q): got %v, want ErrNotRecorded", name, err)
		}
		if after := contents(t, r.path); after != before {
			t.Errorf("%q touched:\n%s", name, after)
		}
	}
}

// The longest names work through a whole life, also in the archive.
func TestLongNames(t *testing.T) {
	r := onTmpfs(t)
	s := spec(strings.Repeat("p", record.NameMax-len(".json.12345678.new")))
	s.Directory = strings.Repeat("ä", 127) + "x"
	_, err := r.Create(t.Context(), r.id, s)
	must(t, err)
	must(t, r.Archive(t.Context(), r.id, s.PV))
	inventory, err := r.List(t.Context(), r.id)
	if err != nil || len(inventory.Archived) != 1 || inventory.Archived[0].Directory != s.Directory || len(inventory.Leftovers) > 0 {
		t.Errorf("%v, %+v", err, inventory)
	}
}

// The volume has exactly the owner and mode that were asked for, whatever the umask.
func TestOwnerAndMode(t *testing.T) {
	for want, mode := range map[string]fs.FileMode{
		"drwxrwxrwx": 0o777, "drwx------": 0o700, "dgrwxrwx---": fs.ModeSetgid | 0o770, "dtrwxrwxrwx": fs.ModeSticky | 0o777,
	} {
		r, s := onTmpfs(t), spec(pv)
		s.Mode = mode
		dir, err := r.Create(t.Context(), r.id, s)
		must(t, err)
		info, err := os.Stat(dir)
		must(t, err)
		if got := info.Mode().String(); got != want || !strings.Contains(contents(t, dir), " 1234:5678") {
			t.Errorf("got %s, want %s: %s", got, want, contents(t, dir))
		}
	}
}

// Every call can come at every place, and either does its part or says why not.
func TestPlaces(t *testing.T) {
	reach := map[string]func(t testing.TB, r *rig){
		"absent": prepared, "pool": data, "retained": retained, "trash": trashed, "archive": archivedHalf, "archived": archivedWhole,
		"nowhere": func(t testing.TB, r *rig) {
			volume(t, r)
			must(t, os.Remove(filepath.Join(r.path, spec(pv).Directory)))
		},
		"emptying": func(t testing.TB, r *rig) {
			trashed(t, r)
			stopAt(r, "discarded", func() error { _, err := r.Purge(t.Context(), r.id, pv); return err })
		},
		"staging": func(t testing.TB, r *rig) {
			volume(t, r)
			must(t, os.Rename(filepath.Join(r.path, spec(pv).Directory), r.meta("staging", pv)))
		},
	}
	want := map[string]map[string]error{
		"Create":  {"emptying": ErrPlace},
		"Undo":    {"pool": ErrNotEmpty, "retained": ErrRetained, "trash": ErrPlace, "emptying": ErrPlace, "archive": ErrPlace},
		"Trash":   {"archive": ErrPlace, "staging": ErrPlace},
		"PutBack": {"absent": ErrNotRecorded, "emptying": ErrPlace, "staging": ErrPlace, "nowhere": ErrPlace},
		"Archive": {"trash": ErrPlace, "emptying": ErrPlace, "staging": ErrPlace},
		"Retain":  {"trash": ErrPlace, "archive": ErrPlace},
		"Unhold": {"absent": ErrNotRecorded, "archived": ErrNotRecorded, "trash": ErrPlace,
			"emptying": ErrPlace, "archive": ErrPlace, "staging": ErrPlace, "nowhere": ErrPlace},
		"Purge": {"pool": ErrPlace, "staging": ErrPlace},
		"empty": {"pool": ErrPlace, "staging": ErrPlace, "trash": ErrPlace},
	}
	for call, refused := range want {
		for place, before := range reach {
			t.Run(call+"/"+place, func(t *testing.T) {
				r := restarted(onTmpfs(t))
				before(t, r)
				untouched := contents(t, r.path)
				all := calls(r)
				all["Create"] = func() error { _, err := r.Create(t.Context(), r.id, spec(pv)); return err }
				all["Purge"] = func() error { _, err := r.Purge(t.Context(), r.id, pv); return err }
				all["empty"] = func() error { _, err := r.Pool.Purge(t.Context(), r.id, pv); return err }
				err := all[call]()
				if !errors.Is(err, refused[place]) {
					t.Errorf("got %v, want %v", err, refused[place])
				}
				if after := contents(t, r.path); err != nil && after != untouched {
					t.Errorf("refused, and touched:\n%swas:\n%s", after, untouched)
				}
			})
		}
	}
}

func TestConflict(t *testing.T) {
	r := onTmpfs(t)
	r.create(t, pv)
	before := contents(t, r.path)
	other, moved := spec(pv), spec(pv)
	other.ClaimUID, moved.Directory = "another", "elsewhere"
	for _, s := range []Spec{other, moved} {
		if _, err := r.Create(t.Context(), r.id, s); !errors.Is(err, ErrConflict) {
			t.Errorf("got %v, want ErrConflict", err)
		}
	}
	if after := contents(t, r.path); after != before {
		t.Errorf("touched:\n%s", after)
	}
	must(t, r.Undo(t.Context(), r.id, pv))
	_, err := r.Create(t.Context(), r.id, moved)
	must(t, err)
}

func TestNotPrepared(t *testing.T) {
	dir := hosttest.Dir(t)
	r := restarted(&rig{path: dir, id: pool.Identity(t, dir)})
	write(t, filepath.Join(dir, "foreign"), "")
	for name, call := range calls(r) {
		if err := call(); name != "InitMarker" && name != "List" && name != "Exists" && !errors.Is(err, ErrNotPrepared) {
			t.Errorf("%s: got %v, want ErrNotPrepared", name, err)
		}
		must(t, os.RemoveAll(r.meta()))
	}
	inventory, err := r.List(t.Context(), r.id)
	if err != nil || inventory.Prepared || fmt.Sprint(inventory.Foreign) != "[foreign]" {
		t.Errorf("%v, %+v", err, inventory)
	}
	must(t, r.InitMarker(t.Context(), r.id, marker))
	before := contents(t, dir)
	if err := r.InitMarker(t.Context(), r.id, []byte("another")); !errors.Is(err, ErrPrepared) {
		t.Errorf("got %v, want ErrPrepared", err)
	}
	if after := contents(t, dir); after != before {
		t.Errorf("touched:\n%s", after)
	}
	must(t, os.Chmod(r.meta("volumes"), 0o777))
	if _, err := r.Create(t.Context(), r.id, spec(pv)); !errors.Is(err, ErrNotPrepared) {
		t.Errorf("records that any user can write: got %v, want ErrNotPrepared", err)
	}
}

// A step that makes something durable is done only when it succeeded.
func TestFailedSyncIsNoStep(t *testing.T) {
	r := onTmpfs(t)
	prepared(t, r)
	var steps []string
	r.Pool.atCrashPoint = func(step string) { steps = append(steps, step) }
	must(t, r.on(t.Context(), r.id, pv, func(s *session) error {
		must(t, s.durable("good", volumesDir))
		if err := s.durable("bad", "no-such-directory"); err == nil {
			t.Error("a directory that is not there was synced")
		}
		return nil
	}))
	if len(steps) != 1 || steps[0] != "good" {
		t.Errorf("steps %q, want the one that succeeded", steps)
	}
}
