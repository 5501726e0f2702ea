package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// lookForMix warns the pods that use such claims. Pods that run already were lucky.
func (c *Controller) lookForMix(ctx context.Context, i item) (time.Duration, error) {
	fresh := c.mixing.take(i.namespace)
	var pods []*corev1.Pod
	err := c.API.EachPod(ctx, i.namespace, "status.phase=Pending", func(pod *corev1.Pod) {
		names := plan.PodClaimNames(pod)
		for _, name := range names {
			if len(names) > 1 && fresh[name] {
				pods = append(pods, pod.DeepCopy()) // it is a part of its page, which goes
				return
			}
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

func (c *Controller) warnMixed(ctx context.Context, pod *corev1.Pod) error {
	var claims []plan.PodClaim
	for _, name := range plan.PodClaimNames(pod) {
		claim, err := c.API.GetClaim(ctx, pod.Namespace, name)
		if err != nil {
			return err
		}
		if claim == nil {
			continue
		}
		if class, ours := c.World.Classes.Get(plan.ClassName(claim)); ours {
			claims = append(claims, plan.PodClaim{Claim: claim, Class: class})
		}
	}
	message := plan.MixedBinding(claims)
	if message == "" || !c.mixing.news(string(pod.UID), time.Now()) || !c.maySay(pod.Namespace) {
		return nil
	}
	c.Log.Warn(message, "reason", plan.ReasonMixedBinding, "object", pod.Namespace+"/"+pod.Name)
	c.Speaker.Event(corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
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
