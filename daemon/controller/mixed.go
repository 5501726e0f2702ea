package controller

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/report"
)

// mixing looks for pods that use claims which choose their nodes differently: after claims got their volumes,
// once for all those of a namespace that came within a moment; and now and then for pods that came later. It asks
// only where that can be (plan.MayMix).
type mixing struct {
	namespaces queue
	named      atomic.Bool // a claim that names its node was seen

	mu    sync.Mutex
	fresh map[string]map[string]bool // claims that were provisioned, by namespace
	told  map[string]time.Time       // by pod UID
	seen  map[string]time.Time       // the same: pods whose claims were compared
}

// moment is how long claims are gathered.
const moment = 5 * time.Second

func newMixing() *mixing {
	return &mixing{namespaces: newQueue(), fresh: map[string]map[string]bool{}, told: map[string]time.Time{}, seen: map[string]time.Time{}}
}

// mixes notes a claim that was provisioned.
func (c *Controller) mixes(claim *corev1.PersistentVolumeClaim) {
	if claim.Annotations[plan.ProvisionOnNode] != "" {
		c.mixing.named.Store(true)
	}
	if c.mixing.named.Load() || plan.MayMix(claim, c.World.Classes.List()) {
		c.mixing.add(claim.Namespace, claim.Name)
	}
}

func (m *mixing) add(namespace, claim string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fresh[namespace] == nil {
		m.fresh[namespace] = map[string]bool{}
		m.namespaces.AddAfter(item{namespace: namespace}, moment)
	}
	m.fresh[namespace][claim] = true
}

// take answers the claims of a namespace that were noted, and forgets them.
func (m *mixing) take(namespace string) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	claims := m.fresh[namespace]
	delete(m.fresh, namespace)
	return claims
}

// A tenant may have any number of pods, each as large as an object can be and with as many claims. The warning is
// advice, so of each pod its claims' names alone are held, and of no more than these.
const (
	mixedPods   = 50 // of one look
	mixedClaims = 32 // of a pod, the first ones
)

// mixedPod is what is held of a pod that uses several claims.
type mixedPod struct {
	namespace, name string
	uid             types.UID
	claims          []string
}

// lookForMix warns the pods that use claims which were provisioned just now.
func (c *Controller) lookForMix(ctx context.Context, i item) (time.Duration, error) {
	fresh := c.mixing.take(i.namespace)
	c.warnPods(ctx, i.namespace, func(_ *corev1.Pod, claim string) bool { return fresh[claim] })
	return 0, nil // it is advice: what could not be looked at is looked at with what comes later
}

// Pods that came after their volumes are found within mixAgain, and mixAgainNode more for each node of the cluster:
// so all daemons together ask the API server once a second at most. Who has no such claims does not count the nodes.
const (
	mixAgain      = 30 * time.Second
	mixAgainNode  = time.Second
	mixNodesKnown = 10 * time.Minute // how old the number of nodes may be
)

// lookAgainForMix warns the pods that came after the volumes of their claims, until ctx ends.
func (c *Controller) lookAgainForMix(ctx context.Context) {
	for pause(ctx, mixAgain) {
		if len(c.mixable()) == 0 || !pause(ctx, time.Duration(c.nodeCount(ctx, mixNodesKnown))*mixAgainNode) {
			continue
		}
		if here := c.mixable(); len(here) > 0 {
			c.warnPods(ctx, "", func(pod *corev1.Pod, claim string) bool {
				return here[pod.Namespace+"/"+claim] && !c.mixing.looked(string(pod.UID), time.Now())
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

// mixable are the claims of this node's volumes, if there can be pods that mix them with others.
func (c *Controller) mixable() map[string]bool {
	if !c.mixing.named.Load() && !plan.ClassesMix(c.World.Classes.List()) {
		return nil
	}
	all := map[string]bool{}
	for _, v := range c.World.Volumes.List() {
		if ref := v.Spec.ClaimRef; ref != nil && v.Status.Phase == corev1.VolumeBound {
			all[ref.Namespace+"/"+ref.Name] = true
		}
	}
	return all
}

// warnPods warns the pods of a namespace, or of all, that wait and use such claims beside others. Pods that run
// already were lucky.
func (c *Controller) warnPods(ctx context.Context, namespace string, such func(pod *corev1.Pod, claim string) bool) {
	var pods []mixedPod
	err := c.API.EachPod(ctx, namespace, "status.phase=Pending", func(pod *corev1.Pod) {
		names := plan.PodClaimNames(pod, mixedClaims)
		uses := func(name string) bool { return such(pod, name) }
		if len(pods) < mixedPods && len(names) > 1 && slices.ContainsFunc(names, uses) {
			pods = append(pods, mixedPod{pod.Namespace, pod.Name, pod.UID, names})
		}
	})
	for _, pod := range pods {
		if err == nil {
			err = c.warnMixed(ctx, pod)
		}
	}
	if err != nil && ctx.Err() == nil {
		c.Log.Warn(err.Error(), "doing", "looking for pods of mixed claims")
	}
}

func (c *Controller) warnMixed(ctx context.Context, pod mixedPod) error {
	c.mixing.compared(string(pod.uid), time.Now())
	var claims []plan.PodClaim
	for _, name := range pod.claims {
		claim, err := c.API.GetClaim(ctx, pod.namespace, name)
		if err != nil {
			return err
		}
		if claim == nil {
			continue
		}
		if class, ours := c.World.Classes.Get(plan.ClassName(claim)); ours {
			claims = append(claims, plan.PodClaim{Claim: plan.LeanClaim(claim), Class: class})
		}
	}
	message := plan.MixedBinding(claims)
	if message == "" || !c.mixing.news(string(pod.uid), time.Now()) || !c.maySay(pod.namespace) {
		return nil
	}
	c.Log.Warn(message, "reason", plan.ReasonMixedBinding, "object", pod.namespace+"/"+pod.name)
	c.Speaker.Event(corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.namespace, Name: pod.name, UID: pod.uid},
		corev1.EventTypeWarning, plan.ReasonMixedBinding, message)
	return nil
}

// news reports whether a pod was not warned lately, and notes it.
func (m *mixing) news(uid string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !noted(m.told, uid, now)
}

// compared notes that the claims of a pod were compared; looked reports whether they were lately.
func (m *mixing) compared(uid string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	noted(m.seen, uid, now)
}

func (m *mixing) looked(uid string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, was := m.seen[uid]
	return was && now.Sub(at) <= report.Repeat
}

// noted notes a pod, and reports whether it was before. It forgets pods in time.
func noted(pods map[string]time.Time, uid string, now time.Time) bool {
	for pod, at := range pods {
		if now.Sub(at) > report.Repeat {
			delete(pods, pod)
		}
	}
	_, was := pods[uid]
	pods[uid] = now
	return was
}
