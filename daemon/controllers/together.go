package controllers

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/podclaims"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/capacity"
)

// together has the claims of a pod get their volumes all, or none (plan, together.go).
type together struct {
	*claims
	waiting podclaims.Waiting
	finder  *podclaims.Finder

	mu   sync.Mutex
	held map[string]held // by the claim's UID
}

// held is room that is promised to a claim whose volume is not made yet.
type held struct {
	drop  func()
	timer *time.Timer
}

const (
	// heldFor is how long a claim has its room before its turn comes. The scheduler writes the node
	// on all claims of a pod within a moment.
	heldFor = 30 * time.Second
	// podsAgain is when to look whether the pods were listed.
	podsAgain = 50 * time.Millisecond
)

// hold holds room for a claim, in the place of what was held for it.
func (c *together) hold(uid string, drop func()) {
	c.end(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	put(&c.held, uid, held{drop, time.AfterFunc(heldFor, func() { c.end(uid) })})
}

func (c *together) has(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, is := c.held[uid]
	return is
}

// end gives back what is held for a claim: its volume is made, or will not be.
func (c *together) end(uid string) {
	c.mu.Lock()
	one, is := c.held[uid]
	delete(c.held, uid)
	c.mu.Unlock()
	if is {
		one.timer.Stop()
		one.drop()
	}
}

func (c *together) endAll() {
	for _, uid := range c.all() {
		c.end(uid)
	}
}

// all are the claims for which something is held, by UID.
func (c *together) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.held))
}

// remember puts this in the place of what is held, and forgets which claims wait.
func (c *together) remember(uids []string, drop func(uid string) func()) {
	c.mu.Lock()
	for _, one := range c.held {
		one.timer.Stop()
	}
	c.held, c.waiting = nil, podclaims.Waiting{}
	c.mu.Unlock()
	c.finder.Forget()
	for _, uid := range uids {
		c.hold(uid, drop(uid))
	}
}

// noteWaiting keeps account of a claim that waits for its volume (now is nil: it is gone).
func (c *together) noteWaiting(was, now *corev1.PersistentVolumeClaim) {
	claim := cmp.Or(now, was)
	class, known := c.Listers.Classes.Get(plan.ClassName(claim))
	if now != nil && known {
		pool, refusal := c.Resolve(plan.ClassFor(now, class), c.configured)
		f := plan.ClaimFacts{Claim: now, Class: class, RequestFacts: plan.RequestFacts{
			Self: c.Self, Pool: pool, Refusal: refusal, Nodes: c.cluster.lastNodeCount(),
			Room: capacity.Room{Free: math.MaxUint64}, NodeLabels: c.nodeLabels(),
		}}
		if c.PodClaim(now, class, pool) {
			_, impossible := f.Impossible()
			c.waiting.Set(now.Namespace, string(now.UID), podclaims.Claim{Pool: pool.Name,
				Bytes: plan.Needs(now), Refused: impossible}, plan.Chosen(now) == c.Node)
			return
		}
	}
	c.waiting.Drop(claim.Namespace, string(claim.UID))
}

// mayMake reports whether a claim's volume can be made as far as the other claims of its pod go. If
// not, they are given back with it, or wait with it.
func (c *together) mayMake(
	ctx context.Context, f plan.ClaimFacts,
) (may bool, after time.Duration, err error) {
	key := f.Claim.Namespace + "/" + f.Claim.Name
	if now, kept := c.Listers.Claims.Get(key); !kept || now.UID != f.Claim.UID {
		return false, 0, nil // it went meanwhile, and waits no more; the watch brings that
	}
	if !c.PodClaim(f.Claim, f.Class, f.Pool) || c.holds(f.Claim) ||
		c.allFits(ctx, f) {
		return true, 0, nil
	}
	pods, known, err := c.finder.Using(
		f.Claim.Namespace, f.Claim.Name, c.inFlight.chosenAt(string(f.Claim.UID)))
	if err != nil || !known {
		return false, podsAgain, err
	}
	if err := c.reserveBegun(ctx, f.Claim.Namespace); err != nil {
		return false, 0, err
	}
	var refused []plan.Together
	for _, pod := range pods { // of several that share the claim one is enough
		t, err := c.reserveAll(ctx, pod)
		if err != nil || t.Refusal == nil {
			return err == nil, 0, err
		}
		refused = append(refused, t)
	}
	if len(refused) == 0 {
		return true, 0, nil // no pod, or none that the daemon may know of
	}
	after, err = c.refuseAll(ctx, f, refused[0])
	return false, after, err
}

// allFits reports whether a claim need not be compared with its pod's other claims: there is none,
// or all that waits in its namespace, and comes to this node from others at this moment, has room.
// Then it has its own, by which reserveBegun knows its pod.
func (c *together) allFits(ctx context.Context, f plan.ClaimFacts) bool {
	if c.AllHeld != nil && !c.AllHeld(f.Claim.Namespace) {
		return false
	}
	for pool := range c.waiting.Need(f.Claim.Namespace).Bytes {
		h, _ := c.workers[pool].disk.Open(ctx)
		h.Room() // counted before the lock is held
	}
	c.placing.Lock()
	defer c.placing.Unlock()
	need := c.waiting.Need(f.Claim.Namespace)
	if need.Alone || need.Refused || !c.fit(ctx, need) {
		return need.Alone
	}
	_, drop, err := c.reserve(ctx, &f)
	if err == nil {
		c.hold(string(f.Claim.UID), drop)
	}
	return err == nil
}

// fit reports whether the pools have room for so much, as far as is known without reading records.
func (c *together) fit(ctx context.Context, need podclaims.Need) bool {
	delete(need.Bytes, "") // another namespace's, which are refused
	sums := map[string]uint64{}
	for pool, bytes := range need.Bytes {
		h, _ := c.workers[pool].disk.Open(ctx)
		if !h.State.Open() {
			return false
		}
		sums[h.State.Report.Device] += bytes
	}
	for pool := range need.Bytes {
		h, _ := c.workers[pool].disk.Open(ctx)
		room, _, counted := c.workers[pool].disk.Room()
		if !counted || sums[h.State.Report.Device] > room.Free {
			return false
		}
	}
	return true
}

// reserveBegun reserves what is missing of the claims of those pods of a namespace of which one has
// its volume here, or its room: they can run on no other node. The daemon may have been restarted
// since that one was made, or have known of no need to reserve more.
func (c *together) reserveBegun(ctx context.Context, namespace string) error {
	here := c.volumesHere(namespace)
	for _, pod := range c.finder.Listed(namespace) {
		if !slices.ContainsFunc(pod.Claims, func(name string) bool {
			claim, waits := c.Listers.Claims.Get(namespace + "/" + name)
			return here[name] || waits && c.promised(claim)
		}) {
			continue
		}
		if _, err := c.reserveKnown(ctx, pod, c.knownClaims(pod)); err != nil {
			return err
		}
	}
	return nil
}

// holds reports whether room is held for a claim, and is there: what a crash left of a volume is
// removed, and its promise with it.
func (c *together) holds(claim *corev1.PersistentVolumeClaim) bool {
	return c.has(string(claim.UID)) && c.promised(claim)
}

// promised reports whether a claim has its room.
func (c *together) promised(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(c.poolsOf(claim), func(pool string) bool {
		return c.workers[pool].disk.Promised(plan.VolumeName(claim))
	})
}

// reserveAll promises all claims of a pod their room, or says why not: then none has any.
func (c *together) reserveAll(ctx context.Context, pod podclaims.Pod) (plan.Together, error) {
	claims := c.knownClaims(pod)
	late, err := c.lateClaims(ctx, pod)
	if err != nil {
		return plan.Together{Pod: pod.Name}, err
	}
	return c.reserveKnown(ctx, pod, append(claims, late...))
}

// reserveKnown is reserveAll of these claims of a pod.
func (c *together) reserveKnown(ctx context.Context, pod podclaims.Pod,
	claims []*corev1.PersistentVolumeClaim) (plan.Together, error) {
	t := plan.Together{Pod: pod.Name}
	for _, claim := range claims {
		f, _, err := c.gather(ctx, claim)
		if err != nil {
			return t, err
		}
		if c.PodClaim(claim, f.Class, f.Pool) && f.Volume == nil {
			t.Claims = append(t.Claims, f)
		}
	}
	for _, f := range t.Claims {
		if r, impossible := f.Impossible(); impossible {
			t.Refusal, t.By, t.Stays = &r, f.Claim.Name, c.volumeHere(pod)
			return t, nil
		}
	}
	c.placing.Lock()
	defer c.placing.Unlock()
	taken := map[string]func(){}
	for i := range t.Claims {
		f := &t.Claims[i]
		if uid := string(f.Claim.UID); !f.Postponed() && !c.holds(f.Claim) {
			h, drop, err := c.reserve(ctx, f)
			if err != nil {
				for _, drop := range taken {
					drop()
				}
				if !errors.As(err, new(*capacity.FullError)) {
					return t, err
				}
				c.rooms(f)
				t.Full(*f, h.Room())
				t.Stays = c.volumeHere(pod)
				return t, nil
			}
			taken[uid] = drop
		}
	}
	for uid, drop := range taken {
		c.hold(uid, drop)
	}
	return t, nil
}

// knownClaims are the claims of a pod that the watch has brought.
func (c *together) knownClaims(pod podclaims.Pod) (all []*corev1.PersistentVolumeClaim) {
	for _, name := range pod.Claims {
		if claim, known := c.Listers.Claims.Get(pod.Namespace + "/" + name); known {
			all = append(all, claim)
		}
	}
	return all
}

// lateClaims are those that it has not brought, and that have no volume: the watch of pods may be
// ahead. They are requested, up to the first that is not there: the scheduler chooses no node for
// such a pod, and who writes pods with names alone costs one request.
func (c *together) lateClaims(ctx context.Context, pod podclaims.Pod) (
	late []*corev1.PersistentVolumeClaim, err error) {
	here := c.volumesHere(pod.Namespace)
	for _, name := range pod.Claims {
		if _, known := c.Listers.Claims.Get(pod.Namespace + "/" + name); known || here[name] {
			continue
		}
		claim, err := c.API.GetClaim(ctx, pod.Namespace, name)
		if err != nil || claim == nil {
			return late, err
		}
		if claim.Spec.VolumeName == "" {
			late = append(late, claim)
		}
	}
	return late, nil
}

// volumeHere is the name of a pod's claim that has its volume on this node, "" if none has.
func (c *together) volumeHere(pod podclaims.Pod) string {
	here := c.volumesHere(pod.Namespace)
	for _, name := range pod.Claims {
		if here[name] {
			return name
		}
	}
	return ""
}

// volumesHere are the names of a namespace's claims that have their volumes on this node.
func (c *together) volumesHere(namespace string) map[string]bool {
	here := map[string]bool{}
	for _, v := range c.Listers.Volumes.List() {
		ref := v.Spec.ClaimRef
		if ref != nil && ref.Namespace == namespace && v.DeletionTimestamp == nil &&
			plan.ScopeOf(v) == plan.ScopeNode {
			here[ref.Name] = true
		}
	}
	return here
}

// refuseAll gives back the claims of a pod that are this node's, or has them wait. It returns when
// to look at the claim of f again. One for which kube-controller-manager is about to ask comes again
// by that: to write it now could collide with that (plan.ForClaim).
func (c *together) refuseAll(
	ctx context.Context, f plan.ClaimFacts, t plan.Together,
) (after time.Duration, err error) {
	nodes := c.cluster.countedLately(ctx)
	for _, of := range t.Claims {
		if plan.Chosen(of.Claim) != c.Node || plan.OnlySelected(of.Claim) {
			continue
		}
		of.Nodes = nodes
		wait, failed := c.refuse(ctx, of, t.Verdict(of))
		if err = errors.Join(err, failed); of.Claim.UID == f.Claim.UID {
			after = wait
		}
	}
	return after, err
}

// reserved is what ends the reservation of a claim's room: nothing where its volume had a promise
// before.
func (c *together) reserved(uid string) (drop func()) {
	claim := corev1.PersistentVolumeClaim{}
	claim.UID = types.UID(uid)
	for _, w := range c.workers {
		if drop = w.disk.Reserved(plan.VolumeName(&claim)); drop != nil {
			return drop
		}
	}
	return func() {}
}
