package treecopy

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// A tree to which anything happens is as it is at the end after streams that bring what changed:
// nothing of them is seen before the last one, and one that is cut off takes nothing of the one
// that it goes on from. Where something happens while a stream is written, too, a file may have
// been missed in a directory that was moved: then the next stream is refused.
func TestStreamIncremental(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	refused := 0
	for _, fstype := range []string{"xfs", "btrfs", "ext4"} {
		base := on(t, fstype)
		for round := range uint64(12) {
			t.Run(fmt.Sprint(fstype, round), func(t *testing.T) {
				r := random{newTwice(t, base), rand.New(rand.NewPCG(seed, round))}
				r.opens()
				err := r.incremental(Options{Live: true}, round%2 > 0)
				if errors.Is(err, ErrNotKept) && round%2 > 0 {
					refused++
					return
				}
				must(t, err)
				r.like()
			})
		}
	}
	if refused > 9 {
		t.Errorf("%d of 18 are refused", refused)
	}
}

// Each subvolume of btrfs counts its own inodes: files of one number in two are two, at once and in
// passes.
func TestStreamSubvolumes(t *testing.T) {
	base := on(t, "btrfs")
	for _, live := range []bool{false, true} {
		r := random{newTwice(t, base), nil}
		for _, in := range []string{"one", "two", "two/three"} {
			hosttest.Run(t, "btrfs", "subvolume", "create", r.at(in))
			r.write(in+"/data", "of "+in)
			must(t, os.Link(r.at(in+"/data"), r.at(in+"/more")))
		}
		r.opens()
		store, err := Store(r.to)
		must(t, err)
		var since unix.Timespec
		if live {
			since, err = r.streams(store, Options{Live: true})
			must(t, err)
		}
		_, err = r.streams(store, Options{Since: since})
		must(t, err, Unstore(r.to, store))
		r.like()
	}
}

// incremental brings the tree to the copy. during is whether something happens while it is written.
func (r random) incremental(o Options, during bool) error {
	r.Helper()
	if during {
		o.Step = func() error { r.some(r.IntN(2)); return nil }
	}
	r.some(30)
	store, err := Store(r.to)
	must(r.twice, err)
	o.Since, err = r.streams(store, o)
	for n := r.IntN(3); n > 0 && err == nil; n-- {
		r.some(10)
		r.cutOff(store, o)
		o.Since, err = r.streams(store, o)
	}
	if err != nil {
		return err
	}
	r.some(10)
	if len(r.list(filepath.Join("copy", store))) == 0 {
		r.Error("nothing was kept")
	}
	if _, err = r.streams(store, Options{Since: o.Since}); err == nil {
		err = Unstore(r.to, store)
	}
	return err
}

// list is the names in a directory.
func (r random) list(dir string) []os.DirEntry {
	r.Helper()
	all, err := os.ReadDir(filepath.Join(r.dir, dir))
	must(r.twice, err)
	return all
}

// stream is what Write writes, to which something happens meanwhile if it is live.
func (r random) stream(o Options) (stream []byte, since unix.Timespec) {
	r.Helper()
	watched, err := Watch(r.Context(), r.to)
	must(r.twice, err)
	var to bytes.Buffer
	e := NewEncoder(&to)
	_, err = Write(r.Context(), r.from, pieces{e}, o)
	must(r.twice, err, e.End())
	return to.Bytes(), watched.Since()
}

// pieces has a chunk for each write, as large trees have many.
type pieces struct{ *Encoder }

func (p pieces) Write(b []byte) (int, error) {
	n, err := p.Encoder.Write(b)
	if err == nil && len(p.buf) > 0 {
		err = p.flush()
	}
	return n, err
}

// streams writes the tree to a stream, and reads that.
func (r random) streams(store string, o Options) (since unix.Timespec, err error) {
	r.Helper()
	stream, since := r.stream(o)
	must(r.twice, Emptied(r.Context(), r.to, store))
	_, err = Read(r.Context(), NewDecoder(bytes.NewReader(stream)), r.to, unlimited,
		Options{Limit: unlimited, Live: o.Live, Store: store})
	if seen := r.list("copy"); o.Live && len(seen) != 1 {
		r.Errorf("before the last stream the copy has %q", seen)
	}
	return since, err
}

// cutOff reads a part of such a stream.
func (r random) cutOff(store string, o Options) {
	r.Helper()
	stream, _ := r.stream(o)
	must(r.twice, Emptied(r.Context(), r.to, store))
	_, err := Read(r.Context(), NewDecoder(bytes.NewReader(stream[:r.IntN(len(stream))])), r.to,
		unlimited, Options{Limit: unlimited, Live: o.Live, Store: store})
	if !errors.Is(err, ErrCutOff) && !errors.Is(err, ErrNotKept) {
		r.Error(err)
	}
}

// A first stream that is cut off is gone on with, again and again, and what came is not sent twice;
// where something happens between the two, a directory that was moved may have it refused.
func TestStreamResumed(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	refused, resumed := 0, 0
	for _, fstype := range []string{"xfs", "btrfs", "ext4"} {
		base := on(t, fstype)
		for round := range uint64(12) {
			t.Run(fmt.Sprint(fstype, round), func(t *testing.T) {
				r := random{newTwice(t, base), rand.New(rand.NewPCG(seed, round))}
				r.opens()
				n, err := r.resumed(round%2 > 0)
				if resumed += n; errors.Is(err, ErrNotKept) && round%2 > 0 {
					refused++
					return
				}
				must(t, err)
				r.like()
			})
		}
	}
	if refused > 12 || resumed < 20 {
		t.Errorf("%d of 18 are refused; %d times gone on", refused, resumed)
	}
}

// resumed brings the tree to the copy by a first stream that is cut off, and counts how often.
func (r random) resumed(changes bool) (times int, err error) {
	r.Helper()
	r.some(40)
	store, err := Store(r.to)
	must(r.twice, err)
	o := Options{Live: true}
	for range 3 {
		if stream, since := r.stream(o); r.part(store, stream[:r.IntN(len(stream))], &o) {
			if times++; times == 1 {
				o.Since = since
			}
			again, _ := r.stream(o)
			if len(again) > len(stream) {
				r.Errorf("%d bytes are gone on with by %d", len(stream), len(again))
			}
		}
		if changes {
			r.some(10)
		}
	}
	if o.Since, err = r.streams(store, o); err != nil {
		return times, err
	}
	r.some(10)
	if _, err = r.streams(store, Options{Since: o.Since}); err == nil {
		err = Unstore(r.to, store)
	}
	return times, err
}

// part reads what came of a stream, and reports whether o goes on behind that.
func (r random) part(store string, stream []byte, o *Options) bool {
	r.Helper()
	must(r.twice, Emptied(r.Context(), r.to, store))
	done, err := Read(r.Context(), NewDecoder(bytes.NewReader(stream)), r.to, unlimited,
		Options{Limit: unlimited, Live: true, Store: store, Cut: o.Cut})
	if errors.Is(err, ErrCutOff) && done.Last != 0 {
		o.Cut = done.Last
		return true
	}
	return false
}

// A stream that goes on from one whose files are not there is refused, and so is one of a file that
// is another one by now.
func TestStreamNotKept(t *testing.T) {
	dir := hosttest.Dir(t)
	for name, store := range map[string]bool{"no store": false, "an empty one": true} {
		_, to := fresh(t, dir)
		o := Options{Limit: unlimited}
		if store {
			var err error
			o.Store, err = Store(to)
			must(t, err)
		}
		var stream bytes.Buffer
		e := NewEncoder(&stream)
		must(t, WriteItem(e, item{Kind: itemKept, Name: []byte("a"), Key: 1}),
			WriteItem(e, item{Kind: itemUp, Name: []byte(".")}), e.End())
		_, err := Read(t.Context(), NewDecoder(&stream), to, unlimited, o)
		if !errors.Is(err, ErrNotKept) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := newTwice(t, dir)
	r := random{w, rand.New(rand.NewPCG(1, 1))}
	w.opens()
	store, err := Store(w.to)
	must(t, err)
	since, err := r.streams(store, Options{Live: true})
	must(t, err)
	for _, e := range r.list(filepath.Join("copy", store)) {
		must(t, os.WriteFile(filepath.Join(w.dir, "copy", store, e.Name()), []byte("other"), 0o600))
	}
	stream, _ := r.stream(Options{Since: since})
	_, err = Read(t.Context(), NewDecoder(bytes.NewReader(stream)), w.to, unlimited,
		Options{Limit: unlimited, Store: store})
	if !errors.Is(err, ErrNotKept) {
		t.Error(err)
	}
}
