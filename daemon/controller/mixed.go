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
)

// mixing looks, after claims got their volumes, for pods that use them beside claims which choose their
// nodes differently. It asks only where that can be (plan.MayMix), and once for all the claims of a
// namespace that came within a moment.
type mixing struct {
	namespaces queue
	named      atomic.Bool // a claim that names its node was seen

	mu    sync.Mutex
	fresh map[string]map[string]bool // claims that were provisioned, by namespace
	told  map[string]time.Time       // by pod UID
}

// moment is how long claims are gathered.
const moment = time.Second

func newMixing() *mixing {
	return &mixing{namespaces: newQueue(), fresh: map[string]map[string]bool{}, told: map[string]time.Time{}}
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

// lookForMix warns the pods that use such claims. Pods that run already were lucky.
func (c *Controller) lookForMix(ctx context.Context, i item) (time.Duration, error) {
	fresh := c.mixing.take(i.namespace)
	var pods []mixedPod
	err := c.API.EachPod(ctx, i.namespace, "status.phase=Pending", func(pod *corev1.Pod) {
		names := plan.PodClaimNames(pod, mixedClaims)
		uses := func(name string) bool { return fresh[name] }
		if len(pods) < mixedPods && len(names) > 1 && slices.ContainsFunc(names, uses) {
			pods = append(pods, mixedPod{pod.Namespace, pod.Name, pod.UID, names})
		}
	})
	for _, pod := range pods {
		if err == nil {
			err = c.warnMixed(ctx, pod)
		}
	}
	if err != nil {
		c.Log.Warn(err.Error(), "doing", "looking for pods of mixed claims")
	}
	return 0, nil // it is advice: what could not be looked at is not looked at again
}

func (c *Controller) warnMixed(ctx context.Context, pod mixedPod) error {
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

// news says whether a pod was not warned lately, and notes it. It forgets pods in time.
func (m *mixing) news(uid string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for pod, at := range m.told {
		if now.Sub(at) > repeat {
			delete(m.told, pod)
		}
	}
	_, said := m.told[uid]
	m.told[uid] = now
	return !said
}
