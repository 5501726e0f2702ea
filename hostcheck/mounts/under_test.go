package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// under looks under a mount point and says what it sees: the identity's inode and the flag.
func under(t testing.TB, point string) (Identity, bool) {
	t.Helper()
	stack, parent, ok := At(table(t), point)
	if !ok {
		t.Fatalf("nothing is mounted at %s", point)
	}
	fd, err := Under(stack[0], parent)
	must(t, err)
	defer unix.Close(fd)
	id, err := IdentityOf(fd)
	must(t, err)
	immutable, err := Immutable(fd)
	must(t, err)
	return id, immutable
}

// Under every kind of mount there is the directory that was there before, with its flag; and the
// look leaves nothing behind that would keep the mount or its parent busy.
func TestUnder(t *testing.T) {
	kinds := map[string]func(t *testing.T, dir string){
		"ext4":  func(t *testing.T, dir string) { hosttest.Mkfs(t, "ext4", 16).Mount(t, dir) },
		"xfs":   func(t *testing.T, dir string) { hosttest.Mkfs(t, "xfs", 320).Mount(t, dir) },
		"btrfs": func(t *testing.T, dir string) { hosttest.Mkfs(t, "btrfs", 128).Mount(t, dir) },
		"tmpfs": func(t *testing.T, dir string) { tmpfs(t, dir) },
		"bind":  func(t *testing.T, dir string) { hosttest.Mount(t, "--bind", hosttest.Dir(t), dir) },
		"bind onto itself": func(t *testing.T, dir string) {
			hosttest.Mount(t, "--bind", dir, dir)
		},
		"read-only": func(t *testing.T, dir string) { hosttest.Mount(t, "-t", "tmpfs", "-o", "ro", "t", dir) },
		"stacked": func(t *testing.T, dir string) {
			tmpfs(t, dir)
			tmpfs(t, dir)
			hosttest.SetImmutable(t, dir, false) // of the upper one: not what counts
			tmpfs(t, dir)
		},
	}
	for _, parent := range []string{"tmpfs", "ext4", "xfs", "private", "slave"} {
		for kind, mount := range kinds {
			for _, immutable := range []bool{true, false} {
				name := parent + "/" + kind + "/" + map[bool]string{true: "immutable", false: "mutable"}[immutable]
				t.Run(name, func(t *testing.T) {
					base := parentFor(t, parent)
					dir := mkdir(t, base, "p")
					hosttest.SetImmutable(t, dir, immutable)
					want, err := IdentityOf(open(t, dir))
					must(t, err)
					mount(t, dir)
					got, flag := under(t, dir)
					if flag != immutable || got.Inode != want.Inode || got.DevMajor != want.DevMajor || got.DevMinor != want.DevMinor {
						t.Fatalf("under the mount: %+v immutable %v, want %+v %v", got, flag, want, immutable)
					}
				})
			}
		}
	}
}

func parentFor(t *testing.T, kind string) string {
	base := hosttest.Dir(t)
	switch kind {
	case "ext4":
		hosttest.Mkfs(t, "ext4", 16).Mount(t, base)
	case "xfs":
		hosttest.Mkfs(t, "xfs", 320).Mount(t, base)
	case "private", "slave":
		tmpfs(t, base)
		hosttest.Mount(t, "--make-"+kind, base)
	}
	return base
}

// A look under a mount must not wake those who watch the mounts: each look would cause the next.
func TestUnderIsQuiet(t *testing.T) {
	dir := mkdir(t, hosttest.Dir(t), "p")
	tmpfs(t, dir)
	fd, err := openTable()
	must(t, err)
	defer unix.Close(fd)
	before := table(t)
	for range 100 {
		under(t, dir)
	}
	if changed, err := pollTable(fd); err != nil || changed {
		t.Fatalf("the mount table changed: %v, %v", changed, err)
	}
	if after := table(t); len(after) != len(before) {
		t.Fatalf("%d mounts, then %d", len(before), len(after))
	}
}

// After the look, both the mount and its parent can be unmounted plainly, and no descriptor is
// left.
func TestUnderHoldsNothing(t *testing.T) {
	base := hosttest.Dir(t)
	tmpfs(t, base)
	dir := mkdir(t, base, "p")
	tmpfs(t, dir)
	before := openDescriptors(t)
	under(t, dir)
	if after := openDescriptors(t); after != before {
		t.Fatalf("%d descriptors, then %d", before, after)
	}
	hosttest.Unmount(t, dir)
	hosttest.Unmount(t, base)
}

func TestUnderRefuses(t *testing.T) {
	base := mkdir(t, hosttest.Dir(t), "base")
	dir := mkdir(t, base, "p")
	tmpfs(t, dir)
	stack, parent, _ := At(table(t), dir)
	m := stack[0]
	_, root, _ := At(table(t), "/proc")

	t.Run("root", func(t *testing.T) { refused(t, root, root, "does not stand on") })
	t.Run("not its parent", func(t *testing.T) { refused(t, m, root, "does not stand on") })
	t.Run("without capability", func(t *testing.T) {
		hosttest.Without(t, func() {
			if fd, err := Under(m, parent); !errors.Is(err, ErrNotPermitted) {
				t.Errorf("got %d, %v, want ErrNotPermitted", fd, err)
			}
		}, unix.CAP_SYS_ADMIN)
	})
	t.Run("hidden meanwhile", func(t *testing.T) {
		tmpfs(t, base)
		if fd, err := Under(m, parent); !errors.Is(err, ErrTableChanged) {
			t.Errorf("got %d, %v, want ErrTableChanged", fd, err)
		}
		hosttest.Unmount(t, base)
	})
	t.Run("gone", func(t *testing.T) {
		hosttest.Unmount(t, dir)
		must(t, os.Remove(dir))
		if fd, err := Under(m, parent); !errors.Is(err, unix.ENOENT) {
			t.Errorf("got %d, %v, want ENOENT", fd, err)
		}
	})
}

func refused(t *testing.T, m, parent Mount, want string) {
	t.Helper()
	if fd, err := Under(m, parent); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %d, %v", fd, err)
	}
}

// While another process mounts and unmounts there without pause, a look sees the bare directory or
// says that things moved; never the directory of the mount.
func TestUnderInAStorm(t *testing.T) {
	base := hosttest.Dir(t)
	dir := mkdir(t, base, "p")
	hosttest.SetImmutable(t, dir, true)
	var stop atomic.Bool
	var storm sync.WaitGroup
	storm.Go(func() {
		for !stop.Load() {
			_ = unix.Mount("t", dir, "tmpfs", 0, "")
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	seen, moved := 0, 0
	for range 2000 {
		stack, parent, ok := At(table(t), dir)
		if !ok {
			continue
		}
		fd, err := Under(stack[0], parent)
		if errors.Is(err, ErrTableChanged) {
			moved++
			continue
		}
		must(t, err)
		immutable, err := Immutable(fd)
		must(t, err)
		must(t, unix.Close(fd))
		if !immutable {
			t.Fatal("saw a directory that is not the bare one")
		}
		seen++
	}
	stop.Store(true)
	storm.Wait()
	t.Logf("seen %d, moved %d", seen, moved)
	if seen == 0 {
		t.Fatal("nothing was seen")
	}
}

func BenchmarkUnder(b *testing.B) {
	dir := filepath.Join(hosttest.Dir(b), "p")
	must(b, os.Mkdir(dir, 0o700))
	tmpfs(b, dir)
	stack, parent, _ := At(table(b), dir)
	for b.Loop() {
		fd, err := Under(stack[0], parent)
		must(b, err)
		must(b, unix.Close(fd))
	}
}
