package daemon

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controller"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

// commonScopes are those whose volumes are not one node's.
var commonScopes = []string{plan.ScopeShared, plan.ScopeEveryNode}

// watchVolumes makes an informer of this node's volumes, and one of the volumes of each other scope that
// a configured pool has, in those pools alone.
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
func (g *generation) allVolumes() controller.Lister[*corev1.PersistentVolume] {
	all := merged[*corev1.PersistentVolume]{g.volumes}
	for _, s := range g.common {
		all = append(all, s)
	}
	return all
}

// merged is several stores that have no object in common.
type merged[T any] []controller.Lister[T]

// Get is part of controller.Lister.
func (m merged[T]) Get(key string) (found T, known bool) {
	for _, store := range m {
		if found, known = store.Get(key); known {
			return found, true
		}
	}
	return found, false
}

// List is part of controller.Lister.
func (m merged[T]) List() []T {
	var all []T
	for _, store := range m {
		all = append(all, store.List()...)
	}
	return all
}

// ofAllNodes reports whether a claim's class leads to a pool whose claims concern every daemon.
func (g *generation) ofAllNodes(c *corev1.PersistentVolumeClaim) bool {
	if len(g.common) == 0 { // the usual case, asked for each claim of the cluster
		return false
	}
	class, known := g.classes.Get(plan.ClassName(c))
	return known && g.classOfAll(class)
}

func (g *generation) classOfAll(class *storagev1.StorageClass) bool {
	var pools []plan.Pool
	for _, p := range g.cfg.Pools {
		pools = append(pools, planPool(p))
	}
	pool, refusal := g.self.Resolve(class, pools)
	return refusal == nil && pool.OfAllNodes()
}

// classChanged has the claims read once more, also those that were forgotten: which of them are kept
// depends on their classes.
func (g *generation) classChanged(was, now *storagev1.StorageClass) {
	if len(g.common) > 0 && now != nil && g.classOfAll(now) {
		g.claims.Relist()
	}
	g.controller.ClassChanged(was, now)
}

// hostID tells this daemon from those of other hosts in a pool that they share, "" in other pools.
func hostID(p config.Pool, node string) string {
	if p.Scope != config.ScopeShared {
		return ""
	}
	return leadership.HostID(node)
}
