package volume

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// projectAt is the project of a directory.
func projectAt(t *testing.T, dir string) quota.Project {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	return quota.ProjectOf(fd)
}

// giveProject sets the project of all directories of a tree, as `xfs_quota -c "project -s"` does.
func giveProject(t *testing.T, top string, p quota.Project) {
	t.Helper()
	must(t, filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return quota.SetProject(fd, p)
	}))
}

var pools, own = quota.Project{ID: 42, Inherits: true}, quota.Project{ID: 7, Inherits: true}

// projects are the ways to give a pool a project, from a pool that is prepared to one that is not.
var projects = []struct {
	name  string
	give  func(t *testing.T, r *rig)
	wants quota.Project // of a volume that is made then
}{
	{"none", func(t *testing.T, r *rig) { prepared(t, r) }, quota.Project{}},
	{"the pool alone", func(t *testing.T, r *rig) {
		prepared(t, r)
		fd, err := unix.Open(r.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		defer unix.Close(fd)
		must(t, quota.SetProject(fd, pools))
	}, pools},
	{"the pool before prepare", func(t *testing.T, r *rig) { giveProject(t, r.path, pools); prepared(t, r) }, pools},
	{"the pool and all in it", func(t *testing.T, r *rig) { prepared(t, r); giveProject(t, r.path, pools) }, pools},
	{"our own directories alone", func(t *testing.T, r *rig) { prepared(t, r); giveProject(t, r.meta(), pools) }, quota.Project{}},
}

// Whatever projects an administrator, or the volume's owner, has set: a volume is made with the
// project that the pool hands down, and it is removed, archived and put back with the one that it
// has then.
func TestProjects(t *testing.T) {
	for _, has := range projects {
		for _, volumes := range []quota.Project{{}, own, pools} {
			t.Run(has.name+"/"+string(rune('0'+volumes.ID%10)), func(t *testing.T) {
				dir := mounted(t, "xfs", 320)
				r := &rig{Pool: New(Options{Name: "fast", Path: dir}), path: dir, id: pool.Identity(t, dir)}
				has.give(t, r)
				dir = r.create(t, pv)
				if got := projectAt(t, dir); got != has.wants {
					t.Errorf("made with %+v, want %+v", got, has.wants)
				}
				write(t, filepath.Join(dir, "sub", "file"), "data")
				giveProject(t, dir, volumes)
				keeps := func(when, dir string) {
					t.Helper()
					if got := projectAt(t, dir); got != volumes {
						t.Errorf("%s: %+v, want %+v", when, got, volumes)
					}
				}
				must(t, r.Trash(t.Context(), r.id, pv))
				keeps("in the trash", r.meta("trash", pv))
				must(t, r.PutBack(t.Context(), r.id, pv))
				keeps("put back", dir)
				must(t, r.Trash(t.Context(), r.id, pv))
				must(t, second(r.Purge(t.Context(), r.id, pv)))

				dir = r.create(t, pv)
				giveProject(t, dir, volumes)
				must(t, r.Archive(t.Context(), r.id, pv))
				keeps("archived", r.meta("archive", pv))
				must(t, r.PutBack(t.Context(), r.id, pv))
				keeps("put back from the archive", dir)
				must(t, r.Archive(t.Context(), r.id, pv))

				r.create(t, "pvc-undone")
				must(t, r.Retain(t.Context(), r.id, "pvc-undone"))
				r.create(t, "pvc-empty")
				must(t, r.Undo(t.Context(), r.id, "pvc-empty"))
				must(t, second(r.Sweep(t.Context(), r.id)))
			})
		}
	}
}

// The owner of a volume's directory may give each one in it a project of its own. What lies too
// deep is moved up nevertheless.
func TestPurgeOfManyProjects(t *testing.T) {
	r := onDisk(t, mounted(t, "xfs", 320))
	prepared(t, r)
	dir := r.create(t, pv)
	deep(t, dir, 400)
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for id := uint32(1000); err == nil; id++ {
		must(t, quota.SetProject(at, quota.Project{ID: id, Inherits: true}))
		entries, readErr := names(at)
		must(t, readErr)
		next := -1
		for _, name := range entries {
			if fd, openErr := openDir(at, name); openErr == nil && name != "." && name != ".." {
				next = fd
			}
		}
		unix.Close(at)
		if at = next; next < 0 {
			break
		}
	}
	must(t, err)
	must(t, r.Trash(t.Context(), r.id, pv))
	moved := false
	_, err = r.Purge(&between{t.Context(), func() {
		up, _ := filepath.Glob(r.meta("trash", pv+emptyingSuffix, ".moved-up-*"))
		moved = moved || len(up) > 0
	}}, r.id, pv)
	must(t, err)
	if _, err := os.Stat(r.meta("trash", pv+emptyingSuffix)); !os.IsNotExist(err) || !moved {
		t.Errorf("something is left: %v; moved up: %t", err, moved)
	}
}
