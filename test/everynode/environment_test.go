package everynode

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

const (
	// limit is for one wait: long enough for a busy machine, short enough to be told.
	limit     = fixture.Limit
	nodeLabel = "test" // the nodes of a test's namespace

	immediate = storagev1.VolumeBindingImmediate
	wait      = storagev1.VolumeBindingWaitForFirstConsumer
)

// environment is one test's part of the cluster.
type environment struct {
	*fixture.Environment
	pool      string // the path of the pool, the same on every host
	address   string // of the API server, in place of its own
	authority []byte // for its certificate
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	t.Parallel()
	return environmentOn(t, plane.Get(t))
}

func environmentOn(t *testing.T, c *cluster.Cluster) *environment {
	t.Helper()
	return &environment{Environment: fixture.New(t, c, "every"), pool: hosttest.MountPoint(t)}
}

// kubeconfig writes a daemon's.
func (w *environment) kubeconfig(file string) error {
	if err := w.ServiceAccountKubeconfig(w.Ctx, "hostpath-provisioner", "hostpath-provisioner", "", file); err != nil || w.address == "" {
		return err
	}
	return cluster.Redirect(file, file, w.address, w.authority)
}

// claim creates a claim and returns the name that its volume will have.
func (w *environment) claim(name, class, size string) string {
	w.Helper()
	claims := w.Client().CoreV1().PersistentVolumeClaims(w.Namespace)
	claim := cluster.Claim(w.Namespace, name, class, size)
	made := hosttest.Need(claims.Create(w.Ctx, claim, metav1.CreateOptions{}))(w)
	return "pvc-" + string(made.UID)
}

// made makes a claim, waits until it is bound, and returns its volume's name.
func (w *environment) made(name, class string) string {
	w.Helper()
	pv := w.claim(name, class, "1Mi")
	w.Bound(name)
	return pv
}

// daemonSet makes a real one on the nodes of this test, each of whose pods uses the claim.
func (w *environment) daemonSet(name, claim string) {
	w.Helper()
	labels := map[string]string{"app": name}
	pod := cluster.Pod(w.Namespace, name, claim)
	pod.Spec.NodeSelector = map[string]string{nodeLabel: w.Namespace}
	hosttest.Need(w.Client().AppsV1().DaemonSets(w.Namespace).Create(w.Ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{}))(w)
}

// deleteDaemonSet removes it and its pods.
func (w *environment) deleteDaemonSet(name string) {
	w.Helper()
	now := metav1.DeletePropagationForeground
	w.Must(w.Client().AppsV1().DaemonSets(w.Namespace).Delete(w.Ctx, name, metav1.DeleteOptions{PropagationPolicy: &now}))
}

// endPods says that a set's pods have ended, as a kubelet would once their grace period is over.
func (w *environment) endPods(set string) {
	w.Helper()
	w.Must(w.Client().CoreV1().Pods(w.Namespace).DeleteCollection(w.Ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
		metav1.ListOptions{LabelSelector: "app=" + set}))
}

// scheduled waits until each host has a pod of the set.
func (w *environment) scheduled(set string, hosts ...*host) {
	w.Helper()
	w.Eventually("each node has its pod", func() bool {
		of := metav1.ListOptions{LabelSelector: "app=" + set}
		pods := hosttest.Need(w.Client().CoreV1().Pods(w.Namespace).List(w.Ctx, of))(w)
		on := map[string]bool{}
		for _, p := range pods.Items {
			on[p.Spec.NodeName] = true
		}
		return !slices.ContainsFunc(hosts, func(h *host) bool { return !on[h.node] })
	})
}

// event waits for an event about a volume from one host that says all this. The volume may be gone.
func (w *environment) event(pv, reason string, from *host, parts ...string) {
	w.Helper()
	events := w.Client().CoreV1().Events(metav1.NamespaceDefault)
	about := metav1.ListOptions{FieldSelector: "involvedObject.name=" + pv}
	var said []string
	for began := time.Now(); ; time.Sleep(rig.Pause(began)) {
		list := hosttest.Need(events.List(w.Ctx, about))(w)
		said = nil
		for _, e := range list.Items {
			said = append(said, e.Source.Host+" "+e.Reason+": "+e.Message)
			missing := func(part string) bool { return !strings.Contains(e.Message, part) }
			if e.Source.Host == from.node && e.Reason == reason && !slices.ContainsFunc(parts, missing) {
				return
			}
		}
		if time.Since(began) > limit {
			w.Fatalf("no event %s about %s from %s with %q; there are\n  %s", reason, pv, from.node, parts, strings.Join(said, "\n  "))
		}
	}
}

// podOn makes a pod that may run on one node only, as a DaemonSet's do.
func (w *environment) podOn(name string, h *host, claims ...string) string {
	w.Helper()
	p := cluster.Pod(w.Namespace, name, claims...)
	p.Spec.Affinity = cluster.OnNodes(h.node)
	hosttest.Need(w.Client().CoreV1().Pods(w.Namespace).Create(w.Ctx, p, metav1.CreateOptions{}))(w)
	return name
}
