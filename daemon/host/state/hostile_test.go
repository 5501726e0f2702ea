package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// stranger is the user that the directories belong to, and who is not root.
const stranger = 4711

// plants are what that user can put in the place of a file. victim is a file of root's that he may
// not write. A hard link to it takes fs.protected_hardlinks = 0 or CAP_FOWNER, which the daemon
// has.
var plants = map[string]func(name, victim string) error{
	"link":           func(name, victim string) error { return os.Symlink(victim, name) },
	"dangling link":  func(name, victim string) error { return os.Symlink(victim+".new", name) },
	"link beside it": func(name, _ string) error { return os.Symlink("other", name) },
	"hard link":      func(name, victim string) error { return os.Link(victim, name) },
	"FIFO":           func(name, _ string) error { return unix.Mkfifo(name, 0o666) },
	"full device":    func(name, _ string) error { return unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 7))) },
	"endless device": func(name, _ string) error { return unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) },
	"socket":         func(name, _ string) error { return unix.Mknod(name, unix.S_IFSOCK|0o666, 0) },
	"directory":      func(name, _ string) error { return os.Mkdir(name, 0o777) },
	"huge file": func(name, _ string) error {
		return errors.Join(os.WriteFile(name, nil, 0o666), os.Truncate(name, 1<<40))
	},
	"control letters": func(name, _ string) error { return os.WriteFile(name, []byte("\x1b]0;x\a\u009b31m\n"), 0o666) },
}

type hostile struct {
	*testing.T
	dir, victim string
}

const secret = "root's own\n"

func plant(t *testing.T, where string, with func(name, victim string) error) hostile {
	t.Helper()
	base := hosttest.Dir(t)
	h := hostile{t, filepath.Join(base, "dir"), filepath.Join(base, "victim")}
	name := filepath.Join(h.dir, where)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(h.victim, []byte(secret), 0o604),
		os.WriteFile(filepath.Join(filepath.Dir(name), "other"), []byte(secret), 0o604), with(name, h.victim)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{h.dir, filepath.Dir(name), name} {
		if info, err := os.Stat(name); err == nil && !os.SameFile(info, h.stat(h.victim)) {
			if err := os.Lchown(name, stranger, stranger); err != nil {
				t.Fatal(err)
			}
		}
	}
	return h
}

func (h hostile) stat(name string) os.FileInfo {
	h.Helper()
	info, err := os.Stat(name)
	if err != nil {
		h.Fatal(err)
	}
	return info
}

// within runs what must not wait, and compares root's files afterwards.
func (h hostile) within(what string, run func() error) error {
	h.Helper()
	done := make(chan error, 1)
	go func() { done <- run() }()
	var err error
	select {
	case err = <-done:
	case <-time.After(20 * time.Second):
		h.Fatalf("%s waits", what)
	}
	if text, readErr := os.ReadFile(h.victim); string(text) != secret || readErr != nil {
		h.Errorf("%s: root's file is %q, %v", what, text, readErr)
	}
	if mode := h.stat(h.victim).Mode(); mode != 0o604 {
		h.Errorf("%s: root's file has mode %v", what, mode)
	}
	if _, err := os.Lstat(h.victim + ".new"); err == nil {
		h.Errorf("%s: made a file through a link", what)
	}
	return err
}

// Whatever has the name of a file that is read: an error at once, or its text, never more than a
// bound.
func TestHostileRead(t *testing.T) {
	for name, with := range plants {
		h := plant(t, "pools/fast.json", with)
		err := h.within(name, func() error { _, err := Remembered(h.dir, "fast"); return err })
		if err == nil || strings.ContainsAny(err.Error(), "\x1b\u009b") {
			t.Errorf("%s: %v", name, err)
		}
		text, err := ReadFile(h.dir, "pools/fast.json")
		if err == nil && len(text) > 100 {
			t.Errorf("%s: %d bytes", name, len(text))
		}
		if plain := name == "hard link" || name == "control letters"; (err == nil) != plain {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever has the name of a file that is written, or of the one that is written aside: it is
// replaced or it is an error, and nothing is written through it.
func TestHostileWrite(t *testing.T) {
	for name, with := range plants {
		for _, at := range []string{"pools/fast.json", "pools/fast.json.new", "status.json", "status.json.new", "token", "token.new"} {
			h := plant(t, at, with)
			err := h.within(name, func() error {
				if strings.HasPrefix(at, "pools") {
					return Remember(h.dir, "fast", marker("AAAA"))
				}
				if strings.HasPrefix(at, "token") {
					return WriteFileDurable(h.dir, "token", []byte("t"), 0o600)
				}
				return WriteFile(h.dir, "status.json", []byte("{}\n"), 0o644)
			})
			if (err == nil) == (name == "directory") {
				t.Errorf("%s as %s: %v", name, at, err)
			}
			made := filepath.Join(h.dir, strings.TrimSuffix(at, ".new"))
			if info, lerr := os.Lstat(made); err == nil && (lerr != nil || !info.Mode().IsRegular() || info.Size() > 1000) {
				t.Errorf("%s as %s: left %v, %v", name, at, info, lerr)
			}
		}
	}
}

// A lock is written in place: only into a plain file of one name.
func TestHostileLocks(t *testing.T) {
	for name, with := range plants {
		want := name == "huge file" || name == "control letters"
		h := plant(t, "lock", with)
		err := h.within(name, func() error { release, err := Lock(h.dir); free(release); return err })
		if (err == nil) != want || err != nil && !errors.Is(err, ErrNotPlain) {
			t.Errorf("%s: %v", name, err)
		}
		h = plant(t, "pools/ID.lock", with)
		err = h.within(name, func() error {
			lock, err := LockPool(filepath.Join(h.dir, "pools"), "ID", "/x")
			if err == nil {
				lock.Release()
			}
			return err
		})
		if (err == nil) != want || err != nil && !errors.Is(err, ErrNotPlain) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func free(release func()) {
	if release != nil {
		release()
	}
}

// The directory in the directory is a name as well: a link there leads nowhere.
func TestHostileDirectory(t *testing.T) {
	base := hosttest.Dir(t)
	dir, outside := filepath.Join(base, "dir"), filepath.Join(base, "outside")
	m, err := hostcheck.EncodeMarker(marker("AAAA"))
	if err := errors.Join(err, os.Mkdir(dir, 0o700), os.Mkdir(outside, 0o700), os.Symlink("../outside", dir+"/pools"),
		os.WriteFile(outside+"/fast.json", m, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, read := Remembered(dir, "fast")
	_, lock := LockPool(dir+"/pools", "ID", "/x")
	for what, err := range map[string]error{"read": read, "write": Remember(dir, "fast", marker("BBBB")), "lock": lock} {
		if !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := snapshot(t, outside); got != "-rw------- fast.json\n"+string(m) {
		t.Errorf("outside:\n%s", got)
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		`plain "words" ü`: `plain "words" ü`, "a\x1b[31m": `a\x1b[31m`, "two\nlines\t": `two\nlines\t`,
		"c1 \u009b1m": `c1 \u009b1m`, "turned \u202e": `turned \u202e`, "\xff": `\xff`, "bell\a \"": `bell\a "`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
