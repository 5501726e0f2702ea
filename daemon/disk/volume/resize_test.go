package volume

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
)

func grown(t testing.TB, r *rig) { data(t, r); must(t, r.Resize(t.Context(), r.id, pv, 3<<30)) }
func promise(t testing.TB, r *rig) {
	prepared(t, r)
	s := spec(pv)
	s.Promised = 2 << 30
	_, err := r.Create(t.Context(), r.id, s)
	must(t, err)
}

// The record has the new size, whether it is more or less, and all else in it stays.
func TestResize(t *testing.T) {
	for name, c := range map[string]struct {
		before              func(testing.TB, *rig)
		bytes               int64
		requested, promised int64
	}{
		"to more":                      {data, 2 << 30, 2 << 30, 0},
		"to the same":                  {data, 1 << 30, 1 << 30, 0},
		"to less, after a failed try":  {grown, 2 << 30, 2 << 30, 0},
		"to more, and more is kept":    {promise, 4 << 30, 4 << 30, 4 << 30},
		"to more, and as much is kept": {promise, 2 << 30, 2 << 30, 2 << 30},
	} {
		r := onTmpfs(t)
		c.before(t, r)
		was, err := r.Lookup(t.Context(), r.id, pv)
		must(t, err)
		must(t, r.Resize(t.Context(), r.id, pv, c.bytes))
		now, err := r.Lookup(t.Context(), r.id, pv)
		if was.Requested, was.Promised = c.requested, c.promised; err != nil || now != was {
			t.Errorf("%s: %v, %+v", name, err, now)
		}
	}
}

// What is not a volume in the pool is not resized, and nothing is changed.
func TestResizeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		before func(testing.TB, *rig)
		bytes  int64
		want   error
	}{
		"not recorded":    {theirs, 2 << 30, ErrNotRecorded},
		"in the trash":    {trashed, 2 << 30, ErrPlace},
		"archived":        {archivedHalf, 2 << 30, ErrPlace},
		"to nothing":      {data, 0, nil},
		"to less than no": {data, -1, nil},
	} {
		r := onTmpfs(t)
		c.before(t, r)
		before := contents(t, r.path)
		err := r.Resize(t.Context(), r.id, pv, c.bytes)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if got := contents(t, r.path); got != before {
			t.Errorf("%s: was\n%sis\n%s", name, before, got)
		}
	}
}

// limitOf is the limit of the volume's directory, "" for none.
func limitOf(r *rig) string {
	buffer := make([]byte, 64)
	n, _ := unix.Getxattr(filepath.Join(r.path, spec(pv).Directory), cephQuota, buffer)
	return string(buffer[:max(n, 0)])
}

// A limit follows the size, one that was not set is not set now, and at no moment is a limit above
// what the record says.
func TestResizeLimit(t *testing.T) {
	for _, quota := range []int64{0, 1 << 30} {
		for _, maker := range []string{"", "aaaaaaaa"} {
			r, fs := onFUSE(t, maker)
			fs.TakeQuotas()
			prepared(t, r)
			s := spec(pv)
			s.Quota = quota
			_, err := r.Create(t.Context(), r.id, s)
			must(t, err)
			for _, to := range []int64{3 << 30, 2 << 30, 2 << 30} {
				for n := 1; ; n++ {
					died, err := stopAt(r, fmt.Sprint("#", n), func() error { return r.Resize(t.Context(), r.id, pv, to) })
					must(t, err)
					rec, err := r.Lookup(t.Context(), r.id, pv)
					must(t, err)
					if limit, _ := strconv.ParseInt(limitOf(r), 10, 64); limit > rec.Requested {
						t.Errorf("to %d, died at %q: the limit is %d, and the record says %d", to, died, limit, rec.Requested)
					}
					if died == "" {
						break
					}
				}
				want := ""
				if quota > 0 {
					want = fmt.Sprint(to)
				}
				if got := limitOf(r); got != want {
					t.Errorf("to %d: the limit is %q, want %q", to, got, want)
				}
			}
		}
	}
}

// A daemon of a shared pool that was paused while it made or expanded a volume wakes beside the
// next, which has expanded it further: the limit is that of the larger size, as soon as the record
// is (Mend of package expansion).
func TestResizePausedHolder(t *testing.T) {
	for _, c := range []struct{ before, paused, other steps }{
		{steps{"create limited"}, steps{"grow to 2"}, steps{"grow to 3"}},
		{nil, steps{"create limited"}, steps{"create limited", "grow to 3"}},
	} {
		for at, ended := 0, false; !ended; at++ {
			a, fs := onFUSE(t, "aaaaaaaa")
			b := &rig{Pool: New(Options{Name: "p", Path: a.path, HostID: "bbbbbbbb"}), path: a.path, id: a.id}
			fs.TakeQuotas()
			prepared(t, a)
			c.before.of(t, a)
			ended = pausedAt(t, a, at, c.paused, func() { c.other.of(t, b) })
			steps{"raise to 3"}.of(t, b)
			rec, err := b.Lookup(t.Context(), b.id, pv)
			if must(t, err); rec.Requested != 3<<30 || limitOf(b) != fmt.Sprint(3<<30) {
				t.Errorf("%s, paused after step %d: %d bytes are recorded, the limit is %s", c.paused, at, rec.Requested, limitOf(b))
			}
		}
	}
}

// What has still the size that the caller knows gets another, and nothing else: one that was
// expanded meanwhile keeps its size.
func TestResizeFrom(t *testing.T) {
	r := onTmpfs(t)
	data(t, r)
	for _, c := range []struct {
		was, to, after int64
		resized        bool
	}{{1 << 30, 2 << 30, 2 << 30, true}, {1 << 30, 3 << 30, 2 << 30, false},
		{3 << 30, 1 << 30, 2 << 30, false}, {2 << 30, 3 << 30, 3 << 30, true}, {3 << 30, 1 << 30, 1 << 30, true}} {
		resized, err := r.ResizeFrom(t.Context(), r.id, pv, c.was, c.to)
		if now := r.lookup(t, pv).Requested; err != nil || resized != c.resized || now != c.after {
			t.Errorf("%d to %d: %v, resized %t, recorded are %d", c.was, c.to, err, resized, now)
		}
	}
	if _, err := r.ResizeFrom(t.Context(), r.id, "pvc-none", 1, 2); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("got %v", err)
	}
}

// A limit that cannot be read is not taken for none: the volume would be said to be larger than it
// may become.
func TestResizeUnknownLimit(t *testing.T) {
	r, fs := onFUSE(t, "")
	fs.TakeQuotas()
	prepared(t, r)
	s := spec(pv)
	s.Quota = 1 << 30
	_, err := r.Create(t.Context(), r.id, s)
	must(t, err)
	fs.Fail(unix.EIO, hungfs.Getxattr)
	if err := r.Resize(t.Context(), r.id, pv, 3<<30); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v", err)
	}
	fs.Fail(0, hungfs.Getxattr)
	must(t, r.Resize(t.Context(), r.id, pv, 3<<30))
	if got := limitOf(r); got != fmt.Sprint(3<<30) {
		t.Errorf("the limit is %q", got)
	}
}
