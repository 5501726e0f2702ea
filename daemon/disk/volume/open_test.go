package volume

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// What is opened is the recorded directory in the pool that was checked, and nothing else.
func TestOpen(t *testing.T) {
	r := onTmpfs(t)
	r.create(t, pv)
	fd, rec, err := r.Open(t.Context(), r.id, pv)
	if err != nil || rec.Directory != "default-data-"+pv {
		t.Fatalf("%+v, %v", rec, err)
	}
	got, err := mounts.IdentityOf(fd)
	unix.Close(fd)
	if want := pool.Identity(t, r.path+"/"+rec.Directory); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if err := os.WriteFile(r.meta("volumes", "pvc-9.json"), []byte(`{"version": 2, "kind": "snapshot", "pv": "pvc-9", "directory": "default-data-`+pv+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"pvc-8": ErrNotRecorded, "pvc-9": ErrNotRecorded, "..": ErrNotRecorded, "a/b": ErrNotRecorded, "": ErrNotRecorded} {
		if fd, _, err := r.Open(t.Context(), r.id, name); fd != -1 || !errors.Is(err, want) {
			t.Errorf("%q: %d, %v, want %v", name, fd, err, want)
		}
	}
	if _, _, err := r.Open(t.Context(), mounts.Identity{}, pv); !errors.Is(err, ErrDirectoryReplaced) {
		t.Errorf("another pool: %v", err)
	}
	if err := errors.Join(os.Rename(r.path+"/"+rec.Directory, r.path+"/elsewhere"), os.Symlink("elsewhere", r.path+"/"+rec.Directory)); err != nil {
		t.Fatal(err)
	}
	if fd, _, err := r.Open(t.Context(), r.id, pv); fd != -1 || !errors.Is(err, ErrForeign) {
		t.Errorf("a link: %d, %v", fd, err)
	}
	if err := errors.Join(os.Remove(r.path+"/"+rec.Directory), os.Rename(r.path+"/elsewhere", r.path+"/"+rec.Directory), r.Trash(t.Context(), r.id, pv)); err != nil {
		t.Fatal(err)
	}
	if fd, _, err := r.Open(t.Context(), r.id, pv); fd != -1 || !errors.Is(err, ErrPlace) {
		t.Errorf("in the trash: %d, %v", fd, err)
	}
}
