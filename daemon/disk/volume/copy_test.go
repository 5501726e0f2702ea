package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

const clone = "pvc-2"

// copyOf is a volume that is to be a copy of pv. Blocks are shared on the filesystems that can.
func copyOf(fs string) Spec {
	s := spec(clone)
	s.Origin = record.Origin{Name: pv, UID: spec(pv).ClaimUID}
	s.Unpublished, s.Full = true, fs == "tmpfs" || fs == "ext4"
	return s
}

// withData has a volume with some files, and a directory that is not ours.
func withData(t testing.TB, r *rig) {
	write(t, filepath.Join(r.path, "foreign", "file"), "not ours")
	data(t, r)
	dir := filepath.Join(r.path, spec(pv).Directory)
	must(t, errors.Join(os.Link(filepath.Join(dir, "below/file"), filepath.Join(dir, "link")), os.Symlink("/etc", filepath.Join(dir, "symlink")),
		os.Chown(filepath.Join(dir, "below"), 77, 78), os.Chmod(dir, 0o2750)))
}

// purgeAll is what the daemon does with what is discarded.
func (r *rig) purgeAll(t testing.TB) {
	t.Helper()
	inventory, err := r.List(t.Context(), r.id)
	must(t, err)
	for _, v := range inventory.Volumes {
		if v.Place == record.Emptying {
			_, err := r.Pool.Purge(t.Context(), r.id, v.PV)
			must(t, err)
		}
	}
}

func onEach(t *testing.T, run func(t *testing.T, fs, base string)) {
	for _, fs := range filesystems {
		t.Run(fs.name, func(t *testing.T) { run(t, fs.name, fs.dir(t)) })
	}
}

// A copy that dies after any of its steps is not in the pool, or whole. Made again it is what one
// is that nothing happened to; and one that no claim wants leaves nothing.
func TestCopyCrash(t *testing.T) {
	onEach(t, func(t *testing.T, fs, base string) {
		fresh := func(n int) *rig {
			dir := filepath.Join(base, fmt.Sprint("pool-", n))
			must(t, os.Mkdir(dir, 0o700))
			r := &rig{Pool: New(Options{Name: "fast", Path: dir}), path: dir, id: pool.Identity(t, dir)}
			withData(t, r)
			return r
		}
		r := fresh(0)
		before := contents(t, r.path)
		make := func(r *rig) error { _, err := r.Create(context.Background(), r.id, copyOf(fs)); return err }
		must(t, make(r))
		want := contents(t, r.path)
		whole := contents(t, filepath.Join(r.path, copyOf(fs).Directory))
		if whole != contents(t, filepath.Join(r.path, spec(pv).Directory)) {
			t.Fatalf("the copy is not like its origin:\n%s", want)
		}
		for n := 1; ; n++ {
			r := fresh(n)
			died, err := stopAt(r, fmt.Sprint("#", n), func() error { return make(r) })
			must(t, err)
			if _, err := os.Lstat(filepath.Join(r.path, copyOf(fs).Directory)); err == nil && contents(t, filepath.Join(r.path, copyOf(fs).Directory)) != whole {
				t.Errorf("died at %q: the copy is in the pool and not whole", died)
			}
			r = restarted(r)
			if n%2 == 0 { // the claim comes before the records are looked at
				if err := make(r); err != nil && !errors.Is(err, ErrPlace) {
					t.Errorf("died at %q: %v", died, err)
				}
			}
			must(t, second(r.Sweep(t.Context(), r.id)))
			r.purgeAll(t)
			must(t, make(r))
			if got := contents(t, r.path); got != want {
				t.Errorf("made again after %q:\n%swant:\n%s", died, got, want)
			}
			must(t, r.Undo(t.Context(), r.id, clone))
			r.purgeAll(t)
			if got := contents(t, r.path); got != before {
				t.Errorf("undone after %q:\n%swant:\n%s", died, got, before)
			}
			must(t, os.RemoveAll(r.path))
			if died == "" {
				if n < 7 {
					t.Errorf("only %d steps", n)
				}
				break
			}
		}
	})
}

// A copy that no claim wants leaves nothing, whenever it died, and its origin is untouched.
func TestCopyCrashUnwanted(t *testing.T) {
	onEach(t, func(t *testing.T, fs, base string) {
		r := onDisk(t, base)
		withData(t, r)
		want := contents(t, r.path)
		for n := 1; ; n++ {
			died, err := stopAt(r, fmt.Sprint("#", n), func() error { _, err := r.Create(t.Context(), r.id, copyOf(fs)); return err })
			must(t, err)
			r := restarted(r)
			must(t, second(r.Sweep(t.Context(), r.id)))
			inventory, err := r.List(t.Context(), r.id)
			must(t, err)
			for _, v := range inventory.Volumes {
				if v.PV == clone && v.Place != record.Emptying {
					must(t, r.Undo(t.Context(), r.id, clone))
				}
			}
			r.purgeAll(t)
			if got := contents(t, r.path); got != want {
				t.Fatalf("after a crash at %q:\n%swant:\n%s", died, got, want)
			}
			if died == "" {
				return
			}
		}
	})
}

// A copy that was published is a volume like others: what has data is not undone.
func TestCopyPublished(t *testing.T) {
	r := onTmpfs(t)
	withData(t, r)
	var copied treecopy.Copied
	s := copyOf("tmpfs")
	s.Copied = func(c treecopy.Copied) { copied = c }
	_, err := r.Create(t.Context(), r.id, s)
	must(t, errors.Join(err, r.Published(t.Context(), r.id, clone)))
	if err := r.Undo(t.Context(), r.id, clone); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("got %v", err)
	}
	if copied.Files != 1 || copied.HardLinks != 1 || copied.Symlinks != 1 || copied.Directories != 2 {
		t.Errorf("%+v", copied)
	}
	got, err := r.Lookup(t.Context(), r.id, clone)
	if err != nil || got.Origin != s.Origin || got.Unpublished {
		t.Errorf("%+v, %v", got, err)
	}
}

// A copy without an object is not taken for one of another origin. One whose object may have been
// made stays as it is.
func TestCopyOfAnotherOrigin(t *testing.T) {
	for _, published := range []bool{false, true} {
		r := onTmpfs(t)
		withData(t, r)
		second := copyOf("tmpfs")
		second.PV, second.Directory, second.ClaimUID, second.Origin = "pvc-3", "pvc-3", "another", record.Origin{}
		_, err := r.Create(t.Context(), r.id, second)
		must(t, err)
		write(t, filepath.Join(r.path, "pvc-3", "second"), "data")
		_, err = r.Create(t.Context(), r.id, copyOf("tmpfs"))
		must(t, err)
		if published {
			must(t, r.Published(t.Context(), r.id, clone))
		}
		s := copyOf("tmpfs")
		s.Origin = record.Origin{Name: "pvc-3", UID: "another"}
		if _, err = r.Create(t.Context(), r.id, s); errors.Is(err, ErrPlace) == published {
			t.Errorf("published %t: %v", published, err)
		}
		r.purgeAll(t)
		_, err = r.Create(t.Context(), r.id, s)
		must(t, err)
		_, err = os.Lstat(filepath.Join(r.path, s.Directory, "second"))
		if (err == nil) == published {
			t.Errorf("published %t: of the other origin: %v", published, err)
		}
	}
}

// A copy without an object that has the name of another pattern is made anew.
func TestCopyOfAnotherPattern(t *testing.T) {
	r := onTmpfs(t)
	withData(t, r)
	s := copyOf("tmpfs")
	_, err := r.Create(t.Context(), r.id, s)
	must(t, err)
	before := s.Directory
	s.Directory = "another-name"
	if _, err = r.Create(t.Context(), r.id, s); !errors.Is(err, ErrPlace) {
		t.Errorf("got %v", err)
	}
	r.purgeAll(t)
	_, err = r.Create(t.Context(), r.id, s)
	must(t, err)
	if _, err := os.Lstat(filepath.Join(r.path, before)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the former one: %v", err)
	}
}

// What is not there, or goes while it is copied, is no origin, and nothing is in the pool then.
func TestCopyWithoutSource(t *testing.T) {
	for name, c := range map[string]struct {
		before, meanwhile func(r *rig) error
	}{
		"never made":      {before: func(r *rig) error { return r.Undo(context.Background(), r.id, pv) }},
		"in the trash":    {before: func(r *rig) error { return r.Trash(context.Background(), r.id, pv) }},
		"going meanwhile": {meanwhile: func(r *rig) error { return r.Trash(context.Background(), r.id, pv) }},
		"gone meanwhile": {meanwhile: func(r *rig) error {
			return errors.Join(r.Trash(context.Background(), r.id, pv), second(r.Purge(context.Background(), r.id, pv)))
		}},
		"made anew meanwhile": {meanwhile: func(r *rig) error {
			other := spec(pv)
			other.ClaimUID = "another"
			return errors.Join(r.Trash(context.Background(), r.id, pv), second(r.Purge(context.Background(), r.id, pv)), second(r.Create(context.Background(), r.id, other)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := onTmpfs(t)
			if name == "never made" {
				volume(t, r)
			} else {
				withData(t, r)
			}
			if c.before != nil {
				must(t, c.before(r))
			}
			done := false
			r.atCrashPoint = func(step string) {
				if step == "record durable" && c.meanwhile != nil && !done {
					done = true
					must(t, c.meanwhile(r))
				}
			}
			_, err := r.Create(t.Context(), r.id, copyOf("tmpfs"))
			if !errors.Is(err, ErrSource) {
				t.Errorf("got %v", err)
			}
			r.purgeAll(t)
			if _, err := r.Lookup(t.Context(), r.id, clone); !errors.Is(err, ErrNotRecorded) {
				t.Errorf("a record is left: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(r.path, copyOf("tmpfs").Directory)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is in the pool: %v", err)
			}
		})
	}
}

// A copy that is canceled, or that has no room, is discarded, and one is never made in full where
// blocks were to be shared.
func TestCopyFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rig, s *Spec, cancel func())
		want   error
	}{
		"canceled":   {func(r *rig, _ *Spec, cancel func()) { r.atCrashPoint = func(string) { cancel() } }, context.Canceled},
		"too large":  {func(_ *rig, s *Spec, _ func()) { s.Requested = 3 }, treecopy.ErrLimit},
		"no reflink": {func(_ *rig, s *Spec, _ func()) { s.Full = false }, treecopy.ErrNoReflink},
		"a name that is taken": {func(r *rig, s *Spec, _ func()) {
			write(t, filepath.Join(r.path, s.Directory, "file"), "not ours")
		}, ErrForeign},
		"a name that is taken meanwhile": {func(r *rig, s *Spec, _ func()) {
			r.atCrashPoint = func(step string) {
				if step == "copied" {
					write(t, filepath.Join(r.path, s.Directory, "file"), "not ours")
				}
			}
		}, ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			r := onTmpfs(t)
			withData(t, r)
			s := copyOf("tmpfs")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.change(r, &s, cancel)
			_, err := r.Create(ctx, r.id, s)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			r = restarted(r)
			must(t, second(r.Sweep(t.Context(), r.id)))
			r.purgeAll(t)
			inventory, err := r.List(t.Context(), r.id)
			if err != nil || len(inventory.Volumes) != 1 || len(inventory.Leftovers) > 0 {
				t.Errorf("%v: %+v", err, inventory)
			}
			if strings.HasPrefix(name, "a name") {
				if text, err := os.ReadFile(filepath.Join(r.path, s.Directory, "file")); string(text) != "not ours" {
					t.Errorf("the stranger's file: %q, %v", text, err)
				}
			}
		})
	}
}

// While a copy is under way a sweep leaves it, and one volume's copy keeps no other volume waiting.
func TestCopyAlone(t *testing.T) {
	r := onTmpfs(t)
	withData(t, r)
	at, goOn := make(chan bool), make(chan bool)
	r.atCrashPoint = func(step string) {
		if step == "copied" {
			at <- true
			<-goOn
		}
	}
	ended := make(chan error, 1)
	go func() { _, err := r.Create(context.Background(), r.id, copyOf("tmpfs")); ended <- err }()
	<-at
	n, err := r.Sweep(t.Context(), r.id)
	if err != nil || n != 0 {
		t.Errorf("%d were swept: %v", n, err)
	}
	third := copyOf("tmpfs")
	third.PV, third.Directory = "pvc-3", "pvc-3"
	third.Origin = record.Origin{}
	_, err = r.Create(t.Context(), r.id, third)
	must(t, err)
	goOn <- true
	must(t, <-ended)
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(r.path, copyOf("tmpfs").Directory, "link"), &st))
	if st.Nlink != 2 {
		t.Errorf("%d links", st.Nlink)
	}
}

// A copy is limited before its first file, all of it is counted as its own, and no limit is left of
// one that died.
func TestCopyLimited(t *testing.T) {
	r, k := onXFS(t)
	write(t, filepath.Join(r.limitedDir(t, pv), "below", "file"), "data")
	limits := fmt.Sprint(k.limits)
	s := limitedSpec(clone)
	s.Origin, s.Unpublished, s.Requested, s.Quota = record.Origin{Name: pv, UID: spec(pv).ClaimUID}, true, 2<<30, 2<<30
	for n := 1; ; n++ {
		step := 0
		r.atCrashPoint = func(name string) {
			if name == "record durable" && len(k.limits) != 2 {
				t.Errorf("limits %v before the first file", k.limits)
			}
			own := quota.Limit{Bytes: 2 << 30, Inodes: 2002}
			got := k.limits[first+1]
			more := got.Bytes >= own.Bytes+4<<20 && got.Inodes >= own.Inodes+64
			if name == "copied" && !more || name == "copy durable" && got != own {
				t.Errorf("%s: the limit is %+v", name, got)
			}
			if step++; step == n {
				panic(crash{name})
			}
		}
		died := dies(func() { must(t, second(r.Create(t.Context(), r.id, s))) })
		r = withQuotas(t, r.path, &BegunProjects{}, k)
		if died == "" {
			break
		}
		must(t, second(r.Sweep(t.Context(), r.id)))
		if rec, err := r.Lookup(t.Context(), r.id, clone); err == nil && rec.Place != record.Emptying {
			must(t, r.Undo(t.Context(), r.id, clone))
		}
		r.purgeAll(t)
		if got := fmt.Sprint(k.limits); got != limits {
			t.Errorf("died at %q: limits %s, want %s", died, got, limits)
		}
	}
	rec := r.lookup(t, clone)
	if l := k.limits[rec.ProjectID]; l.Bytes != 2<<30 || rec.ProjectID == r.lookup(t, pv).ProjectID {
		t.Errorf("limit %+v of %+v", l, rec)
	}
	for _, name := range []string{".", "below", "below/file"} {
		fd, err := unix.Open(filepath.Join(r.path, rec.Directory, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		if p := quota.ProjectOf(fd); p.ID != rec.ProjectID {
			t.Errorf("%s has project %d, want %d", name, p.ID, rec.ProjectID)
		}
		unix.Close(fd)
	}
}

// What a paused copy keeps of earlier passes counts to its limit: that has room for all of it,
// until it is whole.
func TestPausedCopyLimited(t *testing.T) {
	r, k := onXFS(t)
	write(t, filepath.Join(r.limitedDir(t, pv), "below", "file"), "data")
	s := limitedSpec(clone)
	s.Origin, s.Unpublished = record.Origin{Name: pv, UID: spec(pv).ClaimUID}, true
	s.Pause = func(ctx context.Context) (context.Context, func() error, error) {
		return ctx, func() error { return nil }, nil
	}
	own := quota.Limit{Bytes: 1 << 30, Inodes: 1002}
	steps := 0
	r.atCrashPoint = func(name string) {
		got := k.limits[first+1]
		if name == "copied for the most part" || name == "copied in the pause" {
			if steps++; got.Bytes <= 2*own.Bytes || got.Inodes <= 2*own.Inodes {
				t.Errorf("%s: the limit is %+v", name, got)
			}
		}
		if name == "copy durable" && got != own {
			t.Errorf("%s: the limit is %+v", name, got)
		}
	}
	must(t, second(r.Create(t.Context(), r.id, s)))
	if steps != 2 {
		t.Errorf("%d passes", steps)
	}
}

func (r *rig) limitedDir(t testing.TB, pv string) string {
	t.Helper()
	return filepath.Join(r.path, r.limited(t, pv).Directory)
}

// dies returns the step after which a call died, "" if it did not.
func dies(call func()) (step string) {
	defer func() {
		if c, is := recover().(crash); is {
			step = c.step
		}
	}()
	call()
	return ""
}
