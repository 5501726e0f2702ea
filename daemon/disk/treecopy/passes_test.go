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

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func init() { maps.Copy(changes, furtherChanges) }

// furtherChanges are of one inode that has another kind, place, length or attribute than in the
// first pass.
var furtherChanges = map[string]func(w *twice) error{
	"file grown":       func(w *twice) error { return os.Truncate(w.at("d0/f0"), 1<<20) },
	"file cut off":     func(w *twice) error { return os.Truncate(w.at("hot"), 1) },
	"file emptied":     func(w *twice) error { return os.Truncate(w.at("hot"), 0) },
	"file appended to": func(w *twice) error { return w.append("d1/hot", strings.Repeat("more", 5000)) },
	"link moved":       func(w *twice) error { return os.Rename(w.at("d1/hot"), w.at("d2/hot")) },
	"link exchanged":   func(w *twice) error { return w.exchange("hot", "d1/f1") },
	"third name":       func(w *twice) error { return os.Link(w.at("hot"), w.at("d0/below/deep/hot")) },
	"first name gone":  func(w *twice) error { return os.Remove(w.at("hot")) },
	"names of another": func(w *twice) error { return errors.Join(os.Remove(w.at("hot")), os.Link(w.at("d0/f0"), w.at("hot"))) },
	"moved and back": func(w *twice) error {
		return errors.Join(os.Rename(w.at("d0"), w.at("x")), os.Rename(w.at("x"), w.at("d0")))
	},
	"exchanged, back": func(w *twice) error { return errors.Join(w.exchange("d0/f0", "d1/f1"), w.exchange("d0/f0", "d1/f1")) },
	"file, directory": func(w *twice) error { return w.exchange("d0/f0", "d1") },
	"same name anew": func(w *twice) error {
		return errors.Join(os.Remove(w.at("d0/f5")), os.WriteFile(w.at("d0/f5"), []byte("anew"), 0o600))
	},
	"above its parent": func(w *twice) error {
		return errors.Join(os.Rename(w.at("d0/below/deep"), w.at("deep")), os.Rename(w.at("d0"), w.at("deep/d0")))
	},
	"directory to link": func(w *twice) error {
		return errors.Join(os.Rename(w.at("d0"), w.at("d9")), os.Symlink("d9", w.at("d0")))
	},
	"link to directory": func(w *twice) error { return errors.Join(os.Remove(w.at("link")), os.Rename(w.at("d0"), w.at("link"))) },
	"over an empty one": func(w *twice) error {
		return errors.Join(os.Mkdir(w.at("x"), 0o700), unix.Rename(w.at("d0"), w.at("x")))
	},
	"emptied directory": func(w *twice) error {
		return errors.Join(os.RemoveAll(w.at("d0")), os.RemoveAll(w.at("d1")), os.Mkdir(w.at("d1"), 0o700))
	},
	"fifo to file": func(w *twice) error {
		return errors.Join(os.Remove(w.at("d3/fifo")), os.WriteFile(w.at("d3/fifo"), []byte("file"), 0o600))
	},
	"file to fifo": func(w *twice) error { return errors.Join(os.Remove(w.at("d3/f3")), unix.Mkfifo(w.at("d3/f3"), 0o604)) },
	"fifo's owner": func(w *twice) error { return os.Chown(w.at("d3/fifo"), 12, 13) },
	"link's owner": func(w *twice) error { return os.Lchown(w.at("link"), 12, 13) },
	"set-id, sticky": func(w *twice) error {
		return errors.Join(unix.Chmod(w.at("d1"), 0o3777), unix.Chmod(w.at("d2/f2"), 0o6755))
	},
	"access lists": func(w *twice) error {
		return errors.Join(unix.Setxattr(w.at("d1"), "system.posix_acl_default", []byte(acl), 0), unix.Setxattr(w.at("d2/f2"), "system.posix_acl_access", []byte(acl), 0))
	},
	"the top's own": func(w *twice) error {
		return errors.Join(unix.Chmod(w.at(""), 0o2750), os.Chown(w.at(""), 12, 13), unix.Setxattr(w.at(""), "user.top", []byte("x"), 0))
	},
	"all of it": func(w *twice) error {
		return errors.Join(os.RemoveAll(w.at("d0")), os.RemoveAll(w.at("d1")), os.RemoveAll(w.at("d2")), os.RemoveAll(w.at("d3")), os.Remove(w.at("hot")), os.Remove(w.at("link")))
	},
}

func (w *twice) append(path, text string) error {
	f, err := os.OpenFile(w.at(path), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// copied is where the copy has a path.
func (w *twice) copied(path string) string { return filepath.Join(w.dir, "copy", path) }

// fails is a second pass that ends with an error, and leaves nothing open.
func (w *twice) fails(ctx context.Context, want error) {
	w.Helper()
	must(w, w.o.Seen.make(w.to)) // else the pass opens it, and Close closes it
	before := descriptors(w)
	if _, err := Again(ctx, w.from, w.to, w.o); !errors.Is(err, want) {
		w.Errorf("%v, want %v", err, want)
	}
	if after := descriptors(w); after != before {
		w.Errorf("%d descriptors are open, before %d", after, before)
	}
}

// Sockets and devices have no copy. One that takes a file's name takes the file out of the copy,
// and is counted each time.
func TestAgainWithoutCopies(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			w := newTwice(t, on(t, fstype))
			null := int(unix.Mkdev(1, 3))
			must(t, unix.Mknod(w.at("d2/null"), unix.S_IFCHR|0o600, null))
			w.first()
			must(t, os.Remove(w.at("d0/f0")), os.Remove(w.at("d1/f1")), unix.Mknod(w.at("d0/f0"), unix.S_IFSOCK|0o600, 0), unix.Mknod(w.at("d1/f1"), unix.S_IFBLK|0o600, null))
			done, err := Again(t.Context(), w.from, w.to, w.o)
			if must(t, err); done.Sockets != 2 || done.Devices != 2 || done.Files != 0 {
				t.Errorf("%+v", done)
			}
			for _, name := range []string{"d0/f0", "d1/f1", "d2/null"} {
				if _, err := os.Lstat(w.copied(name)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, name := range []string{"d0/f0", "d1/f1", "d2/null"} {
				must(t, os.Remove(w.at(name)), os.WriteFile(w.at(name), []byte("a file now"), 0o600))
			}
			if done := w.again(); done.Sockets != 1 || done.Devices != 0 || done.Files < 3 {
				t.Errorf("%+v", done)
			}
		})
	}
}

// What has another kind in each of three passes is in the end what it was at the beginning, with
// what is in it now.
func TestBackAndForth(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			w := newTwice(t, on(t, fstype))
			w.first()
			must(t, os.RemoveAll(w.at("d0")), os.WriteFile(w.at("d0"), nil, 0o600), os.Remove(w.at("hot")), os.Mkdir(w.at("hot"), 0o700))
			_, err := Again(t.Context(), w.from, w.to, w.o)
			must(t, err, os.Remove(w.at("d0")), os.Remove(w.at("hot")))
			w.write("d0/below/deep/file", "new")
			w.write("hot", "new")
			w.again()
		})
	}
}

// A directory on which something was mounted since is taken out of the copy. What was below a mount
// and is not any more comes into it.
func TestAgainMounts(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			w := newTwice(t, on(t, fstype))
			bind := func(one, other string) {
				hosttest.Mount(t, "--bind", w.at(one), w.at(other))
				t.Cleanup(func() { _ = unix.Unmount(w.at(other), unix.MNT_DETACH) })
			}
			bind("d2/f2", "d3/f3")
			bind("d2/f2", "d3/f8")
			w.first()
			must(t, unix.Unmount(w.at("d3/f3"), 0))
			bind("d1", "d1") // the same inode
			bind("d2", "d4")
			done, err := Again(t.Context(), w.from, w.to, w.o)
			if must(t, err); done.Mounts != 3 {
				t.Errorf("%+v", done)
			}
			for _, name := range []string{"d1", "d4", "d3/f8"} {
				if _, err := os.Lstat(w.copied(name)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if _, err := os.Lstat(w.copied("d3/f3")); err != nil {
				t.Error(err)
			}
			must(t, unix.Unmount(w.at("d1"), 0), unix.Unmount(w.at("d4"), 0), unix.Unmount(w.at("d3/f8"), 0))
			if done := w.again(); done.Mounts != 0 {
				t.Errorf("%+v", done)
			}
		})
	}
}

// A directory of the copy of which much is gone is read to its end while its entries are moved.
func TestAgainManyGone(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			w := newTwice(t, on(t, fstype))
			name := func(i int) string { return fmt.Sprintf("d0/%0200d", i) }
			for i := range 1000 {
				w.write(name(i), "old")
			}
			w.first()
			for i := range 1000 {
				if i%10 > 0 {
					must(t, os.Remove(w.at(name(i))))
				}
			}
			if done := w.again(); done.Files != 0 {
				t.Errorf("%+v", done)
			}
		})
	}
}

// Without memory of what was copied to what, all of a directory that changed is copied again, and
// the copy is right.
func TestMostCopies(t *testing.T) {
	w := newTwice(t, on(t, "xfs"))
	w.first()
	w.o.Seen.copies = map[uint64]uint64{}
	for i := range uint64(mostCopies) {
		w.o.Seen.copies[1<<50+i] = 1
	}
	must(t, os.Rename(w.at("d0/f5"), w.at("d1/renamed")))
	if done := w.again(); done.Files != 31 || len(w.o.Seen.copies) != mostCopies {
		t.Errorf("%+v, %d remembered", done, len(w.o.Seen.copies))
	}
}

// A pass that has no space left ends with that error.
func TestAgainNoSpace(t *testing.T) {
	w := newTwice(t, on(t, "xfs"))
	large := make([]byte, 60<<10) // has blocks of its own, which are not shared
	for i := range 30 {
		must(t, unix.Setxattr(w.at(fmt.Sprintf("d%d/f%d", i%5, i)), "user.large", large, 0))
	}
	w.first()
	fill(t, filepath.Join(w.dir, "filler"))
	for i := range 30 {
		must(t, os.Chmod(w.at(fmt.Sprintf("d%d/f%d", i%5, i)), 0o600))
	}
	before := descriptors(t)
	if _, err := Again(t.Context(), w.from, w.to, w.o); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	if after := descriptors(t); after > before+1 { // that of what is moved aside
		t.Errorf("%d descriptors are open, before %d", after, before)
	}
}

// fill makes a file that takes all space, down to the last block.
func fill(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	at := int64(0)
	for size := int64(64 << 20); size >= 4<<10; {
		switch err := unix.Fallocate(int(f.Fd()), 0, at, size); {
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		default:
			must(t, err)
			at += size
		}
	}
}

// A pass ends where its context does or its step fails: at the top, in what is known, and in what
// is copied anew.
func TestAgainEnds(t *testing.T) {
	base := on(t, "xfs")
	failed := errors.New("no more")
	for _, last := range []int{1, 2, 7, 20, 40} {
		for _, canceled := range []bool{false, true} {
			t.Run(fmt.Sprint(last, canceled), func(t *testing.T) {
				w := newTwice(t, base)
				w.first()
				must(t, os.Rename(w.at("d2"), w.at("moved")), os.Rename(w.at("d0"), w.at("d2")))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				steps, want := 0, failed
				if canceled {
					want = context.Canceled
				}
				w.o.Step = func() error {
					if steps++; steps < last {
						return nil
					}
					if cancel(); canceled {
						return nil
					}
					return failed
				}
				w.fails(ctx, want)
				if steps != last {
					t.Errorf("%d steps after the end", steps-last)
				}
			})
		}
	}
}

// What was moved aside is removed between two passes, and the next one moves aside again.
func TestClear(t *testing.T) {
	w := newTwice(t, on(t, "xfs"))
	w.first()
	before := descriptors(t)
	for _, gone := range []string{"d0", "d1"} {
		must(t, os.RemoveAll(w.at(gone)))
		_, err := Again(t.Context(), w.from, w.to, w.o)
		must(t, err, w.o.Seen.Clear(t.Context(), w.to, func() error { return nil }))
		kept, err := filepath.Glob(w.copied(".stale-*"))
		if must(t, err); len(kept) != 0 || descriptors(t) != before {
			t.Errorf("%q, %d descriptors, before %d", kept, descriptors(t), before)
		}
	}
	must(t, w.o.Seen.Clear(t.Context(), w.to, nil))
	w.again()
}

// What was moved aside is removed by Sweep alone, which goes on where it was ended, and nothing of
// the passes is left.
func TestSweep(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			w := newTwice(t, on(t, fstype))
			w.first()
			must(t, os.RemoveAll(w.at("d0")), os.RemoveAll(w.at("d1")), os.Remove(w.at("hot")))
			_, err := Again(t.Context(), w.from, w.to, w.o)
			must(t, err)
			kept, err := filepath.Glob(w.copied(".stale-*/*"))
			if must(t, err); len(kept) != 4 {
				t.Errorf("moved aside: %q", kept)
			}
			failed, steps := errors.New("no more"), 0
			step := func() error {
				if steps++; steps == 5 {
					return failed
				}
				return nil
			}
			if err := w.o.Seen.Sweep(t.Context(), w.to, step); !errors.Is(err, failed) || !strings.HasPrefix(err.Error(), "removing what was copied again: ") {
				t.Error(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := w.o.Seen.Sweep(ctx, w.to, step); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			w.again()
			w.o.Seen.Close()
			w.o.Seen.Close() // has nothing left to close
		})
	}
}
