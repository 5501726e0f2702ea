package adopt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

type death struct{}

// killed calls, dies before or after the n-th change, and reports whether there was one.
func killed(c *cluster, n int, call func()) (died bool) {
	asked := 0
	c.dies = func() error {
		if asked++; asked == n {
			panic(death{})
		}
		return nil
	}
	defer func() {
		c.dies = nil
		if r := recover(); r != nil {
			if _, is := r.(death); !is {
				panic(r)
			}
			died = true
		}
	}()
	call()
	return false
}

// Killed before and after each change on both ways, and gone on in both directions: nothing is
// lost, and the object says at each moment that nothing may be removed, or there is none and the
// record says how to make it.
func TestFromCSIKilled(t *testing.T) {
	for name, way := range map[string]struct{ back, goOn bool }{
		"adopt, adopt": {false, true}, "adopt, undo": {false, false}, "undo, undo": {true, false}, "undo, adopt": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				o, c := csiSite(t)
				undo := o
				undo.Driver = ""
				forward, back := func() { FromCSI(t.Context(), o) }, func() { Undo(t.Context(), undo) }
				first, want := forward, drivers
				if way.back {
					forward()
					first = back
				}
				died := killed(c, n, first)
				atRest := []string{drivers, successor, drivers + "\nrecord pvc-1 of claim 1 in pool, replaced: true"}
				switch left := csiState(t, o, c); {
				case strings.HasPrefix(left, "no object") && !strings.Contains(left, "replaced: true"):
					t.Errorf("change %d: nothing says what was there:\n%s", n, left)
				case died && !slices.Contains(atRest, left) && !strings.HasPrefix(left, "no object") && !strings.Contains(left, "for 1, Retain"):
					t.Errorf("change %d: not held:\n%s", n, left)
				}
				if way.goOn {
					forward()
					want = successor
				} else {
					back()
				}
				wantCSI(t, o, c, fmt.Sprintf("change %d", n), want)
				if !died {
					if n < 9 {
						t.Errorf("%d changes", n-1)
					}
					return
				}
			}
		})
	}
}

// cutOff leaves no object: the driver's is gone, and the call died before it made ours.
func cutOff(t *testing.T) (Options, *cluster) {
	t.Helper()
	o, c := csiSite(t)
	killed(c, 7, func() { FromCSI(t.Context(), o) })
	if got := csiState(t, o, c); !strings.HasPrefix(got, "no object") {
		t.Fatal(got)
	}
	return o, c
}

// What may have happened since a call was cut off with no object left.
func TestFromCSICutOff(t *testing.T) {
	o, c := cutOff(t)
	c.claims = nil // deleted as one that Kubernetes calls Lost
	row := one(t, FromCSI, o)
	if !row.Done || len(row.Notes) != 1 {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "the claim is gone", strings.Replace(successor, "Delete", "Retain", 1))

	o, c = cutOff(t)
	c.claims, o.Driver = nil, ""
	if row := one(t, Undo, o); !row.Done || len(row.Notes) != 1 {
		t.Errorf("%+v", row)
	}
	wantCSI(t, o, c, "the claim is gone, undone", strings.Replace(drivers, "Delete", "Retain", 1))

	o, c = cutOff(t)
	c.drivers = []string{plan.KubevirtCSI}
	if row := one(t, FromCSI, o); row.Reason != adoptrules.ReasonDriverRuns {
		t.Errorf("%+v", row)
	}

	for _, run := range []string{"adopt", "undo"} {
		o, c = cutOff(t)
		stranger := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", UID: "stranger"}}
		stranger.Spec.ClaimRef = &corev1.ObjectReference{UID: "1"}
		stranger.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/etc"}
		c.volumes["pvc-1"] = stranger
		before, call := csiState(t, o, c), FromCSI
		if run == "undo" {
			call, o.Driver = Undo, ""
		}
		if row := one(t, call, o); row.Action != plan.Refuse || row.Message != errNotMadeHere.Error() {
			t.Errorf("%s: %+v", run, row)
		}
		wantCSI(t, o, c, "another client's object", before)
	}
}
