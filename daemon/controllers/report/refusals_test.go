package report

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// told is what objects were told.
type told []string

func (t *told) Event(ref corev1.ObjectReference, _, reason, message string) {
	*t = append(*t, ref.Name+" "+reason+": "+message)
}

func refusing(reachable bool) (*Refusals, *told) {
	heard := &told{}
	return &Refusals{
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Events: heard,
		Reachable: func() bool { return reachable }, Allow: func(string) bool { return true },
	}, heard
}

var ofClaim = AboutObjects(RecordedClaim("ns", "data", "u"))

// Whatever error the API server returns again and again is told once, with its words, and what
// passes is not. The first is how many times a second apart it was returned when it was told; 0 is
// never within a minute.
func TestRefusals(t *testing.T) {
	volumes := schema.GroupResource{Resource: "persistentvolumes"}
	away := error(&url.Error{Op: "Post", URL: "https://server",
		Err: errors.New("connection refused")})
	for name, c := range map[string]struct {
		err   error
		alone bool // others have no response either
		want  int
	}{
		"forbidden": {apierrors.NewForbidden(volumes, "c", errors.New("no")),
			false, 1},
		"forbidden, wrapped": {fmt.Errorf("create: %w", apierrors.NewForbidden(volumes,
			"c", errors.New("no"))), false, 1},
		"invalid":                {apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolume"}, "c", nil), false, 1},
		"a webhook that is down": {apierrors.NewInternalError(errors.New("failed calling webhook")), false, 6},
		"too many requests":      {apierrors.NewTooManyRequests("later", 1), false, 6},
		"unavailable":            {apierrors.NewServiceUnavailable("away"), false, 6},
		"a timeout":              {apierrors.NewTimeoutError("too long", 1), false, 6},
		"an unknown code": {apierrors.NewGenericServerResponse(418, "POST", volumes,
			"c", "teapot", 0, true), false, 6},
		"unauthorized":     {apierrors.NewUnauthorized("no"), false, 0},
		"no such resource": {apierrors.NewNotFound(volumes, "c"), false, 6},
		"a conflict each time": {apierrors.NewConflict(volumes, "c",
			errors.New("changed")), false, 31},
		"no response, others have them": {away, false, 31},
		"no response, nor have others":  {away, true, 0},
		"an error of the disk":          {errors.New("i/o error"), false, 0},
		"nothing":                       {nil, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, heard := refusing(!c.alone)
			first := 0
			for i := range 60 {
				r.Note(ofClaim, c.err)
				if count, _ := r.Lasting(1); first == 0 && len(*heard) > 0 {
					if first = i + 1; count != 1 {
						t.Errorf("%s: told, and the status has %d", name, count)
					}
				}
				time.Sleep(time.Second)
			}
			if first != c.want || len(*heard) > 1 {
				t.Errorf("%s: told %q, first at the request %d, want %d", name, *heard, first,
					c.want)
			}
			if first > 0 && (*heard)[0] != "data APIRefused: "+c.err.Error() {
				t.Errorf("%s: told %q", name, *heard)
			}
			r.Note(ofClaim, nil)
			if count, _ := r.Lasting(1); count != 0 {
				t.Errorf("%s: the status has it after a success", name)
			}
		})
	}
}

// An error that passes before the third try, or before others were tried for long, begins anew.
func TestRefusalsThatPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, heard := refusing(true)
		for range 20 {
			for range 2 {
				r.Note(ofClaim, apierrors.NewInternalError(errors.New("no leader")))
				time.Sleep(4 * time.Second)
			}
			r.Note(ofClaim, nil)
		}
		if count, _ := r.Lasting(1); len(*heard) > 0 || count > 0 {
			t.Errorf("told %q", *heard)
		}
	})
}

// The status has what something waits for first, and of many some.
func TestLasting(t *testing.T) {
	r, heard := refusing(true)
	refused := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	r.Note(AboutEvents(RecordedClaim("ns", "data", "u")), refused)
	if len(*heard) > 0 {
		t.Errorf("told by an event that events are refused: %q", *heard)
	}
	for _, name := range []string{"b", "a"} {
		r.Note(AboutObjects(Volume(&corev1.PersistentVolume{}), RecordedClaim("ns", name, "u")),
			nil)
		r.Note(AboutObjects(RecordedClaim("ns", name, "u")), refused)
		time.Sleep(time.Millisecond)
	}
	count, first := r.Lasting(2)
	var what []string
	for _, one := range first {
		what = append(what, one.What)
	}
	if want := []string{"claim ns/b", "claim ns/a"}; count != 3 || !slices.Equal(what, want) {
		t.Errorf("%d: %q, want %q", count, what, want)
	}
}

// A namespace about which too much was said is told later.
func TestRefusalsAreBounded(t *testing.T) {
	r, heard := refusing(true)
	allowed := false
	r.Allow = func(string) bool { return allowed }
	for range 3 {
		r.Note(ofClaim, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")))
	}
	if len(*heard) > 0 {
		t.Errorf("told %q", *heard)
	}
	allowed = true
	r.Note(ofClaim, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")))
	if len(*heard) != 1 {
		t.Errorf("told later: %q", *heard)
	}
}
