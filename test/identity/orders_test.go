package identity

import (
	"errors"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
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
	o := &orders{world: worldOn(t, fixture.OwnPlane(t), 15*time.Minute)}
	o.join("node-a", "node-b")
	o.stranger = o.acting(rest.ImpersonationConfig{UserName: "stranger",
		Groups: []string{"system:masters"}})
	// RBAC refuses it nothing, with or without roles: the policies alone do.
	o.a = o.acting(rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + account + ":" + account, Groups: []string{"system:masters"},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"node-a"}},
	})
	o.makeCanary()
	return o
}

func (o *orders) acting(as rest.ImpersonationConfig) kubernetes.Interface {
	o.Helper()
	config := o.Config()
	config.Impersonate, config.QPS = as, -1
	return hosttest.Need(kubernetes.NewForConfig(config))(o)
}

// makeCanary makes policies that are no part of the product and refuse a ConfigMap: by its name,
// and by a label that the binding selects.
func (o *orders) makeCanary() {
	o.Helper()
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
		makes(o.world, admission.ValidatingAdmissionPolicies(), policy)
		makes(o.world, admission.ValidatingAdmissionPolicyBindings(), binding)
	}
}

// settle waits until the API server judges by all policies and bindings as they are now: it watches
// the two apart, and takes up together what it has seen, about once a second.
func (o *orders) settle() {
	o.Helper()
	o.canary++
	number := fmt.Sprint(o.canary)
	o.Must(o.patch(o.admin, policiesAt+"canary", fmt.Sprintf(
		`{"spec":{"validations":[{"expression":"object.metadata.name != 'canary-%s'"}]}}`, number)))
	o.Must(o.patch(o.admin, bindingsAt+"canary-bound", fmt.Sprintf(
		`{"spec":{"matchResources":{"objectSelector":{"matchLabels":{"canary":%q}}}}}`, number)))
	for _, meta := range []metav1.ObjectMeta{
		{Name: "canary-" + number}, {Name: "bound", Labels: map[string]string{"canary": number}},
	} {
		one := &corev1.ConfigMap{ObjectMeta: meta}
		o.Eventually("a policy comes into force", func() bool {
			_, err := o.admin.CoreV1().ConfigMaps("default").Create(o.Ctx, one, dryRun)
			return apierrors.IsInvalid(err)
		})
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
		return only(o.stranger.CoreV1().ServiceAccounts("default").CreateToken(o.Ctx, "default",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{}))
	},
	"a claim": func(o *orders) error {
		claims := o.stranger.CoreV1().PersistentVolumeClaims("default")
		c := cluster.Claim("default", "", "none", "1Gi")
		c.GenerateName = "stranger-"
		c, err := claims.Create(o.Ctx, c, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return errors.Join(
			o.patch(o.stranger, claimsAt+c.Name, `{"metadata":{"annotations":{"a":"b"}}}`),
			o.patch(o.stranger, claimsAt+c.Name+"/status", `{"status":{"phase":"Lost"}}`),
			o.delete(o.stranger, claimsAt+c.Name))
	},
	"a volume": func(o *orders) error {
		volumes := o.stranger.CoreV1().PersistentVolumes()
		pv := volume("stranger", "node-a", at("/etc"))
		pv.Name, pv.Finalizers, pv.Spec.ClaimRef = "", nil, nil
		pv.GenerateName = "stranger-"
		pv, err := volumes.Create(o.Ctx, pv, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return errors.Join(
			o.patch(o.stranger, volumesAt+pv.Name, `{"metadata":{"labels":{"a":"b"}}}`),
			o.delete(o.stranger, volumesAt+pv.Name))
	},
	"an event": func(o *orders) error {
		e := event("", "node-b", "Pod", "x")
		e.GenerateName = "stranger-"
		return only(o.stranger.CoreV1().Events("default").Create(o.Ctx, e, metav1.CreateOptions{}))
	},
	"a capacity": inAccount(func(o *orders) error {
		return only(o.stranger.StorageV1().CSIStorageCapacities(account).Create(o.Ctx,
			capacity("stranger", "node-b"), dryRun))
	}),
	"a CSIDriver": func(o *orders) error {
		return only(o.stranger.StorageV1().CSIDrivers().Create(o.Ctx,
			&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "stranger.example"}}, dryRun))
	},
}

// leaseIn takes and renews a lease.
func leaseIn(namespace string) func(*orders) error {
	return func(o *orders) error {
		leases := o.stranger.CoordinationV1().Leases(namespace)
		l, err := leases.Create(o.Ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "stranger-"}}, metav1.CreateOptions{})
		if err == nil {
			_, err = leases.Update(o.Ctx, l, metav1.UpdateOptions{})
		}
		if err == nil {
			err = leases.Delete(o.Ctx, l.Name, metav1.DeleteOptions{})
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
	_, err := o.a.CoreV1().PersistentVolumes().Create(o.Ctx, volume("own", "node-a"), dryRun)
	if err != nil {
		o.Errorf("after %s node-a is refused its own volume: %v", after, err)
	}
}

// installed applies what is there, and tries both.
func (o *orders) installed(by string, documents []string) {
	o.Helper()
	for i, d := range documents {
		o.Must(o.Apply(o.Ctx, []byte(d)))
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
		o.Must(o.Delete(o.Ctx, []byte(d)))
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
		n, err := o.admin.CoreV1().Namespaces().Get(o.Ctx, account, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && n.DeletionTimestamp == nil {
			return
		}
		if o.Ctx.Err() != nil {
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
// thief is refused. One in six of them is taken away alone, and with make test-worlds each.
func TestOrders(t *testing.T) {
	o := newOrders(t)
	all, gone := o.documents(lists...), o.documents("--delete", "--claim-index")
	o.installed("the installation", all)
	o.installed("a change of the lists", o.documents("--claim-index", "--pool-path", "/srv/other",
		"--pool-path", "/srv/fast", "--hostname", "node-a=host-of-node-a"))
	step := 6
	if os.Getenv("HOSTPATH_WORLDS") == "whole" {
		step = 1
	}
	for i := rand.IntN(step); i < len(all); i += step {
		one := all[i]
		_, name, _ := strings.Cut(one, "kind: ")
		name = strings.Join(strings.Fields(name)[:4], " ")
		o.Must(o.Delete(o.Ctx, []byte(one)))
		o.settle()
		o.strangers("the deletion of " + name)
		o.withoutNamespace()
		o.Must(o.Apply(o.Ctx, []byte(one)))
	}
	o.installed("a repair", all)
	o.Must(o.admin.CoreV1().Namespaces().Delete(o.Ctx, account, metav1.DeleteOptions{}))
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
