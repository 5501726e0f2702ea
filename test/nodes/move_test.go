//go:build nodes

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// moving is a StatefulSet with a replica on each of three nodes, and claims beside it.
type moving struct {
	sums  map[string]string // of each claim's data, when the first node dies
	loose []string          // claims of no StatefulSet
	on    map[string]*host  // the node of each claim
	alone []string          // those of the loose claims that have a Deployment, all on node-a
}

// soon is how long it may take from a command until every pod runs again.
const soon = 2 * time.Minute

// TestMove is the story of two servers that die: the disk of the first goes into the second, and
// that of the third is lost.
func TestMove(t *testing.T) {
	m := &moving{sums: map[string]string{}, on: map[string]*host{}}
	tell(t, 6*time.Minute, []step{
		{"a real control plane, which notices silent kubelets as everywhere", func(
			ctx context.Context, w *environment) {
			w.startCluster(ctx, "--node-monitor-grace-period=50s") // upstream's default
		}},
		{"three nodes with a kubelet, a pool and a daemon each", m.threeNodes},
		{"a StatefulSet of three, 20 loose claims, and pods that write", m.fill},
		{"node-a dies, with everything on it", m.kill},
		{"its disk goes into node-b: one command, and every pod runs, with every byte", m.move},
		{"node-c dies, with its disk: one command, and the StatefulSet is whole", m.forget},
	})
}

// poolOf is the pool on a node's own disk: each has another name, so that two of them fit in one
// server.
func poolOf(h *host) storage {
	return storage{name: h.name, path: "/srv/" + h.name, fs: "ext4", mib: 64}
}

func (m *moving) threeNodes(ctx context.Context, w *environment) {
	archive := w.makeArchive()
	w.a = w.startNode(ctx, 1, "node-a", archive)
	w.b = w.startNode(ctx, 2, "node-b", archive)
	w.c = w.startNode(ctx, 3, "node-c", archive)
	var err error
	w.namespace, err = w.cluster.NewNamespace(ctx, "move")
	w.must(err, "creating a namespace")
	w.manifests(ctx)
	for _, h := range w.hosts() {
		w.installOn(ctx, h, poolOf(h))
	}
	pools := []string{"pools", "node-a,node-b,node-c"}
	w.class(ctx, "set", storagev1.VolumeBindingWaitForFirstConsumer, pools...)
	w.class(ctx, "loose", storagev1.VolumeBindingImmediate, append(pools, "source", "local")...)
}

// keeps is a pod's life: it makes 64 KiB where there is nothing, and else wants every byte. Then it
// stays.
const keeps = `set -eu
cd /volumes/*
if [ -e sum ]; then sha256sum -c sum; else
	dd if=/dev/urandom of=data bs=64k count=1 2>/dev/null
	sha256sum data >sum.new && mv sum.new sum
fi
trap 'exit 0' TERM
sleep infinity & wait
`

// template is a pod that keeps a claim's data, for a controller that makes it again and again.
func (w *environment) template(app, claim string) corev1.PodTemplateSpec {
	pod := w.pod("", claim, nil)
	pod.Labels = map[string]string{"app": app}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	c := &pod.Spec.Containers[0]
	c.Command = []string{"/bin/sh", "-c", keeps}
	c.ReadinessProbe.Exec.Command = []string{"/bin/sh", "-c", "cd /volumes/* && sha256sum -c sum"}
	return corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
}

func (m *moving) fill(ctx context.Context, w *environment) {
	app := map[string]string{"app": "set"}
	one, three := int32(1), int32(3)
	set := w.template("set", "data")
	set.Spec.Volumes = nil // those of the claim templates
	set.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: app},
			}}}}}
	_, err := w.client.AppsV1().StatefulSets(w.namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &three, ServiceName: "set", PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: app}, Template: set,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{
				*cluster.Claim(w.namespace, "data", "set", "1Mi")},
		},
	}, metav1.CreateOptions{})
	w.must(err, "creating a StatefulSet")
	for n := range 20 {
		name, h := fmt.Sprintf("loose-%d", n), w.hosts()[max(0, n-9)%3]
		w.claim(ctx, name, "loose", annotated("kubevirt.io/provisionOnNode", h.name), sized("1Mi"))
		m.loose = append(m.loose, name)
	}
	m.alone = m.loose[:3]
	for _, name := range m.alone {
		app := map[string]string{"app": name}
		_, err := w.client.AppsV1().Deployments(w.namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{Replicas: &one, Template: w.template(name, name),
				Selector: &metav1.LabelSelector{MatchLabels: app}},
		}, metav1.CreateOptions{})
		w.must(err, "creating a Deployment")
	}
	m.running(ctx, w)
	nodes := map[*host]bool{}
	for _, claim := range m.claims() {
		pv := w.bound(ctx, claim)
		h := w.hostOf(pv)
		m.on[claim] = h
		if strings.HasPrefix(claim, "data-") {
			nodes[h] = true
		} else if dir := h.path(cluster.PathOf(pv)); m.free(claim) {
			w.must(os.WriteFile(filepath.Join(dir, "data"), []byte(claim), 0o600), "writing")
		}
		m.sums[claim] = w.sumOf(h, pv)
	}
	if len(nodes) != 3 {
		w.Fatalf("the StatefulSet has volumes on %d nodes", len(nodes))
	}
}

func (m *moving) claims() []string {
	return append([]string{"data-set-0", "data-set-1", "data-set-2"}, m.loose...)
}

// free reports whether no pod has the claim.
func (m *moving) free(claim string) bool {
	for _, each := range append(m.alone, "data-set-0", "data-set-1", "data-set-2") {
		if each == claim {
			return false
		}
	}
	return true
}

// sumOf is everything in a volume.
func (w *environment) sumOf(h *host, pv *corev1.PersistentVolume) string {
	w.Helper()
	return w.treeAt(h, cluster.PathOf(pv))
}

// running waits until all pods run: each has found its data, or made it.
func (m *moving) running(ctx context.Context, w *environment) {
	w.Helper()
	w.must(eventually(ctx, "the pods", func() error {
		pods, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := map[string]bool{}
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil && isReady(&p) {
				ready[p.Labels["app"]+p.Labels["apps.kubernetes.io/pod-index"]] = true
			}
		}
		if want := 3 + len(m.alone); len(ready) != want {
			return fmt.Errorf("%d of %d run: %v", len(ready), want, ready)
		}
		return nil
	}), "waiting for pods")
}

func (m *moving) kill(ctx context.Context, w *environment) { w.kill(ctx, w.a) }

// kill ends a server, and waits until Kubernetes has noticed, and the daemon's last write is no
// sign of life any more.
func (w *environment) kill(ctx context.Context, h *host) {
	w.must(h.die(ctx), "killing "+h.name)
	w.must(eventually(ctx, "the end of the disk's mounts", func() error {
		out, err := w.b.call("losetup", "--associated", h.image.File)
		if err == nil && strings.TrimSpace(out) != "" {
			err = errors.New(out)
		}
		return err
	}), "taking the disk out")
	nodes := w.client.CoreV1().Nodes()
	_, err := cluster.WaitFor(ctx, nodes, h.name, func(n *corev1.Node) bool { return !nodeReady(n) })
	w.must(err, "waiting until "+h.name+" is not Ready")
	w.must(w.client.CoreV1().Nodes().Delete(ctx, h.name, metav1.DeleteOptions{}), "deleting a Node")
	now := int64(0)
	w.must(w.client.CoreV1().Pods(w.namespace).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: &now},
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + h.name}), "deleting its pods")
}

// move has node-b have the disk. Until the command is called, nobody but an operator did anything.
func (m *moving) move(ctx context.Context, w *environment) {
	disk := poolOf(w.a)
	w.configure(w.b, func(config string) string { return config + disk.config() })
	w.onHost(w.b, 0, "prepare", disk.name)
	w.mountAt(w.b, w.a.image, disk.path)
	w.must(w.b.daemon.Signal(syscall.SIGHUP), "having the daemon read its configuration")
	m.command(ctx, w, "import", disk.name, "--from-node", w.a.name)
	for _, claim := range m.claims() {
		if m.on[claim] == w.a {
			m.on[claim] = w.b
		}
	}
	m.same(ctx, w, "")
}

// command calls the program until no sign of life is left, and then waits until all pods run.
func (m *moving) command(ctx context.Context, w *environment, args ...string) {
	w.Helper()
	args = append(args, "--kubeconfig", w.cluster.Kubeconfig())
	var begin time.Time
	w.must(eventually(ctx, "the last sign of life to be a minute old", func() error {
		begin = time.Now()
		out, code := w.b.daemon.Call(args...)
		if code != 0 {
			return errors.New(out)
		}
		w.showf("node-b# %s %s\n%s", provisioner, strings.Join(args, " "), out)
		return nil
	}), "calling "+args[0])
	m.running(ctx, w)
	took := time.Since(begin)
	w.showf("every pod runs %.1fs after the command was called", took.Seconds())
	if took > soon {
		w.Errorf("that is more than %s", soon)
	}
}

// same wants each claim to be bound to a volume with every byte, where it is to be, but for one.
func (m *moving) same(ctx context.Context, w *environment, but string) {
	w.Helper()
	n := 0
	for _, claim := range m.claims() {
		if m.on[claim] == nil || claim == but {
			continue
		}
		n++
		pv := w.bound(ctx, claim)
		if h := w.hostOf(pv); h != m.on[claim] || w.sumOf(h, pv) != m.sums[claim] {
			w.Errorf("claim %s is on %s, and has\n%sIt had, on %s,\n%s", claim, h.name,
				w.sumOf(h, pv), m.on[claim].name, m.sums[claim])
		}
	}
	w.showf("every byte of %d claims is there", n)
}

// forget gives node-c up.
func (m *moving) forget(ctx context.Context, w *environment) {
	w.kill(ctx, w.c)
	m.command(ctx, w, "forget-node", w.c.name, "--claims")
	replica := ""
	for claim, h := range m.on {
		if h != w.c {
			continue
		}
		if m.on[claim] = nil; strings.HasPrefix(claim, "data-") {
			replica = claim
			continue
		}
		w.must(w.cluster.WaitClaimGone(ctx, w.namespace, claim), "waiting for a claim to go")
	}
	pv := w.bound(ctx, replica)
	if h := w.hostOf(pv); h == w.c || w.sumOf(h, pv) == m.sums[replica] {
		w.Errorf("claim %s is on %s, with the data that is lost", replica, h.name)
	}
	m.same(ctx, w, replica)
}
