package sanity

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// ControllerGetVolumeHealth is part of spec.ControllerServer.
func (s *service) ControllerGetVolumeHealth(ctx context.Context, r *spec.ControllerGetVolumeHealthRequest) (*spec.ControllerGetVolumeHealthResponse, error) {
	if r.VolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "no volume_id")
	}
	pv := s.cluster.volumes[r.VolumeId]
	if pv == nil {
		return nil, status.Errorf(codes.NotFound, "volume %s", r.VolumeId)
	}
	health, err := s.health(ctx, pv)
	return &spec.ControllerGetVolumeHealthResponse{VolumeHealth: health}, err
}

// ControllerListVolumeHealth is part of spec.ControllerServer: the volumes that something is wrong
// with.
func (s *service) ControllerListVolumeHealth(ctx context.Context, r *spec.ControllerListVolumeHealthRequest) (*spec.ControllerListVolumeHealthResponse, error) {
	var all []*spec.VolumeHealth
	for _, name := range slices.Sorted(maps.Keys(s.cluster.volumes)) {
		health, err := s.health(ctx, s.cluster.volumes[name])
		if err != nil {
			return nil, err
		}
		if len(health.HealthStatuses) > 0 {
			all = append(all, health)
		}
	}
	part, next, err := page(all, (*spec.VolumeHealth).GetVolumeId, r.StartingToken, r.MaxEntries)
	return &spec.ControllerListVolumeHealthResponse{Entries: part, NextToken: next}, err
}

// health is what the daemon would tell of a bound volume: why its gate is closed, after a look at
// the pool, or what its rule says of a directory that is not in its place.
func (s *service) health(ctx context.Context, pv *corev1.PersistentVolume) (*spec.VolumeHealth, error) {
	health := &spec.VolumeHealth{VolumeId: pv.Spec.CSI.VolumeHandle}
	say := func(kind spec.VolumeHealthErrorType, reason, message string) (*spec.VolumeHealth, error) {
		health.HealthStatuses = []*spec.VolumeHealth_VolumeHealthEntry{{Status: kind, Reason: reason, Message: message}}
		return health, nil
	}
	if _, err := s.daemon.Do(ctx, controllers.Work{Kind: controllers.WorkLook, Pool: s.pool.Name}); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	state := s.gate.State(s.pool.Name)
	if reason, message := state.Closed(); !state.Removable() {
		return say(spec.VolumeHealthErrorType_INACCESSIBLE, reason, message)
	}
	f := plan.VolumeFacts{Volume: pv, Self: s.cluster.self, Pool: &s.pool, ClaimExists: true}
	rec, err := s.store.Lookup(ctx, s.id, pv.Name)
	switch {
	case err == nil:
		f.Record = &rec
	case !errors.Is(err, volume.ErrNotRecorded):
		return nil, status.Error(codes.Internal, err.Error())
	}
	if v := plan.ForVolume(f); v.Reason == plan.ReasonVolumeLost {
		return say(spec.VolumeHealthErrorType_DATA_LOSS, v.Reason, v.Message)
	}
	return health, nil
}

// checkHealth asks for what csi-sanity does not: the health of volumes that something is wrong
// with.
func (s *service) checkHealth(t *testing.T) {
	t.Helper()
	size := &spec.CapacityRange{RequiredBytes: 1 << 20}
	lost, whole := s.ask(t, "lost", size, nil, codes.OK), s.ask(t, "whole", size, nil, codes.OK)
	s.wantHealth(t, nil)
	hosttest.Check(t, os.RemoveAll(filepath.Join(s.pool.Path, lost)))
	s.wantHealth(t, map[string]string{lost: "DATA_LOSS VolumeLost"})
	hosttest.Check(t, unix.Mount("other", s.pool.Path, "tmpfs", 0, ""))
	s.wantHealth(t, map[string]string{lost: "INACCESSIBLE MarkerMissing", whole: "INACCESSIBLE MarkerMissing"})
	hosttest.Check(t, unix.Unmount(s.pool.Path, 0))
	s.wantHealth(t, map[string]string{lost: "DATA_LOSS VolumeLost"})
	if _, err := s.ControllerGetVolumeHealth(t.Context(), &spec.ControllerGetVolumeHealthRequest{VolumeId: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("of a volume that is not there: %v", err)
	}
	for _, id := range []string{lost, whole} {
		if _, err := s.DeleteVolume(t.Context(), &spec.DeleteVolumeRequest{VolumeId: id}); err != nil {
			t.Error(err)
		}
	}
	s.checkEmpty(t)
}

// wantHealth lists page by page what is wrong, and wants it to be what is told of each volume by
// itself.
func (s *service) wantHealth(t *testing.T, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for token, more := "", true; more; more = token != "" {
		r, err := s.ControllerListVolumeHealth(t.Context(), &spec.ControllerListVolumeHealthRequest{MaxEntries: 1, StartingToken: token})
		if err != nil || len(r.Entries) > 1 {
			t.Fatalf("%v, %v", r, err)
		}
		for _, one := range r.Entries {
			got[one.VolumeId] = one.HealthStatuses[0].Status.String() + " " + one.HealthStatuses[0].Reason
		}
		token = r.NextToken
	}
	if !maps.Equal(got, want) {
		t.Errorf("the health of volumes is %v, want %v", got, want)
	}
	for id := range s.cluster.volumes {
		r, err := s.ControllerGetVolumeHealth(t.Context(), &spec.ControllerGetVolumeHealthRequest{VolumeId: id})
		if _, wrong := want[id]; err != nil || wrong != (len(r.VolumeHealth.HealthStatuses) > 0) {
			t.Errorf("the health of %s: %v, %v", id, r, err)
		}
	}
}
