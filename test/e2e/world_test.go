package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

var (
	planeOnce sync.Once
	planeErr  error
)

// limit is for one wait: long enough for a busy machine, short enough to be told.
const limit = 60 * time.Second

// applyManifests gives the daemons the rights that the product asks an administrator for.
func applyManifests(ctx context.Context) error { return applyTo(ctx, plane) }

func applyTo(ctx context.Context, c *cluster.Cluster) error {
	manifests, err := exec.CommandContext(ctx, binary(), "manifests").Output()
	if err != nil {
		return fmt.Errorf("hostpath-provisioner manifests: %w", err)
	}
	return c.Apply(ctx, manifests)
}

func binary() string {
	if b := os.Getenv("HOSTPATH_PROVISIONER"); b != "" {
		return b
	}
	return filepath.Join(rig.Root(), ".build", "hostpath-provisioner")
}

// world is one test's part of the cluster.
type world struct {
	*testing.T
	*cluster.Cluster
	ctx         context.Context
	provisioner string
	namespace   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t, Cluster: shared(t)}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	w.ctx = ctx
	namespace, err := w.NewNamespace(ctx, "e2e-")
	w.must(err)
	w.namespace, w.provisioner = namespace, namespace
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// soon is a context for one wait.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	w.Cleanup(cancel)
	return ctx
}

// host is one node with one daemon and one pool, "fast".
type host struct {
	*rig.Daemon
	w     *world
	node  string
	image hosttest.Image
	mount string
	label string // the Node's hostname label, "" for host-of-NODE
}

// newHost makes the Node object, whose hostname label is not its name, and a prepared pool. extra is
// TOML for the end of the configuration: first for the pool, then for whatever it likes.
func (w *world) newHost(name string, extra ...string) *host {
	w.Helper()
	return w.newHostOn(hosttest.Mkfs(w, "ext4", 96), name, extra...)
}

func (w *world) newHostOn(image hosttest.Image, name string, extra ...string) *host {
	w.Helper()
	h := w.bareHost(image, name, extra...)
	w.must(w.AddNode(w.ctx, h.node, map[string]string{corev1.LabelHostname: "host-of-" + h.node}))
	return h
}

// bareHost is newHost without the Node object.
func (w *world) bareHost(image hosttest.Image, name string, extra ...string) *host {
	w.Helper()
	h := w.hostAt(hosttest.PoolMount(w, image), name, extra...)
	h.image = image
	return h
}

// hostAt is bareHost on what is mounted there already.
func (w *world) hostAt(mount, name string, extra ...string) *host {
	w.Helper()
	h := &host{w: w, node: w.namespace + "-" + name, mount: mount}
	dir := hosttest.Dir(w)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	w.must(w.ServiceAccountKubeconfig(w.ctx, "hostpath-provisioner", "hostpath-provisioner", "", kubeconfig))
	config := fmt.Sprintf("provisioner = %q\nnode = %q\nkubeconfig = %q\nmetrics = \"\"\n[pool.fast]\npath = %q\n%s\n",
		w.provisioner, h.node, kubeconfig, h.mount, strings.Join(extra, "\n"))
	var err error
	h.Daemon, err = rig.New(rig.Options{Dir: dir, Config: config})
	w.must(err)
	if out, code := h.Call("prepare", "fast"); code != 0 {
		w.Fatalf("prepare: exit code %d\n%s", code, out)
	}
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("the log of the daemon on %s:\n%s", h.node, h.Log())
		}
	})
	return h
}

// run starts the daemon and waits until it is ready. It is stopped with the test.
func (h *host) run() *host {
	h.w.Helper()
	h.w.must(h.Run(h.w.soon()))
	h.w.Cleanup(func() {
		select {
		case <-h.Exited():
		default:
			h.Kill()
		}
	})
	return h
}

// class makes a StorageClass of this test's provisioner.
func (w *world) class(name string, mode storagev1.VolumeBindingMode, change ...func(*storagev1.StorageClass)) string {
	w.Helper()
	c := cluster.StorageClass(w.namespace+"-"+name, w.provisioner, mode)
	for _, f := range change {
		f(c)
	}
	_, err := w.Client().StorageV1().StorageClasses().Create(w.ctx, c, metav1.CreateOptions{})
	w.must(err)
	return c.Name
}

func params(kv ...string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) {
		c.Parameters = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			c.Parameters[kv[i]] = kv[i+1]
		}
	}
}

func policy(p corev1.PersistentVolumeReclaimPolicy) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) { c.ReclaimPolicy = &p }
}

// claim creates a claim.
func (w *world) claim(name, class, size string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	w.Helper()
	c := cluster.Claim(w.namespace, name, class, size)
	for _, f := range change {
		f(c)
	}
	made, err := w.Client().CoreV1().PersistentVolumeClaims(w.namespace).Create(w.ctx, c, metav1.CreateOptions{})
	w.must(err)
	return made
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
func (w *world) pod(name string, nodes []string, claims ...string) {
	w.Helper()
	p := cluster.Pod(w.namespace, name, claims...)
	terms := make([]corev1.NodeSelectorTerm, 0, len(nodes))
	for _, node := range nodes { // one value a term: pkg/apis/core/validation
		terms = append(terms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}}})
	}
	if len(terms) > 0 {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	_, err := w.Client().CoreV1().Pods(w.namespace).Create(w.ctx, p, metav1.CreateOptions{})
	w.must(err)
}

// deletePod and deleteClaim do not wait.
func (w *world) deletePod(name string) {
	w.Helper()
	w.must(w.Client().CoreV1().Pods(w.namespace).Delete(w.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
}

func (w *world) deleteClaim(name string) {
	w.Helper()
	w.must(w.Client().CoreV1().PersistentVolumeClaims(w.namespace).Delete(w.ctx, name, metav1.DeleteOptions{}))
}

// bound waits for the claim and answers its volume.
func (w *world) bound(name string) *corev1.PersistentVolume {
	w.Helper()
	c, err := w.WaitClaimBound(w.soon(), w.namespace, name)
	w.must(err)
	return w.volume(c.Spec.VolumeName)
}

// claims are the names of the claims that are left.
func (w *world) claims() ([]string, error) {
	list, err := w.Client().CoreV1().PersistentVolumeClaims(w.namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range list.Items {
		if c.DeletionTimestamp == nil {
			names = append(names, c.Name)
		}
	}
	return names, nil
}

func (w *world) volume(name string) *corev1.PersistentVolume {
	w.Helper()
	pv, err := w.Client().CoreV1().PersistentVolumes().Get(w.ctx, name, metav1.GetOptions{})
	w.must(err)
	return pv
}

// refused waits for an event with the reason on the claim, and answers its message.
func (w *world) refused(c *corev1.PersistentVolumeClaim, reason string) string {
	w.Helper()
	e, err := w.WaitEvent(w.soon(), c, reason)
	w.must(err)
	if e.Type != corev1.EventTypeWarning {
		w.Errorf("event %s is %s, want Warning", e.Reason, e.Type)
	}
	return e.Message
}

// eventually waits for a condition of the disk, of which nobody tells: it is looked at again after
// each short pause, until the limit.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// tree is everything in a pool but the marker and what mkfs makes, with records and directories by
// name: the whole world of a test's pool. "ours/..." is below .hostpath-provisioner.
func (h *host) tree() []string {
	h.w.Helper()
	var all []string
	for prefix, dir := range map[string]string{"": h.mount, "ours/staging/": h.ours("staging"), "ours/trash/": h.ours("trash"), "ours/volumes/": h.ours("volumes"), "ours/archive/": h.ours("archive")} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			h.w.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "lost+found" && e.Name() != ".hostpath-provisioner" {
				all = append(all, prefix+e.Name())
			}
		}
	}
	slices.Sort(all)
	return all
}

func (h *host) ours(dir string) string { return filepath.Join(h.mount, ".hostpath-provisioner", dir) }

// wantTree waits until the pool holds exactly these.
func (h *host) wantTree(want ...string) {
	h.w.Helper()
	slices.Sort(want)
	var got []string
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		if got = h.tree(); slices.Equal(got, want) {
			return
		}
		if time.Now().After(end) {
			h.w.Fatalf("the pool of %s has\n  %s\nwant\n  %s", h.node, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
}

// whole is what the tree has for these volumes: a directory and a record each.
func whole(pvs ...string) []string {
	var all []string
	for _, pv := range pvs {
		all = append(all, pv, "ours/volumes/"+pv+".json")
	}
	return all
}

// refusedVolume waits for a Warning event with the reason on a volume object.
func (w *world) refusedVolume(pv *corev1.PersistentVolume, reason string) {
	w.Helper()
	if _, err := w.WaitEvent(w.soon(), pv, reason); err != nil {
		w.Error(err)
	}
}

func hosttestDir(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(hosttest.Dir(t), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func contains(all []string, one string) bool { return slices.Contains(all, one) }

// plain makes an object's name of words.
func plain(words string) string { return strings.ReplaceAll(words, " ", "-") }

// boundOrTold waits until the claim is bound, which is "", or has an event with one of these reasons, and
// answers that.
func (w *world) boundOrTold(name string, c *corev1.PersistentVolumeClaim, reasons ...string) (told string) {
	w.Helper()
	w.eventually(name+" is bound or told why not", func() bool {
		now, err := w.Client().CoreV1().PersistentVolumeClaims(w.namespace).Get(w.ctx, name, metav1.GetOptions{})
		w.must(err)
		if now.Status.Phase == corev1.ClaimBound {
			return true
		}
		events, err := w.Client().CoreV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(c.UID)})
		w.must(err)
		for _, e := range events.Items {
			if slices.Contains(reasons, e.Reason) {
				told = e.Reason
			}
		}
		return told != ""
	})
	return told
}
