package identity

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// cluster with strangers: each order of making and removing our objects is played in it.
type orders struct {
	*world
	stranger kubernetes.Interface
	canary   int // of the policies by which a change is seen to be in force
}

// newOrders has a control plane of its own, whose policies no other test needs.
func newOrders(t *testing.T) *orders {
	t.Helper()
	c := fixture.OwnPlane(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	o := &orders{world: &world{T: t, Cluster: c, ctx: ctx, admin: c.Client()}}
	for _, node := range []string{"node-a", "node-b"} {
		o.must(o.AddNode(ctx, node, map[string]string{corev1.LabelHostname: "host-of-" + node}))
	}
	o.stranger = o.acting(rest.ImpersonationConfig{UserName: "stranger",
		Groups: []string{"system:masters"}})
	// RBAC refuses it nothing, with or without roles: the policies alone do.
	o.a = o.acting(rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + account + ":" + account, Groups: []string{"system:masters"},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"node-a"}},
	})
	o.must(o.makeCanary())
	return o
}

func (o *orders) acting(as rest.ImpersonationConfig) kubernetes.Interface {
	o.Helper()
	config := o.Config()
	config.Impersonate, config.QPS = as, -1
	client := hosttest.Need(kubernetes.NewForConfig(config))(o)
	return client
}

// makeCanary makes policies that are no part of the product and refuse a ConfigMap: by its name,
// and by a label that the binding selects.
func (o *orders) makeCanary() error {
	fail := admissionv1.Fail
	admission := o.admin.AdmissionregistrationV1()
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
		},
	}}
	for name, expression := range map[string]string{"canary": "true", "canary-bound": "false"} {
		policy := &admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: &fail, Validations: []admissionv1.Validation{{Expression: expression}},
				MatchConstraints: &admissionv1.MatchResources{
					ResourceRules: []admissionv1.NamedRuleWithOperations{rule},
				},
			},
		}
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				MatchResources: &admissionv1.MatchResources{},
			},
		}
		if name == "canary-bound" {
			binding.Spec.MatchResources.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "0"}}
		}
		_, err := admission.ValidatingAdmissionPolicies().Create(o.ctx, policy, metav1.CreateOptions{})
		if err == nil {
			_, err = admission.ValidatingAdmissionPolicyBindings().Create(o.ctx, binding, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle waits until the API server judges by all policies and bindings as they are now: it watches
// the two apart, and takes up together what it has seen, about once a second.
func (o *orders) settle() {
	o.Helper()
	o.canary++
	number := fmt.Sprint(o.canary)
	admission := o.admin.AdmissionregistrationV1()
	patch := fmt.Sprintf(`{"spec":{"validations":[{"expression":"object.metadata.name != 'canary-%s'"}]}}`, number)
	_, err := admission.ValidatingAdmissionPolicies().Patch(o.ctx, "canary", types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	o.must(err)
	patch = fmt.Sprintf(`{"spec":{"matchResources":{"objectSelector":{"matchLabels":{"canary":%q}}}}}`, number)
	_, err = admission.ValidatingAdmissionPolicyBindings().Patch(o.ctx, "canary-bound", types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	o.must(err)
	for _, meta := range []metav1.ObjectMeta{
		{Name: "canary-" + number}, {Name: "bound", Labels: map[string]string{"canary": number}},
	} {
		one := &corev1.ConfigMap{ObjectMeta: meta}
		for {
			_, err := o.admin.CoreV1().ConfigMaps("default").Create(o.ctx, one, dryRun)
			if apierrors.IsInvalid(err) {
				break
			}
			if o.ctx.Err() != nil {
				o.Fatal("a policy does not come into force")
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// strangers writes what everybody else writes, and is refused none of it.
func (o *orders) strangers(after string) {
	o.Helper()
	for what, write := range strangers {
		if err := write(o); err != nil {
			o.Errorf("after %s a stranger is refused %s: %v", after, what, err)
		}
	}
}

var strangers = map[string]func(*orders) error{
	"a lease of a kubelet":             leaseIn("kube-node-lease"),
	"a lease of a controller":          leaseIn("kube-system"),
	"a lease in the daemons namespace": inAccount(leaseIn(account)),
	"a token": func(o *orders) error {
		_, err := o.stranger.CoreV1().ServiceAccounts("default").CreateToken(o.ctx, "default",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		return err
	},
	"a claim": func(o *orders) error {
		claims := o.stranger.CoreV1().PersistentVolumeClaims("default")
		c, err := claims.Create(o.ctx, aClaim(), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		c, err = claims.Patch(o.ctx, c.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{})
		if err != nil {
			return err
		}
		_, err = claims.Patch(o.ctx, c.Name, types.MergePatchType,
			[]byte(`{"status":{"phase":"Lost"}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			return err
		}
		return claims.Delete(o.ctx, c.Name, metav1.DeleteOptions{})
	},
	"a volume": func(o *orders) error {
		volumes := o.stranger.CoreV1().PersistentVolumes()
		pv := volume("stranger", "node-a", at("/etc"))
		pv.Name, pv.Finalizers, pv.Spec.ClaimRef = "", nil, nil
		pv.GenerateName = "stranger-"
		pv, err := volumes.Create(o.ctx, pv, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if _, err = volumes.Patch(o.ctx, pv.Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		return volumes.Delete(o.ctx, pv.Name, metav1.DeleteOptions{})
	},
	"an event": func(o *orders) error {
		e := event("", "node-b", "Pod", "x")
		e.GenerateName = "stranger-"
		_, err := o.stranger.CoreV1().Events("default").Create(o.ctx, e, metav1.CreateOptions{})
		return err
	},
	"a capacity": inAccount(func(o *orders) error {
		_, err := o.stranger.StorageV1().CSIStorageCapacities(account).Create(o.ctx,
			capacity("stranger", "node-b"), dryRun)
		return err
	}),
	"a CSIDriver": func(o *orders) error {
		_, err := o.stranger.StorageV1().CSIDrivers().Create(o.ctx,
			&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "stranger.example"}}, dryRun)
		return err
	},
}

func aClaim() *corev1.PersistentVolumeClaim {
	class := "none"
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{GenerateName: "stranger-"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: volume("", "").Spec.Capacity},
		}}
}

// leaseIn takes and renews a lease.
func leaseIn(namespace string) func(*orders) error {
	return func(o *orders) error {
		leases := o.stranger.CoordinationV1().Leases(namespace)
		l, err := leases.Create(o.ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "stranger-"}}, metav1.CreateOptions{})
		if err == nil {
			_, err = leases.Update(o.ctx, l, metav1.UpdateOptions{})
		}
		if err == nil {
			err = leases.Delete(o.ctx, l.Name, metav1.DeleteOptions{})
		}
		return err
	}
}

// inAccount writes in the daemons' namespace, if it is there and stays.
func inAccount(write func(*orders) error) func(*orders) error {
	return func(o *orders) error {
		err := write(o)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
			apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}

// thief tries what a stolen token must not do while all policies are in force.
func (o *orders) thief(after string) {
	o.Helper()
	recycled := volume("recycled", "node-a", func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRecycle
	})
	for what, try := range map[string]func(*world) error{
		"a volume on /etc": create(volume("etc", "node-a",
			at("/etc"))), "a volume of node-b": create(volume("b", "node-b")), "a recycled volume": create(recycled),
		"a token of node-b": token(account,
			boundTo("node-b")), "a lease of node-b": createLease(lease("stolen", "node-b")),
		"a capacity of node-b": createCapacity(capacity("stolen",
			"node-b")), "an event of node-b": createEvent(event("stolen", "node-b", "Pod", "x")),
	} {
		if err := try(o.world); !apierrors.IsForbidden(err) {
			o.Errorf("after %s a thief is not refused %s: %v", after, what, err)
		}
	}
	_, err := o.a.CoreV1().PersistentVolumes().Create(o.ctx, volume("own", "node-a"), dryRun)
	if err != nil {
		o.Errorf("after %s node-a is refused its own volume: %v", after, err)
	}
}

// installed applies what is there, and tries both.
func (o *orders) installed(by string, documents []string) {
	o.Helper()
	for i, d := range documents {
		o.must(o.Apply(o.ctx, []byte(d)))
		o.between(i, by)
	}
	o.settle()
	o.strangers(by)
	o.thief(by)
}

// removed deletes what is there.
func (o *orders) removed(by string, documents []string) {
	o.Helper()
	for i, d := range documents {
		o.must(o.Delete(o.ctx, []byte(d)))
		o.between(i, by)
	}
	o.settle()
	o.strangers(by)
	o.withoutNamespace()
}

// between is after some steps of many.
func (o *orders) between(step int, by string) {
	o.Helper()
	if step%4 == 3 {
		o.strangers("a part of " + by)
	}
}

// withoutNamespace waits until the daemons' namespace is gone, if it is going.
func (o *orders) withoutNamespace() {
	o.Helper()
	for {
		n, err := o.admin.CoreV1().Namespaces().Get(o.ctx, account, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && n.DeletionTimestamp == nil {
			return
		}
		if o.ctx.Err() != nil {
			o.Fatalf("the namespace stays: %v, %v", n.Status, err)
		}
		o.strangers("the deletion of the namespace")
	}
}

// documents are the objects that manifests prints.
func (o *orders) documents(flags ...string) []string {
	o.Helper()
	return strings.Split(string(o.manifests(flags...)), "---\n")[1:]
}

// helm puts objects in the order in which Helm makes or removes them, as its own sorting of these
// very objects has it (TestOrder (test/upstream/charts)).
func (o *orders) helm(documents []string, does string) []string {
	o.Helper()
	text := hosttest.Need(os.ReadFile("testdata/helm-" + does))(o)
	return o.ofKinds(documents, strings.Fields(string(text))...)
}

// ofKinds sorts objects by their kinds, of which each is named, or only one: then the others stay
// behind it.
func (o *orders) ofKinds(documents []string, kinds ...string) []string {
	o.Helper()
	place := func(d string) int {
		at := slices.IndexFunc(kinds, func(kind string) bool {
			return strings.Contains(d, "\nkind: "+kind+"\n")
		})
		if at < 0 && len(kinds) > 1 {
			o.Fatalf("of which kind is\n%s", d)
		}
		return (at + len(kinds) + 1) % (len(kinds) + 1) // -1 comes last
	}
	sorted := slices.Clone(documents)
	slices.SortStableFunc(sorted, func(a, b string) int { return place(a) - place(b) })
	return sorted
}

func backwards(documents []string) []string {
	other := slices.Clone(documents)
	slices.Reverse(other)
	return other
}

// TestOrders: no state of our objects, in any order in which they are made and removed, refuses a
// stranger; and whenever all are there, a
// thief is refused.
func TestOrders(t *testing.T) {
	o := newOrders(t)
	all, gone := o.documents(lists...), o.documents("--delete", "--claim-index")
	o.installed("the installation", all)
	o.installed("a change of the lists", o.documents("--claim-index", "--pool-path", "/srv/other",
		"--pool-path", "/srv/fast", "--hostname", "node-a=host-of-node-a"))
	for _, one := range all {
		_, name, _ := strings.Cut(one, "kind: ")
		name = strings.Join(strings.Fields(name)[:4], " ")
		o.must(o.Delete(o.ctx, []byte(one)))
		o.settle()
		o.strangers("the deletion of " + name)
		o.withoutNamespace()
		o.must(o.Apply(o.ctx, []byte(one)))
	}
	o.installed("a repair", all)
	o.must(o.admin.CoreV1().Namespaces().Delete(o.ctx, account, metav1.DeleteOptions{}))
	o.withoutNamespace()
	o.settle()
	o.strangers("the deletion of the namespace")
	o.installed("an installation after that", all)
	o.removed("--delete", gone)
	o.installed("an installation after --delete", all)
	o.removed("kubectl delete -k", all)
	o.installed("helm install", o.helm(all, "install"))
	o.installed("helm upgrade", o.helm(o.documents(append([]string{"--pool-path", "/srv/more"},
		lists...)...), "install"))
	o.removed("helm uninstall", o.helm(all, "uninstall"))
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	all = o.ofKinds(all, "Namespace")
	o.installed("an installation in any order", all)
	o.removed("a removal in any order", backwards(all))
}
