package pool

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Identity is IdentityOf for a test.
func Identity(t testing.TB, dir string) mounts.Identity {
	t.Helper()
	id, err := IdentityOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// IdentityOf returns the identity of a directory, as a check of a pool finds it.
func IdentityOf(dir string) (id mounts.Identity, err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return id, err
	}
	defer unix.Close(fd)
	return mounts.IdentityOf(fd)
}
