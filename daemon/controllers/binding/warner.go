package binding

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// API reads what a pod uses.
type API interface {
	// EachPod visits the pods that a field selector leaves, of one namespace, or of all where that
	// is "".
	EachPod(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error
	// GetClaim returns nil without an error for a claim that does not exist.
	GetClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
}

// Events writes events. It never blocks.
type Events interface {
	Event(ref corev1.ObjectReference, kind, reason, message string)
}

// Options are a Warner's. All fields are needed.
type Options struct {
	API     API
	Events  Events
	Log     *slog.Logger
	Classes func() []*storagev1.StorageClass  // of this provisioner
	Volumes func() []*corev1.PersistentVolume // of this node
	Nodes   func(context.Context) int         // how many the cluster has
	Allow   func(namespace string) bool       // whether a warning about an object of the namespace may be written
}

// Warner looks for pods whose claims conflict, and warns each once in a while.
type Warner struct {
	Options
	namespaces workqueue.TypedDelayingInterface[string]
	named      atomic.Bool  // a claim that names its node was seen
	compared   recent       // pods whose claims were compared
	warned     recent       // pods that were warned
	failed     report.Dedup // requests

	mu    sync.Mutex
	fresh map[string]map[string]bool // claims that were provisioned, by namespace
}

// gather is how long the claims of a namespace are gathered before its pods are listed: once for a
// burst.
const gather = 5 * time.Second

// New makes a Warner; nothing happens before Run.
func New(o Options) *Warner {
	return &Warner{
		Options: o, namespaces: workqueue.NewTypedDelayingQueue[string](),
		fresh: map[string]map[string]bool{},
	}
}

// Run looks for pods until ctx ends.
func (w *Warner) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { w.lookAgain(ctx) })
	stop := context.AfterFunc(ctx, w.namespaces.ShutDown)
	defer stop()
	for {
		namespace, down := w.namespaces.Get()
		if down {
			break
		}
		w.lookIn(ctx, namespace)
		w.namespaces.Done(namespace)
	}
	all.Wait()
}

// Provisioned is to be called with each claim that got its volume.
func (w *Warner) Provisioned(claim *corev1.PersistentVolumeClaim) {
	if namesNode(claim) {
		w.named.Store(true)
	}
	if w.named.Load() || MayConflict(claim, w.Classes()) {
		w.add(claim.Namespace, claim.Name)
	}
}

func (w *Warner) add(namespace, claim string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fresh[namespace] == nil {
		w.fresh[namespace] = map[string]bool{}
		w.namespaces.AddAfter(namespace, gather)
	}
	w.fresh[namespace][claim] = true
}

// take returns the claims of a namespace that were noted, and forgets them.
func (w *Warner) take(namespace string) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	claims := w.fresh[namespace]
	delete(w.fresh, namespace)
	return claims
}

// A tenant may have any number of pods, each as large as an object can be and with as many claims.
// The warning is advice, so of each pod its claims' names alone are held, and of no more than
// these.
const (
	mostPods   = 50 // of one look
	mostClaims = 32 // of a pod, the first ones
)

// podClaims is what is held of a pod that uses several claims.
type podClaims struct {
	namespace, name string
	uid             types.UID
	claims          []string
}

// lookIn warns the pods of a namespace that use claims which were provisioned just now. What could
// not be looked at is looked at with what comes later.
func (w *Warner) lookIn(ctx context.Context, namespace string) {
	fresh := w.take(namespace)
	w.warnPods(ctx, namespace, func(_ *corev1.Pod, claim string) bool { return fresh[claim] })
}

// Pods that came after their volumes are found within lookAgain, and lookAgainNode more for each
// node of the cluster: so all daemons together ask the API server once a second at most. A daemon
// without such claims does not count the nodes.
const (
	lookAgain     = 30 * time.Second
	lookAgainNode = time.Second
)

// lookAgain warns the pods that came after the volumes of their claims, until ctx ends.
func (w *Warner) lookAgain(ctx context.Context) {
	for pause(ctx, lookAgain) {
		if len(w.candidates()) == 0 || !pause(ctx, time.Duration(w.Nodes(ctx))*lookAgainNode) {
			continue
		}
		if here := w.candidates(); len(here) > 0 {
			w.warnPods(ctx, "", func(pod *corev1.Pod, claim string) bool {
				return here[pod.Namespace+"/"+claim] && !w.compared.has(string(pod.UID))
			})
		}
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// candidates are the claims of this node's volumes, if there can be pods that use them beside
// others.
func (w *Warner) candidates() map[string]bool {
	if !w.named.Load() && !bothModes(w.Classes()) {
		return nil
	}
	all := map[string]bool{}
	for _, v := range w.Volumes() {
		if ref := v.Spec.ClaimRef; ref != nil && v.Status.Phase == corev1.VolumeBound {
			all[ref.Namespace+"/"+ref.Name] = true
		}
	}
	return all
}

// warnPods warns the pods of a namespace, or of all, that wait and use such a claim beside others.
// A pod that runs already has all its volumes on one node.
func (w *Warner) warnPods(ctx context.Context, namespace string, such func(pod *corev1.Pod, claim string) bool) {
	var pods []podClaims
	err := w.API.EachPod(ctx, namespace, "status.phase=Pending", func(pod *corev1.Pod) {
		names := plan.PodClaimNames(pod, mostClaims)
		uses := func(name string) bool { return such(pod, name) }
		if len(pods) < mostPods && len(names) > 1 && slices.ContainsFunc(names, uses) {
			pods = append(pods, podClaims{pod.Namespace, pod.Name, pod.UID, names})
		}
	})
	for _, pod := range pods {
		if err == nil {
			err = w.warn(ctx, pod)
		}
	}
	if err != nil && ctx.Err() == nil && w.failed.New("pods", err.Error()) {
		w.Log.Warn(err.Error(), "doing", "looking for pods whose claims choose their nodes differently")
	}
}

func (w *Warner) warn(ctx context.Context, pod podClaims) error {
	w.compared.add(string(pod.uid))
	var claims []Claim
	for _, name := range pod.claims {
		claim, err := w.API.GetClaim(ctx, pod.namespace, name)
		if err != nil {
			return err
		}
		if claim == nil {
			continue
		}
		if class := w.class(plan.ClassName(claim)); class != nil {
			claims = append(claims, Claim{plan.LeanClaim(claim), class})
		}
	}
	message := Conflict(claims)
	if message == "" || w.warned.add(string(pod.uid)) || !w.Allow(pod.namespace) {
		return nil
	}
	w.Log.Warn(message, "reason", plan.ReasonMixedBinding, "object", pod.namespace+"/"+pod.name)
	w.Events.Event(corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.namespace, Name: pod.name, UID: pod.uid},
		corev1.EventTypeWarning, plan.ReasonMixedBinding, message)
	return nil
}

func (w *Warner) class(name string) *storagev1.StorageClass {
	for _, class := range w.Classes() {
		if class.Name == name {
			return class
		}
	}
	return nil
}
