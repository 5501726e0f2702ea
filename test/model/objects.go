package model

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Names of the world.
const (
	namespace = "ns"
	clusterID = "k0"
)

// By pool.
var (
	poolNames  = [pools]string{"p", "q", "r"}
	scopes     = [pools]string{plan.ScopeNode, plan.ScopeShared, plan.ScopeEveryNode}
	classNames = [pools]string{"local", "common", "each"}
)

// chosen is the node that the scheduler chose for each claim. Nothing tells the nodes apart
// otherwise, so that it stands for each of them.
const chosen = 0

func selfOf(node int) plan.Self {
	return plan.Self{Provisioner: plan.DefaultProvisioner, Node: nodeName(node)}
}

// claimObject is a claim as the API server returns it.
func claimObject(slot int, c claim) *corev1.PersistentVolumeClaim {
	class := classNames[c.in]
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: slotName(slot), UID: types.UID(uidOf(cellOf(slot, c))), ResourceVersion: "1", // a claim changes once
			Annotations: map[string]string{plan.StorageProvisioner: plan.DefaultProvisioner, plan.SelectedNode: nodeName(chosen)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: c.asks.list()},
		},
	}
	if c.unasked {
		made.ResourceVersion = "0"
		delete(made.Annotations, plan.StorageProvisioner)
	}
	if c.turn > 0 {
		made.ResourceVersion = fmt.Sprint(firstTurn + int(c.turn))
	}
	if c.open {
		delete(made.Annotations, plan.SelectedNode)
	}
	if c.clone {
		made.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: slotName(0)}
	}
	if c.restore {
		made.Spec.DataSource = dataSource()
	}
	if c.bound {
		made.ResourceVersion, made.Spec.VolumeName = fmt.Sprint(2+c.version), nameOf(cellOf(slot, c))
		made.Status = c.status()
	}
	if c.elsewhere {
		made.Spec.VolumeName = keptName(slot)
	}
	return made
}

// firstTurn is a version that no claim with a volume has.
const firstTurn = 100

// turnOf is the turn of a claim without a volume.
func turnOf(c *corev1.PersistentVolumeClaim) uint8 {
	version, err := strconv.Atoi(c.ResourceVersion)
	check(err)
	return uint8(max(version-firstTurn, 0))
}

var phases = map[phase]corev1.PersistentVolumePhase{
	pending: corev1.VolumePending, available: corev1.VolumeAvailable, bound: corev1.VolumeBound, released: corev1.VolumeReleased,
}

// volumeObject is a volume object as the API server returns it: as the product makes it
// (plan.NewVolume), with what changed since.
func volumeObject(cell int, v object) *corev1.PersistentVolume {
	c := claim{exists: true, life: uint8(cell % lives), in: v.in}
	c.asks = v.size
	made := newVolume(claimObject(cell/lives, c), int(v.in), v.peer, v.of)
	v.markedOn(made)
	v.strayed(made)
	if v.pattern {
		made.Spec.HostPath.Path = pathOf(int(v.in)) + "/" + otherPattern + nameOf(cell)
	}
	made.UID, made.ResourceVersion = types.UID("pv-"+uidOf(cell)), fmt.Sprint(1+v.version)
	made.Finalizers = nil
	if v.protected {
		made.Finalizers = append(made.Finalizers, "kubernetes.io/pv-protection")
	}
	if v.finalizer {
		made.Finalizers = append(made.Finalizers, plan.Finalizer)
	}
	if v.deleting {
		made.DeletionTimestamp = &metav1.Time{}
	}
	if v.retain {
		made.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	if !v.ref {
		made.Spec.ClaimRef = nil
	}
	made.Status.Phase = phases[v.phase]
	return made
}

// newVolume is the volume object that the product makes for a claim in a pool, under the name of
// another provisioner if peer. of is as in object.
func newVolume(claim *corev1.PersistentVolumeClaim, in int, peer bool, of uint8) *corev1.PersistentVolume {
	self, class, where := selfOf(chosen), classObject(in), pool(in, false)
	if of != 0 {
		self, where.Scope = selfOf(int(of-1)), plan.ScopeNode
	}
	if peer {
		class.Provisioner = plan.Kubevirt
	}
	return plan.NewVolume(plan.ClaimFacts{
		RequestFacts: plan.RequestFacts{Self: self, Pool: where, NodeLabels: nodeObject(self.Node).Labels},
		Claim:        claim, Class: class,
	}, plan.VolumeName(claim))
}

// volumeOf is what the world keeps of a volume object that the product made or gives back.
func volumeOf(of *corev1.PersistentVolume) object {
	v := object{
		exists: true, deleting: of.DeletionTimestamp != nil, ref: of.Spec.ClaimRef != nil,
		retain: of.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete,
		in:     uint8(slices.Index(scopes[:], plan.ScopeOf(of))), size: moreOf(of.Spec.Capacity), marks: marksOf(of),
	}
	if int(v.in) == nodePool && of.Labels[plan.PoolLabel] == poolNames[sharedPool] {
		v.in, v.of = sharedPool, aloneOf(of)
	}
	v.astray = of.Labels[plan.NodeLabel] == anotherNode || int(v.in) == sharedPool && of.Labels[plan.ScopeLabel]+of.Labels[plan.NodeLabel] == ""
	if of.Spec.HostPath != nil {
		v.pattern = strings.HasPrefix(path.Base(of.Spec.HostPath.Path), otherPattern)
	}
	fmt.Sscan(of.ResourceVersion, &v.version)
	v.version--
	for _, f := range of.Finalizers {
		v.finalizer = v.finalizer || f == plan.Finalizer
		v.protected = v.protected || f != plan.Finalizer
	}
	for p, name := range phases {
		if of.Status.Phase == name {
			v.phase = p
		}
	}
	return v
}

func classObject(pool int) *storagev1.StorageClass {
	wait, policy := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: classNames[pool]}, Provisioner: plan.DefaultProvisioner,
		VolumeBindingMode: &wait, ReclaimPolicy: &policy, Parameters: map[string]string{"pool": poolNames[pool]},
	}
}

func nodeObject(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{plan.HostnameLabel: name}}}
}

func pool(n int, archive bool) plan.Pool {
	p := plan.Pool{
		Name: poolNames[n], Path: pathOf(n), Scope: scopes[n], Source: plan.SourceHostPath, Mode: 0o700, OnDelete: plan.OnDeleteDelete,
		Quota: plan.QuotaOff, Clones: plan.ClonesCopy, Snapshots: plan.SnapshotsCopy, Directory: func(pv, _, _ string) (string, error) { return pv, nil },
	}
	if archive {
		p.OnDelete = plan.OnDeleteArchive
	}
	return p
}

func pathOf(pool int) string { return "/srv/" + poolNames[pool] }

// markerOf is the ID in a pool's marker.
func markerOf(pool int) string { return "m" + poolNames[pool] }

// markOf is the marker of a pool's filesystem.
func markOf(pool int) hostcheck.Marker {
	m := hostcheck.Marker{Version: 1, Pool: poolNames[pool], ID: markerOf(pool), Cluster: clusterID}
	if pool == nodePool {
		m.Node = nodeName(0)
	}
	return m
}

// report is what a probe finds.
func report(pool int, mounted bool, room uint8, on seat) hostcheck.Report {
	size := cmp.Or(uint64(room)*unit, 1<<50)
	r := hostcheck.Report{
		Pool: poolNames[pool], Path: pathOf(pool), Marker: markerOf(pool), Size: size, Available: size, Free: size,
		Mark: markOf(pool),
	}
	r.Identity.Inode = firstInode + uint64(on)
	if !mounted {
		r.Findings = []hostcheck.Finding{{Reason: "NotMounted", Severity: hostcheck.Close, Message: "it is not mounted"}}
	}
	return r
}
