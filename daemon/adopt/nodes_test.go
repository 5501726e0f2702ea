package adopt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

func annotate(v *corev1.PersistentVolume, key, value string) {
	v.Annotations[key] = value
}

// Another node's call gets the object first, wherever it is with it: nothing is recorded here.
func TestTwoNodes(t *testing.T) {
	for name, c := range map[string]struct {
		other func(*corev1.PersistentVolume)
		says  string
	}{
		"it has taken it": {func(v *corev1.PersistentVolume) { annotate(v, adoptrules.AdoptingAnnotation, "node-b") }, `"node-b" is adopting it: run adopt there again, or adopt --undo`},
		"it has it": {func(v *corev1.PersistentVolume) {
			annotate(v, plan.AdoptedAnnotation, adoptrules.AdoptedWithout)
			v.Labels = map[string]string{plan.NodeLabel: "node-b", plan.PoolLabel: "fast"}
		}, "it is of pool fast of node node-b already"},
	} {
		t.Run(name, func(t *testing.T) {
			o, api := site(t)
			api.between = c.other
			if row := one(t, Run, o); row.Action != plan.Refuse || row.Message != c.says {
				t.Errorf("%+v", row)
			}
			if got := state(t, o, api); strings.Contains(got, "record") {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

// Who writes to the object meanwhile and takes nothing is no reason to refuse.
func TestChangedMeanwhile(t *testing.T) {
	o, c := site(t)
	c.between = func(v *corev1.PersistentVolume) { v.Status.Message = "checked" }
	if row := one(t, Run, o); !row.Done {
		t.Errorf("%+v", row)
	}
	if got := state(t, o, c); got != marked+recorded {
		t.Errorf("got\n%s", got)
	}
}

// An older version's call wrote the record before it knew whether it would get the object.
func TestStaleRecord(t *testing.T) {
	o, c := site(t)
	must(t, o.Store.Adopt(t.Context(), o.Identity, o.record(c.volumes["pvc-1"],
		resource.Quantity{})))
	annotate(c.volumes["pvc-1"], plan.AdoptedAnnotation, adoptrules.AdoptedWithout)
	c.volumes["pvc-1"].Labels = map[string]string{plan.NodeLabel: "node-b", plan.PoolLabel: "fast"}
	o.DryRun = true
	one(t, Run, o)
	if got := state(t, o, c); !strings.HasSuffix(got, recorded) {
		t.Errorf("a dry run left\n%s", got)
	}
	o.DryRun = false
	if row := one(t, Run, o); row.Action != plan.Refuse || row.Message != "it is of pool fast of node node-b already" {
		t.Errorf("%+v", row)
	}
	if got := state(t, o, c); strings.Contains(got, "record") {
		t.Errorf("got\n%s", got)
	}
}

// What was taken and not recorded is given up as it was, with the finalizer that it had.
func TestUndoBegun(t *testing.T) {
	for _, finalizers := range [][]string{nil, {plan.Finalizer}} {
		o, c := site(t)
		c.volumes["pvc-1"].Finalizers = finalizers
		before := state(t, o, c)
		annotate(c.volumes["pvc-1"], adoptrules.AdoptingAnnotation, "node-b")
		if rows, err := Undo(t.Context(), o); err != nil || len(rows) != 0 {
			t.Errorf("another node's: %+v, %v", rows, err)
		}
		annotate(c.volumes["pvc-1"], adoptrules.AdoptingAnnotation, "node-a")
		if row := one(t, Undo, o); row.Action != adoptrules.Undo || !row.Done {
			t.Errorf("%+v", row)
		}
		if got := state(t, o, c); strings.TrimSpace(got) != strings.TrimSpace(before) {
			t.Errorf("got\n%s\nwant\n%s", got, before)
		}
	}
}

// bind mounts one directory on another, which it makes.
func bind(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.MkdirAll(to, 0o755))
	must(t, unix.Mount(from, to, "", unix.MS_BIND, ""))
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
	})
}

// A directory that a bind mount shows elsewhere is not adopted, nor one that another volume's path
// means.
func TestBindMounts(t *testing.T) {
	second := func(c *cluster, path string) {
		v := c.volumes["pvc-1"].DeepCopy()
		v.Name, v.Spec.ClaimRef.UID, v.Spec.HostPath.Path = "pvc-2", "2", path
		c.volumes["pvc-2"] = v
	}
	for name, c := range map[string]struct {
		arrange func(t *testing.T, o Options, c *cluster, elsewhere string)
		says    string // of pvc-1, with ELSEWHERE for the other path
	}{
		"shown elsewhere": {func(t *testing.T, o Options, _ *cluster, elsewhere string) {
			bind(t, o.Pool.Path+"/pvc-1", elsewhere+"/x")
		}, "its directory is mounted at ELSEWHERE/x as well"},
		"a part is shown elsewhere": {func(t *testing.T, o Options, _ *cluster, elsewhere string) {
			must(t, os.Mkdir(o.Pool.Path+"/pvc-1/sub", 0o755))
			bind(t, o.Pool.Path+"/pvc-1/sub", elsewhere+"/x")
		}, "its directory is mounted at ELSEWHERE/x as well"},
		"shown to pods by kubelet": {func(t *testing.T, o Options, _ *cluster, elsewhere string) {
			bind(t, o.Pool.Path+"/pvc-1", elsewhere+"/kubelet/pods/1/volumes/kubernetes.io~local-volume/pvc-1")
		}, ""},
		"another volume's path is the pool, elsewhere": {func(t *testing.T, o Options, c *cluster, elsewhere string) {
			bind(t, o.Pool.Path, elsewhere+"/pool")
			second(c, elsewhere+"/pool/pvc-1")
		}, "volume pvc-2 lies in the same directory"},
		"another volume lies in another place of the pool's filesystem": {func(t *testing.T, o Options, c *cluster, elsewhere string) {
			bind(t, o.Pool.Path, elsewhere+"/pool")
			must(t, os.Mkdir(o.Pool.Path+"/pvc-2", 0o755))
			second(c, elsewhere+"/pool/pvc-2")
		}, ""},
		"another entry of the pool is this directory": {func(t *testing.T, o Options, c *cluster, _ string) {
			bind(t, o.Pool.Path+"/pvc-1", o.Pool.Path+"/pvc-2")
			second(c, o.Pool.Path+"/pvc-2")
		}, "volume pvc-2 lies in the same directory"},
		"this entry of the pool is another directory": {func(t *testing.T, o Options, c *cluster, elsewhere string) {
			must(t, os.MkdirAll(elsewhere+"/y", 0o755))
			must(t, os.WriteFile(elsewhere+"/y/data", nil, 0o600))
			bind(t, elsewhere+"/y", o.Pool.Path+"/pvc-1")
			second(c, elsewhere+"/y")
		}, "something is mounted on it"},
	} {
		t.Run(name, func(t *testing.T) {
			o, api := site(t)
			elsewhere := filepath.Join(filepath.Dir(o.Pool.Path), "elsewhere")
			c.arrange(t, o, api, elsewhere)
			var err error
			o.Mounts, err = mounts.Read()
			must(t, err)
			rows, err := Run(t.Context(), o)
			must(t, err)
			says := strings.ReplaceAll(c.says, "ELSEWHERE", elsewhere)
			for _, row := range rows {
				if row.Volume == "pvc-1" && (row.Done != (says == "") || !strings.Contains(row.Message, says)) {
					t.Errorf("%+v, want %q", row, says)
				}
			}
			if len(rows) == 0 {
				t.Error("nothing was decided")
			}
		})
	}
}
