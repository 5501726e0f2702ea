package cost

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
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
	return p.Client.CoreV1().PersistentVolumeClaims(p.Namespace).Create(ctx, claim, metav1.CreateOptions{})
}

// provision creates a batch, and waits until it is bound. It returns how long each claim took that
// was. There is one watch for all of them, which is read at once: the API server is busy with those
// of the daemons, and ends that of a slow reader.
func (p *plane) provision(ctx context.Context, b batch) (took []time.Duration) {
	claims := p.Client.CoreV1().PersistentVolumeClaims(p.Namespace)
	now, err := claims.List(ctx, metav1.ListOptions{Limit: 1})
	p.Must(err, "listing claims")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := watchtools.NewRetryWatcherWithContext(ctx, now.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return claims.Watch(ctx, o) },
	})
	p.Must(err, "watching claims")
	defer events.Stop()
	var created sync.Map
	go func() {
		p.Blame("claims that could not be made", each(0, b.n, func(i int) error {
			created.Store(b.name(i-1), time.Now())
			_, err := p.claim(ctx, b, i-1)
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
