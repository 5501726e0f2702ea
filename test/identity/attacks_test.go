package identity

import (
	"fmt"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// attempt is one thing that is tried with node-a's token, and what the API server responds.
type attempt struct {
	what   string
	try    func(w *world) error
	says   string // in the response
	reason string // why that is what it says
}

const byRBAC = "is forbidden: User"

// create makes a PersistentVolume.
func create(pv *corev1.PersistentVolume) func(*world) error {
	return func(w *world) error {
		_, err := w.a.CoreV1().PersistentVolumes().Create(w.ctx, pv, metav1.CreateOptions{})
		return err
	}
}

func patchVolume(name, patch string) func(*world) error {
	return func(w *world) error {
		_, err := w.a.CoreV1().PersistentVolumes().Patch(w.ctx, name, types.MergePatchType,
			[]byte(patch), metav1.PatchOptions{})
		return err
	}
}

func patchClaim(name, patch string, sub ...string) func(*world) error {
	return func(w *world) error {
		_, err := w.a.CoreV1().PersistentVolumeClaims("default").Patch(w.ctx, name,
			types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
		return err
	}
}

func createEvent(e *corev1.Event) func(*world) error {
	return func(w *world) error {
		_, err := w.a.CoreV1().Events(e.Namespace).Create(w.ctx, e, metav1.CreateOptions{})
		return err
	}
}

func patchEvent(name, patch string) func(*world) error {
	return func(w *world) error {
		_, err := w.a.CoreV1().Events("default").Patch(w.ctx, name, types.MergePatchType,
			[]byte(patch), metav1.PatchOptions{})
		return err
	}
}

func createLease(l *coordinationv1.Lease) func(*world) error {
	return func(w *world) error {
		_, err := w.a.CoordinationV1().Leases(account).Create(w.ctx, l, metav1.CreateOptions{})
		return err
	}
}

// updateLease writes a lease that is there as l has it.
func updateLease(l *coordinationv1.Lease) func(*world) error {
	return func(w *world) error {
		now, err := w.admin.CoordinationV1().Leases(account).Get(w.ctx, l.Name, metav1.GetOptions{})
		w.must(err)
		l.ResourceVersion = now.ResourceVersion
		_, err = w.a.CoordinationV1().Leases(account).Update(w.ctx, l, metav1.UpdateOptions{})
		return err
	}
}

func createCapacity(c *storagev1.CSIStorageCapacity) func(*world) error {
	return func(w *world) error {
		_, err := w.a.StorageV1().CSIStorageCapacities(account).Create(w.ctx, c,
			metav1.CreateOptions{})
		return err
	}
}

func patchCapacity(name, patch string) func(*world) error {
	return func(w *world) error {
		_, err := w.a.StorageV1().CSIStorageCapacities(account).Patch(w.ctx, name,
			types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
}

func patchDriver(patch string) func(*world) error {
	return func(w *world) error {
		_, err := w.a.StorageV1().CSIDrivers().Patch(w.ctx, "hostpath-provisioner",
			types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
}

func token(of string, bound *authenticationv1.BoundObjectReference) func(*world) error {
	return func(w *world) error {
		_, err := w.a.CoreV1().ServiceAccounts(account).CreateToken(w.ctx, of,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
		return err
	}
}

func boundTo(node string) *authenticationv1.BoundObjectReference {
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node}
}

// setUp makes what is attacked: volumes, claims, events, leases and capacities of node-b and of
// others.
func (w *world) setUp() {
	w.Helper()
	others := func(pv *corev1.PersistentVolume) {
		pv.Name, pv.Labels, pv.Annotations, pv.Finalizers = "others", nil, map[string]string{"pv.kubernetes.io/provisioned-by": "other.example"}, []string{"other.example/keep"}
	}
	held := func(pv *corev1.PersistentVolume) {
		pv.Finalizers = append(pv.Finalizers,
			"other.example/keep")
	}
	for _, pv := range []*corev1.PersistentVolume{
		volume("of-a", "node-a", held), volume("of-b", "node-b"), volume("others", "node-b",
			others),
		volume("to-grow", "node-a"), volume("to-go", "node-a"), volume("shared", "",
			scoped("shared", "/srv/shared/pvc-shared")),
		volume("adopted", "node-a", inPlaceOf("/srv/fast/"+pvc("adopted"))), volume("elsewhere",
			"node-a", inPlaceOf("/etc/"+pvc("elsewhere"))),
	} {
		_, err := w.admin.CoreV1().PersistentVolumes().Create(w.ctx, pv, metav1.CreateOptions{})
		w.must(err)
	}
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"pending": func(*corev1.PersistentVolumeClaim) {},
		"of-b":    func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{selected: "node-b"} },
		"bound":   func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "others" },
		"bound-b": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName = pvc("of-b")
			c.Annotations = map[string]string{selected: "node-b", asked: account}
		},
		"to-grow": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName = pvc("to-grow")
			c.Annotations = map[string]string{selected: "node-a", asked: account}
		},
		"elsewhere": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName = "others"
			c.Annotations = map[string]string{asked: "other.example"}
		},
		"to-serve": func(*corev1.PersistentVolumeClaim) {},
	} {
		c := cluster.Claim("default", name, "no-class-of-this-name", "1Gi")
		change(c)
		_, err := w.admin.CoreV1().PersistentVolumeClaims("default").Create(w.ctx, c,
			metav1.CreateOptions{})
		w.must(err)
	}
	foreign := event("foreign", "node-b", "Pod", "some")
	foreign.Source.Component, foreign.ReportingController = "kubelet", "kubelet"
	crowded := event("crowded", "node-b", "PersistentVolumeClaim", "pending")
	crowded.Reason = "NoNodeFits"
	for _, e := range []*corev1.Event{foreign, crowded,
		event("of-b", "node-b", "PersistentVolumeClaim", "pending")} {
		_, err := w.admin.CoreV1().Events(e.Namespace).Create(w.ctx, e, metav1.CreateOptions{})
		w.must(err)
	}
	another, called := lease("another", "node-b"), lease("called", "node-a")
	called.Labels["hostpath-provisioner/tombstone"] = "delete"
	another.Name, another.Labels = "another.program", nil
	for _, l := range []*coordinationv1.Lease{lease("held", "node-b"), lease("free", "node-a"),
		another, called, ofNode("node-b", "node-b"), tombstone("pvc-gone", "node-b")} {
		_, err := w.admin.CoordinationV1().Leases(account).Create(w.ctx, l, metav1.CreateOptions{})
		w.must(err)
	}
	for _, c := range []*storagev1.CSIStorageCapacity{capacity("of-a", "node-a"),
		capacity("of-b", "node-b"), ofSilent("of-others", "0", "9223372036854775807")} {
		_, err := w.admin.StorageV1().CSIStorageCapacities(account).Create(w.ctx, c,
			metav1.CreateOptions{})
		w.must(err)
	}
}

// dropped are attempts with a field that API servers before this minor version drop, before a policy
// sees it.
var dropped = map[string]int{
	"create a volume with a field that no daemon writes": cluster.AttributesClasses,
	"write that a claim was given more than it requests": cluster.ResizeStates,
}

// TestAttacks tries with node-a's token what a thief of it would. Each answer is checked, and the
// table in
// docs/dev/security.md is the same.
func TestAttacks(t *testing.T) {
	w := newWorld(t)
	w.setUp()
	var table strings.Builder
	table.WriteString("| attempt with the token of node-a | response | why |\n|---|---|---|\n")
	for _, one := range attempts {
		t.Run(one.what, func(t *testing.T) {
			if first := dropped[one.what]; w.before(first) {
				t.Skipf("the field is of Kubernetes 1.%d", first)
			}
			err := one.try(w)
			switch {
			case err == nil:
				t.Fatal("it was allowed")
			case !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) &&
				!apierrors.IsInvalid(err):
				t.Errorf("it failed, and was not refused: %v", err)
			case !strings.Contains(err.Error(), one.says):
				t.Errorf("%q, want %q", err, one.says)
			}
		})
		says := one.says
		if says == byRBAC {
			says = "403: no right"
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", one.what, says, one.reason)
	}
	if len(attempts) < 40 {
		t.Errorf("%d attempts", len(attempts))
	}
	page := hosttest.Need(os.ReadFile(rig.Root() + "/docs/dev/security.md"))(w)
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/dev/security.md has another table than\n%s", table.String())
	}
}

// TestNeeds tries what the daemon does, which no policy refuses.
func TestNeeds(t *testing.T) {
	w := newWorld(t)
	if _, err := w.admin.CoreV1().PersistentVolumes().Get(w.ctx, pvc("of-a"),
		metav1.GetOptions{}); err != nil {
		w.setUp()
	}
	for name, try := range needs {
		t.Run(name, func(t *testing.T) {
			if err := try(w); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPoliciesAreUnderstood: the API server finds nothing in the policies' expressions that cannot
// be.
func TestPoliciesAreUnderstood(t *testing.T) {
	w := newWorld(t)
	all, err := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(w.ctx,
		metav1.ListOptions{})
	w.must(err)
	if len(all.Items) != 10 {
		t.Errorf("%d policies", len(all.Items))
	}
	for _, p := range all.Items {
		now, err := cluster.WaitFor(w.ctx,
			w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies(), p.Name, func(p *admissionv1.ValidatingAdmissionPolicy) bool {
				return p.Status.ObservedGeneration == p.Generation && p.Status.TypeChecking != nil
			})
		w.must(err)
		for _, warning := range now.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s: %s", p.Name, warning.FieldRef, warning.Warning)
		}
	}
}

// TestBoundToNothing: a token that is no node's may read and write nothing.
func TestBoundToNothing(t *testing.T) {
	w := newWorld(t)
	w.a = w.as("")
	err := create(volume("nobodys", "node-a"))(w)
	if err == nil || !strings.Contains(err.Error(), "not bound to a Node object") {
		t.Error(err)
	}
}
