package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// commonScopes are those whose volumes are not one node's.
var commonScopes = []string{plan.ScopeShared, plan.ScopeEveryNode}

// watchVolumes makes an informer of this node's volumes, and one of the volumes of each other scope
// that a configured pool has, in those pools alone.
func (g *generation) watchVolumes() {
	changed := func(was, now *corev1.PersistentVolume) { g.controller.VolumeChanged(was, now) }
	g.volumes = g.client.Volumes(plan.NodeLabelValue(g.cfg.Node), changed).WatchList()
	for _, scope := range commonScopes {
		var pools []string
		for _, p := range g.cfg.Pools {
			if p.Scope == scope {
				pools = append(pools, p.Name)
			}
		}
		if len(pools) > 0 {
			g.common = append(g.common, g.client.VolumesOfScope(scope, pools, changed))
		}
		if len(pools) > 0 && scope == plan.ScopeShared {
			g.leases = g.client.Leases(pools, g.leaseChanged)
		}
	}
}

func (g *generation) leaseChanged(was, now *coordinationv1.Lease) {
	if now == nil {
		g.controller.LeaseChanged(was.Name, nil)
		return
	}
	g.controller.LeaseChanged(now.Name, kube.LeaseOf(now))
	if was == nil || kube.LeaseOf(was).Holder != kube.LeaseOf(now).Holder {
		signal(g.d.changed)
	}
}

// allVolumes is everything that the informers of watchVolumes have.
func (g *generation) allVolumes() controllers.Lister[*corev1.PersistentVolume] {
	return append(kube.Union[*corev1.PersistentVolume]{g.volumes}, g.common...)
}

// claimChanged has the claims read once more where there is room for those that were not held.
func (g *generation) claimChanged(was, now *corev1.PersistentVolumeClaim) {
	if g.filter.Changed(was, now) {
		g.claims.Relist()
	}
	if now != nil && plan.NodeOpen(now) {
		signal(g.unplaced)
	}
	g.controller.ClaimChanged(was, now)
}

// allHeld is AllHeld of the filter. While claims are read again those of a class that came just now
// may not be there yet.
func (g *generation) allHeld(namespace string) bool {
	return g.claims.Whole() && g.filter.AllHeld(namespace)
}

// patience is how long a claim may wait for its node before the node's pods are read: the scheduler
// chooses sooner, unless a pod names its node itself, or there is no pod.
const patience = time.Second

// runPods watches the node's pods once a claim waits longer than the scheduler takes, until ctx
// ends. Most nodes never ask for a pod.
func (g *generation) runPods(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.unplaced:
		}
		before := g.waiting()
		select {
		case <-ctx.Done():
			return
		case <-time.After(patience):
		}
		for _, uid := range g.waiting() {
			if slices.Contains(before, uid) {
				kube.RunOptional(ctx, g.pods)
				return
			}
			signal(g.unplaced)
		}
	}
}

// waiting are the claims that wait for their node.
func (g *generation) waiting() (all []types.UID) {
	for _, claim := range g.claims.List() {
		class, known := g.classes.Get(plan.ClassName(claim))
		if known && g.self.Serves(class.Provisioner) && plan.Placeable(claim, class) {
			all = append(all, claim.UID)
		}
	}
	return all
}

// podChanged has the pods read once more where there is room for those that were not held.
func (g *generation) podChanged(was, now *corev1.Pod) {
	if g.filter.PodChanged(was, now) {
		g.pods.Relist()
	}
	g.controller.PodChanged(was, now)
}

// classChanged has the claims read once more where which of them are held depends on a class.
func (g *generation) classChanged(was, now *storagev1.StorageClass) {
	if g.filter.ClassChanged(now) {
		g.claims.Relist()
	}
	g.controller.ClassChanged(was, now)
	g.publishers.Changed()
}

// indexFile has the identity of the claim index that this node found whole, and the selection for
// which it did. It is not made durable: without it all claims are read once more.
const indexFile = "claim-index"

// followClaimIndex has the API server select the claims while it can, and reads all of them while
// it cannot.
func (g *generation) followClaimIndex(ctx context.Context) {
	selection, begun := claimindex.SelectionOf(g.self), sync.Once{}
	whole := ""
	if text, err := state.ReadFile(g.d.StateDir, indexFile); err == nil {
		if identity, of, _ := strings.Cut(string(text), "\n"); of == selection.String() {
			whole = identity
		}
	}
	f := claimindex.Follower{API: g.client, Self: g.self, Whole: whole, Told: g.tellAudits()}
	f.Keep = func(identity string) {
		if err := state.WriteFile(g.d.StateDir, indexFile, []byte(identity+"\n"+selection.String()), 0o600); err != nil {
			g.d.Log.Warn("the identity of the claim index was not kept for the next start: " + err.Error())
		}
	}
	f.Seen = g.controller.LookAtKeptIndex // the two policies come and go together
	f.Use = func(index bool) {
		selector, now := "", "all claims of the cluster are read"
		if index {
			selector, now = selection.String(), "claims are read by the label that the policy "+claimindex.Name+" writes"
		}
		g.claims.Select(selector)
		if index {
			g.controller.LookAtKeptIndex()
		}
		first := false
		begun.Do(func() { close(g.indexed); first = true })
		if index || !first { // that all are read is the usual case, and is not worth a line
			g.d.Log.Info(now)
		}
	}
	f.Run(ctx)
}

// keptFile has what this node knows of the policy that labels kept volumes. It is not made durable:
// without it all volumes are read once more.
const keptFile = "volume-index"

// followKept has the API server select the volumes that are kept for claims while it can.
func (g *generation) followKept(ctx context.Context) {
	var known controllers.KeptIndex
	if text, err := state.ReadFile(g.d.StateDir, keptFile); err != nil || json.Unmarshal(text, &known) != nil {
		known = controllers.KeptIndex{}
	}
	g.controller.FollowKept(ctx, known, func(now controllers.KeptIndex) {
		text, err := json.Marshal(now)
		if err == nil {
			err = state.WriteFile(g.d.StateDir, keptFile, text, 0o600)
		}
		if err != nil {
			g.d.Log.Warn("what is known of the policy " + claimindex.VolumesName + " was not kept for the next start: " + err.Error())
		}
	})
}

// tellAudits returns a function that logs what was found when all claims were read to see whether
// each has its label; once, where the next audit finds the same.
func (g *generation) tellAudits() func(whole bool, labelled int, err error) {
	last := ""
	return func(whole bool, labelled int, err error) {
		now, log := "", g.d.Log.Warn
		switch {
		case err != nil:
			now = "it is not known whether each claim has the label of the policy " + claimindex.Name + ": " + err.Error()
		case labelled > 0:
			now, log = strconv.Itoa(labelled)+" claims had no label of the policy "+claimindex.Name+" and have it now", g.d.Log.Info
		case !whole:
			now = "the cluster has the policy " + claimindex.Name + ", and the API server does not label claims by it, or there is no claim yet"
		}
		if now != "" && now != last {
			log(now)
		}
		last = now
	}
}
