package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// unlimited is a pool with project quotas that has a volume from before: with files, and with what
// can have no project.
func unlimited(t *testing.T) (r *rig, k *kernel, dir string) {
	t.Helper()
	r, k = onXFS(t)
	dir = r.create(t, pv)
	write(t, filepath.Join(dir, "sub", "deep", "file"), "data")
	write(t, filepath.Join(dir, "file"), "data")
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "sub", "link")))
	return r, k, dir
}

// A volume that has files gets a project, its files too, and then its limit. Doing it again changes
// nothing.
func TestApply(t *testing.T) {
	r, k, dir := unlimited(t)
	r.limited(t, "pvc-new")
	done, err := r.Apply(t.Context(), r.id, pv, nil)
	if must(t, err); done.Err() != nil || done.Seen != 7 || done.Changed != 5 || done.Special != 2 {
		t.Errorf("%+v", done)
	}
	if got := r.lookup(t, pv); got.ProjectID != last || k.limits[last] != (quota.Limit{Bytes: 1 << 30, Inodes: 1002}) {
		t.Errorf("project %d, limits %v", got.ProjectID, k.limits)
	}
	for path, want := range map[string]quota.Project{"": {ID: last, Inherits: true}, "sub/deep": {ID: last, Inherits: true}, "file": {ID: last}, "sub/deep/file": {ID: last}} {
		fd, err := unix.Open(filepath.Join(dir, path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		if got := quota.ProjectOf(fd); got != want {
			t.Errorf("%q has %+v", path, got)
		}
		unix.Close(fd)
	}
	again, err := r.Apply(t.Context(), r.id, pv, nil)
	if must(t, err); again.Changed != 0 || again.Seen != 7 {
		t.Errorf("again: %+v", again)
	}
	u, err := r.Usage(t.Context(), r.id)
	if must(t, err); len(u.Volumes) != 2 || u.Mixed {
		t.Errorf("what volumes take: %+v", u)
	}
}

// A file on which a program has a lease gets the project when the program has given it up.
func TestApplyLeased(t *testing.T) {
	r, _, dir := unlimited(t)
	asked := hosttest.Lease(t, filepath.Join(dir, "leased"))
	done, err := r.Apply(t.Context(), r.id, pv, nil)
	if must(t, err); done.Err() != nil || done.Changed != 6 || !asked() {
		t.Errorf("%+v", done)
	}
}

// One that dies after any step is done again, with the same project, and the volume can be removed
// in between.
func TestApplyCrash(t *testing.T) {
	for _, step := range []string{"record written", "record named", "walked", "quota set"} {
		r, k, _ := unlimited(t)
		apply := func() error { _, err := r.Apply(t.Context(), r.id, pv, nil); return err }
		if died, err := stopAt(r, step, apply); died == "" {
			t.Fatalf("%s: %v", step, err)
		}
		r = withQuotas(t, r.path, &BegunProjects{}, k)
		_, err := r.Sweep(t.Context(), r.id)
		must(t, err)
		_, err = r.Apply(t.Context(), r.id, pv, nil)
		if must(t, err); len(k.limits) != 1 || k.limits[last] == (quota.Limit{}) || r.lookup(t, pv).ProjectID != last {
			t.Errorf("after %s: limits %v, project %d", step, k.limits, r.lookup(t, pv).ProjectID)
		}
		must(t, r.Trash(t.Context(), r.id, pv))
		if _, err := r.Purge(t.Context(), r.id, pv); err != nil || len(k.limits) != 0 {
			t.Errorf("after %s: %v, limits %v", step, err, k.limits)
		}
	}
}

// What cannot be limited is refused, and a second process at the same time.
func TestApplyRefuses(t *testing.T) {
	r, k, _ := unlimited(t)
	refused := func(name, pv string, want error) {
		t.Helper()
		if _, err := r.Apply(t.Context(), r.id, pv, nil); !errors.Is(err, want) || len(k.limits) > 0 {
			t.Errorf("%s: %v, limits %v", name, err, k.limits)
		}
	}
	refused("not recorded", "pvc-none", ErrNotRecorded)
	staging, err := unix.Open(r.meta("staging"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Flock(staging, unix.LOCK_EX))
	refused("while another process does it", pv, ErrApplying)
	unix.Close(staging)
	adopted := spec("pvc-adopted")
	adopted.Requested = 0
	_, err = r.Create(t.Context(), r.id, adopted)
	must(t, err)
	refused("without a size", "pvc-adopted", ErrNoSize)
	quotas := r.quotas.Load()
	r.SetQuotas(nil)
	refused("without quotas", pv, ErrNoQuota)
	r.SetQuotas(quotas)
	must(t, r.Trash(t.Context(), r.id, pv))
	refused("in the trash", pv, ErrPlace)
}

// The daemon makes the volume larger while its files get the project: the limit is that of the
// larger one.
func TestApplyWhileGrowing(t *testing.T) {
	r, k, _ := unlimited(t)
	daemon := withQuotas(t, r.path, &BegunProjects{}, k)
	r.atCrashPoint = func(name string) {
		if name == "walked" {
			must(t, daemon.Resize(t.Context(), r.id, pv, 3<<30))
		}
	}
	_, err := r.Apply(t.Context(), r.id, pv, nil)
	must(t, err)
	if got := r.lookup(t, pv); got.Requested != 3<<30 || k.limits[got.ProjectID].Bytes != 3<<30 {
		t.Errorf("%d bytes are recorded, limits are %v", got.Requested, k.limits)
	}
}

// The daemon removes the volume while its files get the project, and gives the project to another
// volume: that keeps its limit.
func TestApplyWhileRemoved(t *testing.T) {
	r, k, _ := unlimited(t)
	daemon := withQuotas(t, r.path, &BegunProjects{}, k)
	daemon.quotas.Load().First = last // there is no other project
	r.atCrashPoint = func(name string) {
		if name != "walked" {
			return
		}
		must(t, daemon.Trash(t.Context(), r.id, pv))
		must(t, daemon.Discard(t.Context(), r.id, pv))
		_, err := daemon.Pool.Purge(t.Context(), r.id, pv)
		must(t, err)
		daemon.limited(t, "pvc-new")
	}
	if _, err := r.Apply(t.Context(), r.id, pv, nil); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("got %v", err)
	}
	if r.lookup(t, "pvc-new").ProjectID != last || k.limits[last].Bytes != 1<<30 {
		t.Errorf("limits are %v", k.limits)
	}
}
