package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Names of the world.
const (
	namespace = "ns"
	poolName  = "p"
	poolPath  = "/srv/p"
	nodeName  = "n0"
	clusterID = "k0"
	className = "local"
)

var self = plan.Self{Provisioner: plan.DefaultProvisioner, Node: nodeName}

// claimObject is a claim as the API server returns it.
func claimObject(slot int, c claim) *corev1.PersistentVolumeClaim {
	class := className
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: slotName(slot), UID: types.UID(uidOf(cellOf(slot, c))), ResourceVersion: "1", // a claim changes once
			Annotations: map[string]string{plan.StorageProvisioner: plan.DefaultProvisioner, plan.SelectedNode: nodeName},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: size()},
		},
	}
	if c.bound {
		made.ResourceVersion, made.Spec.VolumeName = "2", nameOf(cellOf(slot, c))
		made.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size()}
	}
	return made
}

func size() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

var phases = map[phase]corev1.PersistentVolumePhase{
	pending: corev1.VolumePending, available: corev1.VolumeAvailable, bound: corev1.VolumeBound, released: corev1.VolumeReleased,
}

// volumeObject is a volume object as the API server returns it: as the product makes it (plan.NewVolume), with what
// changed since.
func volumeObject(cell int, v object) *corev1.PersistentVolume {
	c := claim{exists: true, life: uint8(cell % lives)}
	made := plan.NewVolume(plan.ClaimFacts{
		RequestFacts: plan.RequestFacts{Self: self, Pool: pool(false), NodeLabels: nodeObject().Labels},
		Claim:        claimObject(cell/lives, c), Class: classObject(),
	}, nameOf(cell))
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

// volumeOf is what the world keeps of a volume object that the product made or gives back.
func volumeOf(of *corev1.PersistentVolume) object {
	v := object{
		exists: true, deleting: of.DeletionTimestamp != nil, ref: of.Spec.ClaimRef != nil,
		retain: of.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete,
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

func classObject() *storagev1.StorageClass {
	wait, policy := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: className}, Provisioner: plan.DefaultProvisioner,
		VolumeBindingMode: &wait, ReclaimPolicy: &policy,
	}
}

func nodeObject() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{plan.HostnameLabel: nodeName}}}
}

func pool(archive bool) plan.Pool {
	p := plan.Pool{
		Name: poolName, Path: poolPath, Scope: plan.ScopeNode, Source: plan.SourceHostPath, Mode: 0o700, OnDelete: plan.OnDeleteDelete,
		Default: true, Quota: plan.QuotaOff, Directory: func(pv, _, _ string) (string, error) { return pv, nil },
	}
	if archive {
		p.OnDelete = plan.OnDeleteArchive
	}
	return p
}

// report is what a probe finds.
func report(mounted bool) hostcheck.Report {
	r := hostcheck.Report{
		Pool: poolName, Path: poolPath, Marker: "m0", Size: 1 << 50, Available: 1 << 50, Free: 1 << 50,
		Mark: hostcheck.Marker{Version: 1, Pool: poolName, ID: "m0", Node: nodeName, Cluster: clusterID},
	}
	r.Identity.Inode = 1
	if !mounted {
		r.Findings = []hostcheck.Finding{{Reason: "NotMounted", Severity: hostcheck.Close, Message: "it is not mounted"}}
	}
	return r
}
