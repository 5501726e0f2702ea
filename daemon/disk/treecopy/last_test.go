package treecopy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// last is the last pass, with something done before its entry of this number.
func (w *twice) last(entry int, do func() error) (Copied, error) {
	w.Helper()
	steps := 0
	w.o.Step = func() error {
		if steps++; steps == entry {
			return do()
		}
		return nil
	}
	done, err := Last(w.Context(), w.from, w.to, w.o)
	if entry > 0 && steps < entry {
		w.Fatalf("%d entries", steps)
	}
	w.o.Step = nil
	return done, err
}

// entries is how many a tree of newTwice has.
const entries = 44

// Whatever is changed while nothing is to be changed is noticed, before or after the pass came to
// it.
func TestLast(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		base := on(t, fstype)
		for i, name := range slices.Sorted(maps.Keys(changes)) {
			at := []int{1, entries / 2, entries}[i%3]
			t.Run(fmt.Sprint(fstype, "/", name, " at ", at), func(t *testing.T) {
				w := newTwice(t, base)
				w.first()
				_, err := w.last(at, func() error { return changes[name](w) })
				if quiet := name == "nothing"; quiet && err != nil || !quiet && !errors.Is(err, ErrWritten) {
					t.Error(err)
				}
			})
		}
	}
}

// The entry is named that was changed.
func TestLastNames(t *testing.T) {
	w := newTwice(t, on(t, "xfs"))
	w.first()
	_, err := w.last(entries, func() error { return os.WriteFile(w.at("d0/below/deep/file"), []byte("new"), 0) })
	if err == nil || err.Error() != `"d0/below/deep/file": something that is not stopped writes to the volume` {
		t.Error(err)
	}
}

// What is written to a mapping after its file was copied is noticed, whether or not it was written
// to before. What is written before is in the copy.
func TestLastMapped(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		base := on(t, fstype)
		for _, dirty := range []bool{false, true} {
			for _, at := range []int{1, entries} {
				t.Run(fmt.Sprint(fstype, dirty, at), func(t *testing.T) {
					w := newTwice(t, base)
					mapped := w.mapping("hot")
					copy(mapped, "one")
					w.first()
					if dirty {
						copy(mapped, "two")
					}
					_, err := w.last(at, func() error { copy(mapped, "new"); return nil })
					if errors.Is(err, ErrWritten) {
						return
					}
					must(t, err)
					if !dirty || at > 1 {
						t.Error("it is not noticed")
					}
					w.same()
				})
			}
		}
	}
}

func (w *twice) mapping(path string) []byte {
	w.Helper()
	file, err := os.OpenFile(w.at(path), os.O_RDWR, 0)
	must(w, err)
	defer file.Close()
	mapped, err := unix.Mmap(int(file.Fd()), 0, 3, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(w, err)
	w.Cleanup(func() { _ = unix.Munmap(mapped) })
	return mapped
}

// What was changed until the moment before is no reason, and is in the copy.
func TestLastBefore(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		base := on(t, fstype)
		for name, change := range changes {
			t.Run(fstype+"/"+name, func(t *testing.T) {
				w := newTwice(t, base)
				w.first()
				must(t, change(w))
				_, err := Last(t.Context(), w.from, w.to, w.o)
				must(t, err)
				w.same()
			})
		}
	}
}

// What others do meanwhile that changes nothing is no reason: reading, writing out what was written
// before, what is mounted in the tree, and what is not copied.
func TestLastQuiet(t *testing.T) {
	for _, fstype := range []string{"xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			w := newTwice(t, on(t, fstype))
			outside := hosttest.Dir(t)
			must(t, os.WriteFile(outside+"/file", nil, 0o600))
			for from, to := range map[string]string{outside + "/file": "d3/f3", outside: "d4"} {
				hosttest.Mount(t, "--bind", from, w.at(to))
				t.Cleanup(func() { _ = unix.Unmount(w.at(to), unix.MNT_DETACH) })
			}
			must(t, unix.Mknod(w.at("d3/socket"), unix.S_IFSOCK|0o600, 0), os.Chtimes(w.at("d0/f0"), time.Unix(1, 0), time.Unix(1, 0)))
			mapped := w.mapping("hot")
			w.first()
			copy(mapped, "two")
			done, err := w.last(entries/2, func() error {
				_, err := os.ReadFile(w.at("d0/f0"))
				_, wrong := os.ReadDir(w.at("d2"))
				unix.Sync()
				return errors.Join(err, wrong, os.WriteFile(outside+"/file", []byte("x"), 0), os.WriteFile(outside+"/new", nil, 0o600), os.Chmod(w.at("d3/socket"), 0o700))
			})
			if must(t, err); done.Mounts != 2 {
				t.Errorf("%+v", done)
			}
		})
	}
}

// Between what was changed before the pass and what is changed in it lies a moment of the
// filesystem's own clock. A time that this clock has not reached is one of before.
func TestLastFuture(t *testing.T) {
	top := open(t, on(t, "xfs"))
	before, err := (&Watched{to: top}).time()
	must(t, err)
	w, err := Watch(t.Context(), top)
	must(t, err)
	after, err := (&Watched{to: top}).time()
	must(t, err)
	future := unix.NsecToTimespec(time.Now().Add(time.Hour).UnixNano())
	for _, c := range []struct {
		name    string
		changed unix.Timespec
		want    error
	}{{"before", before, nil}, {"first moment", w.since, ErrWritten}, {"later", after, ErrWritten}, {"future", future, nil}, {"later still", after, ErrWritten}} {
		if got := w.look(tree.Entry{}, unix.Stat_t{Ctim: c.changed}); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A clock that is set ends the timer, as does a timer's own end, and that is an error. The flags
// are those with which the kernel ends it for the clock, which is all machine's and not to be set
// by a test.
func TestLastClock(t *testing.T) {
	fd, err := clockTimer()
	must(t, err)
	defer unix.Close(fd)
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if must(t, err); !strings.Contains(string(info), "clockid: 0\n") || !strings.Contains(string(info), "settime flags: 03\n") {
		t.Errorf("%s", info)
	}
	c := &clock{timer: fd, runs: true}
	must(t, c.set())
	c.end(t)
	if err := c.set(); err != ErrClock {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// end has a clock that runs look as if it had been set.
func (c *clock) end(t testing.TB) {
	t.Helper()
	long := unix.ItimerSpec{Value: unix.Timespec{Sec: 1}}
	must(t, unix.TimerfdSettime(c.timer, unix.TFD_TIMER_ABSTIME, &long, nil))
}

// A clock that is set in any pass, or between two, is an error of the next one: a file that was
// written while the clock was an hour behind looks as if it had not changed, also when the clock is
// right again.
func TestClockOfAllPasses(t *testing.T) {
	base := on(t, "xfs")
	for name, next := range map[string]func(w *twice) error{
		"again": func(w *twice) error { return second(Again(t.Context(), w.from, w.to, w.o)) },
		"last":  func(w *twice) error { return second(Last(t.Context(), w.from, w.to, w.o)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTwice(t, base)
			w.first()
			must(t, next(w))
			w.o.Seen.clock.end(t)
			if err := next(w); err != ErrClock {
				t.Error(err)
			}
			before := descriptors(t)
			if w.o.Seen.Close(); descriptors(t) >= before {
				t.Error("the clock's timer is open")
			}
		})
	}
}

// The last pass ends with its context, and leaves no descriptor.
func TestLastCanceled(t *testing.T) {
	w := newTwice(t, on(t, "xfs"))
	w.first()
	must(t, w.o.Seen.make(w.to))
	before := descriptors(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.o.Step = func() error { cancel(); return nil }
	if _, err := Last(ctx, w.from, w.to, w.o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, before %d", after, before)
	}
}
