package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// A power cut is played by FS_IOC_SHUTDOWN (linux/fs.h; xfs and ext4 have it), with the log written
// out at that moment, or not: both can happen, since the fsync of any process writes it out.
const (
	shutdown  = 0x8004587d // _IOR('X', 125, __u32)
	withLog   = 1          // FS_..._GOING_FLAGS_LOGFLUSH
	withNoLog = 2          // FS_..._GOING_FLAGS_NOLOGFLUSH
)

func cutPower(t *testing.T, dir string, how uint32) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), shutdown, uintptr(unsafe.Pointer(&how))); errno != 0 {
		t.Fatal(errno)
	}
}

// TestPowerCut cuts the power after each step of Create and right after it, both with the order
// that the filesystem keeps and with an fsync of each part. What is in the pool then has a whole
// record; what a call returned is there; and going on ends in the same tree as ever.
//
// Without makeDurable's writeOut it is red on both (a directory with an empty record), without the
// last fsync as well.
func TestPowerCut(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		for _, strict := range []bool{false, true} {
			for how, log := range map[uint32]string{withLog: "log", withNoLog: "no log"} {
				t.Run(fmt.Sprintf("%s/%s/strict %v", fstype, log, strict), func(t *testing.T) {
					image := hosttest.Mkfs(t, fstype, map[string]int{"ext4": 32, "xfs": 320}[fstype])
					path := hosttest.PoolMount(t, image)
					t.Cleanup(func() { hosttest.Unmount(t, path) })
					prepared(t, onDisk(t, path))
					for n := 1; ; n++ {
						r := restarted(&rig{path: path, id: pool.Identity(t, path)})
						r.ordered.id, r.ordered.yes = r.id, !strict
						name := fmt.Sprint("pvc-", n)
						died, err := stopAt(r, fmt.Sprint("#", n), func() error { _, err := r.Create(t.Context(), r.id, spec(name)); return err })
						must(t, err)
						cutPower(t, path, how)
						hosttest.Unmount(t, path)
						image.Mount(t, path)
						checkRecovered(t, restarted(&rig{path: path, id: pool.Identity(t, path)}), name, died)
						if died == "" {
							break
						}
					}
				})
			}
		}
	}
}

func checkRecovered(t *testing.T, r *rig, name, died string) {
	t.Helper()
	found, err := r.Lookup(t.Context(), r.id, name)
	there, _ := r.Exists(t.Context(), r.id, spec(name).Directory)
	if there && err != nil || died == "" && found.Place != record.InPool {
		t.Fatalf("power cut at %q: directory there: %v, record: %v, place %q", died, there, err, found.Place)
	}
	must(t, second(r.Sweep(t.Context(), r.id)))
	dir := r.create(t, name)
	inventory, err := r.List(t.Context(), r.id)
	if err != nil || len(inventory.Leftovers)+len(inventory.Damaged) > 0 {
		t.Fatalf("power cut at %q: %v, %+v", died, err, inventory)
	}
	if got := contents(t, dir); got != "\".\" drwxrwxrwx 1234:5678\n" {
		t.Fatalf("power cut at %q: %s", died, got)
	}
}

// A move that returned is not undone by a power cut.
func TestPowerCutRemoval(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		for name, want := range map[string]record.Place{"Trash": record.InTrash, "Archive": "", "Undo": "", "Trash PutBack": record.InPool} {
			image := hosttest.Mkfs(t, fstype, map[string]int{"ext4": 32, "xfs": 320}[fstype])
			path := hosttest.PoolMount(t, image)
			r := onDisk(t, path)
			r.create(t, pv)
			for _, call := range strings.Fields(name) {
				must(t, calls(r)[call]())
			}
			cutPower(t, path, withNoLog)
			hosttest.Unmount(t, path)
			image.Mount(t, path)
			r = restarted(&rig{path: path, id: pool.Identity(t, path)})
			found, err := r.Lookup(t.Context(), r.id, pv)
			there, _ := r.Exists(t.Context(), r.id, spec(pv).Directory)
			if there != (want == record.InPool) || found.Place != want || want == "" && !errors.Is(err, ErrNotRecorded) {
				t.Errorf("%s on %s: still there: %v, place %q, %v", name, fstype, there, found.Place, err)
			}
			hosttest.Unmount(t, path)
		}
	}
}

// Only what is known to keep the order is trusted to.
func TestKeepsOrder(t *testing.T) {
	for _, fs := range []struct {
		fstype string
		mib    int
		args   []string
		want   bool
	}{
		{"ext4", 32, nil, true}, {"ext4", 32, []string{"-O", "^has_journal"}, false}, {"ext2", 32, nil, false},
		{"ext3", 32, nil, true}, {"xfs", 320, nil, true}, {"btrfs", 160, nil, false},
	} {
		image := hosttest.Mkfs(t, fs.fstype, fs.mib, fs.args...)
		path := hosttest.PoolMount(t, image)
		r := &rig{path: path, id: pool.Identity(t, path)}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		if got := new(ordered).of(r.id, fd); got != fs.want {
			t.Errorf("%s %q: got %v, want %v", fs.fstype, fs.args, got, fs.want)
		}
		unix.Close(fd)
		hosttest.Unmount(t, path)
	}
}

// A full filesystem: Create says so, and leaves nothing; with room again it works.
func TestNoSpace(t *testing.T) {
	for inodes := 8; inodes <= 12; inodes++ { // tmpfs: root, ours (6 of them), and then some
		path := hosttest.Dir(t)
		hosttest.Mount(t, "-t", "tmpfs", "-o", fmt.Sprint("mode=0700,nr_inodes=", inodes), "tmpfs", path)
		fullUp(t, onDisk(t, path), func() { hosttest.Mount(t, "-o", "remount,nr_inodes=100", path) })
		hosttest.Unmount(t, path)
	}
	for _, fs := range filesystems[1:] {
		path := fs.dir(t)
		r := onDisk(t, path)
		ballast := filepath.Join(path, "ballast")
		fill(t, ballast)
		fullUp(t, r, func() { must(t, os.RemoveAll(ballast)) })
	}
}

// fullUp makes volumes until that fails, and compares the tree before and after the failure.
func fullUp(t *testing.T, r *rig, makeRoom func()) {
	t.Helper()
	for i := 0; i < 20_000; i++ {
		before := ""
		if i < 20 || i%500 == 0 {
			before = contents(t, r.meta())
		}
		_, err := r.Create(context.Background(), r.id, spec(pvName(i)))
		if err == nil {
			continue
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("got %v, want ENOSPC", err)
		}
		if after := contents(t, r.meta()); before != "" && after != before {
			t.Errorf("left:\n%swas:\n%s", after, before)
		}
		inventory, listErr := r.List(t.Context(), r.id)
		if listErr != nil || len(inventory.Volumes) != i || len(inventory.Leftovers)+len(inventory.Damaged) > 0 {
			t.Errorf("after %v: %v, %d volumes of %d, %v %v", err, listErr, len(inventory.Volumes), i, inventory.Leftovers, inventory.Damaged)
		}
		makeRoom()
		r.create(t, pvName(i))
		return
	}
	t.Error("the filesystem never got full")
}

// fill takes all space, in ever smaller pieces.
func fill(t *testing.T, dir string) {
	must(t, os.Mkdir(dir, 0o700))
	n := 0
	for size := 1 << 20; size >= 512; size /= 2 {
		for {
			n++
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), make([]byte, size), 0o600); err != nil {
				break
			}
		}
		unix.Sync()
	}
}
