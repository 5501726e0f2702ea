package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// What is made for each entry that is visited does not keep the walk: btrfs ends a directory where
// it ended when it was opened, and elsewhere the walk ends with an error when most entries are new.
// What was there is visited, if it is none.
func TestGrowing(t *testing.T) {
	const there, most = 1000, 3000
	n := 0
	for name, grow := range map[string]func(at Entry) error{
		"files": func(at Entry) error {
			return unix.Mknodat(at.Dir, fmt.Sprint("new", n), unix.S_IFREG, 0)
		},
		"made and removed": func(at Entry) error {
			_ = unix.Unlinkat(at.Dir, fmt.Sprint("new", n-5), 0)
			return unix.Mknodat(at.Dir, fmt.Sprint("new", n), unix.S_IFREG, 0)
		},
		"below each other": func(at Entry) error {
			return os.MkdirAll(fmt.Sprintf("/proc/self/fd/%d/new%d/n", at.Dir, n), 0o700)
		},
		"moved ahead": func(at Entry) error {
			if at.Name != "next" {
				return nil
			}
			_ = unix.Renameat(at.Dir, "many", at.Dir, "next/many")
			return os.Mkdir(fmt.Sprintf("/proc/self/fd/%d/next/next", at.Dir), 0o700)
		},
		"renamed": func(at Entry) error {
			return unix.Renameat(at.Dir, fmt.Sprint("moved", n-1), at.Dir, fmt.Sprint("moved", n))
		},
	} {
		for _, fs := range []string{"tmpfs", "ext4", "xfs", "btrfs"} {
			t.Run(fmt.Sprint(name, " ", fs), func(t *testing.T) {
				dir := hosttest.Dir(t)
				if fs != "tmpfs" {
					dir = hosttest.PoolMount(t, hosttest.Mkfs(t, fs, 320, inodes(fs)...))
				}
				must(t, os.Mkdir(filepath.Join(dir, "top"), 0o755))
				for i := range there {
					must(t, os.WriteFile(filepath.Join(dir, "top", strconv.Itoa(i)), nil, 0o600))
				}
				n = 0
				must(t, os.WriteFile(filepath.Join(dir, "top/moved0"), nil, 0o600))
				if name == "moved ahead" {
					many(t, filepath.Join(dir, "top"))
				}
				visited, old := 0, 0
				stop := errors.New("the walk goes on and on")
				w := newWalk(t.Context(), open(t, dir), func(at Entry) (Leave, error) {
					if visited++; visited > 10*(there+most) {
						return nil, stop
					}
					if _, is := strconv.Atoi(at.Name); is == nil {
						old++
					}
					if at.Depth() > 0 {
						if n++; name != "renamed" || at.Depth() == 1 {
							must(t, grow(at))
						}
					}
					return func(Entry, int, error) (bool, error) { return false, nil }, nil
				})
				w.growth.most, w.growth.began = most, nextSecond(t, filepath.Join(dir, "top"))
				err := w.run("top")
				deeper := name == "below each other" || name == "moved ahead"
				if fs == "btrfs" && !deeper && err != nil {
					t.Error(err)
				}
				if err == nil && old != there || err != nil && !errors.Is(err, ErrGrows) {
					t.Errorf("%d of what was there visited, %v", old, err)
				}
			})
		}
	}
}

// nextSecond waits until what is made is a second younger than a directory, and returns the second
// of that.
func nextSecond(t testing.TB, dir string) int64 {
	t.Helper()
	var was, now unix.Stat_t
	must(t, unix.Stat(dir, &was))
	for must(t, unix.Stat(dir, &now)); now.Ctim.Sec == was.Ctim.Sec; must(t, unix.Stat(dir, &now)) {
		time.Sleep(10 * time.Millisecond)
		must(t, os.Chmod(dir, 0o755))
	}
	return was.Ctim.Sec
}

// many makes a directory with files, which is moved into the one that is entered next.
func many(t testing.TB, top string) {
	t.Helper()
	must(t, os.Mkdir(filepath.Join(top, "many"), 0o700))
	must(t, os.Mkdir(filepath.Join(top, "next"), 0o700))
	for i := range 100 {
		must(t, os.WriteFile(filepath.Join(top, "many", fmt.Sprint("f", i)), nil, 0o600))
	}
}

// inodes are for many small files.
func inodes(fs string) []string {
	if fs == "ext4" {
		return []string{"-N", "150000"}
	}
	return nil
}
