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
	*testing.T
	*cluster.Cluster
	ctx   context.Context
	admin kubernetes.Interface
	a     kubernetes.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := plane.Get(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	w := &world{T: t, Cluster: c, ctx: ctx, admin: c.Client()}
	confine.Do(w.confine)
	w.a = w.as("node-a")
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// confine applies the policies, and waits until they are in force.
func (w *world) confine() {
	w.Helper()
	for _, node := range []string{"node-a", "node-b"} {
		w.must(w.AddNode(w.ctx, node, map[string]string{corev1.LabelHostname: "host-of-" + node}))
	}
	w.keepFromBefore()
	w.apply(lists...)
	w.a = w.as("node-a")
	// The API server takes policies up in the order of their making, up to a second later: with the
	// last one all are in force.
	for attempt := token(account,
		boundTo("node-b")); attempt(w) == nil; time.Sleep(20 * time.Millisecond) {
		if w.ctx.Err() != nil {
			w.Fatal("the policies are not in force")
		}
	}
}

// keepFromBefore makes an own volume that no provisioner named, as adopted ones are, before there
// is a policy that labels it.
func (w *world) keepFromBefore() {
	w.Helper()
	_, err := w.admin.CoreV1().PersistentVolumes().Create(w.ctx,
		volume("before", "node-a",
			func(pv *corev1.PersistentVolume) { pv.Name = "from-before" }), metav1.CreateOptions{})
	w.must(err)
}

func (w *world) apply(flags ...string) {
	w.Helper()
	w.must(w.Apply(w.ctx, w.manifests(flags...)))
	w.must(fixture.TakeAway(w.ctx, w.Cluster))
}

// manifests is what the product prints: without the claim index for an API server that has none.
func (w *world) manifests(flags ...string) []byte {
	w.Helper()
	if w.older() {
		flags = slices.DeleteFunc(slices.Clone(flags),
			func(flag string) bool { return flag == "--claim-index" })
	}
	out, err := exec.CommandContext(w.ctx, rig.Binary(),
		append([]string{"manifests"}, flags...)...).Output()
	w.must(err)
	return out
}

// older reports whether the API server is one without the kind of the claim index.
func (w *world) older() bool { w.Helper(); return w.before(cluster.MutatingPolicies) }

func (w *world) before(minor int) bool {
	w.Helper()
	before := hosttest.Need(w.Before(minor))(w)
	return before
}

// as is a client with the token that a node's daemon has; of no node with "".
func (w *world) as(node string) kubernetes.Interface {
	w.Helper()
	file := filepath.Join(hosttest.Dir(w), "kubeconfig")
	w.must(w.ServiceAccountKubeconfig(w.ctx, account, account, node, file))
	config := hosttest.Need(clientcmd.BuildConfigFromFlags("", file))(w)
	config.QPS = -1
	client := hosttest.Need(kubernetes.NewForConfig(config))(w)
	return client
}
