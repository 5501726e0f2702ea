package treecopy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// twice is a tree that is copied in two passes, and changed between them.
type twice struct {
	*testing.T
	dir      string
	from, to int
	o        Options
}

func newTwice(t *testing.T, base string) *twice {
	dir, err := os.MkdirTemp(base, "")
	must(t, err)
	w := &twice{T: t, dir: dir, o: Options{Seen: new(Seen)}}
	for i := range 30 {
		w.write(fmt.Sprintf("d%d/f%d", i%5, i), "old")
	}
	w.write("d0/below/deep/file", "old")
	w.write("hot", "old")
	must(t, os.Link(w.at("hot"), w.at("d1/hot")), unix.Setxattr(w.at("d2"), "user.gone", []byte("x"), 0), unix.Mkfifo(w.at("d3/fifo"), 0o640),
		os.Symlink("old", w.at("link")), os.Chmod(w.at("d4"), 0o2751))
	must(t, unix.Mknod(w.at("d4/socket"), unix.S_IFSOCK|0o600, 0))
	return w
}

func (w *twice) at(path string) string { return filepath.Join(w.dir, "source", path) }

func (w *twice) write(path, text string) {
	w.Helper()
	must(w, os.MkdirAll(filepath.Dir(w.at(path)), 0o755), os.WriteFile(w.at(path), []byte(text), 0o644))
}

func (w *twice) opens() {
	w.Helper()
	must(w, os.Mkdir(filepath.Join(w.dir, "copy"), 0o700))
	w.from, w.to = open(w, filepath.Join(w.dir, "source")), open(w, filepath.Join(w.dir, "copy"))
}

// first is the first pass. What was made before is as old as it is in a volume that is in use.
func (w *twice) first() {
	w.Helper()
	w.opens()
	w.Cleanup(w.o.Seen.Close)
	w.o.Seen.margin = 20 * time.Millisecond
	time.Sleep(2 * w.o.Seen.margin) // the clock of change times is behind by a tick
	_, err := Copy(w.Context(), w.from, w.to, w.o)
	must(w, err)
}

// again is the second pass, after which the copy is like the source.
func (w *twice) again() Copied {
	w.Helper()
	done, err := Again(w.Context(), w.from, w.to, w.o)
	must(w, err)
	w.same()
	return done
}

// same compares the copy with the source, after the last pass.
func (w *twice) same() {
	w.Helper()
	must(w, w.o.Seen.Sweep(w.Context(), w.to, func() error { return nil }))
	w.like()
}

func (w *twice) like() {
	w.Helper()
	got, want := describe(w, filepath.Join(w.dir, "copy")), describe(w, filepath.Join(w.dir, "source"))
	maps.DeleteFunc(want, func(_, text string) bool { return strings.HasPrefix(text, "140") }) // sockets
	for path := range want {
		if got[path] != want[path] {
			w.Errorf("%s:\ngot  %s\nwant %s", path, got[path], want[path])
		}
		delete(got, path)
	}
	if len(got) > 0 {
		w.Errorf("too much: %v", got)
	}
}

// changes are what may happen to a tree between two passes.
var changes = map[string]func(w *twice) error{
	"nothing":            func(*twice) error { return nil },
	"file written":       func(w *twice) error { return os.WriteFile(w.at("hot"), []byte("newer"), 0) },
	"same size and time": sameSizeAndTime,
	"file made":          func(w *twice) error { return os.WriteFile(w.at("d0/new"), nil, 0o600) },
	"file removed":       func(w *twice) error { return os.Remove(w.at("d0/f5")) },
	"name removed":       func(w *twice) error { return os.Remove(w.at("d1/hot")) },
	"name added":         func(w *twice) error { return os.Link(w.at("d0/f5"), w.at("d1/f5")) },
	"file renamed":       func(w *twice) error { return os.Rename(w.at("d0/f5"), w.at("d1/renamed")) },
	"file replaced":      func(w *twice) error { return os.Rename(w.at("d0/f5"), w.at("d1/f1")) },
	"files exchanged":    func(w *twice) error { return w.exchange("d0/f0", "d1/f1") },
	"directory renamed":  func(w *twice) error { return os.Rename(w.at("d0"), w.at("d9")) },
	"directories exchanged": func(w *twice) error {
		w.write("d0/f1", "another one of this name")
		return w.exchange("d0", "d1")
	},
	"directory removed":   func(w *twice) error { return os.RemoveAll(w.at("d0")) },
	"directory made anew": func(w *twice) error { return errors.Join(os.RemoveAll(w.at("d0")), os.Mkdir(w.at("d0"), 0o711)) },
	"directory to file": func(w *twice) error {
		return errors.Join(os.RemoveAll(w.at("d0")), os.WriteFile(w.at("d0"), nil, 0o600))
	},
	"file to directory": func(w *twice) error {
		return errors.Join(os.Remove(w.at("link")), os.MkdirAll(w.at("link/below"), 0o700))
	},
	"directory into another": func(w *twice) error { return os.Rename(w.at("d0/below"), w.at("d1/below")) },
	"link":                   func(w *twice) error { return errors.Join(os.Remove(w.at("link")), os.Symlink("new", w.at("link"))) },
	"mode, owner":            func(w *twice) error { return errors.Join(os.Chmod(w.at("d3"), 0o700), os.Chown(w.at("d4/f4"), 12, 13)) },
	"attributes": func(w *twice) error {
		return errors.Join(unix.Removexattr(w.at("d2"), "user.gone"), unix.Setxattr(w.at("d3"), "user.new", []byte("x"), 0), unix.Setxattr(w.at("hot"), "user.new", nil, 0))
	},
	"times": func(w *twice) error { return os.Chtimes(w.at("d0"), time.Unix(1, 2), time.Unix(3, 4)) },
}

func (w *twice) exchange(one, other string) error {
	return unix.Renameat2(unix.AT_FDCWD, w.at(one), unix.AT_FDCWD, w.at(other), unix.RENAME_EXCHANGE)
}

// sameSizeAndTime is what a comparison of sizes and times of modification misses.
func sameSizeAndTime(w *twice) error {
	info, err := os.Stat(w.at("d0/f0"))
	return errors.Join(err, os.WriteFile(w.at("d0/f0"), []byte("new"), 0), os.Chtimes(w.at("d0/f0"), info.ModTime(), info.ModTime()))
}

// After a second pass a copy is what the source is, whatever happened since the first. What did not
// change is not copied again.
func TestAgain(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		base := on(t, fstype)
		for name, change := range changes {
			t.Run(fstype+"/"+name, func(t *testing.T) {
				w := newTwice(t, base)
				w.first()
				must(t, change(w))
				done := w.again()
				if name == "nothing" && done.Files+done.HardLinks > 0 || name == "file written" && done.Files != 1 {
					t.Errorf("%+v", done)
				}
				if done.Sockets != 1 {
					t.Errorf("%d sockets", done.Sockets)
				}
			})
		}
	}
}

// A file that is written by a mapping that was made before the first pass has a newer change time:
// to share its blocks writes them out, and the next write to a page is noticed.
func TestAgainMapped(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			w := newTwice(t, on(t, fstype))
			file, err := os.OpenFile(w.at("hot"), os.O_RDWR, 0)
			must(t, err)
			defer file.Close()
			mapped, err := unix.Mmap(int(file.Fd()), 0, 3, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			must(t, err)
			defer func() { _ = unix.Munmap(mapped) }()
			copy(mapped, "one")
			w.first()
			copy(mapped, "two")
			w.again()
		})
	}
}

// A directory that is removed while a further pass is in it, known or copied anew, is not in the
// copy after the next one.
func TestAgainRemovedMeanwhile(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		for _, moved := range []bool{false, true} {
			t.Run(fmt.Sprint(fstype, moved), func(t *testing.T) {
				w := newTwice(t, on(t, fstype))
				w.first()
				gone := "d0"
				if moved {
					gone = "d9"
					must(t, os.Rename(w.at("d0"), w.at(gone)))
				}
				var inside unix.Stat_t
				must(t, unix.Stat(w.at(gone), &inside))
				removed := 0
				w.o.Step = func() error {
					if _, err := os.Lstat(w.at(gone)); err != nil || !openHere(t, inside) {
						return nil
					}
					removed++
					return os.RemoveAll(w.at(gone))
				}
				done, err := Again(t.Context(), w.from, w.to, w.o)
				if must(t, err); done.Gone == 0 || removed != 1 {
					t.Errorf("removed %d times: %+v", removed, done)
				}
				w.o.Step = nil
				w.again()
			})
		}
	}
}

// openHere reports whether this process has an inode open.
func openHere(t testing.TB, of unix.Stat_t) bool {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, fd := range all {
		var st unix.Stat_t
		err := unix.Stat("/proc/self/fd/"+fd.Name(), &st)
		if err == nil && st.Ino == of.Ino && st.Dev == of.Dev {
			return true
		}
	}
	return false
}

// A third pass begins where the second did.
func TestThrice(t *testing.T) {
	w := newTwice(t, on(t, "xfs"))
	w.first()
	must(t, os.Rename(w.at("d0"), w.at("d9")))
	_, err := Again(t.Context(), w.from, w.to, w.o)
	must(t, err)
	w.write("d9/f0", "new")
	must(t, os.Rename(w.at("d9/below"), w.at("d1/moved")))
	w.again()
}

// A copy that an earlier pass made of a file with several names is of no use where a later write
// may have the same change time.
func TestAgainSameTick(t *testing.T) {
	w := newTwice(t, on(t, "xfs"))
	must(t, os.Mkdir(filepath.Join(w.dir, "copy"), 0o700))
	t.Cleanup(w.o.Seen.Close)
	w.from, w.to = open(t, filepath.Join(w.dir, "source")), open(t, filepath.Join(w.dir, "copy"))
	_, err := Copy(t.Context(), w.from, w.to, w.o)
	must(t, err, os.WriteFile(w.copied("hot"), []byte("before the later write"), 0))
	w.again()
}

// Of two directories that were put together in the copy the content is not known.
func TestAgainMixed(t *testing.T) {
	w := newTwice(t, on(t, "xfs"))
	w.first()
	var one, other unix.Stat_t
	must(t, unix.Stat(w.at("d1"), &one), unix.Stat(filepath.Join(w.dir, "copy/d1"), &other))
	must(t, w.o.Seen.mix(open(t, filepath.Join(w.dir, "copy/d1"))))
	if w.o.Seen.isOf(one.Ino, other.Ino) {
		t.Error("known")
	}
	must(t, os.WriteFile(filepath.Join(w.dir, "copy/d1/f1"), []byte("of the other one"), 0))
	w.again()
}

// A pass ends with its context.
func TestAgainCanceled(t *testing.T) {
	w := newTwice(t, on(t, "xfs"))
	w.first()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Again(ctx, w.from, w.to, w.o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
