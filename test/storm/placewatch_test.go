package main

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// A file that is there for a moment, in the bare directory under a mount, is seen; a quiet place
// has nothing to tell.
func TestWitnessSeesUnderAMount(t *testing.T) {
	dir := hosttest.Dir(t)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	bare := place{"bare", fd}
	for _, d := range pool.Directories {
		if err := os.MkdirAll(bare.path(hostcheck.PrivateDir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.Mkfs(t, "ext4", 16).Mount(t, dir)
	for _, write := range []bool{false, true} {
		w, err := watchPlaces(bare)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if write {
			name := bare.path(hostcheck.PrivateDir, "volumes", "x")
			if err := os.Mkdir(name, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
			want = []string{"created ours/volumes/x", "deleted ours/volumes/x"}
		}
		if got := w.close()["bare"]; !slices.Equal(got, want) {
			t.Errorf("seen %q, want %q", got, want)
		}
	}
}
