//go:build nodes

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/image"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// environment is what the steps act on. Its methods end the test when something is not as it must
// be.
type environment struct {
	*testing.T // of the step that runs
	begin      time.Time
	dir        string
	cluster    *cluster.Cluster
	client     kubernetes.Interface
	snapshots  *cluster.Snapshots // once their controller runs
	namespace  string
	a, b, c    *host
	created    map[string]time.Time // of pods, by name
}

// host is a node with the product on it.
type host struct {
	*node
	image  hosttest.Image // of the pool's filesystem
	daemon *rig.Daemon
}

// hosts are those that there are.
func (w *environment) hosts() []*host {
	return slices.DeleteFunc([]*host{w.a, w.b, w.c}, func(h *host) bool { return h == nil })
}

// newEnvironment has no cluster yet.
func newEnvironment(t *testing.T) *environment {
	w := &environment{
		T: t, begin: time.Now(), dir: hosttest.Dir(t), created: map[string]time.Time{},
	}
	t.Cleanup(w.post)
	return w
}

// step is a line of a story.
type step struct {
	title string
	do    func(context.Context, *environment)
}

// usual is how long a step of most stories may take.
const usual = 2 * time.Minute

// tell plays a story, of which each step may take so long.
func tell(t *testing.T, limit time.Duration, story []step) {
	w := newEnvironment(t)
	for _, s := range story {
		w.step(t.Context(), limit, s.title, s.do)
	}
	w.held()
}

// held says that all steps of a story did.
func (w *environment) held() {
	fmt.Printf("\nevery step held, in %.0fs\n", time.Since(w.begin).Seconds())
}

// step runs a part of a story. The next one stands on it, so the first that fails is the last.
func (w *environment) step(
	ctx context.Context, limit time.Duration, title string,
	do func(context.Context, *environment),
) {
	outer := w.T
	begin := time.Now()
	fmt.Printf("\n[%5.1fs] %s\n", time.Since(w.begin).Seconds(), title)
	held := outer.Run(title, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		w.T = t
		do(ctx, w)
	})
	w.T = outer
	if !held {
		fmt.Printf("         FAILED after %.1fs\n", time.Since(begin).Seconds())
		w.FailNow()
	}
	fmt.Printf("         held, in %.1fs\n", time.Since(begin).Seconds())
}

func (w *environment) showf(format string, args ...any) {
	for line := range strings.Lines(strings.TrimRight(fmt.Sprintf(format, args...), "\n") + "\n") {
		fmt.Print("         ", line)
	}
}

func (w *environment) must(err error, doing string) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", doing, err)
	}
}

// startCluster runs the control plane on the run's tmpfs. kube-controller-manager makes the
// directory of its volume plugins, which would otherwise be one in /usr.
func (w *environment) startCluster(ctx context.Context, args ...string) {
	args = append(args, "--kcm-flag=--flex-volume-plugin-dir="+filepath.Join(w.dir, "volume-plugins"))
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(w.dir, "cluster"), ExtraArgs: args,
	})
	w.must(err, "starting the control plane")
	w.cluster, w.client = c, c.Client()
	w.showf("%s", c.Config().Host)
}

// startNode makes a node and waits until it takes pods.
func (w *environment) startNode(ctx context.Context, number int, name, archive string) *host {
	begin := time.Now()
	n, err := newNode(number, name, filepath.Join(w.dir, name), map[string]string{
		"kubelet": kubeletOf(w, number), provisioner: build(w, provisioner),
	})
	w.must(err, "making "+name)
	w.must(n.configure(ctx, w.cluster), "configuring "+name)
	w.must(n.startContainerd(ctx), "starting containerd on "+name)
	w.must(n.importImage(archive), "importing the image on "+name)
	w.must(n.startKubelet(), "starting kubelet on "+name)
	w.must(n.waitReady(ctx, w.cluster), "waiting for "+name)
	object, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	w.must(err, "reading "+name)
	w.showf("%s is Ready after %.1fs: kubelet %s, %d, containerd %d", name, time.Since(begin).Seconds(),
		object.Status.NodeInfo.KubeletVersion, n.kubelet.PID(), n.containerd.PID())
	return &host{node: n}
}

// kubeletOf is the kubelet of a node: of those that KUBELET names, with commas, the next for each.
func kubeletOf(w *environment, number int) string {
	w.Helper()
	all := strings.Split(os.Getenv("KUBELET"), ",")
	if len(all) < 2 {
		return build(w, "kubelet")
	}
	return all[(number-1)%len(all)]
}

// build is the path of what make has built, or of what a variable such as HOSTPATH_PROVISIONER or
// KUBELET names instead.
func build(w *environment, name string) string {
	w.Helper()
	file := filepath.Join(rig.Root(), ".build", name)
	if other := os.Getenv(strings.ToUpper(strings.ReplaceAll(name, "-", "_"))); other != "" {
		file = other
	}
	_, err := os.Stat(file)
	w.must(err, "looking for what make test-nodes builds")
	return file
}

// makeArchive writes the image's archive.
func (w *environment) makeArchive() string {
	busybox, err := exec.LookPath("busybox")
	w.must(err, "looking for busybox")
	archive, err := image.Busybox(imageName, busybox)
	w.must(err, "reading busybox")
	name := filepath.Join(w.dir, "image.tar")
	w.must(archive.Save(name), "writing the image")
	return name
}

// The user and groups that pods run as. volumeGroup comes by fsGroup, where that is asked for.
const user, group, volumeGroup = 1000, 1000, 4711

// script is a pod's life: it wants to find what earlier pods wrote, writes, and then stays. Its
// volume is mounted at /volumes/CLAIM.
const script = `set -eu
cd /volumes/*
for name in $FIND; do grep -qx "$name" pods || { echo "uid $(id -u): $name is not in: $(ls -la)"; exit 1; }; done
echo "$POD" >> pods
echo "uid $(id -u) groups $(id -G) in $(pwd), $(stat -c '%a %u:%g' .): $(cat pods | while read -r p; do echo -n "$p "; done)"
trap 'exit 0' TERM
sleep infinity & wait
`

// pod runs the script on a claim. It wants to find the names of earlier pods in the volume.
func (w *environment) pod(name, claim string, find []string, change ...func(*corev1.PodSpec)) *corev1.Pod {
	p := cluster.Pod(w.namespace, name, claim)
	grace, uid, gid, yes, no := int64(1), int64(user), int64(group), true, false
	p.Spec.TerminationGracePeriodSeconds = &grace
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.DNSPolicy = corev1.DNSDefault
	p.Spec.AutomountServiceAccountToken = &no
	p.Spec.EnableServiceLinks = &no
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &uid, RunAsGroup: &gid}
	c := &p.Spec.Containers[0]
	c.Name, c.Image, c.Command = "writer", imageName, []string{"/bin/sh", "-c", script}
	c.Env = []corev1.EnvVar{{Name: "POD", Value: name}, {Name: "FIND", Value: strings.Join(find, " ")}}
	c.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", `grep -qx "$POD" /volumes/*/pods`}},
	}}
	for _, f := range change {
		f(&p.Spec)
	}
	return p
}

// on makes a pod run on the node and nowhere else.
func on(h *host) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{corev1.LabelHostname: h.name} }
}

func (w *environment) createPod(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	w.Helper()
	w.created[pod.Name] = time.Now()
	pod, err := w.client.CoreV1().Pods(w.namespace).Create(ctx, pod, metav1.CreateOptions{})
	w.must(err, "creating a pod")
	return pod
}

// run makes a pod, and is ready.
func (w *environment) run(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	w.Helper()
	return w.ready(ctx, w.createPod(ctx, pod).Name)
}

// keeps wants a pod to be ready, in the container that it had.
func (w *environment) keeps(ctx context.Context, pod, container string) {
	w.Helper()
	if now := containerOf(w.ready(ctx, pod)); now != container {
		w.Fatalf("pod %s has the container %s, it had %s", pod, now, container)
	}
}

// ready waits until the pod has written, and shows what it said.
func (w *environment) ready(ctx context.Context, name string) *corev1.Pod {
	w.Helper()
	pod, err := cluster.WaitFor(ctx, w.client.CoreV1().Pods(w.namespace), name, func(p *corev1.Pod) bool {
		return isReady(p) || p.Status.Phase == corev1.PodFailed
	})
	if err != nil {
		w.Fatalf("%v\n%s", err, w.events(name))
	}
	took := time.Since(w.created[name]).Seconds()
	said := w.said(ctx, pod)
	if pod.Status.Phase == corev1.PodFailed {
		w.Fatalf("pod %s failed, and said: %s", name, said)
	}
	w.showf("pod %s on %s, ready within %.1fs: %s", name, pod.Spec.NodeName, took, said)
	return pod
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// said is the pod's log, which kube-apiserver asks the node's kubelet for.
func (w *environment) said(ctx context.Context, pod *corev1.Pod) string {
	w.Helper()
	stream, err := w.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
	w.must(err, "reading the log of pod "+pod.Name)
	defer stream.Close()
	text, err := io.ReadAll(stream)
	w.must(err, "reading the log of pod "+pod.Name)
	return strings.TrimSpace(string(text))
}

// deletePod returns when kubelet has taken the pod down.
func (w *environment) deletePod(ctx context.Context, name string) {
	w.Helper()
	w.must(w.client.CoreV1().Pods(w.namespace).Delete(ctx, name, metav1.DeleteOptions{}), "deleting pod "+name)
	w.must(cluster.WaitGone[*corev1.Pod](ctx, w.client.CoreV1().Pods(w.namespace), name), "deleting pod "+name)
}

// events are the events about objects of that name, or of all.
func (w *environment) events(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var options metav1.ListOptions
	if name != "" {
		options.FieldSelector = "involvedObject.name=" + name
	}
	all, err := w.client.CoreV1().Events(w.namespace).List(ctx, options)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range all.Items {
		fmt.Fprintf(&b, "%s %s: %s %s: %s\n", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Type, e.Reason, e.Message)
	}
	return b.String()
}

// hostOf is the host that a volume's node affinity names.
func (w *environment) hostOf(pv *corev1.PersistentVolume) *host {
	w.Helper()
	for _, h := range w.hosts() {
		terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms
		if len(terms) == 1 && len(terms[0].MatchExpressions) == 1 && slices.Equal(terms[0].MatchExpressions[0].Values, []string{h.name}) {
			return h
		}
	}
	w.Fatalf("volume %s is for no node of these: %v", pv.Name, pv.Spec.NodeAffinity)
	return nil
}

// follow watches a claim, which need not exist yet. The function that it returns ends the watch and
// returns the values that selected-node had, one after the other.
func (w *environment) follow(ctx context.Context, claim string) func() []string {
	w.Helper()
	claims := w.client.CoreV1().PersistentVolumeClaims(w.namespace)
	stream, err := claims.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + claim})
	w.must(err, "watching claim "+claim)
	var seen []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range stream.ResultChan() {
			object, ok := event.Object.(*corev1.PersistentVolumeClaim)
			if !ok {
				return
			}
			node := object.Annotations[selectedNode]
			if node == "" {
				node = "none"
			}
			if last := len(seen) - 1; last >= 0 && seen[last] != node || last < 0 && node != "none" {
				seen = append(seen, node)
			}
		}
	}()
	return func() []string {
		stream.Stop()
		<-done
		return seen
	}
}

// post shows, when a step has failed, what helps to see why, and keeps the logs.
func (w *environment) post() {
	if !w.Failed() || w.cluster == nil {
		return
	}
	dir := filepath.Join(rig.Root(), ".build", "nodes-failed")
	fmt.Printf("\nthe events:\n%s\nthe logs are in %s\n", w.events(""), dir)
	if err := keepLogs(w.dir, dir); err != nil {
		fmt.Println(err)
	}
	for _, h := range w.hosts() {
		if h.daemon != nil {
			fmt.Printf("\nthe daemon's log on %s:\n%s", h.name, h.daemon.Log())
		}
	}
}

// keepLogs copies the log files below from, which is on a tmpfs that is about to go.
func keepLogs(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(path) != ".log" && d.Name() != "log" {
			return err
		}
		name := strings.ReplaceAll(strings.TrimPrefix(path, from+"/"), "/", "-")
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return errors.Join(os.MkdirAll(to, 0o755), os.WriteFile(filepath.Join(to, name), data, 0o644))
	})
}
