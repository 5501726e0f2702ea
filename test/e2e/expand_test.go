package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// claimUntil waits until a claim is as it should be.
func (w *environment) claimUntil(name string, is func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	w.Helper()
	return need(w.WaitClaim(w.Soon(), w.Namespace, name, is))(w)
}

// recorded is the size in the record of a volume, in bytes.
func (h *host) recorded(pv string) int64 { h.w.Helper(); return h.w.Recorded(h.mount, pv) }

// expandable makes a node with a bound claim "data" of 10 MiB, which may request more.
func (w *environment) expandable() (*host, *corev1.PersistentVolume) {
	w.Helper()
	h := w.newHost("a").run()
	return h, w.bound("data", w.Class("c", immediate, fixture.Expandable), "10Mi")
}

// grow requests more for the claim "data", and waits until it has that.
func (w *environment) grow(size string) {
	w.Helper()
	w.Must(w.Request("data", size))
	w.Sized("data", size)
}

// growsWhileOff requests more for the claim "data" while the daemon does not run.
func (h *host) growsWhileOff(size string) {
	h.w.Helper()
	h.Kill()
	h.w.Must(h.w.Request("data", size))
	h.run()
	h.w.Sized("data", size)
}

// A claim grows while a pod has it, again and again, and nothing else changes. The node that has no
// part in it does nothing.
func TestExpand(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"hostPath", "local"} {
		t.Run(source, func(t *testing.T) {
			w := newEnvironment(t)
			h, other := w.newHost("a", `source = "`+source+`"`).run(), w.newHost("b").run()
			w.wanted("data", w.Class("c", wait, fixture.Expandable), "10Mi", h.node)
			before := w.Bound("data")
			dir := filepath.Join(h.mount, before.Name)
			w.Must(os.WriteFile(filepath.Join(dir, "data"), []byte("data"), 0o644))
			for _, size := range []string{"20Mi", "30Mi"} {
				w.Must(w.Request("data", size))
				claim := w.Sized("data", size)
				event := w.event(claim, "VolumeResizeSuccessful")
				if event.Type != corev1.EventTypeNormal {
					t.Errorf("event %s %q", event.Type, event.Message)
				}
				if got, want := h.recorded(before.Name), resource.MustParse(size); got != want.Value() {
					t.Errorf("the record says %d bytes, want %s", got, size)
				}
			}
			after := w.Volume(before.Name)
			after.Spec.Capacity = before.Spec.Capacity
			if !reflect.DeepEqual(after.Spec, before.Spec) || fmt.Sprint(after.Labels, after.Annotations) != fmt.Sprint(before.Labels, before.Annotations) {
				t.Errorf("the volume was\n%v\nand is\n%v", before, after)
			}
			h.wantData(dir, "data")
			h.wantTree(pool.Of(before.Name)...)
			other.wantTree()
			other.logged().Lacks(before.Name)
		})
	}
}

// A size that the pool does not have is refused in the claim's status, with the numbers; the claim
// can be lowered again, to more than it has, and gets that, where the API server allows it. It is
// told once.
func TestExpandInfeasible(t *testing.T) {
	w := newEnvironment(t)
	h, pv := w.expandable()
	w.Must(w.Request("data", "1Ti"))
	claim := w.claimUntil("data", w.Infeasible())
	if got := fmt.Sprint(cluster.Resizing(claim)); got != "[ControllerResizeError Resizing]" {
		t.Errorf("conditions %s", got)
	}
	said := w.refused(claim, "NotEnoughSpace", "the claim requests 1Ti, and ")
	for _, condition := range claim.Status.Conditions {
		if condition.Type == corev1.PersistentVolumeClaimControllerResizeError && condition.Message != said {
			t.Errorf("the condition says %q", condition.Message)
		}
	}
	if h.recorded(pv.Name) != 10<<20 || w.Volume(pv.Name).Spec.Capacity.Storage().Value() != 10<<20 {
		t.Errorf("the record says %d bytes, the volume %s", h.recorded(pv.Name), w.Volume(pv.Name).Spec.Capacity.Storage())
	}
	for _, less := range []string{"10Mi", "5Mi"} {
		if err := w.Request("data", less); !apierrors.IsInvalid(err) {
			t.Errorf("lowered to %s: %v", less, err)
		}
	}
	if w.Older(cluster.ResizeStates) {
		if err := w.Request("data", "30Mi"); !apierrors.IsInvalid(err) {
			t.Errorf("lowered to 30Mi: %v", err)
		}
		h.logged().Counts("reason=NotEnoughSpace", 1)
		return
	}
	w.grow("30Mi")
	if got := h.recorded(pv.Name); got != 30<<20 {
		t.Errorf("the record says %d bytes", got)
	}
}

// What a claim grew by is promised, on an empty disk, too: another one does not get it, and gets it
// when the first one goes.
func TestExpandReserves(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").serving().run() // has 73 MiB for volumes
	class := w.Class("c", immediate, fixture.Expandable)
	for _, name := range []string{"first", "second"} {
		w.bound(name, class, "10Mi")
	}
	w.Must(w.Request("first", "40Mi"))
	w.Sized("first", "40Mi")
	fails := h.records("ExpansionsFail")
	w.Must(w.Request("second", "50Mi"))
	claim := w.claimUntil("second", w.Infeasible())
	w.refused(claim, "NotEnoughSpace", "50.0 MiB is promised to volumes (40.0 MiB to ",
		"), including 10.0 MiB to this one")
	fails.Fires()
	h.again() // counts what the records say
	late := w.claim("late", class, "30Mi")
	w.refused(late, "NotEnoughSpace", "50.0 MiB is promised to volumes")
	w.DeleteClaim("late", "first")
	w.Sized("second", "50Mi")
}

// What was requested while the pool is closed, or no daemon runs, is done when the pool is open
// again, and says why it waits.
func TestExpandWaits(t *testing.T) {
	w := newEnvironment(t)
	h, pv := w.expandable()
	hosttest.Unmount(w, h.mount)
	w.Must(w.Request("data", "20Mi"))
	claim := w.claimUntil("data", func(*corev1.PersistentVolumeClaim) bool { return true })
	w.refused(claim, "PoolClosed", "the volume is not expanded: pool fast: ")
	if got := w.Volume(pv.Name).Spec.Capacity.Storage(); got.Value() != 10<<20 {
		t.Errorf("the volume has %s", got)
	}
	h.image.Mount(w, h.mount)
	w.Sized("data", "20Mi")
	h.growsWhileOff("30Mi")
}

// A claim that names its node by an old name is expanded by the node that has its volume, also if
// it grew while no daemon ran.
func TestExpandOnARenamedNode(t *testing.T) {
	w := newEnvironment(t)
	h, _ := w.expandable()
	w.annotateClaim("data", selectedNode, "old-name")
	w.grow("20Mi")
	h.growsWhileOff("30Mi")
}

// A record that says less than its volume, as a daemon leaves it that was paused in the middle of
// an expansion and wrote after the next one, gets the volume's size again.
func TestExpandRecordSmaller(t *testing.T) {
	w, h, class := oneHost(t)
	pv := w.bound("data", class, "10Mi")
	h.Kill()
	file := filepath.Join(h.ours("volumes"), pv.Name+".json")
	text := need(os.ReadFile(file))(w)
	w.Must(os.WriteFile(file, []byte(strings.Replace(string(text), fmt.Sprint(10<<20), fmt.Sprint(9<<20), 1)), 0o600))
	if got := h.recorded(pv.Name); got != 9<<20 {
		t.Fatalf("the record says %d bytes", got)
	}
	h.run()
	w.Eventually("the record has the volume's size", func() bool { return h.recorded(pv.Name) == 10<<20 })
}

// kubelet may write the size in the claim's status by itself, for a local volume. Whichever is
// first, all is well.
func TestExpandBesideKubelet(t *testing.T) {
	w := newEnvironment(t)
	w.newHost("a", `source = "local"`).run()
	pv := w.bound("data", w.Class("c", immediate, fixture.Expandable), "10Mi")
	for mib := 11; mib < 31; mib++ {
		size := fmt.Sprintf("%dMi", mib)
		want := resource.MustParse(size)
		w.Must(w.Request("data", size))
		w.Eventually("the volume has "+size, func() bool { return w.Volume(pv.Name).Spec.Capacity.Storage().Cmp(want) == 0 })
		// pkg/volume/util, MarkFSResizeFinished
		patch := fmt.Appendf(nil, `{"status":{"capacity":{"storage":%q},"allocatedResourceStatuses":{"storage":null},"conditions":[{"$patch":"delete","type":"Resizing"}]}}`, size)
		need(w.pvcs().Patch(w.Ctx, "data", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"))(w)
		w.Sized("data", size)
	}
}

// In a shared pool the daemon that works there expands, and what it leaves half done the next one
// finishes.
func TestExpandShared(t *testing.T) {
	w, nodes, _ := threeNodes(t)
	leader := w.holder(nodes, anyNode)
	class := w.Class("x", immediate, fixture.Expandable)
	pv := w.bound("data", class, "10Mi", mode(corev1.ReadWriteMany))
	w.grow("20Mi")
	leader.said("VolumeResizeSuccessful", 1)
	leader.Kill()
	w.Must(w.Request("data", "30Mi"))
	next := w.holder(nodes, but(leader))
	w.Sized("data", "30Mi")
	if got := next.recorded(pv.Name); got != 30<<20 {
		t.Errorf("the record says %d bytes", got)
	}
}

// A volume whose record is gone is not expanded, and its claim says why.
func TestExpandNotRecorded(t *testing.T) {
	w := newEnvironment(t)
	h, pv := w.expandable()
	w.Must(os.Remove(filepath.Join(h.ours("volumes"), pv.Name+".json")))
	w.Must(w.Request("data", "20Mi"))
	claim := w.claimUntil("data", w.Infeasible())
	w.refused(claim, "NotRecorded", "is not recorded as a volume of pool fast")
	if got := w.Volume(pv.Name).Spec.Capacity.Storage(); got.Value() != 10<<20 {
		t.Errorf("the volume has %s", got)
	}
}
