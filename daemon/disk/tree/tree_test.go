package tree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// down makes directories "d" below each other, the first one in dir, and returns the path of the
// last.
func down(t testing.TB, dir string, levels int) string {
	t.Helper()
	path := filepath.Join(dir, strings.Repeat("d/", levels))
	must(t, os.MkdirAll(path, 0o755))
	return path
}

// log is a visitor that enters everything, and keeps what it saw.
type log struct {
	visited map[string]int // how often, by path
	left    map[string]error
	failed  map[string]error // of left, those with an error
	visit   func(at Entry)   // also called, if it is there
	leave   func(at Entry, fd int) (again bool)
}

func newLog() *log {
	return &log{visited: map[string]int{}, left: map[string]error{}, failed: map[string]error{}}
}

func (l *log) Visit(at Entry) (Leave, error) {
	path := at.Path()
	if l.visited[path]++; l.visited[path] > 100 {
		return nil, fmt.Errorf("%.100q is visited for ever", path)
	}
	if l.visit != nil {
		l.visit(at)
	}
	return func(at Entry, fd int, err error) (bool, error) {
		if at.Path() != path {
			return false, fmt.Errorf("%q is left as %q", path, at.Path())
		}
		if l.left[path] = err; err != nil {
			l.failed[path] = err
		}
		return l.leave != nil && err == nil && l.leave(at, fd), nil
	}, nil
}

// once reports the paths that were not visited exactly once, some of them.
func (l *log) once(t *testing.T, want int) {
	t.Helper()
	if len(l.visited) != want {
		t.Errorf("%d entries visited, want %d", len(l.visited), want)
	}
	for path, times := range l.visited {
		if times != 1 {
			t.Errorf("%.100q: visited %d times", path, times)
			return
		}
	}
}

// What is no directory of the tree's own is not entered, whatever the visitor wants.
func TestRefused(t *testing.T) {
	dir, outside := hosttest.Dir(t), hosttest.Dir(t)
	in := func(name string) string { return filepath.Join(dir, "top", name) }
	must(t, os.MkdirAll(in("plain/below"), 0o755))
	must(t, os.Mkdir(filepath.Join(outside, "not ours"), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "sibling"), 0o755))
	for _, mount := range []string{"bind", "bind of the same", "tmpfs"} {
		must(t, os.Mkdir(in(mount), 0o755))
	}
	hosttest.Mount(t, "--bind", outside, in("bind"))
	hosttest.Mount(t, "--bind", filepath.Join(dir, "sibling"), in("bind of the same"))
	hosttest.Mount(t, "-t", "tmpfs", "tmpfs", in("tmpfs"))
	must(t, errors.Join(os.WriteFile(in("file"), nil, 0o600), os.Symlink(outside, in("link")), os.Symlink("plain", in("link inside")),
		os.Symlink("..", in("link up")), unix.Mkfifo(in("fifo"), 0o600), unix.Mknod(in("socket"), unix.S_IFSOCK|0o600, 0),
		unix.Mknod(in("null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))))
	want := map[string]error{"": nil, "plain": nil, "plain/below": nil, "bind": unix.EXDEV, "bind of the same": unix.EXDEV, "tmpfs": unix.EXDEV,
		"file": unix.ENOTDIR, "link": unix.ENOTDIR, "link inside": unix.ENOTDIR, "link up": unix.ENOTDIR, "fifo": unix.ENOTDIR, "socket": unix.ENOTDIR, "null": unix.ENOTDIR}
	l := newLog()
	walk := func(top, name string) {
		w := newWalk(t.Context(), open(t, top), l.Visit)
		w.deepest = 3 // a walk that followed "link up" would not end
		must(t, w.run(name))
	}
	walk(dir, "top")
	if !maps.Equal(l.left, want) {
		t.Errorf("got  %v\nwant %v", l.left, want)
	}
	for _, name := range []string{"..", "/", "../sibling", "top/link/not ours"} {
		l = newLog()
		walk(in(""), name)
		if l.failed[""] == nil || len(l.visited) != 1 {
			t.Errorf("%q: %v", name, l.left)
		}
	}
}

// A directory that is replaced between its visit and its opening by a link is not entered; one that
// is replaced after that is walked to its end, and what replaced it is not.
func TestReplaced(t *testing.T) {
	dir, outside := hosttest.Dir(t), hosttest.Dir(t)
	must(t, errors.Join(os.MkdirAll(filepath.Join(dir, "top/early"), 0o755), os.MkdirAll(filepath.Join(dir, "top/late/below"), 0o755),
		os.Mkdir(filepath.Join(outside, "not ours"), 0o755)))
	replace := func(name string) {
		must(t, os.Rename(filepath.Join(dir, "top", name), filepath.Join(dir, name)))
		must(t, os.Symlink(outside, filepath.Join(dir, "top", name)))
	}
	l := newLog()
	l.visit = func(at Entry) {
		switch at.Path() {
		case "early":
			replace("early")
		case "late/below":
			replace("late")
		}
	}
	must(t, Walk(t.Context(), open(t, dir), "top", l.Visit))
	want := map[string]error{"": nil, "early": unix.ENOTDIR, "late": nil, "late/below": nil}
	if !maps.Equal(l.left, want) {
		t.Errorf("got  %v\nwant %v", l.left, want)
	}
}

// What ".." leads to is no directory of the way if directories were moved, or something was
// mounted, meanwhile: then the walk goes on in the deepest directory that it holds, and the first
// one below that is left with an error.
func TestMovedMeanwhile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir, outside, deep string){
		"within the tree": func(t *testing.T, dir, _, deep string) {
			must(t, os.Rename(deep, filepath.Join(dir, "top/moved")))
		},
		"out of the tree": func(t *testing.T, _, outside, deep string) {
			must(t, os.Rename(deep, filepath.Join(outside, "moved")))
		},
		"to a directory with the same name": func(t *testing.T, _, _, deep string) {
			above := filepath.Dir(deep)
			must(t, os.Rename(above, above+"2"))
			must(t, os.Mkdir(above, 0o755))
			must(t, os.Rename(above+"2/d", deep))
		},
		"under a mount": func(t *testing.T, _, _, deep string) {
			hosttest.Mount(t, "-t", "tmpfs", "tmpfs", filepath.Dir(deep))
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Dir(t)
			dir, outside := filepath.Join(root, "ours"), filepath.Join(root, "outside")
			must(t, errors.Join(os.MkdirAll(filepath.Join(dir, "top"), 0o755), os.MkdirAll(filepath.Join(outside, "not ours"), 0o755)))
			down(t, filepath.Join(dir, "top"), Held+6)
			must(t, os.Mkdir(filepath.Join(dir, "top", strings.Repeat("d/", 10), "z"), 0o755))
			deep := filepath.Join(dir, "top", strings.Repeat("d/", Held+3))
			l := newLog()
			l.visit = func(at Entry) {
				if at.Depth() == Held+6 {
					change(t, dir, outside, deep)
				}
			}
			before := descriptors(t)
			must(t, Walk(t.Context(), open(t, dir), "top", l.Visit))
			lost := strings.TrimSuffix(strings.Repeat("d/", Held), "/")
			if len(l.failed) != 1 || !errors.Is(l.failed[lost], ErrDirectoryReplaced) {
				t.Errorf("left with errors: %v", l.failed)
			}
			if _, left := l.left[strings.Repeat("d/", 10)+"z"]; !left || len(l.left) < Held {
				t.Errorf("the rest was not walked: %d left", len(l.left))
			}
			for path := range l.visited {
				if strings.Contains(path, "not ours") {
					t.Errorf("%s was visited", path)
				}
			}
			if after := descriptors(t); after != before+1 {
				t.Errorf("%d descriptors, before %d", after, before)
			}
		})
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

// Descriptors do not grow with the depth, each entry is visited once, before what is below it, and
// left once after that.
func TestDeep(t *testing.T) {
	const levels = 500
	dir := hosttest.Dir(t)
	must(t, os.Mkdir(filepath.Join(dir, "top"), 0o755))
	at := filepath.Join(dir, "top")
	for range levels {
		for _, name := range []string{"a", "d", "z"} {
			must(t, os.Mkdir(filepath.Join(at, name), 0o755))
		}
		at = filepath.Join(at, "d")
	}
	start := open(t, dir)
	before, most := descriptors(t), 0
	l, open := newLog(), []string{}
	l.visit = func(at Entry) {
		open = append(open, at.Path())
		most = max(most, descriptors(t))
	}
	l.leave = func(at Entry, _ int) bool {
		if last := len(open) - 1; open[last] != at.Path() {
			t.Errorf("%.100q is left, open is %.100q", at.Path(), open[last])
		}
		open = open[:len(open)-1]
		most = max(most, descriptors(t))
		return false
	}
	must(t, Walk(t.Context(), start, "top", l.Visit))
	l.once(t, 3*levels+1)
	if len(l.left) != 3*levels+1 || len(l.failed) > 0 || len(open) > 0 {
		t.Errorf("%d left, %v", len(l.left), l.failed)
	}
	if most > before+Held+2 || descriptors(t) != before {
		t.Errorf("before %d descriptors, then %d, after %d", before, most, descriptors(t))
	}
}

// A tree that would take all memory is walked as far as Deepest.
func TestDeepest(t *testing.T) {
	dir := hosttest.Dir(t)
	down(t, filepath.Join(dir, "top"), Held+20)
	l := newLog()
	w := newWalk(t.Context(), open(t, dir), l.Visit)
	w.deepest = Held + 10
	must(t, w.run("top"))
	l.once(t, Held+11)
	deepest := strings.TrimSuffix(strings.Repeat("d/", Held+10), "/")
	if len(l.failed) != 1 || l.failed[deepest] != ErrDeep {
		t.Errorf("%v", l.failed)
	}
}

// Of a wide directory one piece is in memory. Wherever it lies, and however often it is closed,
// each entry is visited once.
func TestWide(t *testing.T) {
	const wide = 3000
	for _, fs := range []string{"tmpfs", "ext4", "xfs", "btrfs"} {
		for _, levels := range []int{0, Held + 2} {
			t.Run(fmt.Sprint(fs, " ", levels), func(t *testing.T) {
				dir := hosttest.Dir(t)
				if fs != "tmpfs" {
					dir = hosttest.PoolMount(t, hosttest.Mkfs(t, fs, map[string]int{"ext4": 64, "xfs": 320, "btrfs": 160}[fs]))
				}
				at := down(t, filepath.Join(dir, "top"), levels)
				for i := range wide {
					must(t, os.Mkdir(filepath.Join(at, strings.Repeat("n", i%200)+strconv.Itoa(i)), 0o755))
				}
				l := newLog()
				w := newWalk(t.Context(), open(t, dir), l.Visit)
				most, buffer := 0, w.buffer
				l.visit = func(at Entry) {
					w.buffer = buffer[:[]int{pieceSize, 300}[len(l.visited)%2]] // a signal cuts what getdents(2) returns
					for _, l := range w.levels {
						most = max(most, cap(l.piece))
					}
				}
				must(t, w.run("top"))
				l.once(t, wide+levels+1)
				if len(l.failed) > 0 || most == 0 || most > 512 {
					t.Errorf("%d names in memory, %v", most, l.failed)
				}
			})
		}
	}
}

// A visitor that removes what it visits, as a purge does, finds everything, also in directories
// that are closed meanwhile.
func TestRemoved(t *testing.T) {
	for _, fs := range []string{"tmpfs", "ext4"} {
		t.Run(fs, func(t *testing.T) {
			dir := hosttest.Dir(t)
			if fs == "ext4" {
				dir = hosttest.PoolMount(t, hosttest.Mkfs(t, fs, 64))
			}
			at := down(t, filepath.Join(dir, "top"), Held+2)
			for i := range 2000 {
				must(t, os.MkdirAll(filepath.Join(at, strconv.Itoa(i), "below"), 0o755))
			}
			l := newLog()
			l.leave = func(at Entry, fd int) bool {
				err := unix.Unlinkat(at.Dir, at.Name, unix.AT_REMOVEDIR)
				if err != nil && err != unix.ENOTEMPTY {
					t.Error(err)
				}
				return err == unix.ENOTEMPTY
			}
			must(t, Walk(t.Context(), open(t, dir), "top", l.Visit))
			if _, err := os.Lstat(filepath.Join(dir, "top")); !os.IsNotExist(err) {
				t.Errorf("something is left: %v", err)
			}
		})
	}
}

// A directory is read again as often as its visitor wants, and what grows meanwhile does not keep
// the walk.
func TestAgain(t *testing.T) {
	dir := hosttest.Dir(t)
	bottom := down(t, filepath.Join(dir, "top"), Held+4)
	must(t, os.Mkdir(filepath.Join(bottom, "e"), 0o755))
	start := open(t, dir)
	before, most, grown, reads := descriptors(t), 0, 0, map[string]int{}
	l := newLog()
	l.leave = func(at Entry, _ int) bool {
		most = max(most, descriptors(t))
		if at.Depth() != 3 && at.Depth() < Held {
			return false
		}
		if at.Depth() > Held && at.Name == "d" {
			grown++
			must(t, unix.Mknodat(at.Dir, fmt.Sprint("grown", grown), unix.S_IFREG, 0))
		}
		reads[at.Path()]++
		return reads[at.Path()]%2 == 1
	}
	must(t, Walk(t.Context(), start, "top", l.Visit))
	for path, times := range reads {
		if times%2 == 1 {
			t.Errorf("%s: read %d times", path, times)
		}
	}
	if len(reads) < 6 || most > before+Held+2 || descriptors(t) != before {
		t.Errorf("%d directories; before %d descriptors, then %d, after %d", len(reads), before, most, descriptors(t))
	}
}

// A walk ends before the next entry when its context does, and with the first error of its visitor.
// Nothing is left after that, and nothing stays open.
func TestCanceled(t *testing.T) {
	const end = Held + 5
	dir := hosttest.Dir(t)
	down(t, filepath.Join(dir, "top"), end+5)
	start := open(t, dir)
	before, stop := descriptors(t), errors.New("stop")
	ctx, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		want          error
		visited, left int
		visit         func(l *log, at Entry) (Leave, error)
	}{
		"canceled": {context.Canceled, end + 1, 0, func(l *log, at Entry) (Leave, error) {
			if at.Depth() == end {
				cancel()
			}
			return l.Visit(at)
		}},
		"stopped by a visit": {stop, end, 0, func(l *log, at Entry) (Leave, error) {
			if at.Depth() == end {
				return nil, stop
			}
			return l.Visit(at)
		}},
		"stopped by a leave": {stop, end + 6, 5, func(l *log, at Entry) (Leave, error) {
			leave, err := l.Visit(at)
			if at.Depth() == end {
				return func(Entry, int, error) (bool, error) { return false, stop }, err
			}
			return leave, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l, within := newLog(), t.Context()
			if name == "canceled" {
				within = ctx
			}
			err := Walk(within, start, "top", func(at Entry) (Leave, error) { return c.visit(l, at) })
			if !errors.Is(err, c.want) || len(l.visited) != c.visited || len(l.left) != c.left || descriptors(t) != before {
				t.Errorf("got %v; %d visited, %d left; %d descriptors, before %d", err, len(l.visited), len(l.left), descriptors(t), before)
			}
		})
	}
}
