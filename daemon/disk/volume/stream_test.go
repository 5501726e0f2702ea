package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/treecopy"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// streamed is a volume with some files as a stream, and what it has.
func streamed(t *testing.T) (stream []byte, want string) {
	r := onTmpfs(t)
	withData(t, r)
	var text bytes.Buffer
	e := treecopy.NewEncoder(&text)
	_, err := r.Write(t.Context(), r.id, pv, Sending{
		Begin: func(unix.Timespec) (io.Writer, error) { return e, nil },
		Last:  func() error { return nil },
	})
	must(t, errors.Join(err, e.End()))
	return text.Bytes(), contents(t, filepath.Join(r.path, spec(pv).Directory))
}

// received is a volume that is to be made of a stream. during is called in the middle.
func received(from io.Reader, during func()) Spec {
	s := spec(pv)
	s.Node, s.Moving, s.Full = "b", "{}", true
	s.Origin = record.Origin{Kind: record.Stream, Name: pv, UID: "stream"}
	s.Receive = func(ctx context.Context, dir int, o treecopy.Options) (treecopy.Copied, error) {
		o.Limit = math.MaxInt64
		done, err := treecopy.Read(ctx, treecopy.NewDecoder(from), dir, math.MaxUint64, o)
		if during != nil {
			during()
		}
		return done, err
	}
	return s
}

// discarded removes what was received.
func (r *rig) discarded(t testing.TB) {
	t.Helper()
	must(t, r.DropReceived(t.Context(), r.id, pv))
	must(t, second(r.Pool.Purge(t.Context(), r.id, pv)))
}

// A volume that is received is in the pool whole, or not at all, whenever the call dies. The next
// one makes it anew; or the daemon sweeps it, and nothing is left.
func TestReceiveCrash(t *testing.T) {
	stream, whole := streamed(t)
	onEach(t, func(t *testing.T, fs, base string) {
		fresh := func(n int) *rig {
			dir := filepath.Join(base, fmt.Sprint("pool-", n))
			must(t, os.Mkdir(dir, 0o700))
			r := restarted(&rig{path: dir, id: pool.Identity(t, dir)})
			prepared(t, r)
			return r
		}
		receive := func(r *rig) error {
			s := received(bytes.NewReader(stream), nil)
			return second(r.Create(context.Background(), r.id, s))
		}
		r := fresh(0)
		empty, place := contents(t, r.path), filepath.Join(r.path, spec(pv).Directory)
		must(t, receive(r))
		want := contents(t, r.path)
		if got := contents(t, place); got != whole {
			t.Fatalf("received:\n%swant:\n%s", got, whole)
		}
		for n := 1; ; n++ {
			r := fresh(n)
			died, err := stopAt(r, fmt.Sprint("#", n), func() error { return receive(r) })
			must(t, err)
			place := filepath.Join(r.path, spec(pv).Directory)
			if _, err := os.Lstat(place); err == nil && contents(t, place) != whole {
				t.Errorf("died at %q: it is in the pool and not whole", died)
			}
			r = restarted(r)
			if n%2 == 0 { // the daemon looks before the next call
				must(t, second(r.Sweep(t.Context(), r.id)))
				r.purgeAll(t)
			}
			r.discarded(t)
			must(t, second(r.Sweep(t.Context(), r.id)))
			if got := contents(t, r.path); got != empty {
				t.Errorf("discarded after %q:\n%swant:\n%s", died, got, empty)
			}
			must(t, receive(r))
			if got := contents(t, r.path); got != want {
				t.Errorf("made again after %q:\n%swant:\n%s", died, got, want)
			}
			must(t, os.RemoveAll(r.path))
			if died == "" {
				if n < 7 {
					t.Errorf("only %d steps", n)
				}
				break
			}
		}
	})
}

// While a volume is received nobody else takes it: not the daemon's sweep, and not another call. A
// stream that is cut off leaves nothing, and a volume of the name is not touched.
func TestReceiveBesideTheDaemon(t *testing.T) {
	stream, _ := streamed(t)
	r := onDisk(t, hosttest.Dir(t))
	daemon, empty := restarted(r), contents(t, r.path)
	place := filepath.Join(r.path, spec(pv).Directory)
	during := func() {
		must(t, second(daemon.Sweep(t.Context(), r.id)))
		if is, err := daemon.Lookup(t.Context(), r.id, pv); err != nil ||
			is.Place != record.InStaging {
			t.Errorf("meanwhile it is %v, %v", is.Place, err)
		}
		if _, err := os.Lstat(place); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is in the pool already: %v", err)
		}
		again := received(bytes.NewReader(stream), nil)
		if _, err := daemon.Create(t.Context(), r.id, again); !errors.Is(err, ErrReceiving) {
			t.Errorf("another call: %v", err)
		}
		if err := daemon.DropReceived(t.Context(), r.id, pv); !errors.Is(err, ErrReceiving) {
			t.Errorf("another call discards it: %v", err)
		}
	}
	for _, cut := range []int{0, 40, len(stream) / 2, len(stream) - 1} {
		s := received(bytes.NewReader(stream[:cut]), during)
		if _, err := r.Create(t.Context(), r.id, s); !errors.Is(err, treecopy.ErrCutOff) {
			t.Errorf("cut off after %d bytes: %v", cut, err)
		}
		r.discarded(t)
		if got := contents(t, r.path); got != empty {
			t.Errorf("cut off after %d bytes:\n%s", cut, got)
		}
	}
	_, err := r.Create(t.Context(), r.id, received(bytes.NewReader(stream), during))
	must(t, err)
	must(t, r.Moved(t.Context(), r.id, pv, "b"))
	is, err := r.Lookup(t.Context(), r.id, pv)
	must(t, err)
	if is.Origin.UID != "stream" || is.Moving != "" || is.Node != "b" {
		t.Errorf("recorded as %+v", is)
	}
	if err := r.DropReceived(t.Context(), r.id, pv); !errors.Is(err, ErrConflict) {
		t.Errorf("one that has its object is discarded: %v", err)
	}
	must(t, r.Sent(t.Context(), r.id, pv, "next"))
	if is, err = r.Lookup(t.Context(), r.id, pv); err != nil || is.Sent != "next" {
		t.Errorf("recorded as %+v, %v", is, err)
	}
	write(t, filepath.Join(r.path, "default-data-pvc-2", "file"), "foreign")
	foreign := received(bytes.NewReader(stream), nil)
	foreign.PV, foreign.Directory = "pvc-2", "default-data-pvc-2"
	if _, err := r.Create(t.Context(), r.id, foreign); !errors.Is(err, ErrForeign) {
		t.Errorf("over a foreign directory: %v", err)
	}
}

// inTwo are the streams of a volume that changes between them, and what it has in the end.
func inTwo(t *testing.T) (live, last []byte, want string) {
	r := onTmpfs(t)
	withData(t, r)
	dir := filepath.Join(r.path, spec(pv).Directory)
	var since unix.Timespec
	write := func(o treecopy.Options) []byte {
		var text bytes.Buffer
		e := treecopy.NewEncoder(&text)
		_, err := r.Write(t.Context(), r.id, pv, Sending{Options: o,
			Begin: func(at unix.Timespec) (io.Writer, error) { since = at; return e, nil }})
		must(t, errors.Join(err, e.End()))
		return text.Bytes()
	}
	live = write(treecopy.Options{Live: true})
	must(t, errors.Join(os.Rename(filepath.Join(dir, "below"), filepath.Join(dir, "moved")),
		os.Remove(filepath.Join(dir, "symlink"))))
	must(t, os.WriteFile(filepath.Join(dir, "late"), []byte("late"), 0o640))
	return live, write(treecopy.Options{Since: since}), contents(t, dir)
}

// A volume that comes in two streams is in the pool whole, or not at all, whenever a call dies,
// also where the daemon sweeps before the next one: that goes on from the first stream where it is
// there, and else begins anew.
func TestReceiveBaseCrash(t *testing.T) {
	live, last, whole := inTwo(t)
	part := func(r *rig, stream []byte, uid, base string) error {
		s := received(bytes.NewReader(stream), nil)
		s.Origin.UID = uid
		s.Receive = func(ctx context.Context, dir int,
			o treecopy.Options) (treecopy.Copied, error) {
			o.Limit, o.Live = math.MaxInt64, base == ""
			return treecopy.Read(ctx, treecopy.NewDecoder(bytes.NewReader(stream)), dir,
				math.MaxUint64, o)
		}
		return r.ReceiveBase(context.Background(), r.id, s, base, base != "")
	}
	based := func(r *rig) bool {
		is, err := r.Lookup(context.Background(), r.id, pv)
		return err == nil && is.Place == record.InStaging && is.Partial != "" &&
			is.Origin.UID == "first"
	}
	goesOn := 0
	both := func(r *rig) error {
		is, err := r.Lookup(context.Background(), r.id, pv)
		switch {
		case err == nil && is.Place == record.InPool:
			return nil
		case based(r):
			goesOn++
		default:
			r.discarded(t)
			if err := part(r, live, "first", ""); err != nil {
				return err
			}
		}
		return part(r, last, "last", "first")
	}
	onEach(t, func(t *testing.T, fs, base string) {
		want := ""
		for n := 0; ; n++ {
			dir := filepath.Join(base, fmt.Sprint("pool-", n))
			must(t, os.Mkdir(dir, 0o700))
			r := restarted(&rig{path: dir, id: pool.Identity(t, dir)})
			prepared(t, r)
			died, err := stopAt(r, fmt.Sprint("#", n), func() error { return both(r) })
			must(t, err)
			place := filepath.Join(r.path, spec(pv).Directory)
			if _, err := os.Lstat(place); err == nil && contents(t, place) != whole {
				t.Errorf("died at %q: it is in the pool and not whole", died)
			}
			r = restarted(r)
			if n%2 == 0 {
				was := based(r)
				must(t, second(r.Sweep(t.Context(), r.id)))
				r.purgeAll(t)
				if was && !based(r) {
					t.Errorf("died at %q: what came is swept", died)
				}
			}
			must(t, both(r))
			if n == 0 {
				want = contents(t, r.path)
			}
			if got := contents(t, r.path); got != want || contents(t, place) != whole {
				t.Errorf("after %q:\n%swant:\n%s", died, got, want)
			}
			must(t, os.RemoveAll(r.path))
			if n > 0 && died == "" {
				if n < 8 || goesOn == 0 {
					t.Errorf("only %d steps, and it went on %d times", n, goesOn)
				}
				break
			}
		}
	})
}
