package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// network are the filesystems that shared pools lie on: what they cannot do is what differs.
var network = []struct {
	name string
	dir  func(t testing.TB) string
}{
	{"all that Linux has", func(t testing.TB) string { return hosttest.Dir(t) }},
	{"no flags of rename", func(t testing.TB) string {
		dir := hosttest.Dir(t)
		hungfs.Mount(t, dir).Fail(unix.ENOSYS, hungfs.Rename2)
		return dir
	}},
	{"no flags of rename, no links", func(t testing.TB) string {
		dir := hosttest.Dir(t)
		hungfs.Mount(t, dir).Fail(unix.ENOSYS, hungfs.Rename2, hungfs.Link)
		return dir
	}},
}

// two daemons of different hosts in one pool.
func two(t testing.TB, dir string) (a, b *rig) {
	t.Helper()
	id := pool.Identity(t, dir)
	a = &rig{Pool: New(Options{Name: "shared", Path: dir, HostID: "aaaaaaaa"}), path: dir, id: id}
	b = &rig{Pool: New(Options{Name: "shared", Path: dir, HostID: "bbbbbbbb"}), path: dir, id: id}
	prepared(t, a)
	return a, b
}

// steps are calls of one daemon, as its controller would make them, with what the pods do in
// between.
type steps []string

func (s steps) of(t testing.TB, r *rig) {
	t.Helper()
	ctx := context.Background()
	for _, step := range s {
		var err error
		switch step {
		case "create":
			_, err = r.Create(ctx, r.id, spec(pv))
		case "create limited":
			limited := spec(pv)
			limited.Quota = limited.Requested
			_, err = r.Create(ctx, r.id, limited)
		case "write":
			dir := filepath.Join(r.path, spec(pv).Directory)
			err = errors.Join(os.WriteFile(filepath.Join(dir, "file"), []byte("data"), 0o600), os.Chmod(dir, 0o750))
		case "undo":
			err = r.Undo(ctx, r.id, pv)
		case "trash":
			err = r.Trash(ctx, r.id, pv)
		case "purge":
			_, err = r.Purge(ctx, r.id, pv)
		case "archive":
			err = r.Archive(ctx, r.id, pv)
		case "retain":
			err = r.Retain(ctx, r.id, pv)
		case "grow to 2":
			err = r.Resize(ctx, r.id, pv, 2<<30)
		case "grow to 3":
			err = r.Resize(ctx, r.id, pv, 3<<30)
		case "raise to 3":
			was := r.lookup(t, pv).Requested
			if was < 3<<30 {
				_, err = r.ResizeFrom(ctx, r.id, pv, was, 3<<30)
			}
		case "sweep":
			_, err = r.Sweep(ctx, r.id)
		}
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
}

// The holder of the lease is paused after any step of any call; the next one does what the cluster
// asks of it; then the first wakes and goes on. Its own call may fail. What pods wrote is where it
// was, or where it was sent; and at last the pool holds what it should and nothing else.
//
// It was seen to fail with a staging directory that both used: the first, waking, found it gone and
// took the second's record back. TestOrphanedFilesAreSwept fails if both write records under one
// name, TestAttributesAreSetOnce if a directory gets its attributes whatever its mode is.
func TestPausedHolder(t *testing.T) {
	for _, c := range []struct {
		before, paused, other, after steps
		want                         string
	}{
		{nil, steps{"create"}, steps{"create", "write"}, nil, "default-data-pvc-1/ default-data-pvc-1/file volumes/pvc-1.json"},
		{nil, steps{"create"}, steps{"create", "undo"}, steps{"undo"}, ""},
		{nil, steps{"create"}, steps{"create", "write", "trash", "purge"}, steps{"undo"}, ""},
		{nil, steps{"create"}, steps{"create", "write", "sweep"}, nil, "default-data-pvc-1/ default-data-pvc-1/file volumes/pvc-1.json"},
		{steps{"create", "write"}, steps{"create"}, steps{"trash", "purge"}, steps{"undo"}, ""},
		{steps{"create"}, steps{"undo"}, steps{"undo"}, nil, ""},
		{steps{"create", "write"}, steps{"trash"}, steps{"trash", "purge"}, steps{"purge"}, ""},
		{steps{"create", "write", "trash"}, steps{"purge"}, steps{"purge"}, steps{"purge"}, ""},
		{steps{"create", "write"}, steps{"archive"}, steps{"archive"}, nil, "archive/pvc-1/ archive/pvc-1/file archive/pvc-1.json"},
		{steps{"create", "write"}, steps{"sweep"}, steps{"trash", "purge"}, nil, ""},
		{steps{"create", "write"}, steps{"retain"}, steps{"retain"}, nil, "default-data-pvc-1/ default-data-pvc-1/file volumes/pvc-1.json"},
	} {
		for _, fs := range network {
			name := strings.Join(c.paused, " ") + " beside " + strings.Join(c.other, " ")
			t.Run(name+"/"+fs.name, func(t *testing.T) {
				for at, ended := 0, false; !ended; at++ {
					dir := fs.dir(t)
					a, b := two(t, dir)
					empty := entries(contents(t, dir))
					c.before.of(t, a)
					ended = pausedAt(t, a, at, c.paused, func() { c.other.of(t, b) })
					c.after.of(t, b)
					steps{"sweep"}.of(t, a)
					var got []string
					for e := range entries(contents(t, dir)) {
						if !empty[e] {
							got = append(got, e)
						}
					}
					if want := entriesOf(c.want); strings.Join(sortedList(got), " ") != strings.Join(want, " ") {
						t.Errorf("paused after step %d: got %q, want %q", at, sortedList(got), want)
					}
				}
			})
		}
	}
}

// The record of a daemon that was paused before it gave it its name never takes the place of
// another one's: what was noted there since, that the data is retained, would be forgotten, and the
// data removed.
func TestPausedHolderKeepsTheRecord(t *testing.T) {
	for _, fs := range network {
		t.Run(fs.name, func(t *testing.T) {
			for at, ended := 0, false; !ended; at++ {
				a, b := two(t, fs.dir(t))
				var linked string
				ended = pausedAt(t, a, at, steps{"create"}, func() {
					steps{"create", "write", "retain"}.of(t, b)
					linked = readText(t, b.meta("volumes", pv+recordSuffix))
				})
				r, err := b.Lookup(t.Context(), b.id, pv)
				if now := readText(t, b.meta("volumes", pv+recordSuffix)); err != nil || !r.Retained || now != linked {
					t.Errorf("paused after step %d: %v, retained %v, the record was\n%sand is\n%s", at, err, r.Retained, linked, now)
				}
			}
		})
	}
}

func readText(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// pausedAt runs calls of r, and meanwhile after the step number at. It says that there was no such
// step.
func pausedAt(t testing.TB, r *rig, at int, calls steps, meanwhile func()) (ended bool) {
	t.Helper()
	reached, goOn, done := make(chan string), make(chan struct{}), make(chan struct{})
	n := 0
	r.atCrashPoint = func(step string) {
		if n++; n-1 == at {
			reached <- step
			<-goOn
		}
	}
	go func() {
		defer close(done)
		quiet := &forgiving{TB: t}
		defer func() {
			if e := recover(); e != nil && e != failed {
				panic(e)
			}
		}()
		calls.of(quiet, r)
	}()
	select {
	case <-reached:
		defer func() { close(goOn); <-done; r.atCrashPoint = nil }() // also if meanwhile ends the test
		meanwhile()
		return false
	case <-done:
		r.atCrashPoint = nil
		meanwhile()
		return true
	}
}

// forgiving lets a call fail: one that comes too late may return an error.
type forgiving struct{ testing.TB }

const failed = "failed"

func (f *forgiving) Helper()               {}
func (f *forgiving) Fatalf(string, ...any) { panic(failed) }

// A directory that was made without its attributes, because its daemon died, gets them from the
// next one; one that a pod changed is not touched.
func TestAttributesAreSetOnce(t *testing.T) {
	a, b := two(t, hosttest.Dir(t))
	stopAt(a, "directory made", func() error { _, err := a.Create(t.Context(), a.id, spec(pv)); return err })
	dir := filepath.Join(a.path, spec(pv).Directory)
	steps{"create"}.of(t, b)
	want(t, dir, 0o777, 1234)
	must(t, os.Chmod(dir, 0o751))
	steps{"create"}.of(t, a)
	want(t, dir, 0o751, 1234)
}

func want(t testing.TB, dir string, mode, uid uint32) {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(dir, &st))
	if st.Mode&0o7777 != mode || st.Uid != uid {
		t.Errorf("%s: mode %#o, owner %d, want %#o, %d", dir, st.Mode&0o7777, st.Uid, mode, uid)
	}
}

// What another daemon began to write is left to it for a while.
func TestOrphanedFilesAreSwept(t *testing.T) {
	a, b := two(t, hosttest.Dir(t))
	stopAt(a, "record written", func() error { _, err := a.Create(t.Context(), a.id, spec(pv)); return err })
	orphaned := a.meta("volumes", pv+".json.aaaaaaaa.new")
	steps{"sweep"}.of(t, b)
	if _, err := os.Stat(orphaned); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * orphanedAfter)
	must(t, os.Chtimes(orphaned, old, old))
	steps{"sweep"}.of(t, b)
	if _, err := os.Stat(orphaned); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// What a daemon left half made that had the pool for its node alone is made to its end as a shared
// volume, wherever it died.
func TestSharedAfterAlone(t *testing.T) {
	for n := 1; ; n++ {
		dir := hosttest.Dir(t)
		shared, _ := two(t, dir)
		alone := &rig{Pool: New(Options{Name: "shared", Path: dir}), path: dir, id: shared.id}
		own, common := spec(pv), spec(pv)
		own.Scope, own.Node, common.Scope, common.Node = "node", "node-a", "shared", "node-b"
		died, err := stopAt(alone, fmt.Sprint("#", n), func() error { _, err := alone.Create(t.Context(), alone.id, own); return err })
		if died == "" {
			must(t, err)
			if n < 8 {
				t.Fatalf("it has %d steps", n-1)
			}
			return
		}
		if _, err := shared.Create(t.Context(), shared.id, common); errors.Is(err, ErrPlace) && died != "renamed" {
			steps{"sweep"}.of(t, shared) // without a record it is for Sweep
			_, err = shared.Create(t.Context(), shared.id, common)
			must(t, err)
		} else {
			must(t, err)
		}
		old := time.Now().Add(-2 * orphanedAfter)
		if begun := shared.meta("volumes", pv+newSuffix); os.Chtimes(begun, old, old) == nil {
			steps{"sweep"}.of(t, shared)
		}
		inv, err := shared.List(t.Context(), shared.id)
		must(t, err)
		if len(inv.Volumes) != 1 || inv.Volumes[0].Place != record.InPool || inv.Volumes[0].Scope != "shared" || inv.Volumes[0].Node != "node-b" || len(inv.Foreign)+len(inv.Leftovers) > 0 {
			t.Errorf("died after %q: %+v", died, inv)
		}
		for _, of := range []string{stagingDir, volumesDir} {
			all, err := os.ReadDir(shared.meta(of))
			must(t, err)
			if want := map[string]int{stagingDir: 0, volumesDir: 1}[of]; len(all) != want {
				t.Errorf("died after %q: %s has %v", died, of, all)
			}
		}
	}
}

// Whatever is in a volume's place without a record is foreign, in a shared pool as in any other.
func TestSharedForeign(t *testing.T) {
	a, _ := two(t, hosttest.Dir(t))
	must(t, os.Mkdir(filepath.Join(a.path, spec(pv).Directory), 0o700))
	if _, err := a.Create(t.Context(), a.id, spec(pv)); !errors.Is(err, ErrForeign) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(a.meta("volumes", pv+".json")); !os.IsNotExist(err) {
		t.Errorf("it has a record: %v", err)
	}
}

// A claim that asks for a quota gets it before a pod can use the volume.
func TestQuota(t *testing.T) {
	for _, maker := range []string{"", "aaaaaaaa"} {
		r, fs := onFUSE(t, maker)
		fs.TakeQuotas() // before the kernel asks, because it remembers a no
		prepared(t, r)
		limited := spec(pv)
		limited.Quota = 5 << 20
		made, err := r.Create(t.Context(), r.id, limited)
		must(t, err)
		buffer := make([]byte, 64)
		n, err := unix.Getxattr(made, "ceph.quota.max_bytes", buffer)
		if got := string(buffer[:max(n, 0)]); got != "5242880" {
			t.Errorf("the quota is %q, %v", got, err)
		}
	}
}

// Where the filesystem takes no quota nothing is left that a pod could use.
func TestNoQuota(t *testing.T) {
	limited := spec(pv)
	limited.Quota = 5 << 20
	for maker, left := range map[string]string{"": "", "aaaaaaaa": "default-data-pvc-1/ volumes/pvc-1.json"} {
		r, _ := onFUSE(t, maker)
		prepared(t, r)
		empty := entries(contents(t, r.path))
		if _, err := r.Create(t.Context(), r.id, limited); !errors.Is(err, ErrNoQuota) {
			t.Errorf("got %v", err)
		}
		var got []string
		for e := range entries(contents(t, r.path)) {
			if !empty[e] {
				got = append(got, e)
			}
		}
		if strings.Join(sortedList(got), " ") != left {
			t.Errorf("left are %q, want %q", got, left)
		}
		steps{"undo"}.of(t, r) // when the claim is gone
		if len(entries(contents(t, r.path))) != len(empty) {
			t.Errorf("after undo: %s", contents(t, r.path))
		}
	}
}

func onFUSE(t testing.TB, maker string) (*rig, *hungfs.FS) {
	t.Helper()
	dir := hosttest.Dir(t)
	fs := hungfs.Mount(t, dir)
	return &rig{Pool: New(Options{Name: "p", Path: dir, HostID: maker}), path: dir, id: pool.Identity(t, dir)}, fs
}

// Root of this host has no rights on the file server: one error says so.
func TestSquashed(t *testing.T) {
	dir := hosttest.Dir(t)
	fs := hungfs.Mount(t, dir)
	a, _ := two(t, dir)
	for _, op := range []hungfs.Op{hungfs.Create, hungfs.Mkdir, hungfs.Setattr} {
		fs.Fail(unix.EPERM, op)
		if _, err := a.Create(t.Context(), a.id, spec(pv)); !errors.Is(err, ErrSquashed) {
			t.Errorf("refused at request %d: %v", op, err)
		}
		fs.Fail(0, op)
	}
	steps{"create"}.of(t, a)
	// A server refuses any other user's process for what that is.
	if err := refusal(1000); !errors.Is(err, ErrNotRoot) || errors.Is(err, ErrSquashed) {
		t.Errorf("to a process that is not root: %v", err)
	}
	label := fmt.Errorf("%w %q: %w", selinux.ErrFSCreate, "l", unix.EACCES)
	if err := a.remote(label); err != label {
		t.Errorf("a label that this host refuses: %v", err)
	}
}

// A stale handle is no failure of the volume: the pool is looked at again.
func TestStale(t *testing.T) {
	dir := hosttest.Dir(t)
	fs := hungfs.Mount(t, dir)
	a, _ := two(t, dir)
	for _, op := range []hungfs.Op{hungfs.Create, hungfs.Mkdir, hungfs.Setattr, hungfs.Fsyncdir} {
		fs.Fail(unix.ESTALE, op)
		if _, err := a.Create(t.Context(), a.id, spec(pv)); !errors.Is(err, ErrDirectoryReplaced) {
			t.Errorf("stale at request %d: %v", op, err)
		}
		fs.Fail(0, op)
	}
	steps{"create"}.of(t, a)
}

// What was removed is put back only where the caller says that it is to be: one that was paused
// before it made the volume would take it out of the trash, while another daemon removes it.
func TestRemovedStaysRemoved(t *testing.T) {
	for _, removal := range []string{"trash", "archive"} {
		dir := hosttest.Dir(t)
		a, b := two(t, dir)
		steps{"create", "write", removal}.of(t, b)
		before := contents(t, dir)
		if _, err := a.Create(t.Context(), a.id, spec(pv)); !errors.Is(err, ErrRemoved) || contents(t, dir) != before {
			t.Errorf("%s: %v, and the pool is\n%s", removal, err, contents(t, dir))
		}
		again := spec(pv)
		again.PutBack = true
		if _, err := a.Create(t.Context(), a.id, again); err != nil {
			t.Errorf("%s: %v", removal, err)
		}
		if data := readText(t, filepath.Join(dir, again.Directory, "file")); data != "data" {
			t.Errorf("%s: the volume has %q", removal, data)
		}
	}
}
