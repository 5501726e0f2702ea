package treecopy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// sizes are those of the filesystems' images, in MiB.
var sizes = map[string]int{"xfs": 300, "btrfs": 256, "ext4": 256}

// on mounts a new filesystem.
func on(t testing.TB, fstype string, mkfs ...string) string {
	t.Helper()
	dir := hosttest.PoolMount(t, hosttest.Mkfs(t, fstype, sizes[fstype], mkfs...))
	t.Cleanup(func() { hosttest.Unmount(t, dir) })
	return dir
}

// each runs a test on all filesystems, in the mode that each is for.
func each(t *testing.T, run func(t *testing.T, dir string, o Options)) {
	for _, fstype := range []string{"xfs", "btrfs", "ext4"} {
		t.Run(fstype, func(t *testing.T) { run(t, on(t, fstype), Options{Full: fstype == "ext4"}) })
	}
}

func open(t testing.TB, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// copyTree copies dir/source to dir/copy, which it makes.
func copyTree(t testing.TB, dir string, o Options) (Copied, error) {
	t.Helper()
	must(t, os.Mkdir(filepath.Join(dir, "copy"), 0o700))
	from, to := open(t, filepath.Join(dir, "source")), open(t, filepath.Join(dir, "copy"))
	before := descriptors(t)
	done, err := Copy(t.Context(), from, to, o)
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, before %d", after, before)
	}
	return done, err
}

func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

// describe says everything of a tree, by path, but of what follows from when it was made.
func describe(t testing.TB, top string) map[string]string {
	t.Helper()
	all, first := map[string]string{}, map[[2]uint64]string{}
	must(t, filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		name := strings.TrimPrefix(path, top)
		text := fmt.Sprintf("%o %d:%d mtime %d.%09d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			text += fmt.Sprintf(" atime %d.%09d links %d size %d %s", st.Atim.Sec, st.Atim.Nsec, st.Nlink, st.Size, data(t, path))
			inode := [2]uint64{st.Dev, st.Ino}
			if was, linked := first[inode]; linked {
				text += " same as " + was
			}
			first[inode] = name
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			must(t, err)
			text += " to " + target
		}
		all[name] = text + attributesOf(t, path)
		return nil
	}))
	return all
}

// data is where a file's data is, and what.
func data(t testing.TB, path string) string {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	var text strings.Builder
	for at := int64(0); ; {
		from, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return text.String()
		}
		must(t, err)
		to, err := unix.Seek(fd, from, unix.SEEK_HOLE)
		must(t, err)
		piece := make([]byte, min(to-from, 1<<20))
		_, err = unix.Pread(fd, piece, from)
		must(t, err)
		fmt.Fprintf(&text, "[%d-%d %.16q]", from, to, bytes.TrimRight(piece, "\x00"))
		at = to
	}
}

func attributesOf(t testing.TB, path string) string {
	t.Helper()
	names, value := make([]byte, 64<<10), make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, names)
	must(t, err)
	var all []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "" || name == label {
			continue
		}
		n, err := unix.Lgetxattr(path, name, value)
		must(t, err)
		all = append(all, fmt.Sprintf(" %s=%q", name, value[:n]))
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for path, text := range want {
		if got[path] != text {
			t.Errorf("%.200q:\ngot  %.300s\nwant %.300s", path, got[path], text)
		}
	}
	for path := range maps.Keys(got) {
		if _, wanted := want[path]; !wanted {
			t.Errorf("%q is too much", path)
		}
	}
}

// acl is an access list as setfacl(1) would write it: user::rw- user:77:r-- group::r-- mask::rw-
// other::---.
const acl = "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x04\x00\x4d\x00\x00\x00\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x06\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff"

// netRaw is cap_net_raw=ep.
const netRaw = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// plenty makes everything that a copy has to keep.
func plenty(t testing.TB, dir string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string, mode uint32) {
		must(t, os.WriteFile(in(name), []byte(text), 0o600), unix.Chmod(in(name), mode))
	}
	must(t, os.MkdirAll(in("a/b/c"), 0o755), os.MkdirAll(in("z"), 0o755), unix.Mkdir(in("sticky"), 0), unix.Chmod(in("sticky"), 0o3777))
	write("empty", "", 0o644)
	write("a/file", strings.Repeat("text", 3000), 0o640)
	write("a/no right", "secret", 0)
	write("a/set-id", "#!", 0o6755)
	write("a/b/with acl", "acl", 0o640)
	write("-name\nof \xff\xfe bytes", "odd", 0o600)
	write(strings.Repeat("n", 255), "long", 0o600)
	must(t, os.Link(in("a/file"), in("a/b/second name")), os.Link(in("a/file"), in("z/third name")), os.Link(in("a/b/with acl"), in("z/acl")),
		os.Symlink("a/file", in("link")), os.Symlink("/etc/passwd", in("z/out")), os.Symlink(strings.Repeat("l", 1000), in("z/long")), unix.Mkfifo(in("a/fifo"), 0o620),
		unix.Setxattr(in("a/b/with acl"), "system.posix_acl_access", []byte(acl), 0), unix.Setxattr(in("a/b"), "system.posix_acl_default", []byte(acl), 0),
		unix.Setxattr(in("a/file"), "user.one", []byte("1\x00\n"), 0), unix.Setxattr(in("a/file"), "user.empty", nil, 0), unix.Setxattr(in("z"), "trusted.two", []byte(strings.Repeat("x", 900)), 0),
		unix.Setxattr(in("a/set-id"), "security.capability", []byte(netRaw), 0), unix.Setxattr(dir, "user.top", []byte("top"), 0))
	sparse(t, in("z/sparse"), 64<<20)
	for i, name := range []string{"a", "a/file", "a/b", "a/fifo", "a/b/c", "empty", "link", "sticky", "z/out", "z/sparse"} {
		must(t, unix.Lchown(in(name), 1000+i, 2000+i))
	}
	must(t, unix.Chmod(in("a/file"), 0o4711), unix.Chmod(dir, 0o2751), unix.Chown(dir, 999, 998), unix.Chmod(dir, 0o2751))
	for i, name := range []string{"a/b/c", "a/b", "a/file", "a", "link", "a/fifo", "z/sparse", "empty", "z", "."} {
		times := []unix.Timespec{{Sec: 1_000_000_000 + int64(i), Nsec: 123456789}, {Sec: 1_100_000_000 + int64(i), Nsec: 987654321}}
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, in(name), times, unix.AT_SYMLINK_NOFOLLOW))
	}
}

// sparse makes a file with data at its beginning and in its middle.
func sparse(t testing.TB, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	_, first := f.WriteAt(bytes.Repeat([]byte("first"), 2000), 0)
	_, second := f.WriteAt([]byte("second"), size/2)
	must(t, first, second, f.Truncate(size), f.Sync())
}

// A copy is what cp -a makes, attribute by attribute, and says what it has.
func TestLikeCp(t *testing.T) {
	each(t, func(t *testing.T, dir string, o Options) {
		source := filepath.Join(dir, "source")
		must(t, os.Mkdir(source, 0o700))
		plenty(t, source)
		unix.Sync() // data that is not written out yet has no place
		want := describe(t, source)
		done, err := copyTree(t, dir, o)
		must(t, err)
		compare(t, describe(t, filepath.Join(dir, "copy")), want)
		reflinked := "--reflink=always"
		if o.Full {
			reflinked = "--sparse=always"
		}
		hosttest.Run(t, "cp", "-a", reflinked, source, filepath.Join(dir, "cp"))
		compare(t, describe(t, filepath.Join(dir, "copy")), describe(t, filepath.Join(dir, "cp")))
		bytes := done.Bytes
		done.Bytes = 0
		if plain := (Copied{Directories: 6, Files: 8, HardLinks: 3, Symlinks: 3, FIFOs: 1}); done != plain || o.Full != (bytes > 0) {
			t.Errorf("got %+v, %d bytes", done, bytes)
		}
	})
}

// What reflink cannot do here is an error, and not a full copy.
func TestNoReflink(t *testing.T) {
	dir := on(t, "ext4")
	must(t, os.Mkdir(filepath.Join(dir, "source"), 0o700), os.WriteFile(filepath.Join(dir, "source/file"), []byte("data"), 0o600))
	if _, err := copyTree(t, dir, Options{}); !errors.Is(err, ErrNoReflink) || !strings.Contains(err.Error(), `"file"`) {
		t.Errorf("got %v", err)
	}
}

// btrfs shares no blocks between a file without copy-on-write and one with it. A file is made like
// its directory.
func TestNoCOW(t *testing.T) {
	for _, flags := range [][2]int{{0, nocow}, {nocow, 0}} { // of the directories, and of the file
		dir := on(t, "btrfs")
		must(t, unix.IoctlSetPointerInt(open(t, dir), unix.FS_IOC_SETFLAGS, flags[0]))
		file := filepath.Join(dir, "source/file")
		must(t, os.Mkdir(filepath.Join(dir, "source"), 0o700), os.WriteFile(file, nil, 0o600))
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags[1]))
		_, err = f.Write(bytes.Repeat([]byte("data"), 5000))
		must(t, err, f.Sync())
		_, err = copyTree(t, dir, Options{})
		must(t, err)
		compare(t, describe(t, filepath.Join(dir, "copy")), describe(t, filepath.Join(dir, "source")))
	}
}

// A full copy ends before it has more than it may, and holes are not data.
func TestLimit(t *testing.T) {
	dir := on(t, "ext4")
	must(t, os.Mkdir(filepath.Join(dir, "source"), 0o700))
	sparse(t, filepath.Join(dir, "source/sparse"), 1<<40)
	must(t, os.WriteFile(filepath.Join(dir, "source/z"), make([]byte, 1<<20), 0o600))
	done, err := copyTree(t, dir, Options{Full: true, Limit: 1 << 19})
	if !errors.Is(err, ErrLimit) || done.Bytes > 64<<10 {
		t.Errorf("%v, %d bytes", err, done.Bytes)
	}
	must(t, os.RemoveAll(filepath.Join(dir, "copy")))
	if done, err = copyTree(t, dir, Options{Full: true, Limit: 2 << 20}); err != nil || done.Bytes < 1<<20 {
		t.Errorf("%v, %d bytes", err, done.Bytes)
	}
}

// A copy ends where its context does: between two entries, and between two pieces of a file.
func TestCanceled(t *testing.T) {
	dir := on(t, "ext4")
	must(t, os.Mkdir(filepath.Join(dir, "source"), 0o700), os.WriteFile(filepath.Join(dir, "source/file"), make([]byte, 3*pieceSize), 0o600))
	for name, o := range map[string]Options{
		"an entry": {Full: true},
		"a piece":  {Full: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			must(t, os.Mkdir(filepath.Join(dir, "copy"), 0o700))
			defer os.RemoveAll(filepath.Join(dir, "copy"))
			steps, stop := 0, map[string]int{"an entry": 1, "a piece": 4}[name]
			o.Step = func() error {
				if steps++; steps == stop {
					cancel()
				}
				return nil
			}
			done, err := Copy(ctx, open(t, filepath.Join(dir, "source")), open(t, filepath.Join(dir, "copy")), o)
			if !errors.Is(err, context.Canceled) || done.Files != 0 {
				t.Errorf("%v, %+v", err, done)
			}
		})
	}
	must(t, os.Mkdir(filepath.Join(dir, "copy"), 0o700))
	failed := errors.New("no more")
	if _, err := Copy(t.Context(), open(t, filepath.Join(dir, "source")), open(t, filepath.Join(dir, "copy")), Options{Full: true, Step: func() error { return failed }}); !errors.Is(err, failed) {
		t.Error(err)
	}
}
