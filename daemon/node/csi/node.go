package csi

import (
	"context"
	"errors"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi/target"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/inline"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

var nodeCapabilities = []spec.NodeServiceCapability_RPC_Type{
	spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, // with it kubelet tells ReadWriteOncePod from ReadWriteOnce
	spec.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	spec.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
}

// NodeGetCapabilities is part of spec.NodeServer.
func (s *Server) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	r := &spec.NodeGetCapabilitiesResponse{}
	for _, c := range nodeCapabilities {
		r.Capabilities = append(r.Capabilities, &spec.NodeServiceCapability{Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

// NodeGetInfo is part of spec.NodeServer. kubelet writes the node's ID into its CSINode.
func (s *Server) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	cfg, err := s.Pools.Config()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	r := &spec.NodeGetInfoResponse{NodeId: cfg.Node}
	if s.Driver == plan.KubevirtCSI {
		r.AccessibleTopology = &spec.Topology{Segments: map[string]string{plan.KubevirtNodeLabel: cfg.Node}}
	}
	return r, nil
}

// NodePublishVolume is part of spec.NodeServer. A crash leaves nothing, an empty directory, or the
// mount; the next call finds each of them.
func (s *Server) NodePublishVolume(ctx context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	if err := checkPublish(r); err != nil {
		return nil, err
	}
	done, err := s.turn(ctx, r.VolumeId, r.TargetPath)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	defer done()
	t, err := s.Root.Open(r.TargetPath)
	if err != nil {
		return nil, failed(err)
	}
	defer t.Close()
	dir, err := s.open(ctx, r, t)
	if err != nil {
		return nil, failed(err)
	}
	defer unix.Close(dir)
	mode := r.VolumeCapability.GetAccessMode().GetMode()
	err = t.Publish(dir, target.Options{
		ReadOnly: r.Readonly || mode == spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY || mode == spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		Alone:    mode == spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	})
	if err != nil {
		return nil, failed(err)
	}
	return &spec.NodePublishVolumeResponse{}, nil
}

// open opens the volume's directory. The object of a volume that another driver made names no pool
// of ours.
func (s *Server) open(ctx context.Context, r *spec.NodePublishVolumeRequest, t *target.Target) (int, error) {
	if r.VolumeContext[ephemeral] == "true" {
		return s.openInline(ctx, r, t)
	}
	if s.Driver == plan.KubevirtCSI {
		return s.Pools.OpenAdopted(ctx, s.Driver, r.VolumeId, r.VolumeContext[plan.KubevirtPool])
	}
	return s.Pools.Open(ctx, r.VolumeId, r.VolumeContext)
}

// field is a field of a request that has to be there.
type field struct{ name, value string }

func named(all ...field) error {
	for _, one := range all {
		if one.value == "" {
			return status.Error(codes.InvalidArgument, "no "+one.name)
		}
	}
	return nil
}

// checkPublish refuses what no volume of the driver can be.
func checkPublish(r *spec.NodePublishVolumeRequest) error {
	capability := r.GetVolumeCapability()
	flags := slices.DeleteFunc(slices.Clone(capability.GetMount().GetMountFlags()), func(flag string) bool { return flag == "" })
	if err := named(field{"volume_id", r.VolumeId}, field{"target_path", r.TargetPath}); err != nil {
		return err
	}
	switch {
	case capability == nil:
		return status.Error(codes.InvalidArgument, "no volume_capability")
	case capability.GetBlock() != nil:
		return status.Error(codes.InvalidArgument, "volumeMode Block: the driver has directories, not block devices")
	case len(flags) > 0:
		return status.Errorf(codes.InvalidArgument, "mount options %q: a directory is mounted as its pool is", flags)
	}
	return nil
}

// NodeUnpublishVolume is part of spec.NodeServer. It needs neither the configuration, the pool nor
// the record.
func (s *Server) NodeUnpublishVolume(ctx context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	if err := named(field{"volume_id", r.VolumeId}, field{"target_path", r.TargetPath}); err != nil {
		return nil, err
	}
	done, err := s.turn(ctx, r.VolumeId, r.TargetPath)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	defer done()
	err = s.unpublish(r.TargetPath)
	if err == nil || errors.Is(err, target.ErrContent) { // it is mounted no more
		s.endInline(ctx, r.VolumeId)
	}
	if err != nil {
		return nil, failed(err)
	}
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

func (s *Server) unpublish(at string) error {
	t, err := s.Root.Open(at)
	if errors.Is(err, target.ErrAbsent) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Unpublish()
}

// failed is an error as the specification numbers it. kubelet tries each of them again.
func failed(err error) error {
	code := codes.Internal
	for _, one := range []struct {
		is   error
		code codes.Code
	}{
		{target.ErrForm, codes.InvalidArgument},
		{ErrMismatch, codes.InvalidArgument},
		{ErrInline, codes.InvalidArgument},
		{inline.ErrRefused, codes.FailedPrecondition},
		{inline.ErrAway, codes.Unavailable},
		{ErrUnknown, codes.NotFound},
		{target.ErrAbsent, codes.FailedPrecondition},
		{target.ErrInUse, codes.FailedPrecondition},
		{target.ErrContent, codes.FailedPrecondition},
		{target.ErrOccupied, codes.AlreadyExists},
		{ErrClosed, codes.FailedPrecondition},
		{volume.ErrDirectoryReplaced, codes.Unavailable},
		{target.ErrChanged, codes.Unavailable},
		{ErrHangs, codes.DeadlineExceeded},
	} {
		if errors.Is(err, one.is) {
			code = one.code
			break
		}
	}
	return status.Error(code, err.Error())
}
