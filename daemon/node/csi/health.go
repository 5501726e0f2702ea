package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi/target"
)

// NodeGetVolumeStats is part of spec.NodeServer. The numbers are statfs(2)'s of the volume's
// directory: with project quotas of ext4 and xfs, or a limit of CephFS, those of the volume, and
// else of the whole pool. Nothing is walked through.
func (s *Server) NodeGetVolumeStats(ctx context.Context, r *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	if err := named(field{"volume_id", r.VolumeId}, field{"volume_path", r.VolumePath}); err != nil {
		return nil, err
	}
	t, err := s.Root.Open(r.VolumePath)
	switch {
	case errors.Is(err, target.ErrForm), errors.Is(err, target.ErrAbsent):
		return nil, status.Errorf(codes.NotFound, "volume %q is not published there: %v", r.VolumeId, err)
	case err != nil:
		return nil, failed(err)
	}
	m, mounted, err := t.Mounted()
	t.Close()
	switch {
	case err != nil:
		return nil, failed(err)
	case !mounted:
		return nil, status.Errorf(codes.NotFound, "volume %q is not published on %q", r.VolumeId, r.VolumePath)
	}
	st, err := await(ctx, &s.Pools.wait, fmt.Sprintf("filesystem %d:%d", m.Major, m.Minor), func(context.Context) (unix.Statfs_t, error) {
		return s.statfs(r.VolumePath)
	}, nil)
	if err != nil {
		return nil, failed(err)
	}
	return &spec.NodeGetVolumeStatsResponse{Usage: usage(st)}, nil
}

// statfs waits for a filesystem that hangs.
func (s *Server) statfs(path string) (st unix.Statfs_t, err error) {
	t, err := s.Root.Open(path)
	if err != nil {
		return st, err
	}
	defer t.Close()
	fd, err := t.OpenMounted()
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, unix.Fstatfs(fd, &st)
}

// usage is bytes, and inodes where the filesystem counts them (btrfs does not).
func usage(st unix.Statfs_t) []*spec.VolumeUsage {
	size := int64(st.Bsize)
	all := []*spec.VolumeUsage{{
		Unit: spec.VolumeUsage_BYTES, Total: int64(st.Blocks) * size, Available: int64(st.Bavail) * size, Used: int64(st.Blocks-st.Bfree) * size,
	}}
	if st.Files > 0 {
		all = append(all, &spec.VolumeUsage{Unit: spec.VolumeUsage_INODES, Total: int64(st.Files), Available: int64(st.Ffree), Used: int64(st.Files - st.Ffree)})
	}
	return all
}

// NodeGetVolumeHealth is part of spec.NodeServer. A volume that no open pool has may be in one that
// is closed: in which, only its object says, which is not in the request.
func (s *Server) NodeGetVolumeHealth(ctx context.Context, r *spec.NodeGetVolumeHealthRequest) (*spec.NodeGetVolumeHealthResponse, error) {
	if err := named(field{"volume_id", r.VolumeId}); err != nil {
		return nil, err
	}
	known, shut, err := s.Pools.Known(ctx, r.VolumeId)
	switch {
	case err != nil:
		return nil, failed(err)
	case !known && len(shut) == 0:
		return nil, status.Errorf(codes.NotFound, "volume %q is not recorded on this node", r.VolumeId)
	}
	health := &spec.VolumeHealth{VolumeId: r.VolumeId}
	if !known {
		for _, pool := range slices.Sorted(maps.Keys(shut)) {
			if slices.ContainsFunc(health.HealthStatuses, func(e *spec.VolumeHealth_VolumeHealthEntry) bool { return e.Reason == shut[pool].Reason }) {
				continue // one entry for each reason
			}
			health.HealthStatuses = append(health.HealthStatuses, &spec.VolumeHealth_VolumeHealthEntry{
				Status: spec.VolumeHealthErrorType_INACCESSIBLE, Reason: shut[pool].Reason, Message: "pool " + pool + ": " + shut[pool].Message,
			})
		}
	}
	return &spec.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// NodeGetStorageHealth is part of spec.NodeServer: the pools that are closed.
func (s *Server) NodeGetStorageHealth(ctx context.Context, _ *spec.NodeGetStorageHealthRequest) (*spec.NodeGetStorageHealthResponse, error) {
	_, shut, err := s.Pools.Known(ctx, "")
	if err != nil {
		return nil, failed(err)
	}
	r := &spec.NodeGetStorageHealthResponse{}
	for _, pool := range slices.Sorted(maps.Keys(shut)) {
		if slices.ContainsFunc(r.BackendHealth, func(e *spec.NodeGetStorageHealthResponse_StorageBackendHealth) bool {
			return e.Reason == shut[pool].Reason
		}) {
			continue
		}
		r.BackendHealth = append(r.BackendHealth, &spec.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: spec.StorageHealthErrorType_STORAGE_UNREACHABLE, Reason: shut[pool].Reason, Message: "pool " + pool + ": " + shut[pool].Message,
		})
	}
	return r, nil
}
