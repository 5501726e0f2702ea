package daemon

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controller"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
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

// identity is this daemon as the holder of leases: the node, and this host's run since its kernel
// started. A daemon that starts again takes over from itself at once: pools are locked on their host
// (state.LockPool), so that the one before is gone. Another host that was given the same node's name
// by mistake is another holder.
func identity(node string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(boot) < 8 {
		boot = []byte(rand.Text())
	}
	return node + "_" + string(boot[:8])
}

// nodeOf is the node in an identity, "" in what is none: a program that may write leases may write anything there.
func nodeOf(identity string) string {
	node := identity[:max(0, strings.LastIndexByte(identity, '_'))]
	if len(validation.IsDNS1123Subdomain(node)) > 0 {
		return ""
	}
	return node
}

// allVolumes is everything that watchVolumes brings.
func (g *generation) allVolumes() controller.Lister[*corev1.PersistentVolume] {
	all := merged[*corev1.PersistentVolume]{g.volumes}
	for _, s := range g.common {
		all = append(all, s)
	}
	return all
}

// merged is several stores that have no object in common.
type merged[T any] []controller.Lister[T]

// Get is part of controller.Store.
func (m merged[T]) Get(key string) (found T, known bool) {
	for _, store := range m {
		if found, known = store.Get(key); known {
			return found, true
		}
	}
	return found, false
}

// List is part of controller.Store.
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

// hostID tells this daemon from those of other hosts in a pool that they share.
func hostID(p config.Pool, node string) string {
	if p.Scope != config.ScopeShared {
		return ""
	}
	sum := sha256.Sum256([]byte(identity(node)))
	return hex.EncodeToString(sum[:4])
}
