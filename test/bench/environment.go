package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// nodeOf is a contender's own node, so that several of them can run side by side.
func nodeOf(contender string) string { return "node-" + contender }

// environment is a control plane with what all runs share.
type environment struct {
	dir        string
	cluster    *cluster.Cluster
	client     kubernetes.Interface
	observer   *observer
	audit      *harness.AuditLog // by the node that a contender's token is bound to
	kubeconfig map[string]string // by contender
	failed     context.CancelCauseFunc
}

// seldomCollects keeps the control plane's garbage collector out of what is measured (collect): one
// collection takes as much processor time as half of a case, and which contender it met was chance.
const seldomCollects = "GOGC=400"

// collect has the control plane collect its garbage (net/http/pprof, heap with gc).
func (a *environment) collect(ctx context.Context) error {
	return a.client.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").Do(ctx).Error()
}

// newEnvironment starts a control plane for these contenders. The context that it returns ends when
// the environment is unfit.
func (b *bench) newEnvironment(
	ctx context.Context, contenders []string, args ...string,
) (context.Context, *environment) {
	dir := harness.Got(os.MkdirTemp("", "hostpath-provisioner-bench-"))
	b.Cleanup(func() error { return os.RemoveAll(dir) })
	audit, auditArgs := harness.Got2(harness.NewAuditLog(dir, auditPolicy))
	c := harness.Got(cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(dir, "cluster"), Env: []string{seldomCollects}, ExtraArgs: append(auditArgs, args...),
	}))
	b.Cleanup(c.Stop)
	ctx, cancel := context.WithCancelCause(ctx)
	b.Cleanup(func() error { cancel(nil); return nil })
	a := &environment{dir: dir, cluster: c, observer: newObserver(), audit: audit, failed: cancel}
	config := c.Config()
	config.ContentType = runtime.ContentTypeProtobuf
	a.client = harness.Got(kubernetes.NewForConfig(config))
	harness.Check(a.identities(ctx, b, contenders))
	a.observer.watch(ctx, a.client, cancel)
	return ctx, a
}

// othersRights are the floor's and the library's: an identity of the same kind as the daemon's,
// because an administrator's requests skip the API server's fair queues.
const othersRights = `
apiVersion: v1
kind: Namespace
metadata: {name: bench}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: bench, namespace: bench}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bench}
rules:
  - {apiGroups: [""], resources: [persistentvolumeclaims, nodes], verbs: [get, list, watch]}
  - {apiGroups: [""], resources: [persistentvolumes], verbs: [get, list, watch, create, update, patch, delete]}
  - {apiGroups: [""], resources: [events], verbs: [create, update, patch, get, list, watch]}
  - {apiGroups: [storage.k8s.io], resources: [storageclasses, csinodes, volumeattachments], verbs: [get, list, watch]}
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, list, watch, update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bench}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bench}
subjects: [{kind: ServiceAccount, name: bench, namespace: bench}]
`

// identities makes the nodes and the kubeconfigs; the daemon's has the rights that its own
// manifests give it.
func (a *environment) identities(ctx context.Context, b *bench, contenders []string) error {
	harness.Check(a.cluster.Apply(ctx, []byte(othersRights)))
	if slices.ContainsFunc(contenders, isDaemon) {
		harness.Check(a.manifests(ctx, b))
	}
	a.kubeconfig = map[string]string{}
	for _, contender := range contenders {
		harness.Check(a.identity(ctx, contender))
	}
	return nil
}

// manifests applies what the daemon itself asks for.
func (a *environment) manifests(ctx context.Context, b *bench) error {
	any := harness.Got(newDaemon(b.daemon, filepath.Join(a.dir, "manifests"), plan.DefaultProvisioner, nodeOf(nameDaemon), "/nonexistent", "/nonexistent"))
	manifests, code := any.Call("manifests")
	if code != 0 {
		return fmt.Errorf("hostpath-provisioner manifests: exit code %d: %s", code, manifests)
	}
	return a.cluster.Apply(ctx, []byte(manifests))
}

// identity makes a contender's node, and a token of its account that is bound to that node: the
// audit log tells them apart by it. An account is in a namespace of its own name.
func (a *environment) identity(ctx context.Context, contender string) error {
	account, node := "bench", nodeOf(contender)
	if isDaemon(contender) {
		account = "hostpath-provisioner"
	}
	harness.Check(a.cluster.AddNode(ctx, node, map[string]string{corev1.LabelHostname: "host-" + contender}))
	a.kubeconfig[contender] = filepath.Join(a.dir, contender+".kubeconfig")
	return a.cluster.ServiceAccountKubeconfig(ctx, account, account, node, a.kubeconfig[contender])
}

func (a *environment) namespace(ctx context.Context, name string) error {
	_, err := a.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// claims creates n claims of a fixture, with both annotations or without.
func (a *environment) claims(ctx context.Context, f *fixture, prefix string, n int, annotated bool) ([]*corev1.PersistentVolumeClaim, error) {
	all := make([]*corev1.PersistentVolumeClaim, n)
	err := harness.Each(n, func(i int) (err error) {
		claim := cluster.Claim(f.name, fmt.Sprintf("%s-%04d", prefix, i), f.name, "1Mi")
		if annotated {
			claim.Annotations = annotations(f)
		}
		all[i], err = a.client.CoreV1().PersistentVolumeClaims(f.name).Create(ctx, claim, metav1.CreateOptions{})
		return err
	})
	return all, err
}

// annotations are what the scheduler and kube-controller-manager write on a claim whose node is
// chosen.
func annotations(f *fixture) map[string]string {
	return map[string]string{plan.SelectedNode: nodeOf(f.contender), plan.StorageProvisioner: f.name}
}

// annotate writes annotations on a claim.
func (a *environment) annotate(ctx context.Context, claim *corev1.PersistentVolumeClaim, annotations map[string]string) error {
	patch := harness.Got(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}}))
	_, err := a.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// clear removes a run's claims and events and every volume, so that each run finds the same
// cluster.
func (a *environment) clear(ctx context.Context, f *fixture) error {
	core, now := a.client.CoreV1(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	harness.Check(core.Events(f.name).DeleteCollection(ctx, now, metav1.ListOptions{}))
	harness.Check(core.PersistentVolumes().DeleteCollection(ctx, now, metav1.ListOptions{}))
	harness.Check(core.PersistentVolumeClaims(f.name).DeleteCollection(ctx, now, metav1.ListOptions{}))
	volumes := harness.Got(core.PersistentVolumes().List(ctx, metav1.ListOptions{}))
	harness.Check(harness.Each(len(volumes.Items), func(i int) error {
		_, err := core.PersistentVolumes().Patch(ctx, volumes.Items[i].Name, types.MergePatchType, noFinalizers, metav1.PatchOptions{})
		return unlessGone(err)
	}))
	claims := harness.Got(core.PersistentVolumeClaims(f.name).List(ctx, metav1.ListOptions{}))
	return harness.Each(len(claims.Items), func(i int) error {
		_, err := core.PersistentVolumeClaims(f.name).Patch(ctx, claims.Items[i].Name, types.MergePatchType, noFinalizers, metav1.PatchOptions{})
		return unlessGone(err)
	})
}

var noFinalizers = []byte(`{"metadata":{"finalizers":null}}`)

func unlessGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// auditPolicy has the API server write a line for each request of a contender and of the controller
// that binds claims, watches excepted. A renewed lease is not about any claim.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
  - level: None
    resources: [{group: coordination.k8s.io, resources: [leases]}]
  - level: Metadata
    users: ["system:serviceaccount:hostpath-provisioner:hostpath-provisioner", "system:serviceaccount:bench:bench", "system:serviceaccount:kube-system:persistent-volume-binder"]
    verbs: [get, list, create, update, patch, delete, deletecollection]
  - level: None
`

type requests = harness.Requests

// binderNode is in place of a node for the controller that binds claims: its token is not bound to
// one.
const binderNode = ""

const (
	quietFor = time.Second      // without a request a contender has nothing left to say
	quietIn  = 30 * time.Second // the longest that is waited for that
)

// settle waits until the contenders send no requests, and returns those since the last call, by
// node.
func (a *environment) settle(ctx context.Context) (map[string]requests, error) {
	return a.audit.Settle(ctx, quietFor, quietIn)
}

// poolMiB is the size of a pool: more than all claims of a case request, since the daemon refuses
// what it cannot promise. Its blocks exist when they are written.
const poolMiB = 2048

// fixture is what one contender gets for one run: a filesystem, a class and a namespace that no
// other used before. Its name is the provisioner's, the class's and the namespace's.
type fixture struct {
	contender  string
	name       string
	dir        string // its log, and the daemon's directories
	pool       string
	kubeconfig string
	daemon     *rig.Daemon
	image      string
}

func (b *bench) newFixture(ctx context.Context, a *environment, contender, purpose string, repeat int) (*fixture, error) {
	name := fmt.Sprintf("bench-%s-%s-%d", contender, purpose, repeat)
	f := &fixture{contender: contender, name: name, dir: filepath.Join(a.dir, name), kubeconfig: a.kubeconfig[contender]}
	harness.Check(os.Mkdir(f.dir, 0o700))
	image := b.mkfs()
	f.image = image.File
	if isDaemon(contender) {
		harness.Check(f.prepare(b, image))
	} else {
		f.pool = hosttest.PoolMount(b, image)
	}
	class := cluster.StorageClass(name, name, storagev1.VolumeBindingWaitForFirstConsumer)
	harness.Got(a.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}))
	return f, a.namespace(ctx, name)
}

// mkfs makes an empty filesystem whose kernel threads have nothing left to initialize. ext4 are
// further arguments for that one.
func (b *bench) mkfs(ext4 ...string) hosttest.Image {
	var args []string
	if b.fs == "ext4" {
		args = append([]string{"-E", "lazy_itable_init=0,lazy_journal_init=0"}, ext4...)
	}
	if b.disk == "" {
		return hosttest.Mkfs(b, b.fs, poolMiB, args...)
	}
	file := harness.Need(os.CreateTemp(b.disk, "bench-*.img"))(b, "making a file")
	b.Cleanup(func() error { return ignoreMissing(os.Remove(file.Name())) })
	b.Must(file.Close(), "making a file")
	return hosttest.MkfsIn(b, file.Name(), b.fs, poolMiB, args...)
}

// newDaemon is a daemon with the configuration's defaults, except that its metrics take no port.
func newDaemon(binary, dir, provisioner, node, kubeconfig, pool string) (*rig.Daemon, error) {
	return rig.New(rig.Options{Binary: binary, Dir: dir, Config: fmt.Sprintf(`provisioner = %q
node        = %q
kubeconfig  = %q
metrics     = ""

[pool.%s]
path        = %q
`, provisioner, node, kubeconfig, poolName, pool)})
}

// prepare makes the pool as the daemon's operator does.
func (f *fixture) prepare(b *bench, image hosttest.Image) (err error) {
	f.pool = filepath.Join(hosttest.Dir(b), poolName)
	binary := b.daemon
	if f.contender == nameAgainst {
		binary = b.against
	}
	f.daemon, err = newDaemon(binary, f.dir, f.name, nodeOf(f.contender), f.kubeconfig, f.pool)
	if err != nil {
		return err
	}
	for _, mounted := range []bool{false, true} {
		if mounted {
			image.Mount(b, f.pool)
		}
		if out, code := f.daemon.Call("prepare", poolName); code != 0 {
			return fmt.Errorf("hostpath-provisioner prepare %s: exit code %d: %s", poolName, code, out)
		}
	}
	return nil
}

// tearDown takes the fixture down. The objects are the environment's to remove.
func (f *fixture) tearDown(b *bench) error {
	if f.pool != "" {
		hosttest.UnmountLazy(b, f.pool)
	}
	return errors.Join(ignoreMissing(os.Remove(f.image)), os.RemoveAll(f.dir))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
