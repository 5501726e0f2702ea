package treecopy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Nothing of these hangs a copy, leads it out of the tree, or is copied as something else.
func TestHostile(t *testing.T) {
	each(t, func(t *testing.T, dir string, o Options) {
		in := func(name string) string { return filepath.Join(dir, "source", name) }
		outside := hosttest.Dir(t)
		must(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600), os.MkdirAll(in("mounted"), 0o755), os.Mkdir(filepath.Join(dir, "sibling"), 0o755),
			os.WriteFile(filepath.Join(dir, "sibling/secret"), nil, 0o600), os.Mkdir(in("bind"), 0o755), os.WriteFile(in("bind of a file"), nil, 0o600))
		hosttest.Mount(t, "--bind", outside, in("mounted"))
		hosttest.Mount(t, "--bind", filepath.Join(dir, "sibling"), in("bind"))
		hosttest.Mount(t, "--bind", filepath.Join(dir, "sibling/secret"), in("bind of a file"))
		t.Cleanup(func() {
			for _, name := range []string{"mounted", "bind", "bind of a file"} {
				hosttest.Unmount(t, in(name))
			}
		})
		must(t, os.Symlink(outside, in("link out")), os.Symlink("link out", in("loop")), unix.Mkfifo(in("fifo"), 0o600),
			unix.Mknod(in("socket"), unix.S_IFSOCK|0o600, 0), unix.Mknod(in("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), unix.Mknod(in("disk"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))),
			os.MkdirAll(in(".links-guessed"), 0o755), os.WriteFile(in("kept"), []byte("immutable"), 0o600))
		huge, err := os.Create(in("huge"))
		must(t, err)
		largest := largestFile(t, huge)
		must(t, huge.Close())
		deepest(t, in("deep"), 5000)
		hosttest.SetImmutable(t, in("kept"), true)
		hosttest.SetImmutable(t, filepath.Join(dir, "source"), true)
		defer hosttest.SetImmutable(t, in("kept"), false)
		defer hosttest.SetImmutable(t, filepath.Join(dir, "source"), false)
		done, err := copyTree(t, dir, o)
		must(t, err)
		if want := (Copied{Directories: 5003, Files: 2, Symlinks: 2, FIFOs: 1, Sockets: 1, Devices: 2, Mounts: 3}); without(done) != want {
			t.Errorf("got  %+v\nwant %+v", done, want)
		}
		info, err := os.Stat(filepath.Join(dir, "copy/huge"))
		if err != nil || info.Size() != largest {
			t.Errorf("%v, want %d bytes: %v", info, largest, err)
		}
		for _, name := range []string{"mounted", "bind", "bind of a file", "socket", "null"} {
			if _, err := os.Lstat(filepath.Join(dir, "copy", name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s was copied: %v", name, err)
			}
		}
		must(t, os.WriteFile(filepath.Join(dir, "copy/kept"), []byte("the copy can be written"), 0o600))
	})
}

func without(c Copied) Copied { c.Bytes = 0; return c }

// largestFile makes a file as large as the filesystem allows.
func largestFile(t testing.TB, f *os.File) int64 {
	t.Helper()
	for size := int64(1<<63 - 1); ; size /= 2 {
		err := f.Truncate(size)
		if err == nil {
			return size
		}
		if !errors.Is(err, unix.EFBIG) && !errors.Is(err, unix.EINVAL) {
			t.Fatal(err)
		}
	}
}

// deepest makes directories below each other, deeper than a path can say.
func deepest(t testing.TB, top string, levels int) {
	t.Helper()
	must(t, os.Mkdir(top, 0o755))
	fd, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
}

// In a source that changes, what is replaced by a link out of it is not followed, and what is gone
// is counted.
func TestVanishing(t *testing.T) {
	each(t, func(t *testing.T, dir string, o Options) {
		outside := hosttest.Dir(t)
		in := func(name string) string { return filepath.Join(dir, "source", name) }
		must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600), os.MkdirAll(in("one"), 0o755), os.MkdirAll(in("two"), 0o755))
		for _, name := range []string{"one/file", "two/file"} {
			must(t, os.WriteFile(in(name), []byte("data"), 0o600))
		}
		step := 0
		o.Step = func() error { // the second step is of the first directory, the third of what is in it
			switch step++; step {
			case 2:
				for _, name := range []string{"one", "two"} {
					must(t, os.Rename(in(name), filepath.Join(dir, name)), os.Symlink(outside, in(name)))
				}
			}
			return nil
		}
		done, err := copyTree(t, dir, o)
		must(t, err)
		if _, err := os.Stat(filepath.Join(dir, "copy/one/secret")); err != nil {
			t.Errorf("the link that is there by now is copied as a link: %v", err)
		}
		for _, name := range []string{"one", "two"} {
			info, err := os.Lstat(filepath.Join(dir, "copy", name))
			if err != nil || info.Mode()&os.ModeSymlink == 0 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
		if done.Symlinks != 2 || done.Files != 0 {
			t.Errorf("%+v", done)
		}
	})
}

// A directory that is removed while it is copied, with those below it, is counted and does not end
// the copy.
func TestRemovedMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, dir string, o Options) {
		in := func(name string) string { return filepath.Join(dir, "source", name) }
		deep := "gone/" + strings.Repeat("d/", tree.Held+3)
		must(t, os.MkdirAll(in(deep), 0o755), os.MkdirAll(in("stays/below"), 0o755))
		for _, name := range []string{"stays/below/f", "stays/file", "gone/file", deep + "f"} {
			must(t, os.WriteFile(in(name), []byte("data"), 0o600))
		}
		o.Step = func() error {
			if _, err := os.Lstat(filepath.Join(dir, "copy", deep)); err == nil {
				return os.RemoveAll(in("gone"))
			}
			return nil
		}
		done, err := copyTree(t, dir, o)
		if must(t, err); done.Gone < 2 {
			t.Errorf("%+v", done)
		}
		got, want := describe(t, filepath.Join(dir, "copy")), describe(t, in(""))
		delete(got, "") // has the times of before
		delete(want, "")
		for path := range got {
			if strings.HasPrefix(path, "/gone") {
				delete(got, path)
			}
		}
		compare(t, got, want)
	})
}

// A file on which a program has a lease, as file servers do, is copied when the program has given
// it up.
func TestLease(t *testing.T) {
	each(t, func(t *testing.T, dir string, o Options) {
		must(t, os.Mkdir(filepath.Join(dir, "source"), 0o755))
		asked := hosttest.Lease(t, filepath.Join(dir, "source/file"))
		done, err := copyTree(t, dir, o)
		if must(t, err); done.Files != 1 || !asked() {
			t.Errorf("%+v", done)
		}
	})
}

// One that is not given up ends the copy with its context.
func TestLeaseIsKept(t *testing.T) {
	dir := on(t, "xfs")
	must(t, os.Mkdir(filepath.Join(dir, "source"), 0o755))
	f, err := os.Create(filepath.Join(dir, "source/file"))
	must(t, err)
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	must(t, err)
	steps, failed := 0, errors.New("no more")
	_, err = copyTree(t, dir, Options{Step: func() error {
		if steps++; steps < 10 {
			return nil
		}
		return failed
	}})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
}

// swap exchanges two entries of a directory as fast as it can, until done is called.
func swap(t testing.TB, one, other string) (done func()) {
	t.Helper()
	var stop atomic.Bool
	ended := make(chan int)
	go func() {
		n := 0
		for ; !stop.Load(); n++ {
			if unix.Renameat2(unix.AT_FDCWD, one, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE) != nil {
				break
			}
		}
		ended <- n
	}()
	return func() {
		stop.Store(true)
		if n := <-ended; n == 0 {
			t.Error("nothing was swapped")
		}
	}
}

// A directory that is swapped with a link out of the volume all the time is copied as one or as the
// other, and no file of another place is.
func TestSwapped(t *testing.T) {
	each(t, func(t *testing.T, dir string, o Options) {
		outside := hosttest.Dir(t)
		in := func(name string) string { return filepath.Join(dir, "source", name) }
		must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600), os.MkdirAll(in("entry"), 0o755), os.Symlink(outside, in("swap")),
			os.WriteFile(in("file"), []byte("data"), 0o600), unix.Mkfifo(in("fifo"), 0o600))
		for i := range 20 {
			must(t, os.WriteFile(in(fmt.Sprintf("entry/%d", i)), []byte("data"), 0o600))
		}
		defer swap(t, in("entry"), in("swap"))()
		defer swap(t, in("file"), in("fifo"))()
		for range 50 {
			_, err := copyTree(t, dir, o)
			must(t, err)
			for _, name := range []string{"entry", "swap"} {
				info, err := os.Lstat(filepath.Join(dir, "copy", name))
				_, found := os.Lstat(filepath.Join(dir, "copy", name, "secret"))
				if err == nil && info.IsDir() && found == nil {
					t.Fatal("the copy has a file of another place")
				}
			}
			must(t, os.RemoveAll(filepath.Join(dir, "copy")))
		}
	})
}

// A directory so deep that the walk cannot go back after it was moved fails the copy: parts may be
// missing.
func TestMoved(t *testing.T) {
	dir := on(t, "xfs")
	source := filepath.Join(dir, "source")
	deep := filepath.Join(source, strings.Repeat("d/", tree.Held+3))
	must(t, os.MkdirAll(filepath.Join(deep, "d/d"), 0o755))
	step := 0
	_, err := copyTree(t, dir, Options{Step: func() error {
		if step++; step == tree.Held+6 {
			must(t, os.Rename(deep, filepath.Join(source, "moved")))
		}
		return nil
	}})
	if !errors.Is(err, tree.ErrDirectoryReplaced) {
		t.Errorf("got %v", err)
	}
}

// The inode number of a file that was removed is another file's: the two are no hard links of each
// other.
func TestReusedInode(t *testing.T) {
	dir := on(t, "xfs")
	in := func(name string) string { return filepath.Join(dir, "source", name) }
	must(t, os.MkdirAll(in("a"), 0o755), os.MkdirAll(in("b"), 0o755))
	for _, name := range []string{"a/old", "b/old"} { // the directory that is copied first is not known
		must(t, os.WriteFile(in(name), []byte("old"), 0o600), os.Link(in(name), in(name+" too")))
	}
	done := false
	_, err := copyTree(t, dir, Options{Step: func() error {
		for first, second := range map[string]string{"a": "b", "b": "a"} {
			if _, err := os.Stat(filepath.Join(dir, "copy", first, "old too")); err == nil && !done { // all of it was copied just now
				done = true
				replace(t, in(first), in(second+"/new"))
			}
		}
		return nil
	}})
	must(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "copy/a/new"))
	if err != nil {
		text, err = os.ReadFile(filepath.Join(dir, "copy/b/new"))
	}
	if err != nil || string(text) != "new" {
		t.Errorf("the new file has %q: %v", text, err)
	}
}

// replace removes the names of a file and makes another file that has its number, and a further
// name as well.
func replace(t *testing.T, dir, name string) {
	t.Helper()
	var was, now unix.Stat_t
	var room unix.Statfs_t
	must(t, unix.Stat(dir+"/old", &was), os.Remove(dir+"/old"), os.Remove(dir+"/old too"))
	for i := range 20_000 { // the number is free when the kernel's worker got to it (xfs_inodegc_worker)
		path := fmt.Sprintf("%s/try %d", dir, i)
		must(t, unix.Statfs(dir, &room), unix.Mknod(path, unix.S_IFREG|0o600, 0), unix.Stat(path, &now))
		if now.Ino == was.Ino {
			must(t, os.WriteFile(path, []byte("new"), 0o600), os.Rename(path, name), os.Link(name, filepath.Dir(filepath.Dir(dir))+"/elsewhere"))
			return
		}
	}
	t.Fatalf("no file was given number %d again", was.Ino)
}

// One file more than may have a name each: the last name is a copy of its own.
func TestTooManyLinks(t *testing.T) {
	dir := on(t, "ext4", "-N", "2000")
	in := func(name string) string { return filepath.Join(dir, "source", name) }
	must(t, os.Mkdir(in(""), 0o700), os.WriteFile(in("file"), []byte("data"), 0o600))
	const most = 65000 // EXT4_LINK_MAX
	for i := range most - 1 {
		must(t, os.Link(in("file"), in(fmt.Sprint(i))))
	}
	done, err := copyTree(t, dir, Options{Full: true})
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(dir, "copy/7"), &st))
	if done.Files+done.HardLinks != most || st.Nlink < most-1 {
		t.Errorf("%+v, %d links", done, st.Nlink)
	}
}
