package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// kernel has the limits that this machine's kernel does not enforce. What projects are used it
// counts on the disk, where they are real.
type kernel struct {
	mu     sync.Mutex
	path   string
	limits map[uint32]quota.Limit
	fails  error
	refuse uint32 // a project whose limit may not be set (package mountpoint refuses those that are out of the range)
}

func (k *kernel) Get(_ int, id uint32) (quota.Usage, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := quota.Usage{ID: id, Limit: k.limits[id]}
	err := eachDirectory(k.path, func(_ string, p quota.Project) {
		if p.ID == id {
			u.Inodes++
		}
	})
	return u, errors.Join(err, k.fails)
}

func (k *kernel) Set(_ int, id uint32, l quota.Limit) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id == k.refuse && id != 0 {
		return errors.New("out of the range")
	}
	if k.limits[id] = l; l == (quota.Limit{}) {
		delete(k.limits, id)
	}
	return k.fails
}

// From returns what the disk and the limits have, two at a time.
func (k *kernel) From(_ int, from uint32) (some []quota.Usage, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[uint32]quota.Usage{}
	for id, l := range k.limits {
		all[id] = quota.Usage{ID: id, Limit: l}
	}
	err = eachDirectory(k.path, func(_ string, p quota.Project) {
		u := all[p.ID]
		u.ID = p.ID
		u.Inodes++
		all[p.ID] = u
	})
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if id >= from && len(some) < 2 {
			some = append(some, all[id])
		}
	}
	return some, errors.Join(err, k.fails)
}

func eachDirectory(top string, do func(path string, p quota.Project)) error {
	return filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.IsDir() {
			return err
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil
		}
		defer unix.Close(fd)
		do(path, quota.ProjectOf(fd))
		return nil
	})
}

// first and last are the range of the pools of these tests.
const first, last = 1213202432, 1213202435

// withQuotas is a pool with project quotas in a directory of an xfs.
func withQuotas(t testing.TB, dir string, begun *BegunProjects, k *kernel) *rig {
	t.Helper()
	q := &ProjectQuotas{Kernel: k, First: first, Last: last, InodesPerGiB: 1000, Begun: begun}
	r := &rig{Pool: New(Options{Name: "fast", Path: dir}), path: dir, id: pool.Identity(t, dir)}
	r.SetQuotas(q)
	must(t, r.InitMarker(t.Context(), r.id, marker))
	return r
}

func onXFS(t testing.TB) (*rig, *kernel) {
	dir := mounted(t, "xfs", 320)
	k := &kernel{path: dir, limits: map[uint32]quota.Limit{}}
	return withQuotas(t, dir, &BegunProjects{}, k), k
}

func limitedSpec(pv string) Spec {
	s := spec(pv)
	s.Quota, s.Project = s.Requested, true
	return s
}

func (r *rig) limited(t testing.TB, pv string) record.Record {
	t.Helper()
	_, err := r.Create(t.Context(), r.id, limitedSpec(pv))
	must(t, err)
	return r.lookup(t, pv)
}

func (r *rig) lookup(t testing.TB, pv string) record.Record {
	t.Helper()
	got, err := r.Lookup(t.Context(), r.id, pv)
	must(t, err)
	return got
}

func (k *kernel) limited() []uint32 { return slices.Sorted(maps.Keys(k.limits)) }

// A volume has the lowest project that is free, in its record and on its directory, and its limit
// before it is seen. What is removed frees its project; what is put aside keeps it.
func TestProjectOfVolume(t *testing.T) {
	r, k := onXFS(t)
	died, _ := stopAt(r, "renamed", func() error { _, err := r.Create(t.Context(), r.id, limitedSpec(pv)); return err })
	got := r.lookup(t, pv)
	if want := (quota.Limit{Bytes: 1 << 30, Inodes: 1002}); died == "" || got.ProjectID != first || k.limits[first] != want {
		t.Errorf("%s: project %d, limits %v, want %v of %d", died, got.ProjectID, k.limits, want, first)
	}
	if p := projectAt(t, filepath.Join(r.path, got.Directory)); p != (quota.Project{ID: first, Inherits: true}) {
		t.Errorf("the directory has %+v", p)
	}
	if got := r.limited(t, "pvc-2").ProjectID; got != first+1 {
		t.Errorf("the second has %d", got)
	}
	for _, aside := range []func(context.Context, *rig) error{
		func(ctx context.Context, r *rig) error { return r.Retain(ctx, r.id, pv) },
		func(ctx context.Context, r *rig) error { return r.Trash(ctx, r.id, pv) },
		func(ctx context.Context, r *rig) error { return r.PutBack(ctx, r.id, pv) },
		func(ctx context.Context, r *rig) error { return r.Archive(ctx, r.id, pv) },
	} {
		must(t, aside(t.Context(), r))
		if !slices.Equal(k.limited(), []uint32{first, first + 1}) {
			t.Errorf("limited are %v", k.limited())
		}
	}
	again := withQuotas(t, r.path, &BegunProjects{}, k) // another process
	if got := again.limited(t, "pvc-3").ProjectID; got != first+2 {
		t.Errorf("the third has %d: the first is archived", got)
	}
	must(t, again.Trash(t.Context(), r.id, "pvc-2"))
	_, err := again.Purge(t.Context(), r.id, "pvc-2")
	must(t, err)
	must(t, again.Undo(t.Context(), r.id, "pvc-3"))
	if got := again.limited(t, "pvc-4").ProjectID; got != first+1 || !slices.Equal(k.limited(), []uint32{first, first + 1}) {
		t.Errorf("the fourth has %d, limited are %v", got, k.limited())
	}
}

// Projects that something else uses, limits or names are left alone, and a range that is used up is
// an error.
func TestForeignProjects(t *testing.T) {
	r, k := onXFS(t)
	must(t, unix.Mkdir(r.path+"/theirs", 0o700))
	giveProject(t, r.path+"/theirs", quota.Project{ID: first})
	k.limits[first+1] = quota.Limit{Inodes: 5}
	r.quotas.Load().Named = func() map[uint32]bool { return map[uint32]bool{first + 2: true} }
	if got := r.limited(t, pv).ProjectID; got != first+3 {
		t.Errorf("it has %d", got)
	}
	if _, err := r.Create(t.Context(), r.id, limitedSpec("pvc-2")); !errors.Is(err, ErrNoProject) || !strings.Contains(err.Error(), "of 1213202432 to 1213202435 volumes have 1, and other files, limits or names the rest") {
		t.Errorf("got %v, want ErrNoProject", err)
	}
	if k.limits[first+1] != (quota.Limit{Inodes: 5}) || len(k.limits) != 2 {
		t.Errorf("limits are %v", k.limits)
	}
	if inventory, err := r.List(t.Context(), r.id); err != nil || len(inventory.Volumes) != 1 || len(inventory.Leftovers) > 0 {
		t.Errorf("%v, %+v", err, inventory)
	}
}

// Many at once, in two pools of one filesystem, have a project each.
func TestProjectsAtOnce(t *testing.T) {
	dir := mounted(t, "xfs", 320)
	k, begun := &kernel{path: dir, limits: map[uint32]quota.Limit{}}, &BegunProjects{}
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[uint32]string{}
	for _, name := range []string{"a", "b"} {
		must(t, unix.Mkdir(dir+"/"+name, 0o700))
		r := withQuotas(t, dir+"/"+name, begun, k)
		r.quotas.Load().Last = first + 100
		for i := range 16 {
			all.Go(func() {
				pv := fmt.Sprintf("%s-%d", name, i)
				_, err := r.Create(t.Context(), r.id, limitedSpec(pv))
				got, lookErr := r.Lookup(t.Context(), r.id, pv)
				mu.Lock()
				defer mu.Unlock()
				if other := seen[got.ProjectID]; err != nil || lookErr != nil || other != "" || got.ProjectID == 0 {
					t.Errorf("%s: %v, %v: project %d, which %q has", pv, err, lookErr, got.ProjectID, other)
				}
				seen[got.ProjectID] = pv
			})
		}
	}
	all.Wait()
	if len(k.limits) != 32 {
		t.Errorf("%d limits", len(k.limits))
	}
}

// A volume whose limit cannot be set is not made, and leaves nothing.
func TestLimitFails(t *testing.T) {
	r, k := onXFS(t)
	r.limited(t, "pvc-0")
	k.fails = unix.ESRCH
	if _, err := r.Create(t.Context(), r.id, limitedSpec(pv)); !errors.Is(err, unix.ESRCH) {
		t.Errorf("got %v", err)
	}
	k.fails = nil
	_, err := r.Lookup(t.Context(), r.id, pv)
	if there, _ := exists(unix.AT_FDCWD, filepath.Join(r.path, spec(pv).Directory)); there || !errors.Is(err, ErrNotRecorded) || len(k.limits) != 1 {
		t.Errorf("%v, %t, %v", err, there, k.limits)
	}
}

// TestProjectCrash lets every call die after each of its steps. Another process makes another
// volume, sweeps, and does the call again or gives the volume up: the volumes that are left have a
// project each, with a limit, and nothing else has one.
func TestProjectCrash(t *testing.T) {
	create := func(r *rig) error { _, err := r.Create(context.Background(), r.id, limitedSpec(pv)); return err }
	trash := func(r *rig) error {
		return errors.Join(create(r), r.Trash(context.Background(), r.id, pv), r.Discard(context.Background(), r.id, pv))
	}
	purge := func(r *rig) error { _, err := r.Pool.Purge(context.Background(), r.id, pv); return err }
	undo := func(r *rig) error { return r.Undo(context.Background(), r.id, pv) }
	none := func(*rig) error { return nil }
	dir := mounted(t, "xfs", 320)
	for _, op := range []struct {
		name                string
		before, dies, after func(*rig) error
		left                int
	}{
		{"create", none, create, create, 2},
		{"create, given up", none, create, undo, 1},
		{"undo", create, undo, undo, 1},
		{"purge", trash, purge, purge, 1},
	} {
		for n := 1; ; n++ {
			path := filepath.Join(dir, fmt.Sprint(strings.ReplaceAll(op.name, " ", "-"), n))
			must(t, unix.Mkdir(path, 0o700))
			k := &kernel{path: path, limits: map[uint32]quota.Limit{}}
			r := withQuotas(t, path, &BegunProjects{}, k)
			must(t, op.before(r))
			died, err := stopAt(r, fmt.Sprint("#", n), func() error { return op.dies(r) })
			if died == "" {
				if must(t, err); n < 3 {
					t.Errorf("%s has %d steps", op.name, n-1)
				}
				break
			}
			again := withQuotas(t, path, &BegunProjects{}, k)
			again.limited(t, "pvc-other")
			_, err = again.Sweep(t.Context(), again.id)
			must(t, err)
			must(t, op.after(again))
			eachHasItsLimit(t, op.name+" died after "+died, again, k, op.left)
		}
	}
}

func eachHasItsLimit(t *testing.T, when string, r *rig, k *kernel, want int) {
	t.Helper()
	inventory, err := r.List(t.Context(), r.id)
	must(t, err)
	var has []uint32
	for _, v := range inventory.Volumes {
		has = append(has, v.ProjectID)
		if p := projectAt(t, filepath.Join(r.path, v.Directory)); p != (quota.Project{ID: v.ProjectID, Inherits: true}) {
			t.Errorf("%s: %s has %d in its record and %+v on the disk", when, v.PV, v.ProjectID, p)
		}
	}
	slices.Sort(has)
	if len(has) != want || !slices.Equal(has, k.limited()) || len(slices.Compact(slices.Clone(has))) != want || len(inventory.Leftovers) > 0 {
		t.Errorf("%s: %d volumes with projects %v, want %d; limited are %v; left over %v", when, len(has), has, want, k.limited(), inventory.Leftovers)
	}
}

// A record whose directory is gone names a project that another pool of the filesystem has given
// away since, because the limit was cleared and the call died: that pool's volume keeps its limit.
func TestProjectGivenAway(t *testing.T) {
	dir := mounted(t, "xfs", 320)
	k := &kernel{path: dir, limits: map[uint32]quota.Limit{}}
	must(t, unix.Mkdir(dir+"/a", 0o700))
	must(t, unix.Mkdir(dir+"/b", 0o700))
	a := withQuotas(t, dir+"/a", &BegunProjects{}, k)
	a.limited(t, pv)
	if died, err := stopAt(a, "limit cleared", func() error { return a.Undo(t.Context(), a.id, pv) }); died == "" {
		t.Fatalf("it did not die: %v", err)
	}
	b := withQuotas(t, dir+"/b", &BegunProjects{}, k)
	if got := b.limited(t, "pvc-other").ProjectID; got != first {
		t.Fatalf("the other pool's volume has project %d", got)
	}
	again := withQuotas(t, dir+"/a", &BegunProjects{}, k)
	if must(t, again.Undo(t.Context(), a.id, pv)); !slices.Equal(k.limited(), []uint32{first}) {
		t.Errorf("limited are %v", k.limited())
	}
}

// A volume with a project that is resized has its limit raised, whatever project its owner has
// given the directory since.
func TestResizeOfProject(t *testing.T) {
	r, k := onXFS(t)
	dir := filepath.Join(r.path, r.limited(t, pv).Directory)
	giveProject(t, dir, quota.Project{})
	must(t, r.Resize(t.Context(), r.id, pv, 3<<30))
	if got := r.lookup(t, pv); got.Requested != 3<<30 || k.limits[first] != (quota.Limit{Bytes: 3 << 30, Inodes: 3002}) || len(k.limits) != 1 {
		t.Errorf("%d bytes are recorded, limits are %v", got.Requested, k.limits)
	}
}

// A reload gives the pool another range, below the one before: volumes get projects of it, and one
// that has a project of the earlier range can be removed, though its limit may not be changed any
// more.
func TestAnotherRange(t *testing.T) {
	r, k := onXFS(t)
	r.limited(t, pv)
	r.limited(t, "pvc-2")
	another := *r.quotas.Load()
	another.First, another.Last, k.refuse = 100, 101, first
	r.SetQuotas(&another)
	if got := r.limited(t, "pvc-3").ProjectID; got != 100 {
		t.Errorf("it has %d", got)
	}
	must(t, r.Trash(t.Context(), r.id, pv))
	must(t, r.Discard(t.Context(), r.id, pv))
	_, err := r.Pool.Purge(t.Context(), r.id, pv)
	must(t, err)
	if _, err := r.Lookup(t.Context(), r.id, pv); !errors.Is(err, ErrNotRecorded) || !slices.Equal(k.limited(), []uint32{100, first, first + 1}) {
		t.Errorf("%v, limited are %v", err, k.limited())
	}
}

// crowded has this many projects from the first on that something else uses, and counts the
// requests.
type crowded struct {
	*kernel
	used, requests uint32
}

func (k *crowded) Get(root int, id uint32) (quota.Usage, error) {
	if k.requests++; id < first+k.used {
		return quota.Usage{ID: id, Inodes: 1}, nil
	}
	return k.kernel.Get(root, id)
}

func (k *crowded) From(_ int, from uint32) (some []quota.Usage, _ error) {
	k.requests++
	for id := from; id < min(first+k.used, from+256); id++ {
		some = append(some, quota.Usage{ID: id, Inodes: 1})
	}
	return some, nil
}

// The owner of a volume has given its files nearly all projects of the range: one volume more takes
// some hundred requests, and not one for each of them.
func TestCrowdedProjects(t *testing.T) {
	r, k := onXFS(t)
	many := *r.quotas.Load()
	full := &crowded{kernel: k, used: 60_000}
	many.Kernel, many.Last = full, first+65_535
	r.SetQuotas(&many)
	if got := r.limited(t, pv).ProjectID; got != first+60_000 || full.requests > 500 {
		t.Errorf("it has %d, after %d requests", got, full.requests)
	}
	full.requests = 0
	if r.limited(t, "pvc-2"); full.requests > 2 {
		t.Errorf("the second took %d requests", full.requests)
	}
}

// beside lets another process work after the first look at a project that is free.
type beside struct {
	*kernel
	other func()
}

func (k *beside) Get(root int, id uint32) (quota.Usage, error) {
	u, err := k.kernel.Get(root, id)
	if other := k.other; other != nil && u.Free() {
		k.other = nil
		other()
	}
	return u, err
}

// Two daemons of a host with a pool each on one filesystem see at the same time that a project is
// free. The volumes have different ones, and what one of them leaves when it dies takes no limit
// from the other's.
func TestProjectOfTwoProcesses(t *testing.T) {
	dir := mounted(t, "xfs", 320)
	k := &kernel{path: dir, limits: map[uint32]quota.Limit{}}
	must(t, unix.Mkdir(dir+"/a", 0o700))
	must(t, unix.Mkdir(dir+"/b", 0o700))
	for n, stop := range []string{"", "project set"} {
		a, b := withQuotas(t, dir+"/a", &BegunProjects{}, k), withQuotas(t, dir+"/b", &BegunProjects{}, k)
		mine, theirs := fmt.Sprint("pvc-a", n), fmt.Sprint("pvc-b", n)
		both := *a.quotas.Load()
		both.Kernel = &beside{k, func() { b.limited(t, theirs) }}
		a.SetQuotas(&both)
		_, err := stopAt(a, stop, func() error { _, err := a.Create(t.Context(), a.id, limitedSpec(mine)); return err })
		must(t, err)
		again := withQuotas(t, dir+"/a", &BegunProjects{}, k)
		_, err = again.Sweep(t.Context(), again.id)
		must(t, err)
		got, other := again.limited(t, mine).ProjectID, b.lookup(t, theirs).ProjectID
		if got == other || k.limits[got] == (quota.Limit{}) || k.limits[other] == (quota.Limit{}) || len(k.limits) != 2*n+2 {
			t.Errorf("%q: they have %d and %d, limits are %v", stop, got, other, k.limits)
		}
	}
}
