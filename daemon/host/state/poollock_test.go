package state

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestLockPool(t *testing.T) {
	dir := filepath.Join(hosttest.Dir(t), "run", "pools")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "OTHER.lock"), nil, 0o644)); err != nil {
		t.Fatal(err) // as an older version left it
	}
	defer syscall.Umask(syscall.Umask(0))
	first, err := LockPool(dir, "ID", "/var/lib/first")
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockPool(dir, "ID", "/var/lib/second")
	if want := fmt.Sprintf("another daemon (pid %d, state directory /var/lib/first) uses this pool", os.Getpid()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if !errors.As(err, new(*PoolHeldError)) || !first.Held() {
		t.Errorf("%T, held: %v", err, first.Held())
	}
	other, err := LockPool(dir, "OTHER", "/var/lib/second")
	if err != nil {
		t.Fatalf("another pool: %v", err)
	}
	other.Release()
	first.Release()
	second, err := LockPool(dir, "ID", "/x")
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	defer second.Release()
	// The longer text of the holder before is gone.
	want := fmt.Sprintf("drwxr-xr-x pools\n-rw------- pools/ID.lock\n{\"pid\":%d,\"stateDirectory\":\"/x\"}\n"+
		"-rw------- pools/OTHER.lock\n{\"pid\":%[1]d,\"stateDirectory\":\"/var/lib/second\"}\n", os.Getpid())
	if got := snapshot(t, filepath.Dir(dir)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A lock whose directory was removed is none: the next one would lock another file.
func TestPoolLockRemoved(t *testing.T) {
	dir := filepath.Join(hosttest.Dir(t), "pools")
	first, err := LockPool(dir, "ID", "/first")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if first.Held() {
		t.Error("held without a file")
	}
	second, err := LockPool(dir, "ID", "/second")
	if err != nil {
		t.Fatal(err)
	}
	if first.Held() || !second.Held() {
		t.Errorf("held: the first %v, the second %v", first.Held(), second.Held())
	}
	first.Release()
	if _, err := LockPool(dir, "ID", "/third"); !errors.As(err, new(*PoolHeldError)) {
		t.Errorf("after the first one's release: %v", err)
	}
	second.Release()
}

// The lock holds between mount namespaces, and ends with the process however that ends.
func TestPoolLockOfTheDead(t *testing.T) {
	dir := hosttest.Dir(t)
	kill := heldBy(t, filepath.Join(dir, "ID.lock"), "unshare", "--mount")
	if _, err := LockPool(dir, "ID", "/x"); err == nil || err.Error() != "another daemon uses this pool" {
		t.Errorf("held by one that has not signed: %v", err)
	}
	kill()
	lock, err := LockPool(dir, "ID", "/x")
	if err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	lock.Release()
}

// heldBy locks a file by another process, flock(1) after what is before it, until stop ends that
// process.
func heldBy(t *testing.T, file string, before ...string) (stop func()) {
	t.Helper()
	command := append(before, "flock", "--no-fork", file, "sh", "-c", "echo held; exec sleep 600")
	holder := exec.Command(command[0], command[1:]...)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { _, _ = holder.Process.Kill(), holder.Wait() })
	t.Cleanup(stop)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return stop
}
