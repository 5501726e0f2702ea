package e2e

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

const nodeLabel = "hostpath-provisioner/node"

// writes are requests through a proxy that kills the caller right before or after one that changes
// anything but an event; an event that is written twice is one with a count.
type writes struct {
	w     *environment
	dir   string
	cmd   *exec.Cmd
	died  bool
	fails bool   // the call that ends by itself may fail
	input []byte // of each call

	plan  func(*http.Request) (is, before bool)
	kinds map[string]int // of changes: how often it was killed there
	at    []string       // the changes that it was killed at
}

// enough is how often a caller is killed at one kind of change: twice before it, and twice after.
const enough = 4

// kills reports whether the caller is killed at a request, and whether before it is passed on.
func (k *writes) kills(r *http.Request) (is, before bool) {
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") ||
		r.URL.Query().Has("dryRun") || k.cmd == nil || k.died {
		return false, false
	}
	k.died, before = k.plan(r)
	return k.died, before
}

// eachKind is the plan of a killer: of each kind of object and method a few changes are enough, as
// the same steps follow with each object.
func (k *writes) eachKind(r *http.Request) (is, before bool) {
	kind := r.Method + " " + path.Base(path.Dir(r.URL.Path))
	if r.Method == http.MethodPost {
		kind = r.Method + " " + path.Base(r.URL.Path)
	}
	n := k.kinds[kind]
	if n == enough {
		return false, false
	}
	k.kinds[kind] = n + 1
	k.at = append(k.at, kind)
	return true, n%2 == 0
}

// killer has all rights.
func (w *environment) killer() *writes {
	w.Helper()
	file := filepath.Join(hosttestDir(w.T, "administrator"), "kubeconfig")
	w.administrator(file)
	return w.killerAs(file)
}

// killerAs has the rights of a kubeconfig.
func (w *environment) killerAs(kubeconfig string) *writes {
	w.Helper()
	k := &writes{w: w, dir: hosttestDir(w.T, "killer"), kinds: map[string]int{}}
	k.plan = k.eachKind
	address, authority := w.Proxied(func(server http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			is, before := k.kills(r)
			if !is {
				server.ServeHTTP(rw, r)
				return
			}
			if !before {
				server.ServeHTTP(httptest.NewRecorder(), r)
			}
			_ = k.cmd.Process.Kill()
			<-r.Context().Done()
		})
	})
	w.Must(cluster.Redirect(kubeconfig, k.kubeconfig(), address, authority))
	return k
}

// administrator writes a kubeconfig with all rights and a token: a certificate passes no proxy.
func (w *environment) administrator(file string) {
	w.Helper()
	w.granted(w.Namespace+"-administrator", "cluster-admin", w.account("administrator", file))
}

// forgets is a call about a node, with all rights.
func (k *writes) forgets(h *host) []string {
	return []string{"forget-node", h.node, "--kubeconfig", k.kubeconfig()}
}

func (k *writes) kubeconfig() string { return filepath.Join(k.dir, "admin") }

// once calls the program until it ends or is killed.
func (k *writes) once(h *host, args ...string) (out string, err error) {
	var text strings.Builder
	k.died, k.cmd = false, h.Command(append(args, "--kubeconfig", k.kubeconfig())...)
	k.cmd.Stdout, k.cmd.Stderr, k.cmd.Stdin = &text, &text, bytes.NewReader(k.input)
	err = k.cmd.Run()
	k.cmd = nil
	return text.String(), err
}

// dies calls the program, and kills it at the n-th change of a volume object, before or after.
func (k *writes) dies(h *host, n int, after bool, args ...string) (died bool, said string) {
	k.plan = func(r *http.Request) (is, before bool) {
		if strings.Contains(r.URL.Path, "/persistentvolumes") {
			n--
			return n == 0, !after
		}
		return false, false
	}
	said, _ = k.once(h, args...)
	return k.died, said
}

// toTheEnd calls the program until a call ends by itself.
func (k *writes) toTheEnd(h *host, args ...string) (out string) {
	k.w.Helper()
	for {
		out, err := k.once(h, args...)
		if k.died {
			continue
		}
		k.w.Logf("%q, after %d kills: %s", args, len(k.at), out)
		if err != nil && !k.fails {
			k.w.Errorf("%q: %v\n%s", args, err, out)
		}
		return out
	}
}

// diedAt wants the caller to have been killed at so many changes.
func (k *writes) diedAt(least int) {
	k.w.Helper()
	if len(k.at) < least {
		k.w.Errorf("killed at %q alone", k.at)
	}
}

// loses ends a node's daemon, and deletes its Node.
func (h *host) loses() {
	h.w.Helper()
	h.dies()
	h.w.Must(h.w.nodes().Delete(h.w.Ctx, h.node, metav1.DeleteOptions{}))
}

// foreign is a volume of another installation, that says of itself that it is on the node.
func (h *host) foreign() string {
	h.w.Helper()
	pv := peerNamed("rancher").volume(h, "foreign", func(pv *corev1.PersistentVolume) {
		pv.Labels = map[string]string{nodeLabel: h.node, "hostpath-provisioner/pool": "fast"}
		pv.Finalizers = []string{finalizer}
		pv.Spec.ClaimRef = nil
	})
	createIn(h.w, h.w.pvs(), pv)
	return pv.Name
}

// A node is gone for ever: while it is Ready nothing is forgotten; then its volumes go, released
// ones and half removed ones, too, and its snapshot, however often the call is killed. Each claim
// was told. Volumes of the other node and of another installation stay. When the node is back, its
// daemon touches none of the data.
func TestForgetNode(t *testing.T) {
	w := newEnvironment(t)
	s := w.snapshots()
	a, b := w.newHost("a", `snapshots = "copy"`).run(), w.newHost("b").run()
	class := w.Class("c", immediate)
	data, kept, going := a.made("data", class), a.made("kept", class), a.made("going", class)
	other := b.made("other", class)
	content, handle := s.take("snap", data)
	foreign, k := a.foreign(), w.killer()
	call := func(args ...string) fixture.Answer { return b.call(append(k.forgets(a), args...)...) }
	call().Ends(1, "is there and Ready")
	a.dies()
	w.Retain(kept.Name)
	w.Releases("kept", kept.Name)
	w.DeleteVolume(going.Name)
	w.DeleteClaim("going")
	w.Must(w.nodes().Delete(w.Ctx, a.node, metav1.DeleteOptions{}))
	tree, claim := a.tree(), w.get("data")

	said := a.told(call("--dry-run").Ends(0).Out, data, kept, going)
	golden(t, "forget-dry-run", strings.ReplaceAll(said, content, "CONTENT"))
	if w.Volume(data.Name).DeletionTimestamp != nil {
		t.Error("--dry-run deleted a volume")
	}
	if out := k.toTheEnd(b, "forget-node", a.node); !strings.Contains(out, "forgot of node") {
		t.Errorf("in the end:\n%s", out)
	}
	k.diedAt(14)
	for _, pv := range []*corev1.PersistentVolume{data, kept, going} {
		w.Must(w.WaitVolumeGone(w.Soon(), pv.Name))
	}
	s.gone(content)
	told := w.event(claim, "NodeForgotten")
	want := "node " + a.node + " does not come back, and the data of volume " + data.Name
	if !strings.HasPrefix(told.Message, want) {
		t.Errorf("the claim was told %q", told.Message)
	}
	w.lost("data")
	for _, name := range []string{other.Name, foreign} {
		v := w.Volume(name)
		if v.DeletionTimestamp != nil || !slices.Contains(v.Finalizers, finalizer) {
			t.Errorf("volume %s: %+v", name, v.ObjectMeta)
		}
	}
	a.joins().run()
	a.made("later", class) // the daemon has seen what came before it
	a.orphaned(data, kept, going)
	a.wantTree(slices.Concat(tree, pool.Of(w.Bound("later").Name))...)
	need(os.Stat(filepath.Join(a.mount, handle)))(w)
}

// orphaned wants the data of volumes to be kept, and listed as such.
func (h *host) orphaned(volumes ...*corev1.PersistentVolume) {
	h.w.Helper()
	out := h.call("volumes").Out
	for _, pv := range volumes {
		h.wantData(cluster.PathOf(pv), pv.Spec.ClaimRef.Name)
		if is := line(out, pv.Name); !strings.HasSuffix(is, "orphaned\n") {
			h.w.Errorf("volume of claim %s: %s", pv.Spec.ClaimRef.Name, is)
		}
	}
}

// lost waits until a claim is Lost.
func (w *environment) lost(name string) {
	w.Helper()
	lost := func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimLost }
	need(w.WaitClaim(w.Soon(), w.Namespace, name, lost))(w)
}

// stateful makes a StatefulSet of one pod with a claim, on nodes a and b alone, and waits until the
// pod has a node.
func (w *environment) stateful(class string) {
	w.Helper()
	labels, replicas := map[string]string{"app": "set"}, int32(1)
	pod := cluster.Pod(w.Namespace, "", "data")
	pod.Spec.Volumes = nil // those of the claim templates
	pod.Spec.Affinity = cluster.OnNodes(w.Namespace+"-a", w.Namespace+"-b")
	claim := cluster.Claim(w.Namespace, "data", class, "1Mi")
	createIn(w, w.Client().AppsV1().StatefulSets(w.Namespace), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "set",
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec,
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim},
		},
	})
	w.Eventually("the pod has a node", func() bool { return w.nodeOf("set-0") != "" })
}

func (w *environment) nodeOf(pod string) string {
	w.Helper()
	p, err := w.pods().Get(w.Ctx, pod, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return p.Spec.NodeName
}

// With --claims a StatefulSet whose node is gone goes on with an empty volume elsewhere, however
// often the call is killed; a claim that lost its volume to a call without --claims goes, too.
// Pods that nothing makes again stay, and are told of.
func TestForgetNodeClaims(t *testing.T) {
	w := newEnvironment(t)
	a, k := w.newHost("a").run(), w.killer()
	class := w.Class("w", wait)
	w.stateful(class)
	was, loose := w.Bound("data-set-0"), a.made("loose", class)
	b := w.newHost("b").run()
	other := b.made("other", class)
	w.pod("waits", []string{a.node}, "loose")
	a.loses()
	out := b.call(append(k.forgets(a), "--claims", "--dry-run")...).Out
	names := []string{"/loose", "/data"} // they are in the order of the volumes
	out = regexp.MustCompile(`/(data-set-0|loose)\b`).ReplaceAllStringFunc(out, func(string) string {
		slices.Reverse(names)
		return names[0]
	})
	w.shows(out, a.node, "node-c", "bad-days.md", "A node is dead, and its disk")
	b.call(k.forgets(a)...).Ends(0)
	w.lost("loose")
	k.toTheEnd(b, "forget-node", a.node, "--claims")
	k.diedAt(10)
	w.runsOn("set-0", b)
	if now := w.Bound("data-set-0"); now.Name == was.Name || now.Labels[nodeLabel] != b.node {
		t.Errorf("the StatefulSet has volume %s of %v", now.Name, now.Labels)
	}
	w.Must(w.WaitClaimGone(w.Soon(), w.Namespace, "loose"))
	w.Bound("other")
	a.joins().run()
	a.made("later", class)
	a.orphaned(loose)
	if w.Volume(other.Name).Status.Phase != corev1.VolumeBound {
		t.Error("the other node's volume is not bound")
	}
}

// notReady has a Node say what it says when its kubelet has been silent for some minutes.
func (w *environment) notReady(node string) error {
	patch := `{"status":{"conditions":[{"type":"Ready","status":"Unknown","lastTransitionTime":"` +
		time.Now().Add(-10*time.Minute).UTC().Format(time.RFC3339) + `"}]}}`
	_, err := w.nodes().Patch(w.Ctx, node, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// In a shared pool the volumes stay. A daemon that holds the pool's lease is alive, though its
// Node is not Ready; once it is dead, its name typed again is enough, and the others go on at once.
func TestForgetNodeShared(t *testing.T) {
	w, nodes, class := threeNodes(t)
	pv, k := w.bound("data", class, "1Mi", mode(corev1.ReadWriteMany)), w.killer()
	holder := w.holder(nodes, func(*node) bool { return true })
	other := nodes[slices.IndexFunc(nodes, func(n *node) bool { return n != holder })]
	call := func(args ...string) fixture.Answer {
		return other.call(append(k.forgets(holder.host), args...)...)
	}
	w.Must(w.notReady(holder.node))
	call().Ends(1, "wrote lease", "--force") // a daemon that lives
	call("--force=" + other.node).Ends(2)    // another name
	holder.Kill()
	call("--force="+holder.node).Ends(0,
		"note: 1 volume of pool fast left alone: its data is on shared storage")
	all := w.leases()
	leases := need(all.List(w.Ctx, metav1.ListOptions{}))(w)
	if i := slices.IndexFunc(leases.Items, func(l coordinationv1.Lease) bool {
		h := l.Spec.HolderIdentity
		return h != nil && strings.HasPrefix(*h, holder.node+"_")
	}); i >= 0 {
		t.Errorf("lease %s is held by the node", leases.Items[i].Name)
	}
	if v := w.Volume(pv.Name); v.Status.Phase != corev1.VolumeBound || v.DeletionTimestamp != nil {
		t.Errorf("the volume is %s", v.Status.Phase)
	}
}

// As kubectl's plugin the program prints its help, and does not become a daemon. It takes the
// kubeconfigs and the flags that kubectl takes, with all its commands.
func TestKubectlPlugin(t *testing.T) {
	w := newEnvironment(t)
	h, dir := w.newHost("a"), hosttestDir(t, "plugin")
	plugin := filepath.Join(dir, "kubectl-hostpath")
	w.Must(os.Symlink(h.Command().Path, plugin))
	raw := need(clientcmd.LoadFromFile(w.Kubeconfig()))(w)
	contexts := clientcmdapi.NewConfig() // of the clusters and users of another file
	contexts.Contexts = map[string]*clientcmdapi.Context{"other": raw.Contexts[raw.CurrentContext]}
	w.Must(clientcmd.WriteToFile(*contexts, filepath.Join(dir, "contexts")))
	raw.CurrentContext = ""
	w.Must(clientcmd.WriteToFile(*raw, filepath.Join(dir, "users")))
	files := strings.Join([]string{filepath.Join(dir, "none"), filepath.Join(dir, "contexts"),
		filepath.Join(dir, "users")}, ":")
	for _, c := range []struct {
		args, kubeconfig, want string
		code                   int
	}{
		{"", "", "kubectl hostpath [command]", 0},
		{"forget-node x", w.Kubeconfig(), "of provisioner hostpath-provisioner is left of node x\n", 0},
		{"forget-node x --context other", files, "is left of node x\n", 0},
		{"why pv none --context other", files, "none", 1},
		{"why pv none --context another", files, `no context "another"`, 1},
		{"why pv none --context other --as nobody", files, `"nobody"`, 1},
		{"nodes --context other --as nobody", files, "this user may not list them", 1},
		{"nodes --as nobody --as-group system:masters", w.Kubeconfig(), "NODE", 0},
		{"nodes", files, `the current context "" names no cluster`, 1},
	} {
		cmd := exec.Command(plugin, strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %s\n%s", c.args, cmd.ProcessState, out)
		}
	}
}
