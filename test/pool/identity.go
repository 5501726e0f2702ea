package pool

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Identity returns the identity of a directory, as a check of a pool finds it.
func Identity(t testing.TB, dir string) mounts.Identity {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	id, err := mounts.IdentityOf(fd)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
