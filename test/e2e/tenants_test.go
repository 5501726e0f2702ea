package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

const classBeta = "volume.beta.kubernetes.io/storage-class"

// A claim that names one class in the old annotation and another in the field is of the first to
// Kubernetes: a quota that forbids it refuses the claim, and one that it allows gets a volume of
// that class, which is bound.
func TestClassByAnnotation(t *testing.T) {
	w, h := running(t)
	kept := w.Class("kept", immediate, fixture.Policy(corev1.PersistentVolumeReclaimRetain))
	forbidden := w.Class("forbidden", immediate)
	createIn(w, w.Client().CoreV1().ResourceQuotas(w.Namespace), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "classes"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceName(forbidden + ".storageclass.storage.k8s.io/persistentvolumeclaims"): resource.MustParse("0")}},
	})
	on := annotate("kubevirt.io/provisionOnNode", h.node)
	pv := w.bound("data", forbidden, "1Mi", annotate(classBeta, kept), on)
	if pv.Spec.StorageClassName != kept || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("the volume is of class %s with policy %s, want that of the annotation, %s with Retain",
			pv.Spec.StorageClassName, pv.Spec.PersistentVolumeReclaimPolicy, kept)
	}
	w.Releases("data", pv.Name)
	if _, err := os.Stat(h.mount + "/" + pv.Name); err != nil {
		t.Errorf("the data of a claim of a class with policy Retain: %v", err)
	}
}

// A class that is gone is told to its claim: no watch brings it, so that the daemon asks for it.
func TestMissingClass(t *testing.T) {
	w, h := running(t)
	c := w.claim("data", w.Namespace+"-gone", "1Mi", annotate(selectedNode, h.node), annotate("volume.kubernetes.io/storage-provisioner", w.Provisioner))
	w.refused(c, "ClassNotFound", "does not exist")
}

// Sizes that no number of 64 bits holds have no room anywhere. Kubernetes takes them.
func TestSizesBeyondNumbers(t *testing.T) {
	w, h, class := oneHost(t)
	on := annotate("kubevirt.io/provisionOnNode", h.node)
	for name, size := range map[string]string{"e100": "100E", "e19": "1e19", "e30": "1e30", "top": "9223372036854775808"} {
		w.refused(w.claim(name, class, size, on), "NotEnoughSpace", "the claim requests ")
	}
	pv := w.bound("tiny", class, "1500m", on) // a byte and a half
	h.wantTree(pool.Of(pv.Name)...)
	record := need(os.ReadFile(h.ours("volumes/" + pv.Name + ".json")))(w)
	if !strings.Contains(string(record), `"requested":2,`) && !strings.Contains(string(record), `"requested": 2,`) {
		t.Errorf("the record is %s", record)
	}
}

// A VolumeAttributesClass cannot be on our volumes, so that the binder would never bind them: the
// API server refuses it on any but CSI volumes.
func TestAttributesClass(t *testing.T) {
	w := newEnvironment(t)
	w.Since(cluster.AttributesClasses, "VolumeAttributesClass v1")
	h := w.newHost("a").run()
	class, gold := w.Class("c", immediate), "gold"
	on := annotate("kubevirt.io/provisionOnNode", h.node)
	claim := w.claim("gold", class, "1Mi", on, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &gold })
	w.refused(claim, "AttributesClassUnsupported", `"gold"`)
	plain := w.claim("plain", class, "1Mi", on)
	pv := w.Bound("plain")
	claims := w.pvcs()
	patchIn(w, claims, "plain", `{"spec":{"volumeAttributesClassName":"silver"}}`)
	w.refused(plain, "AttributesClassUnsupported", `"silver": the volume stays as it is`)
	pv.Spec.VolumeAttributesClassName = &gold
	if _, err := w.pvs().Update(w.Ctx, pv, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a hostPath volume with an attributes class: %v; then it could be supported", err)
	}
	h.wantTree(pool.Of(pv.Name)...)
}

// What a tenant writes into an annotation reaches log and events on one line and no longer than a
// name.
func TestLongWords(t *testing.T) {
	w, h := running(t)
	long := "line\n" + strings.Repeat("x", 200<<10)
	change := []func(*corev1.PersistentVolumeClaim){annotate(classBeta, long), annotate("kubevirt.io/provisionOnNode", h.node),
		annotate("volume.kubernetes.io/storage-provisioner", w.Provisioner), annotate("volume.beta.kubernetes.io/storage-provisioner", w.Provisioner)}
	for i := range 20 {
		claim := w.claim(fmt.Sprint("long-", i), "none", "1Mi", change...)
		if got := w.refused(claim, "ClassNotFound"); len(got) > 1024 || strings.Contains(got, "\n") {
			t.Errorf("an event of %d bytes: %.100s", len(got), got)
		}
	}
	for line := range strings.Lines(h.Log()) {
		if len(line) > 2048 {
			t.Errorf("a line of %d bytes: %.100s", len(line), line)
		}
	}
}

// The free space of a disk changes all the time. A claim that does not fit has one event all the
// same.
func TestTooLargeOnce(t *testing.T) {
	w, h, class := oneHost(t)
	on := annotate("kubevirt.io/provisionOnNode", h.node)
	claim := w.claim("large", class, "1Ti", on)
	w.refused(claim, "NotEnoughSpace")
	for i := range 3 { // a daemon that begins anew remembers nothing, and each time it has other words
		w.Must(os.WriteFile(fmt.Sprintf("%s/fill-%d", h.mount, i), make([]byte, 8<<20), 0o600))
		w.Must(h.Signal(syscall.SIGHUP))
		h.said("reason=NotEnoughSpace", i+2)
	}
	w.bound("after", class, "1Mi", on)
	events := listIn(w, w.events(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(claim.UID) + ",reason=NotEnoughSpace"})
	if len(events.Items) != 1 {
		t.Errorf("%d events, want one: %+v", len(events.Items), events.Items)
	}
}

// memoryMax is what a daemon may have had resident at any time, in MiB, while a tenant has hundreds
// of large claims. Unit and docs/operation.md have more: this is one daemon with one pool and few
// volumes.
const memoryMax = 96

// Claims that no daemon will ever provide, each as large as the API server takes it, cost every
// daemon little: while they come, and when it begins with all of them.
func TestMemoryOfPendingClaims(t *testing.T) {
	w, h := running(t)
	idle := h.memory()
	const n = 400
	large := annotate("large", strings.Repeat("x", 250<<10))
	ours := annotate("volume.kubernetes.io/storage-provisioner", w.Provisioner)
	claims := w.pvcs()
	w.each(n, func(name string) error {
		c := cluster.Claim(w.Namespace, name, "none", "1Mi")
		large(c)
		ours(c)
		_, err := claims.Create(w.Ctx, c, metav1.CreateOptions{})
		return err
	})
	h.said("reason=ClassNotFound", n)
	followed := h.memory()
	h.again()
	h.said("reason=ClassNotFound", 2*n)
	t.Logf("%d claims of 250 KiB: resident %s, while they came %s, begun with them %s", n, idle, followed, h.memory())
	for _, m := range []memory{followed, h.memory()} {
		if m.most > memoryMax {
			t.Errorf("%s resident, want at most %d MiB", m, memoryMax)
		}
	}
	// One by one: a busy API server does not delete all of a collection in the minute that a
	// request has.
	w.each(n, func(name string) error { return claims.Delete(w.Ctx, name, metav1.DeleteOptions{}) })
}

// each does something for so many names, for eight at once.
func (w *environment) each(n int, do func(name string) error) {
	w.Helper()
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < n; i += 8 {
				if err := do(fmt.Sprint("hostile-", i)); err != nil {
					w.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// memory is a process's resident memory in MiB, now and at most (proc(5), VmRSS and VmHWM).
type memory struct{ now, most int }

func (m memory) String() string { return fmt.Sprintf("%d MiB (%d at most)", m.now, m.most) }

func (h *host) memory() memory {
	h.w.Helper()
	status := need(process.Status(h.PID()))(h.w)
	return memory{status["VmRSS"] >> 10, status["VmHWM"] >> 10}
}
