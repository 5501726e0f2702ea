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

// only is the error of a call that returns an object, too.
func only[T any](_ T, err error) error { return err }

// create makes a PersistentVolume.
func create(pv *corev1.PersistentVolume) func(*world) error {
	return func(w *world) error {
		return only(w.a.CoreV1().PersistentVolumes().Create(w.Ctx, pv, metav1.CreateOptions{}))
	}
}

// patch changes what is at a path of the API.
func patch(path, text string) func(*world) error {
	return func(w *world) error { return w.patch(w.a, path, text) }
}

// remove deletes what is at a path of the API.
func remove(path string) func(*world) error {
	return func(w *world) error { return w.delete(w.a, path) }
}

func createEvent(e *corev1.Event) func(*world) error {
	return func(w *world) error {
		return only(w.a.CoreV1().Events(e.Namespace).Create(w.Ctx, e, metav1.CreateOptions{}))
	}
}

func createLease(l *coordinationv1.Lease) func(*world) error {
	return func(w *world) error {
		leases := w.a.CoordinationV1().Leases(l.Namespace)
		return only(leases.Create(w.Ctx, l, metav1.CreateOptions{}))
	}
}

// updateLease writes a lease that is there as l has it.
func updateLease(l *coordinationv1.Lease) func(*world) error {
	return func(w *world) error {
		own, all := w.a.CoordinationV1().Leases(account), w.admin.CoordinationV1().Leases(account)
		now := hosttest.Need(all.Get(w.Ctx, l.Name, metav1.GetOptions{}))(w)
		l.ResourceVersion = now.ResourceVersion
		return only(own.Update(w.Ctx, l, metav1.UpdateOptions{}))
	}
}

func createCapacity(c *storagev1.CSIStorageCapacity) func(*world) error {
	return func(w *world) error {
		return only(w.a.StorageV1().CSIStorageCapacities(account).Create(w.Ctx, c, metav1.CreateOptions{}))
	}
}

func token(of string, bound *authenticationv1.BoundObjectReference) func(*world) error {
	return func(w *world) error {
		spec := authenticationv1.TokenRequestSpec{BoundObjectRef: bound}
		return only(w.a.CoreV1().ServiceAccounts(account).CreateToken(w.Ctx, of,
			&authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{}))
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
		pv.Finalizers = append(pv.Finalizers, "other.example/keep")
	}
	makes(w, w.admin.CoreV1().PersistentVolumes(),
		volume("of-a", "node-a", held), volume("of-b", "node-b"), volume("others", "node-b",
			others),
		volume("to-grow", "node-a"), volume("to-go", "node-a"), volume("shared", "",
			scoped("shared", "/srv/shared/pvc-shared")),
		volume("adopted", "node-a", inPlaceOf("/srv/fast/"+pvc("adopted"))), volume("elsewhere",
			"node-a", inPlaceOf("/etc/"+pvc("elsewhere"))),
	)
	for _, c := range []struct{ name, volume, node, asks string }{
		{"pending", "", "", ""},
		{"of-b", "", "node-b", ""},
		{"bound", "others", "", ""},
		{"bound-b", pvc("of-b"), "node-b", account},
		{"to-grow", pvc("to-grow"), "node-a", account},
		{"elsewhere", "others", "", "other.example"},
		{"to-serve", "", "", ""},
	} {
		claim := cluster.Claim("default", c.name, "no-class-of-this-name", "1Gi")
		claim.Spec.VolumeName, claim.Annotations = c.volume, map[string]string{}
		for key, value := range map[string]string{selected: c.node, asked: c.asks} {
			if value != "" {
				claim.Annotations[key] = value
			}
		}
		makes(w, w.admin.CoreV1().PersistentVolumeClaims("default"), claim)
	}
	foreign := event("foreign", "node-b", "Pod", "some", ofKubelet)
	crowded := event("crowded", "node-b", "PersistentVolumeClaim", "pending")
	crowded.Reason = "NoNodeFits"
	makes(w, w.admin.CoreV1().Events("default"), foreign, crowded,
		event("of-b", "node-b", "PersistentVolumeClaim", "pending"))
	makes(w, w.admin.CoordinationV1().Leases(account), lease("held", "node-b"),
		lease("free", "node-a"), lease("another", "node-b", anotherProgram),
		lease("called", "node-a", calledTombstone), ofNode("node-b", "node-b"),
		tombstone("pvc-gone", "node-b"))
	makes(w, w.admin.StorageV1().CSIStorageCapacities(account), capacity("of-a", "node-a"),
		capacity("of-b", "node-b"), ofSilent("of-others", "0", "9223372036854775807"))
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
			if first := dropped[one.what]; first > 0 && w.Older(first) {
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
	if _, err := w.admin.CoreV1().PersistentVolumes().Get(w.Ctx, pvc("of-a"),
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
	all := hosttest.Need(w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(w.Ctx,
		metav1.ListOptions{}))(w)
	if len(all.Items) != 10 {
		t.Errorf("%d policies", len(all.Items))
	}
	for _, p := range all.Items {
		now := hosttest.Need(cluster.WaitFor(w.Ctx,
			w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies(), p.Name, func(p *admissionv1.ValidatingAdmissionPolicy) bool {
				return p.Status.ObservedGeneration == p.Generation && p.Status.TypeChecking != nil
			}))(w)
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
