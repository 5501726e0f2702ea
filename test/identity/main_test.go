// Package identity attacks a cluster with the credential of one node's daemon, on a real API server
// with the policies that
// `manifests` prints: what the daemon needs is allowed, and everything else is refused. The table
// is in docs/dev/security.md.
//
// It runs no daemon: test/e2e does, and with HOSTPATH_CONFINED=1 in the environment as confined as
// here.
package identity

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// plane is the control plane of all tests.
var (
	plane   fixture.Plane
	confine sync.Once
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// lists are the flags of the policies that are in force but for what a test changes and restores.
var lists = []string{
	"--claim-index", "--alias", "kubevirt.io.hostpath-provisioner", "--class", "listed", "--class", "some-*",
	"--pool-path", "/srv/fast", "--pool-path", "/data/*", "--shared-pool-path", "/srv/shared", "--every-node-pool-path", "/srv/every",
	"--hostname", "node-a=host-of-node-a", "--hostname", "node-b=host-of-node-b",
}

const account = "hostpath-provisioner" // the ServiceAccount, and its namespace

// world is two nodes of a confined cluster, and what the daemon of node-a is to the API server.
type world struct {
	*fixture.Environment
	admin kubernetes.Interface
	a     kubernetes.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := worldOn(t, plane.Get(t), 3*time.Minute)
	confine.Do(w.confine)
	w.a = w.as("node-a")
	return w
}

// worldOn is a world for so long in a cluster that may have no policies yet.
func worldOn(t *testing.T, c *cluster.Cluster, limit time.Duration) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return &world{Environment: &fixture.Environment{T: t, Cluster: c, Ctx: ctx}, admin: c.Client()}
}

// join makes nodes that stay.
func (w *world) join(nodes ...string) {
	w.Helper()
	for _, node := range nodes {
		labels := map[string]string{corev1.LabelHostname: "host-of-" + node}
		w.Must(w.Cluster.AddNode(w.Ctx, node, labels))
	}
}

type creator[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
}

// makes creates objects of a kind.
func makes[T any, K creator[T]](w *world, kind K, objects ...T) {
	w.Helper()
	for _, o := range objects {
		hosttest.Need(kind.Create(w.Ctx, o, metav1.CreateOptions{}))(w)
	}
}

// patch changes what is at a path of the API.
func (w *world) patch(as kubernetes.Interface, path, text string) error {
	request := as.CoreV1().RESTClient().Patch(types.MergePatchType)
	return request.AbsPath(path).Body([]byte(text)).Do(w.Ctx).Error()
}

// delete deletes what is at a path of the API.
func (w *world) delete(as kubernetes.Interface, path string) error {
	return as.CoreV1().RESTClient().Delete().AbsPath(path).Do(w.Ctx).Error()
}

// Paths of the API.
const (
	nodesAt      = "/api/v1/nodes/"
	volumesAt    = "/api/v1/persistentvolumes/"
	claimsAt     = "/api/v1/namespaces/default/persistentvolumeclaims/"
	eventsAt     = "/api/v1/namespaces/default/events/"
	leasesAt     = "/apis/coordination.k8s.io/v1/namespaces/hostpath-provisioner/leases/"
	capacitiesAt = "/apis/storage.k8s.io/v1/namespaces/hostpath-provisioner/csistoragecapacities/"
	driverAt     = "/apis/storage.k8s.io/v1/csidrivers/hostpath-provisioner"
	contentsAt   = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/"
	admissionAt  = "/apis/admissionregistration.k8s.io/v1/"
	policiesAt   = admissionAt + "validatingadmissionpolicies/"
	bindingsAt   = admissionAt + "validatingadmissionpolicybindings/"
	mutatingAt   = admissionAt + "mutatingadmissionpolicies/"
	rolesAt      = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
)

// confine applies the policies, and waits until they are in force.
func (w *world) confine() {
	w.Helper()
	w.join("node-a", "node-b")
	// An own volume that no provisioner named, as adopted ones are, before there is a policy that
	// labels it.
	fromBefore := volume("before", "node-a")
	fromBefore.Name = "from-before"
	makes(w, w.admin.CoreV1().PersistentVolumes(), fromBefore)
	w.apply(lists...)
	w.a = w.as("node-a")
	// The API server takes policies up in the order of their making, up to a second later: with the
	// last one all are in force.
	attempt := token(account, boundTo("node-b"))
	w.Eventually("the policies are in force", func() bool { return attempt(w) != nil })
}

func (w *world) apply(flags ...string) {
	w.Helper()
	w.Must(w.Apply(w.Ctx, w.manifests(flags...)))
	w.Must(fixture.TakeAway(w.Ctx, w.Cluster))
}

// manifests is what the product prints: without the claim index for an API server that has none.
func (w *world) manifests(flags ...string) []byte {
	w.Helper()
	if w.older() {
		flags = slices.DeleteFunc(slices.Clone(flags),
			func(flag string) bool { return flag == "--claim-index" })
	}
	out := hosttest.Need(exec.CommandContext(w.Ctx, rig.Binary(),
		append([]string{"manifests"}, flags...)...).Output())(w)
	return out
}

// older reports whether the API server is one without the kind of the claim index.
func (w *world) older() bool { w.Helper(); return w.Older(cluster.MutatingPolicies) }

// as is a client with the token that a node's daemon has; of no node with "".
func (w *world) as(node string) kubernetes.Interface {
	w.Helper()
	file := filepath.Join(hosttest.Dir(w), "kubeconfig")
	w.Must(w.ServiceAccountKubeconfig(w.Ctx, account, account, node, file))
	return w.with(file)
}

// with is a client with a kubeconfig.
func (w *world) with(file string) kubernetes.Interface {
	w.Helper()
	config := hosttest.Need(clientcmd.BuildConfigFromFlags("", file))(w)
	config.QPS = -1
	return hosttest.Need(kubernetes.NewForConfig(config))(w)
}
