// Package cost counts and measures what daemons cost a cluster and a node: requests of many daemons
// on one API server (Fleet), memory, bytes and the first volume beside claims of other nodes (Scale).
// Each number has a limit. Times depend on the machine, and are limited only where a claim could wait
// for ever, or where the README has them.
package cost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// plane is a control plane with many nodes.
type plane struct {
	*harness.Plane
	program *harness.Program
}

// whenConsumed is a change of a class.
func whenConsumed(c *storagev1.StorageClass) {
	*c.VolumeBindingMode = storagev1.VolumeBindingWaitForFirstConsumer
}

// newDaemon makes a node's pool on a tmpfs, of a size as mount takes it, and configures its daemon,
// which reads the file "kubeconfig" in its directory.
func (p *plane) newDaemon(node, provisioner, size string, env ...string) *rig.Daemon {
	dir := hosttest.Dir(p)
	pool := filepath.Join(dir, "pool")
	p.Must(os.Mkdir(pool, 0o700), "making a mount point")
	hosttest.SetImmutable(p, pool, true)
	hosttest.Mount(p, "-t", "tmpfs", "-o", "mode=0700,size="+size, "pool", pool)
	daemon, err := rig.New(rig.Options{Dir: dir, Binary: p.Binary, Env: env, Config: fmt.Sprintf(
		"provisioner = %q\nnode = %q\nkubeconfig = %q\nmetrics = \"\"\n[pool.fast]\npath = %q\n",
		provisioner, node, filepath.Join(dir, "kubeconfig"), pool)})
	p.Must(err, "configuring a daemon")
	if out, code := daemon.Call("prepare", "fast"); code != 0 {
		p.Fatalf("prepare on %s: %s", node, out)
	}
	return daemon
}

// addNode makes a node, and a kubeconfig of its daemon.
func (p *plane) addNode(ctx context.Context, node, kubeconfig string) error {
	if err := p.Cluster.AddHost(ctx, node, nil); err != nil {
		return err
	}
	return p.WriteKubeconfig(ctx, node, kubeconfig)
}

// batch is claims that are made at once.
type batch struct {
	class, prefix string // prefix of their names
	n             int
	node          func(int) string // that was chosen for each, nil for none
}

// name is that of a claim.
func (b batch) name(i int) string { return fmt.Sprintf("%s-%d", b.prefix, i) }

// claim makes one of the claims.
func (p *plane) claim(ctx context.Context, b batch, i int) (*corev1.PersistentVolumeClaim, error) {
	claim := cluster.Claim(p.Namespace, b.name(i), b.class, "1Mi")
	if b.node != nil {
		claim.Annotations = map[string]string{plan.SelectedNode: b.node(i)}
	}
	return p.Claims().Create(ctx, claim, metav1.CreateOptions{})
}

// provision creates a batch, and waits until it is bound. It returns how long each claim took that
// was. There is one watch for all of them, which is read at once: the API server is busy with those
// of the daemons, and ends that of a slow reader.
func (p *plane) provision(ctx context.Context, b batch) (took []time.Duration) {
	claims := p.Claims()
	now := harness.Need(claims.List(ctx, metav1.ListOptions{Limit: 1}))(p, "listing claims")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := watchtools.NewRetryWatcherWithContext(ctx, now.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: claims.Watch})
	p.Must(err, "watching claims")
	defer events.Stop()
	var created sync.Map
	go func() {
		p.Blame("claims that could not be made", harness.Each(b.n, func(i int) error {
			created.Store(b.name(i), time.Now())
			_, err := p.claim(ctx, b, i)
			return err
		}))
	}()
	bound := map[string]bool{}
	for event := range events.ResultChan() {
		claim, is := event.Object.(*corev1.PersistentVolumeClaim)
		if !is || !strings.HasPrefix(claim.Name, b.prefix+"-") || claim.Status.Phase != corev1.ClaimBound || bound[claim.Name] {
			continue
		}
		bound[claim.Name] = true
		if began, known := created.Load(claim.Name); known {
			took = append(took, time.Since(began.(time.Time)))
		}
		if len(bound) == b.n {
			return took
		}
	}
	p.Fault("claims without a volume", "%d of %d %s claims", b.n-len(bound), b.n, b.prefix)
	return took
}

// fillWith makes the claims from to to-1 with a volume each, as kube-controller-manager leaves them:
// bound to each other. All are of other nodes.
func fillWith(ctx context.Context, client kubernetes.Interface, from, to int) error {
	return harness.Each(to-from, func(i int) error { return pair(ctx, client, from+i) })
}

// changeClaims writes an annotation on the first n claims, which changes nothing else.
func changeClaims(ctx context.Context, client kubernetes.Interface, n int, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"cost":%q}}}`, value)
	return harness.Each(n, func(i int) error {
		_, err := client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, claimName(i), types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// namespace has the claims.
const namespace = metav1.NamespaceDefault

func claimName(i int) string { return fmt.Sprintf("data-application-%d", i) }

// pair makes a claim and its volume, which has the name that a provisioner gives it.
func pair(ctx context.Context, client kubernetes.Interface, i int) error {
	node := fmt.Sprintf("other-%d", i%100)
	claim := cluster.Claim(namespace, claimName(i), "fast", "1Gi")
	claim.Annotations = map[string]string{
		plan.StorageProvisioner: plan.DefaultProvisioner, plan.StorageProvisionerBeta: plan.DefaultProvisioner,
		plan.SelectedNode: node, "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
	}
	claim.Labels = map[string]string{"app.kubernetes.io/name": "application", "app.kubernetes.io/instance": fmt.Sprint(i)}
	made, err := client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	volume := "pvc-" + string(made.UID)
	patch := fmt.Appendf(nil, `{"spec":{"volumeName":%q}}`, volume)
	if _, err := client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, made.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	directory := corev1.HostPathDirectory
	_, err = client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: volume, Finalizers: []string{plan.Finalizer},
			Labels:      map[string]string{plan.NodeLabel: node, plan.PoolLabel: "fast"},
			Annotations: map[string]string{plan.ProvisionedBy: plan.DefaultProvisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, StorageClassName: "fast",
			AccessModes: claim.Spec.AccessModes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: made.Name, UID: made.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/fast/" + volume, Type: &directory}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: plan.HostnameLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	return err
}

// meter is a TCP proxy before an API server that counts what the server sends, TLS included.
type meter struct {
	net.Listener
	server string
	bytes  atomic.Int64
}

// newMeter returns a meter before the API server.
func (p *plane) newMeter() *meter {
	lis := harness.Need(net.Listen("tcp", "127.0.0.1:0"))(p, "listening")
	p.Cleanup(lis.Close)
	m := &meter{Listener: lis, server: strings.TrimPrefix(p.Cluster.Config().Host, "https://")}
	go m.serve()
	return m
}

// received returns the bytes that the server sent so far.
func (m *meter) received() int64 { return m.bytes.Load() }

func (m *meter) serve() {
	for {
		client, err := m.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		server, err := net.Dial("tcp", m.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
		go func() { _, _ = io.Copy(countingWriter{client, &m.bytes}, server); _ = client.Close() }()
	}
}

type countingWriter struct {
	io.Writer
	n *atomic.Int64
}

func (w countingWriter) Write(data []byte) (int, error) {
	w.n.Add(int64(len(data)))
	return w.Writer.Write(data)
}

// kubeconfig writes a copy of a kubeconfig that leads through the meter.
func (m *meter) kubeconfig(of, to string) error {
	return cluster.Redirect(of, to, "https://"+m.Addr().String(), nil)
}
