package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// limit is for one wait: long enough for a busy machine, short enough to be told.
const limit = fixture.Limit

// environment is one test's part of the cluster.
type environment struct{ *fixture.Environment }

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	t.Parallel()
	return &environment{fixture.New(t, plane.Get(t), "e2e-")}
}

// withDriver is a test's environment with a CSIDriver of its provisioner.
func withDriver(t *testing.T) *environment {
	t.Helper()
	w := newEnvironment(t)
	w.driver()
	return w
}

// running is a test's environment with a host whose daemon runs.
func running(t *testing.T, extra ...string) (w *environment, h *host) {
	t.Helper()
	w = newEnvironment(t)
	return w, w.newHost("a", extra...).run()
}

// oneHost is running with a class that binds at once.
func oneHost(t *testing.T, extra ...string) (w *environment, h *host, class string) {
	t.Helper()
	w, h = running(t, extra...)
	return w, h, w.Class("c", immediate)
}

// servingHost is oneHost whose daemon serves its metrics.
func servingHost(t *testing.T, extra ...string) (w *environment, h *host, class string) {
	t.Helper()
	w = newEnvironment(t)
	return w, w.newHost("a", extra...).serving().run(), w.Class("c", immediate)
}

// twoHosts are two hosts whose daemons run and publish nothing, and a class that binds at once.
func twoHosts(t *testing.T) (w *environment, a, b *host, class string) {
	t.Helper()
	w = newEnvironment(t)
	a, b = w.newHost("a").quiet().run(), w.newHost("b").quiet().run()
	return w, a, b, w.Class("c", immediate)
}

// host is one node with one daemon and one pool, "fast".
type host struct {
	*rig.Daemon
	w     *environment
	node  string
	image hosttest.Image
	mount string
	label string // the Node's hostname label, "" for host-of-NODE

	address string // of the metrics
}

// newHost makes the Node object, whose hostname label is not its name, and a prepared pool. extra
// is TOML for the end of the configuration: first for the pool, then for whatever it likes.
func (w *environment) newHost(name string, extra ...string) *host {
	w.Helper()
	return w.newHostOn(hosttest.Mkfs(w, "ext4", 96), name, extra...)
}

func (w *environment) newHostOn(image hosttest.Image, name string, extra ...string) *host {
	w.Helper()
	h := w.bareHost(image, name, extra...)
	w.Must(w.AddHost(w.Ctx, h.node, map[string]string{corev1.LabelHostname: "host-of-" + h.node}))
	return h
}

// bareHost is newHost without the Node object.
func (w *environment) bareHost(image hosttest.Image, name string, extra ...string) *host {
	w.Helper()
	h := w.hostAt(hosttest.PoolMount(w, image), name, extra...)
	h.image = image
	return h
}

// hostAt is bareHost on what is mounted there already.
func (w *environment) hostAt(mount, name string, extra ...string) *host {
	w.Helper()
	return w.hostIn(nil, mount, name, extra...)
}

// hostIn is hostAt with words before the daemon's command (rig.Options).
func (w *environment) hostIn(wrap []string, mount, name string, extra ...string) *host {
	w.Helper()
	h := &host{w: w, node: w.Namespace + "-" + name, mount: mount}
	dir := hosttest.Dir(w)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	w.Must(w.ServiceAccountKubeconfig(w.Ctx, "hostpath-provisioner", "hostpath-provisioner", "", kubeconfig))
	config := fmt.Sprintf("provisioner = %q\nnode = %q\nkubeconfig = %q\nmetrics = \"\"\n[pool.fast]\npath = %q\n%s\n",
		w.Provisioner, h.node, kubeconfig, h.mount, strings.Join(extra, "\n"))
	h.Daemon = w.Daemon(h.node, "fast", rig.Options{Dir: dir, Config: config, Wrap: wrap})
	return h
}

// joins makes the Node object, whose hostname label is not its name and which tells of no host.
func (h *host) joins() *host {
	h.w.Helper()
	labels := map[string]string{corev1.LabelHostname: "host-of-" + h.node}
	h.w.Must(h.w.AddNode(h.w.Ctx, h.node, labels))
	return h
}

// run starts the daemon and waits until it is ready. It is stopped with the test.
func (h *host) run() *host {
	h.w.Helper()
	h.w.Run(h.Daemon)
	return h
}

func runAll[H interface{ run() *host }](hosts []H) {
	for _, h := range hosts {
		h.run()
	}
}

// claim creates a claim.
func (w *environment) claim(name, class, size string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	w.Helper()
	c := cluster.Claim(w.Namespace, name, class, size)
	for _, f := range change {
		f(c)
	}
	return createIn(w, w.pvcs(), c)
}

func annotate(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[key] = value
	}
}

// pod creates a Pod that uses the claims. nodes, if there are any, are the only ones it may run on.
func (w *environment) pod(name string, nodes []string, claims ...string) {
	w.Helper()
	p := cluster.Pod(w.Namespace, name, claims...)
	p.Spec.Affinity = cluster.OnNodes(nodes...)
	createIn(w, w.pods(), p)
}

// wanted creates a claim, and a Pod of its name that uses it, on one of these nodes if there are
// any.
func (w *environment) wanted(
	name, class, size string, nodes ...string,
) *corev1.PersistentVolumeClaim {
	w.Helper()
	claim := w.claim(name, class, size)
	w.pod(name, nodes, name)
	return claim
}

// deletePod does not wait.
func (w *environment) deletePod(name string) {
	w.Helper()
	w.Must(w.pods().Delete(w.Ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

// endPod deletes the only pod, and waits until it is gone.
func (w *environment) endPod(name string) {
	w.Helper()
	w.deletePod(name)
	w.Eventually("the pod is gone", func() bool { return len(listIn(w, w.pods()).Items) == 0 })
}

// runsOn waits until a pod has this node.
func (w *environment) runsOn(pod string, h *host) {
	w.Helper()
	w.Eventually("pod "+pod+" is on node "+h.node, func() bool { return w.nodeOf(pod) == h.node })
}

// vanishes waits until there is nothing at a path.
func (w *environment) vanishes(path string) {
	w.Helper()
	w.Eventually(path+" is gone", func() bool {
		_, err := os.Lstat(path)
		return os.IsNotExist(err)
	})
}

// refused waits for a warning with the reason about an object, wants each of these texts in its
// message, and returns that.
func (w *environment) refused(o cluster.Object, reason string, want ...string) (message string) {
	w.Helper()
	return w.warned(w.Soon(), o, reason, want...).Out
}

// warned is refused as long as a context lasts.
func (w *environment) warned(
	ctx context.Context, o cluster.Object, reason string, want ...string,
) fixture.Answer {
	w.Helper()
	e := need(w.WaitEvent(ctx, o, reason))(w)
	if e.Type != corev1.EventTypeWarning {
		w.Errorf("event %s is %s, want Warning", e.Reason, e.Type)
	}
	about := []string{reason, o.GetName()}
	return fixture.Answer{T: w.T, Args: about, Out: e.Message}.Says(want...)
}

// bound makes a claim, and waits until it is bound.
func (w *environment) bound(
	name, class, size string, change ...func(*corev1.PersistentVolumeClaim),
) *corev1.PersistentVolume {
	w.Helper()
	w.claim(name, class, size, change...)
	return w.Bound(name)
}

// boundOn waits until a claim is bound, wants its volume on a host, and returns that.
func (w *environment) boundOn(name string, h *host) *corev1.PersistentVolume {
	w.Helper()
	pv := w.Bound(name)
	if on := pv.Labels[nodeLabel]; on != h.node {
		w.Errorf("the volume of claim %s is on %s, want %s", name, on, h.node)
	}
	return pv
}

// reload gives the daemon, which runs, another configuration.
func (h *host) reload(config string) {
	h.w.Helper()
	h.w.Must(h.Configure(config))
	h.w.Must(h.Signal(syscall.SIGHUP))
}

// again kills the daemon and starts it.
func (h *host) again() {
	h.w.Helper()
	h.Kill()
	h.run()
}

// tree is the names of everything in the pool (pool.Tree).
func (h *host) tree() []string { h.w.Helper(); return h.w.Tree(h.mount) }

func (h *host) ours(dir string) string { return filepath.Join(h.mount, ".hostpath-provisioner", dir) }

// wantTree waits until the pool holds exactly these.
func (h *host) wantTree(want ...string) { h.w.Helper(); h.w.WantTree(h.node, h.mount, want...) }

func hosttestDir(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(hosttest.Dir(t), name)
	hosttest.Check(t, os.Mkdir(dir, 0o700))
	return dir
}

// plain makes an object's name of words.
func plain(words string) string { return strings.ReplaceAll(words, " ", "-") }

// boundOrTold waits until the claim is bound, which is "", or has an event with one of these
// reasons, and reports that.
func (w *environment) boundOrTold(name string, c *corev1.PersistentVolumeClaim, reasons ...string) (told string) {
	w.Helper()
	w.Eventually(name+" is bound or told why not", func() bool {
		now := getIn(w, w.pvcs(), name)
		if now.Status.Phase == corev1.ClaimBound {
			return true
		}
		events := listIn(w, w.events(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(c.UID)})
		for _, e := range events.Items {
			if slices.Contains(reasons, e.Reason) {
				told = e.Reason
			}
		}
		return told != ""
	})
	return told
}
