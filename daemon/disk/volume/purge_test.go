package volume

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// hostile are what a pod that owns its volume can leave in it.
var hostile = []struct {
	name string
	make func(t testing.TB, dir, outside string)
}{
	{"links", func(t testing.TB, dir, outside string) {
		must(t, errors.Join(os.Symlink(outside, dir+"/out"), os.Symlink("/", dir+"/root"), os.Symlink("..", dir+"/up"),
			os.Symlink("loop", dir+"/loop"), os.Symlink(filepath.Join(outside, "file"), dir+"/file"), os.Symlink("/proc/self/fd/1", dir+"/magic")))
		if err := os.Link(filepath.Join(outside, "file"), dir+"/hard"); err != nil && !errors.Is(err, unix.EXDEV) {
			t.Fatal(err)
		}
	}},
	{"special files", func(t testing.TB, dir, _ string) {
		must(t, errors.Join(unix.Mkfifo(dir+"/fifo", 0o600), unix.Mknod(dir+"/socket", unix.S_IFSOCK|0o600, 0),
			unix.Mknod(dir+"/null", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))), unix.Mknod(dir+"/block", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 99)))))
	}},
	{"names", func(t testing.TB, dir, _ string) {
		for _, name := range []string{strings.Repeat("n", 255), "\xff\xfe", "new\nline", " ", "-rf", "*", "\x1b[2J", ".moved-up-1", "..."} {
			write(t, filepath.Join(dir, name, name), "x")
		}
	}},
	{"flags", func(t testing.TB, dir, _ string) {
		write(t, dir+"/immutable", "x")
		write(t, dir+"/append", "x")
		write(t, dir+"/d/below", "x")
		write(t, dir+"/e/below", "x")
		write(t, dir+"/f/g/below", "x")
		chattr(t, "+i", dir+"/immutable", dir+"/d", dir+"/f/g/below", dir+"/f/g", dir+"/f")
		chattr(t, "+a", dir+"/append", dir+"/e")
		chattr(t, "+i", dir)
	}},
	{"modes", func(t testing.TB, dir, _ string) {
		write(t, dir+"/d/file", "x")
		must(t, errors.Join(os.Chmod(dir+"/d/file", 0), os.Chmod(dir+"/d", 0), os.Chmod(dir, 0)))
	}},
	{"deep", func(t testing.TB, dir, _ string) { deep(t, dir, 10_000) }},
	{"broad and deep", func(t testing.TB, dir, _ string) {
		for i := range 3 {
			must(t, os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o755))
			deep(t, filepath.Join(dir, strconv.Itoa(i)), 200)
		}
	}},
	{"many", func(t testing.TB, dir, _ string) {
		for i := range 3000 {
			must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
		}
	}},
}

func chattr(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("chattr", args...).CombinedOutput(); err != nil {
		t.Fatalf("chattr %q: %v\n%s", args, err, out)
	}
}

// deep makes so many levels, with a file in each hundredth.
func deep(t testing.TB, dir string, levels int) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for i := range levels {
		must(t, unix.Mkdirat(fd, "d", 0o755))
		below, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		if i%100 == 0 {
			must(t, unix.Mknodat(fd, "file", unix.S_IFREG|0o600, 0))
		}
		unix.Close(fd)
		fd = below
	}
	unix.Close(fd)
}

// Whatever is in a volume, purge removes it and nothing else, on every filesystem.
func TestPurgeHostile(t *testing.T) {
	for _, fs := range filesystems {
		t.Run(fs.name, func(t *testing.T) {
			r := onDisk(t, fs.dir(t))
			outside := filepath.Join(r.path, "outside")
			write(t, filepath.Join(outside, "file"), "not ours")
			before := contents(t, r.path)
			for _, h := range hostile {
				t.Run(h.name, func(t *testing.T) {
					dir := r.create(t, pv)
					h.make(t, dir, outside)
					must(t, r.Trash(t.Context(), r.id, pv))
					if h.name == "flags" {
						chattr(t, "+i", r.meta("trash", pv))
					}
					descriptorsBefore := descriptors(t)
					restore := fewDescriptors(t)
					purged, err := r.Purge(t.Context(), r.id, pv)
					restore()
					must(t, err)
					if after := contents(t, r.path); after != before || purged.Removed == 0 || descriptors(t) != descriptorsBefore {
						t.Errorf("%+v, left:\n%swas:\n%s", purged, after, before)
					}
				})
			}
		})
	}
}

// A file with another name outside the volume keeps that name, its text and its flags.
func TestPurgeOtherNames(t *testing.T) {
	r := onDisk(t, mounted(t, "ext4", 32))
	outside := filepath.Join(r.path, "outside")
	write(t, filepath.Join(outside, "immutable"), "not ours")
	write(t, filepath.Join(outside, "append"), "not ours")
	dir := r.create(t, pv)
	must(t, errors.Join(os.Link(filepath.Join(outside, "immutable"), dir+"/one"), os.Link(filepath.Join(outside, "append"), dir+"/two")))
	flagsOf := func() string {
		out, err := exec.Command("lsattr", outside).CombinedOutput()
		must(t, err)
		return string(out)
	}
	chattr(t, "+i", filepath.Join(outside, "immutable"))
	chattr(t, "+a", filepath.Join(outside, "append"))
	before := flagsOf()
	must(t, r.Trash(t.Context(), r.id, pv))
	_, err := r.Purge(t.Context(), r.id, pv)
	must(t, err)
	if after := flagsOf(); after != before || !strings.Contains(after, "i-") {
		t.Errorf("flags:\n%swere:\n%s", after, before)
	}
	if got := contents(t, outside); strings.Count(got, "not ours") != 2 {
		t.Error(got)
	}
}

// A tenant makes a directory append-only again and again while it is emptied, so that each link in
// it takes a second try. The link is removed as a link: what it points to is not opened, and keeps
// its flags and its time of change. Nothing would give a directory outside its flags back.
func TestPurgeLinksThatAreKept(t *testing.T) {
	r := onDisk(t, mounted(t, "ext4", 32))
	outside := filepath.Join(r.path, "outside")
	var targets []string
	for _, flag := range []string{"i", "a"} {
		kept := filepath.Join(outside, flag)
		write(t, filepath.Join(kept, "file"), "not ours")
		chattr(t, "+"+flag, filepath.Join(kept, "file"), kept)
		t.Cleanup(func() { chattr(t, "-"+flag, kept, filepath.Join(kept, "file")) })
		targets = append(targets, kept, filepath.Join(kept, "file"))
	}
	before := stats(t, targets)
	dir := r.create(t, pv)
	for i, target := range targets {
		relative := filepath.Join("..", "..", "..", strings.TrimPrefix(target, r.path)) // from trash/<pv>~
		must(t, errors.Join(os.Symlink(target, filepath.Join(dir, fmt.Sprint("absolute", i))), os.Symlink(relative, filepath.Join(dir, fmt.Sprint("relative", i)))))
	}
	must(t, r.purgeKept(t, dir))
	if after := stats(t, targets); after != before {
		t.Errorf("what the links point to was\n%sand is\n%s", before, after)
	}
}

// purgeKept purges the volume of a directory that is made append-only before each entry is removed
// from it.
func (r *rig) purgeKept(t *testing.T, dir string) error {
	t.Helper()
	held, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(held)
	must(t, r.Trash(t.Context(), r.id, pv))
	_, err = r.Purge(keepEntries(t, held), r.id, pv)
	return err
}

// keepEntries makes a directory append-only before each entry that purge removes from it.
func keepEntries(t *testing.T, held int) context.Context {
	return &between{t.Context(), func() {
		flags, err := unix.IoctlGetInt(held, unix.FS_IOC_GETFLAGS)
		must(t, errors.Join(err, unix.IoctlSetPointerInt(held, unix.FS_IOC_SETFLAGS, flags|unix.STATX_ATTR_APPEND)))
	}}
}

// The same for what is mounted in it: the mount is not entered, and its root keeps its flags.
func TestPurgeMountThatIsKept(t *testing.T) {
	r := onDisk(t, mounted(t, "ext4", 32))
	outside := filepath.Join(r.path, "outside")
	write(t, filepath.Join(outside, "file"), "not ours")
	chattr(t, "+a", outside)
	t.Cleanup(func() { chattr(t, "-a", outside) })
	before := stats(t, []string{outside})
	dir := r.create(t, pv)
	must(t, os.Mkdir(filepath.Join(dir, "mount"), 0o755))
	hosttest.Mount(t, "--bind", outside, filepath.Join(dir, "mount"))
	err := r.purgeKept(t, dir)
	if after := stats(t, []string{outside}); !errors.Is(err, ErrLeft) || after != before {
		t.Errorf("%v: what is mounted was\n%sand is\n%s", err, before, after)
	}
	hosttest.Unmount(t, r.meta("trash", pv+"~", "mount"))
}

// The same for what does something when it is opened, which is looked at and not opened.
func TestPurgeOpensNoDevice(t *testing.T) {
	r := onDisk(t, mounted(t, "ext4", 32))
	dir := r.create(t, pv)
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	defer unix.Close(watch)
	for name, mode := range map[string]uint32{"fifo": unix.S_IFIFO, "null": unix.S_IFCHR, "zero": unix.S_IFCHR} {
		must(t, unix.Mknod(filepath.Join(dir, name), mode|0o600, int(unix.Mkdev(1, 3))))
		_, err := unix.InotifyAddWatch(watch, filepath.Join(dir, name), unix.IN_OPEN)
		must(t, err)
	}
	must(t, r.purgeKept(t, dir))
	buffer, opened := make([]byte, 4096), 0
	for n, _ := unix.Read(watch, buffer); n > 0; n, _ = unix.Read(watch, buffer) {
		for at := 0; at < n; at += unix.SizeofInotifyEvent {
			if binary.NativeEndian.Uint32(buffer[at+4:])&unix.IN_OPEN != 0 {
				opened++
			}
		}
	}
	if opened > 0 {
		t.Errorf("%d times something was opened that is no file", opened)
	}
}

// between is a context that does something each time it is asked, which purge does before each
// entry.
type between struct {
	context.Context
	do func()
}

func (b *between) Err() error {
	b.do()
	return b.Context.Err()
}

// stats are the flags, the inode and the times of change of these files.
func stats(t testing.TB, paths []string) string {
	t.Helper()
	var all strings.Builder
	for _, path := range paths {
		flags, err := exec.Command("lsattr", "-d", path).CombinedOutput()
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		fmt.Fprintf(&all, "%d %d.%09d %s", st.Ino, st.Ctim.Sec, st.Ctim.Nsec, flags)
	}
	return all.String()
}

// fewDescriptors makes a purge whose descriptors grow with the depth of the tree fail.
func fewDescriptors(t *testing.T) (restore func()) {
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(descriptors(t)) + tree.Held + 16, Max: before.Max}))
	return func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }
}

// A mount inside is reported, what is in it stays, and the rest goes. Without it the next purge
// finishes.
func TestPurgeMountInside(t *testing.T) {
	r := onTmpfs(t)
	outside := hosttest.Dir(t)
	write(t, filepath.Join(outside, "file"), "not ours")
	dir := r.create(t, pv)
	write(t, filepath.Join(dir, "a", "gone"), "x")
	write(t, filepath.Join(dir, "b", "file"), "x")
	must(t, os.MkdirAll(filepath.Join(dir, "a", "mount"), 0o755))
	hosttest.Mount(t, "--bind", outside, filepath.Join(dir, "a", "mount"))
	hosttest.Mount(t, "--bind", filepath.Join(outside, "file"), filepath.Join(dir, "b", "file"))
	must(t, r.Trash(t.Context(), r.id, pv))
	purged, err := r.Purge(t.Context(), r.id, pv)
	want := `pool "fast": volume "pvc-1": not everything could be removed: 1 removed, 2 left: "pvc-1~/a/mount": something is mounted on it, "pvc-1~/b/file": something is mounted on it`
	if !errors.Is(err, ErrLeft) || purged.Left != 2 || sortedPaths(err) != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if got := contents(t, outside); !strings.Contains(got, "not ours") {
		t.Errorf("what was mounted was touched:\n%s", got)
	}
	if found, err := r.Lookup(t.Context(), r.id, pv); err != nil || found.Place != record.Emptying {
		t.Errorf("%v, %s", err, found.Place)
	}
	if inventory, err := r.List(t.Context(), r.id); err != nil || len(inventory.Leftovers) > 0 || inventory.Volumes[0].Place != record.Emptying {
		t.Errorf("%v, %+v", err, inventory)
	}
	hosttest.Unmount(t, r.meta("trash", pv+"~", "a", "mount"))
	hosttest.Unmount(t, r.meta("trash", pv+"~", "b", "file"))
	_, err = r.Purge(t.Context(), r.id, pv)
	must(t, err)
	if inventory, err := r.List(t.Context(), r.id); err != nil || len(inventory.Volumes)+len(inventory.Leftovers) > 0 {
		t.Errorf("%v, %+v", err, inventory)
	}
}

// sortedPaths: readdir's order differs between filesystems, the message is compared in one.
func sortedPaths(err error) string {
	if err == nil {
		return ""
	}
	head, tail, _ := strings.Cut(err.Error(), " left: ")
	parts := strings.Split(tail, `, "`)
	for i := range parts {
		parts[i] = strings.TrimPrefix(parts[i], `"`)
	}
	if len(parts) == 2 && parts[0] > parts[1] {
		parts[0], parts[1] = parts[1], parts[0]
	}
	return head + ` left: "` + strings.Join(parts, `, "`)
}

// Where no directory above has room for one more name, and the disk has none either, nothing can be
// moved up. The purge goes on downwards, with no more descriptors, and comes back.
func TestPurgeOfFullDirectories(t *testing.T) {
	r := onDisk(t, hosttest.PoolMount(t, hosttest.Mkfs(t, "ext4", 32, "-b", "1024", "-m", "0", "-O", "^dir_index,^metadata_csum")))
	outside := filepath.Join(r.path, "outside")
	write(t, outside, "not ours")
	at, err := unix.Open(r.create(t, pv), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range 200 {
		must(t, unix.Mkdirat(at, "d", 0o755))
		// With ".", ".." and "d", 12 bytes each, these names fill a block of 1,024 bytes (struct
		// ext4_dir_entry_2).
		for _, name := range []string{strings.Repeat("a", 255), strings.Repeat("b", 255), strings.Repeat("c", 255), strings.Repeat("d", 188)} {
			must(t, unix.Linkat(unix.AT_FDCWD, outside, at, name, 0))
		}
		below, err := openDir(at, "d")
		must(t, err)
		unix.Close(at)
		at = below
	}
	unix.Close(at)
	must(t, r.Trash(t.Context(), r.id, pv))
	fill(t, filepath.Join(r.path, "fill"))
	restore := fewDescriptors(t)
	purged, err := r.Purge(t.Context(), r.id, pv)
	restore()
	must(t, err)
	if purged.Removed != 200*5+1 {
		t.Errorf("%+v", purged)
	}
}

// A tree that is deeper than a walk goes is removed nevertheless, since what lies too deep is moved
// up.
func TestPurgeDeepest(t *testing.T) {
	r := onTmpfs(t)
	before := contents(t, r.path)
	deep(t, r.create(t, pv), tree.Deepest+tree.Held)
	must(t, r.Trash(t.Context(), r.id, pv))
	_, err := r.Purge(t.Context(), r.id, pv)
	must(t, err)
	if after := contents(t, r.path); after != before {
		t.Errorf("left:\n%.1000s", after)
	}
}
