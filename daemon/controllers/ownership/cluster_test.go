package ownership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// api is an API server with one claim and one volume at most, whatever their names. It counts the
// requests.
type api struct {
	id       string
	claim    *corev1.PersistentVolumeClaim
	volume   *corev1.PersistentVolume
	err      error
	until    time.Time // no ID before that; zero: err is of all times
	requests int
}

func (a *api) ClusterID(context.Context) (string, error) {
	a.requests++
	if !a.until.IsZero() && time.Now().Before(a.until) {
		return "", errors.New("connection refused")
	}
	return a.id, a.err
}

func (a *api) GetVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	a.requests++
	return a.volume, a.err
}

func (a *api) GetClaim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	a.requests++
	return a.claim, a.err
}

// newCluster is a cluster of which no volume is watched.
func newCluster(a *api) *Cluster {
	return NewCluster(ClusterOptions{
		Requested: func(error) {},
		API:       a, Changed: func() {}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Watched: func(string) (*corev1.PersistentVolume, bool) { return nil, false },
	})
}

// volumeOf is a volume that is bound to the claim with this UID, and to none where that is "".
func volumeOf(uid types.UID) *corev1.PersistentVolume {
	if uid == "" {
		return &corev1.PersistentVolume{}
	}
	return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: uid}}}
}

// The API server is asked until it responds, and no longer than the context.
func TestIdentify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{id: "c", until: time.Now().Add(time.Minute)}
		c := newCluster(a)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second+time.Millisecond)
		defer cancel()
		if c.Identify(ctx) || c.Identified() || c.ID() != "" || a.requests != 4 {
			t.Errorf("identified as %q after %d requests without a response", c.ID(), a.requests)
		}
		if !c.Identify(t.Context()) || !c.Identified() || c.ID() != "c" {
			t.Errorf("not identified: %q", c.ID())
		}
	})
}

// A new ID has the pools checked again; one that may not be read is warned of once, and the last
// one stays.
func TestConfirm(t *testing.T) {
	var log bytes.Buffer
	a, changes := &api{}, 0
	c := newCluster(a)
	c.Log, c.Changed = slog.New(slog.NewTextHandler(&log, nil)), func() { changes++ }
	for _, step := range []struct {
		name, id string
		err      error
		want     string
	}{
		{"may not be read", "", nil, "ID , 0 changes, 1 warnings"},
		{"may not be read, again", "", nil, "ID , 0 changes, 1 warnings"},
		{"is read", "c", nil, "ID c, 0 changes, 1 warnings"},
		{"is the same", "c", nil, "ID c, 0 changes, 1 warnings"},
		{"request fails", "", errors.New("refused"), "ID c, 0 changes, 1 warnings"},
		{"is another", "d", nil, "ID d, 1 changes, 1 warnings"},
		{"may not be read any more", "", nil, "ID d, 1 changes, 1 warnings"},
	} {
		a.id, a.err = step.id, step.err
		if err := c.Confirm(t.Context()); !errors.Is(err, step.err) {
			t.Errorf("%s: got %v", step.name, err)
		}
		got := fmt.Sprintf("ID %s, %d changes, %d warnings", c.ID(), changes, strings.Count(log.String(), "level=WARN"))
		if got != step.want {
			t.Errorf("%s: %s; want %s", step.name, got, step.want)
		}
	}
}

func TestConfirmedLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{id: "c", err: errors.New("refused")}
		c := newCluster(a)
		if c.Confirm(t.Context()); c.ConfirmedLately() {
			t.Error("confirmed by a failure")
		}
		a.err = nil
		if c.Confirm(t.Context()); !c.ConfirmedLately() {
			t.Error("not confirmed by a response")
		}
		if time.Sleep(confirmedFor); c.ConfirmedLately() {
			t.Error("confirmed after a minute")
		}
	})
}

// A marker contradicts the cluster only where both are known.
func TestContradicts(t *testing.T) {
	for name, c := range map[string]struct {
		id, marked string
		want       bool
	}{
		"the same":                   {"c", "c", false},
		"another":                    {"c", "d", true},
		"a marker without a cluster": {"c", "", false},
		"a marker for any cluster":   {"c", hostcheck.ClusterAny, false},
		"an unknown cluster":         {"", "d", false},
	} {
		cluster := newCluster(&api{})
		if c.id != "" {
			cluster.id.Store(&c.id)
		}
		if got := cluster.Contradicts(hostcheck.Marker{Cluster: c.marked}); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// The cluster owns records by the marker, or by the object of one of them.
func TestOwns(t *testing.T) {
	for name, c := range map[string]struct {
		marked  string
		watched *corev1.PersistentVolume
		want    bool
	}{
		"the marker names it":            {"c", nil, true},
		"the marker names another":       {"d", nil, false},
		"no marker, and no volume":       {"", nil, false},
		"no marker, and a known volume":  {"", volumeOf("1"), true},
		"a volume for another claim UID": {"", volumeOf("2"), false},
		"a volume that no claim has":     {"", volumeOf(""), false},
	} {
		cluster := newCluster(&api{})
		cluster.id.Store(new("c"))
		cluster.Watched = func(string) (*corev1.PersistentVolume, bool) { return c.watched, c.watched != nil }
		if got := cluster.Owns([]record.Record{ours}, hostcheck.Marker{Cluster: c.marked}); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// Records are absent if none of those that are looked for has an object or a claim. A failed
// request proves nothing.
func TestAbsent(t *testing.T) {
	retained := ours
	retained.Retained = true
	many := make([]record.Record, 3*lookups)
	for i := range many {
		many[i] = ours
	}
	for name, c := range map[string]struct {
		api      api
		records  []record.Record
		want     bool
		requests int
	}{
		"neither object nor claim":         {api{}, []record.Record{ours}, true, 2},
		"a claim":                          {api{claim: claim}, []record.Record{ours}, false, 2},
		"a claim of the name, another UID": {api{claim: &corev1.PersistentVolumeClaim{}}, []record.Record{ours}, true, 2},
		"an object":                        {api{volume: volumeOf("1")}, []record.Record{ours}, false, 2},
		"an object for another claim":      {api{volume: volumeOf("2")}, []record.Record{ours}, true, 2},
		"no record that has an object":     {api{}, []record.Record{retained}, false, 0},
		"no record":                        {api{}, nil, false, 0},
		"a retained record among others":   {api{}, []record.Record{retained, ours}, true, 2},
		"no more requests than for 50":     {api{}, many, true, 2 * lookups},
		"an API server that is away":       {api{err: errors.New("refused")}, []record.Record{ours}, false, 1},
	} {
		got, err := newCluster(&c.api).absent(t.Context(), c.records)
		if got != c.want || !errors.Is(err, c.api.err) || c.api.requests != c.requests {
			t.Errorf("%s: %t after %d requests, %v; want %t after %d", name, got, c.api.requests, err, c.want, c.requests)
		}
	}
}

// What is watched costs no request.
func TestWatchedIsNotAbsent(t *testing.T) {
	a := &api{}
	c := newCluster(a)
	c.Watched = func(name string) (*corev1.PersistentVolume, bool) { return volumeOf("1"), name == ours.PV }
	if absent, err := c.absent(t.Context(), []record.Record{{PV: "pvc-0", ClaimUID: "0"}, ours}); absent || err != nil || a.requests > 0 {
		t.Errorf("absent: %t, %v, after %d requests", absent, err, a.requests)
	}
}

// A pool whose marker names another cluster has the ID asked for again, at a bounded rate, and is
// looked at when it is another one.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, changed := &api{id: "theirs"}, 0
		c := newCluster(a)
		c.Changed = func() { changed++ }
		c.Identify(t.Context())
		recall := func(want int, marked string) {
			t.Helper()
			a.requests = 0
			c.Recall(t.Context(), hostcheck.Marker{Cluster: marked})
			synctest.Wait()
			if a.requests != want {
				t.Errorf("%d requests, want %d", a.requests, want)
			}
		}
		recall(0, "theirs")
		recall(0, "")
		recall(1, "ours")
		recall(0, "ours")
		a.id = "ours"
		time.Sleep(recallEvery)
		recall(1, "ours")
		if changed != 1 || c.ID() != "ours" {
			t.Errorf("the ID is %q, changed %d times", c.ID(), changed)
		}
		time.Sleep(recallEvery)
		recall(0, "ours")
	})
}
