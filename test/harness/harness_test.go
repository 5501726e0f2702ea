package harness

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// A program's exit code is 0 only if all of it went well, and its cleanups run in any case.
func TestRun(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	for _, test := range []struct {
		name string
		ctx  context.Context
		body func(*Program)
		want int
	}{
		{"nothing went wrong", t.Context(), func(*Program) {}, 0},
		{"a finding", t.Context(), func(p *Program) { p.Fault("kind", "x") }, 1},
		{"a fatal error", t.Context(), func(p *Program) { p.Must(io.EOF, "reading") }, 1},
		{"an interrupt", ended, func(*Program) {}, 1},
		{"a cleanup that fails", t.Context(), func(p *Program) { p.Cleanup(func() error { return io.EOF }) }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var order []int
			got := Run(test.ctx, "test", func(_ context.Context, p *Program) {
				p.Cleanup(func() error { order = append(order, 1); return nil })
				p.Cleanup(func() error { order = append(order, 2); return nil })
				test.body(p)
			})
			if got != test.want || !slices.Equal(order, []int{2, 1}) {
				t.Errorf("exit code %d, want %d; cleanups %v", got, test.want, order)
			}
		})
	}
}

// The command line counts more than the short form, and that more than the defaults.
func TestParse(t *testing.T) {
	defer func(was time.Duration) { Timeout = was }(Timeout)
	var n int
	var long time.Duration
	wrong := errors.New("wrong")
	trial := Trial{Name: "test", Short: "n=1 time=1s", Flags: func(f *flag.FlagSet) {
		f.IntVar(&n, "n", 10, "number")
		f.DurationVar(&long, "time", time.Hour, "time")
	}, Check: func() error {
		if n == 0 {
			return wrong
		}
		return nil
	}}
	if c, err := trial.Parse([]string{"-n", "7", "-short"}, io.Discard); err != nil || n != 7 || long != time.Second || !c.Short {
		t.Errorf("n %d, time %s, %+v, %v", n, long, c, err)
	}
	if _, err := trial.Parse([]string{"-n", "0"}, io.Discard); !errors.Is(err, wrong) {
		t.Error(err)
	}
	if _, err := trial.Parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
	for _, args := range []string{"word", "-timeout=0"} {
		if _, err := trial.Parse([]string{args}, io.Discard); err == nil {
			t.Errorf("%s was taken", args)
		}
	}
	trial.Short = "absent=1"
	if _, err := trial.Parse([]string{"-short"}, io.Discard); err == nil {
		t.Error("a flag that does not exist was set")
	}
}

func TestFindings(t *testing.T) {
	var f, other Findings
	for range shown + 2 {
		f.Fault("many", "one")
	}
	if f.Blame("few", nil) || !f.Blame("few", io.EOF) {
		t.Error("Blame reports the wrong thing")
	}
	other.Fault("few", "two\nlines")
	f.Merge(&other, "there: ")
	if f.Count() != 9 || f.Count("few") != 2 || f.Count("none") != 0 {
		t.Errorf("counts %d, %d, %d", f.Count(), f.Count("few"), f.Count("none"))
	}
	var out bytes.Buffer
	f.print(&out, []string{"none"})
	for _, want := range []string{"none ", "    and 2 more\n", "    EOF\n", "    there: two\n    lines\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func claim(name, uid string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	c.Status.Phase, c.Spec.VolumeName = corev1.ClaimBound, volumeOf(uid)
	for _, f := range change {
		f(c)
	}
	return c
}

func volume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestCompareObjects(t *testing.T) {
	type claims = []corev1.PersistentVolumeClaim
	type volumes = []corev1.PersistentVolume
	going := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }
	pending := func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }
	another := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-2" }
	for _, test := range []struct {
		name     string
		claims   claims
		volumes  volumes
		expected map[string]string
		want     []string // volumes
		kinds    []string // of the findings, one each
	}{
		{"nothing", nil, nil, nil, nil, nil},
		{"a bound claim", claims{*claim("a", "1")}, volumes{*volume("pvc-1")}, nil, []string{"pvc-1"}, nil},
		{"a bound claim that was expected", claims{*claim("a", "1")}, volumes{*volume("pvc-1")}, map[string]string{"a": "1"}, []string{"pvc-1"}, nil},
		{"a pending claim", claims{*claim("a", "1", pending)}, volumes{*volume("pvc-1")}, nil, []string{"pvc-1"}, []string{Unsettled}},
		{"a claim bound to another's volume", claims{*claim("a", "1", another)}, volumes{*volume("pvc-1")}, nil, []string{"pvc-1"}, []string{Unsettled}},
		{"a claim that does not go", claims{*claim("a", "1", going)}, volumes{*volume("pvc-1")}, nil, []string{"pvc-1"}, []string{Unsettled}},
		{"a claim that was to go", claims{*claim("a", "1")}, nil, map[string]string{}, nil, []string{Unsettled}},
		{"a claim of an expected name, made again", claims{*claim("a", "2")}, volumes{*volume("pvc-1")}, map[string]string{"a": "1"}, []string{"pvc-1"}, []string{Unsettled}},
		{"a claim that is gone", nil, volumes{*volume("pvc-1")}, map[string]string{"a": "1"}, []string{"pvc-1"}, []string{Unsettled}},
		{"a volume without a claim", nil, volumes{*volume("pvc-1")}, nil, nil, []string{VolumesLeft}},
		{"a claim without its volume", claims{*claim("a", "1")}, nil, nil, []string{"pvc-1"}, []string{Unsettled}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var f Findings
			want := f.CompareObjects(test.claims, test.volumes, test.expected)
			if got := slices.Sorted(maps.Keys(want)); !slices.Equal(got, test.want) {
				t.Errorf("volumes %q, want %q", got, test.want)
			}
			if f.Count() != len(test.kinds) || len(test.kinds) > 0 && f.Count(test.kinds...) != len(test.kinds) {
				t.Errorf("found %s, want %q", &f, test.kinds)
			}
		})
	}
}

func TestCompareDisk(t *testing.T) {
	let := Exceptions{
		Extra:   func(directory, volume string) bool { return directory == "trash" && volume == "pvc-2~" },
		Missing: func(volume string) bool { return volume == "pvc-1" },
	}
	for _, test := range []struct {
		name          string
		tree          []string
		e             Exceptions
		left, missing int
	}{
		{"what should be", pool.Of("pvc-1"), Exceptions{}, 0, 0},
		{"no record", []string{"pvc-1"}, Exceptions{}, 0, 1},
		{"nothing", nil, Exceptions{}, 0, 2},
		{"nothing, let pass", nil, let, 0, 0},
		{"trash", append(pool.Of("pvc-1"), "ours/trash/pvc-2~"), Exceptions{}, 1, 0},
		{"trash, let pass", append(pool.Of("pvc-1"), "ours/trash/pvc-2~"), let, 0, 0},
		{"a stranger", append(pool.Of("pvc-1"), "x"), let, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var f Findings
			f.CompareDisk(test.tree, map[string]bool{"pvc-1": true}, test.e)
			if f.Count(EntriesLeft) != test.left || f.Count(EntriesMissing) != test.missing {
				t.Errorf("found %s", &f)
			}
		})
	}
}

// A line is counted once, when it is whole.
func TestAuditLog(t *testing.T) {
	dir := t.TempDir()
	l, args, err := NewAuditLog(dir, "policy")
	if err != nil || !strings.Contains(strings.Join(args, " "), "audit-log-path="+filepath.Join(dir, "audit.log")) {
		t.Fatalf("%q, %v", args, err)
	}
	if got, err := l.Take(); got != nil || err != nil {
		t.Errorf("before the log exists: %v, %v", got, err)
	}
	const (
		create   = `{"verb":"create","user":{"extra":{"authentication.kubernetes.io/node-name":["a"]}},"objectRef":{"resource":"events"},"responseStatus":{"code":201}}` + "\n"
		conflict = `{"verb":"patch","objectRef":{"resource":"persistentvolumeclaims","subresource":"status"},"responseStatus":{"code":409}}` + "\n"
	)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "audit.log"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(create + conflict + "\n" + create[:20])
	got, err := l.Take()
	if want := (map[string]Requests{"a": {"create events": 1}, "": {"patch persistentvolumeclaims/status (409)": 1}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	write(create + conflict + "\n" + create)
	later, err := l.Take()
	if want := (map[string]Requests{"a": {"create events": 1}}); err != nil || !reflect.DeepEqual(later, want) {
		t.Errorf("the rest of the line: %v, %v, want %v", later, err, want)
	}
	sum := SumRequests(got)
	if sum.Total() != 2 || sum.Of("patch ", "(409)") != 1 || sum.String() != "1 create events, 1 patch persistentvolumeclaims/status (409)" || (Requests{}).String() != "no requests" {
		t.Errorf("%s", sum)
	}
	write(create + conflict + "\n" + create + "{\n")
	if got, err := l.Take(); err == nil {
		t.Errorf("of a line that is no JSON: %v", got)
	}
}
