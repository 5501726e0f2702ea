package sanity

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// service is the Controller service: it makes of each call the objects that Kubernetes would have,
// and has the daemon's reconcilers work on them. What is listed is what the pool's records say.
type service struct {
	spec.UnimplementedControllerServer

	calls   sync.Mutex // held for a call
	cluster *cluster
	daemon  *controllers.Controller
	gate    *gate.Gate
	pool    plan.Pool
	store   *volume.Pool
	id      mounts.Identity
}

var controllerCapabilities = []spec.ControllerServiceCapability_RPC_Type{
	spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	spec.ControllerServiceCapability_RPC_LIST_VOLUMES,
	spec.ControllerServiceCapability_RPC_GET_CAPACITY,
	spec.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	spec.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	spec.ControllerServiceCapability_RPC_GET_SNAPSHOT,
	spec.ControllerServiceCapability_RPC_CLONE_VOLUME,
	spec.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	spec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	spec.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
	spec.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
}

// ControllerGetCapabilities is part of spec.ControllerServer. Not here is what the daemon does not
// do (skipped).
func (*service) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	r := &spec.ControllerGetCapabilitiesResponse{}
	for _, c := range controllerCapabilities {
		r.Capabilities = append(r.Capabilities, &spec.ControllerServiceCapability{Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

// tries is how often a reconciler looks at an object: of a copy, once to begin it and once to
// publish it.
const tries = 3

// do has a reconciler look at an object until it is done with it, or has refused it.
func (s *service) do(ctx context.Context, w controllers.Work, about string, done func() bool) error {
	delete(s.cluster.refusals, about)
	for range tries {
		_, err := s.daemon.Do(ctx, w)
		refused, is := s.cluster.refusals[about]
		switch {
		case err != nil:
			return status.Error(codes.Internal, err.Error())
		case done():
			return nil
		case is:
			return refused.status()
		}
	}
	return status.Errorf(codes.Internal, "%s: nothing was done, and nothing refused", about)
}

// status is a refusal as the specification numbers it.
func (r refusal) status() error {
	code, known := map[string]codes.Code{
		plan.ReasonSource: codes.NotFound, plan.ReasonNotEnoughSpace: codes.OutOfRange, plan.ReasonPoolClosed: codes.Unavailable,
		plan.ReasonDataSource: codes.InvalidArgument, plan.ReasonBlockMode: codes.InvalidArgument, plan.ReasonAccessMode: codes.InvalidArgument,
	}[r.reason]
	if !known {
		code = codes.Internal
	}
	return status.Error(code, r.reason+": "+r.message)
}

// CreateVolume is part of spec.ControllerServer: a claim of the volume's name, for this node.
func (s *service) CreateVolume(ctx context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	claim, err := s.claim(r)
	if err != nil {
		return nil, err
	}
	key := claim.Namespace + "/" + claim.Name
	if known := s.cluster.claims[key]; known != nil {
		if !same(known, claim, r.CapacityRange) {
			return nil, status.Errorf(codes.AlreadyExists, "claim %s is another one", key)
		}
		return s.created(known, r), nil
	}
	s.cluster.claims[key] = claim
	work := s.workOn(claim)
	err = s.do(ctx, work, "PersistentVolumeClaim/"+claim.Name, func() bool { return claim.Spec.VolumeName != "" })
	if err != nil {
		delete(s.cluster.claims, key)
	}
	_, dropped := s.daemon.Do(ctx, work) // bound, or deleted
	if err := errors.Join(err, dropped); err != nil {
		return nil, err
	}
	return s.created(claim, r), nil
}

func (s *service) workOn(claim *corev1.PersistentVolumeClaim) controllers.Work {
	return controllers.Work{Kind: controllers.WorkClaim, Pool: s.pool.Name, Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
}

func (s *service) created(claim *corev1.PersistentVolumeClaim, r *spec.CreateVolumeRequest) *spec.CreateVolumeResponse {
	made := volumeOf(s.cluster.volumes[claim.Spec.VolumeName])
	made.ContentSource = r.VolumeContentSource
	return &spec.CreateVolumeResponse{Volume: made}
}

func volumeOf(pv *corev1.PersistentVolume) *spec.Volume {
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	return &spec.Volume{VolumeId: pv.Spec.CSI.VolumeHandle, VolumeContext: pv.Spec.CSI.VolumeAttributes, CapacityBytes: size.Value()}
}

// claim is the claim that a request is made of. Its UID is the volume's name, so that the volume's
// handle has that.
func (s *service) claim(r *spec.CreateVolumeRequest) (*corev1.PersistentVolumeClaim, error) {
	size, err := sizeOf(r.CapacityRange)
	switch {
	case r.Name == "":
		return nil, status.Error(codes.InvalidArgument, "no name")
	case len(r.VolumeCapabilities) == 0:
		return nil, status.Error(codes.InvalidArgument, "no volume_capabilities")
	case err != nil:
		return nil, err
	}
	name, mode := class, volumeMode(r.VolumeCapabilities)
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: r.Name, UID: types.UID(r.Name),
			Annotations: map[string]string{plan.StorageProvisioner: s.cluster.self.Provisioner, plan.ProvisionOnNode: node},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &name, AccessModes: accessModes(r.VolumeCapabilities), VolumeMode: &mode, DataSourceRef: s.source(r.VolumeContentSource),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI)}},
		},
	}, nil
}

// sizeOf is the size that a claim requests for a range: what is required, and where that is
// nothing, a mebibyte.
func sizeOf(r *spec.CapacityRange) (int64, error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	if required < 0 || limit < 0 || limit > 0 && limit < required {
		return 0, status.Errorf(codes.OutOfRange, "capacity_range: %d bytes required, at most %d", required, limit)
	}
	if required == 0 {
		required = 1 << 20
		if limit > 0 {
			required = min(required, limit)
		}
	}
	return required, nil
}

func volumeMode(all []*spec.VolumeCapability) corev1.PersistentVolumeMode {
	for _, c := range all {
		if c.GetBlock() != nil {
			return corev1.PersistentVolumeBlock
		}
	}
	return corev1.PersistentVolumeFilesystem
}

func accessModes(all []*spec.VolumeCapability) (modes []corev1.PersistentVolumeAccessMode) {
	for _, c := range all {
		switch c.GetAccessMode().GetMode() {
		case spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
			modes = append(modes, corev1.ReadWriteOncePod)
		case spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
			modes = append(modes, corev1.ReadOnlyMany)
		case spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
			modes = append(modes, corev1.ReadWriteMany)
		default:
			modes = append(modes, corev1.ReadWriteOnce)
		}
	}
	return modes
}

// source names the claim or the VolumeSnapshot that has the handle; one that no object has is named
// by the handle itself.
func (s *service) source(of *spec.VolumeContentSource) *corev1.TypedObjectReference {
	switch {
	case of.GetVolume() != nil:
		name := of.GetVolume().VolumeId
		if pv := s.cluster.volumes[name]; pv != nil {
			name = pv.Spec.ClaimRef.Name
		}
		return &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	case of.GetSnapshot() != nil:
		group, name := snapshotapi.GroupVersion.Group, of.GetSnapshot().SnapshotId
		if content := s.contentOf(name); content != nil {
			name = content.Spec.SnapshotRef.Name
		}
		return &corev1.TypedObjectReference{APIGroup: &group, Kind: snapshotapi.Kind, Name: name}
	}
	return nil
}

// same reports whether a claim that there is has what a request asks for.
func same(known, asked *corev1.PersistentVolumeClaim, within *spec.CapacityRange) bool {
	has := known.Status.Capacity[corev1.ResourceStorage]
	fits := has.Value() >= within.GetRequiredBytes() && (within.GetLimitBytes() == 0 || has.Value() <= within.GetLimitBytes())
	return fits && reflect.DeepEqual(known.Spec.AccessModes, asked.Spec.AccessModes) &&
		reflect.DeepEqual(known.Spec.VolumeMode, asked.Spec.VolumeMode) && reflect.DeepEqual(known.Spec.DataSourceRef, asked.Spec.DataSourceRef)
}

// DeleteVolume is part of spec.ControllerServer: the claim is deleted, and the volume released. The
// files and the record are gone when it returns.
func (s *service) DeleteVolume(ctx context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	if r.VolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume_id")
	}
	pv := s.cluster.volumes[r.VolumeId]
	if pv == nil {
		return &spec.DeleteVolumeResponse{}, nil
	}
	s.cluster.release(pv)
	work := controllers.Work{Kind: controllers.WorkVolume, Pool: s.pool.Name, Name: pv.Name}
	if err := s.do(ctx, work, "PersistentVolume/"+pv.Name, func() bool { return s.cluster.volumes[pv.Name] == nil }); err != nil {
		return nil, err
	}
	return &spec.DeleteVolumeResponse{}, s.purge(ctx, pv.Name)
}

// purge empties what is in the trash. Then nothing is recorded any more.
func (s *service) purge(ctx context.Context, name string) error {
	return s.do(ctx, controllers.Work{Kind: controllers.WorkPurge, Pool: s.pool.Name, Name: name}, "Node/"+node, func() bool {
		_, err := s.store.Lookup(ctx, s.id, name)
		return errors.Is(err, volume.ErrNotRecorded)
	})
}

// ControllerExpandVolume is part of spec.ControllerServer: the claim requests more.
func (s *service) ControllerExpandVolume(ctx context.Context, r *spec.ControllerExpandVolumeRequest) (*spec.ControllerExpandVolumeResponse, error) {
	if r.VolumeId == "" || r.CapacityRange == nil {
		return nil, status.Error(codes.InvalidArgument, "no volume_id, or no capacity_range")
	}
	size, err := sizeOf(r.CapacityRange)
	if err != nil {
		return nil, err
	}
	pv := s.cluster.volumes[r.VolumeId]
	if pv == nil {
		return nil, status.Errorf(codes.NotFound, "volume %s", r.VolumeId)
	}
	claim := s.cluster.claims[pv.Spec.ClaimRef.Namespace+"/"+pv.Spec.ClaimRef.Name]
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(size, resource.BinarySI)
	s.cluster.touch(claim)
	if plan.Growing(claim) {
		err = s.do(ctx, s.workOn(claim), "PersistentVolumeClaim/"+claim.Name, func() bool { return !plan.Growing(claim) })
	}
	if err != nil {
		return nil, err
	}
	rec, err := s.store.Lookup(ctx, s.id, pv.Name)
	if err != nil || rec.Requested != volumeOf(pv).CapacityBytes {
		return nil, status.Errorf(codes.Internal, "the record has %d bytes: %v", rec.Requested, err)
	}
	return &spec.ControllerExpandVolumeResponse{CapacityBytes: rec.Requested}, nil
}

// ValidateVolumeCapabilities is part of spec.ControllerServer: what the rules for a new volume do
// not refuse is confirmed.
func (s *service) ValidateVolumeCapabilities(_ context.Context, r *spec.ValidateVolumeCapabilitiesRequest) (*spec.ValidateVolumeCapabilitiesResponse, error) {
	switch {
	case r.VolumeId == "":
		return nil, status.Error(codes.InvalidArgument, "no volume_id")
	case len(r.VolumeCapabilities) == 0:
		return nil, status.Error(codes.InvalidArgument, "no volume_capabilities")
	case s.cluster.volumes[r.VolumeId] == nil:
		return nil, status.Errorf(codes.NotFound, "volume %s", r.VolumeId)
	}
	refusal, refused := plan.ForRequest(plan.RequestFacts{
		Self: s.cluster.self, Pool: s.pool, Nodes: 2, NodeLabels: map[string]string{plan.HostnameLabel: node},
		Request: plan.Request{Volume: r.VolumeId, AccessModes: accessModes(r.VolumeCapabilities), VolumeMode: volumeMode(r.VolumeCapabilities)},
	})
	if refused {
		return &spec.ValidateVolumeCapabilitiesResponse{Message: refusal.Message}, nil
	}
	return &spec.ValidateVolumeCapabilitiesResponse{Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.VolumeContext, VolumeCapabilities: r.VolumeCapabilities, Parameters: r.Parameters,
	}}, nil
}

// GetCapacity is part of spec.ControllerServer.
func (s *service) GetCapacity(ctx context.Context, _ *spec.GetCapacityRequest) (*spec.GetCapacityResponse, error) {
	if _, err := s.daemon.Do(ctx, controllers.Work{Kind: controllers.WorkRecords, Pool: s.pool.Name}); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	room, _, counted := s.daemon.Room(s.pool.Name)
	if !counted {
		return nil, status.Error(codes.Internal, "what the pool has promised was not counted")
	}
	return &spec.GetCapacityResponse{AvailableCapacity: int64(room.Free)}, nil
}

// now is a moment as an object has it.
func now() *metav1.Time { return &metav1.Time{Time: time.Now()} }
