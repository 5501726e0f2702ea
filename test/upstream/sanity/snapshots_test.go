package sanity

import (
	"cmp"
	"context"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
)

// CreateSnapshot is part of spec.ControllerServer: a VolumeSnapshot of the name, and its content.
// It is ready when it returns.
func (s *service) CreateSnapshot(ctx context.Context, r *spec.CreateSnapshotRequest) (*spec.CreateSnapshotResponse, error) {
	if r.Name == "" || r.SourceVolumeId == "" {
		return nil, status.Error(codes.InvalidArgument, "no name, or no source_volume_id")
	}
	if s.cluster.volumes[r.SourceVolumeId] == nil {
		return nil, status.Errorf(codes.NotFound, "volume %s", r.SourceVolumeId)
	}
	name := contentName(r.Name)
	if known := s.cluster.contents[name]; known != nil && *known.Spec.Source.VolumeHandle != r.SourceVolumeId {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s is one of volume %s", r.Name, *known.Spec.Source.VolumeHandle)
	} else if known == nil {
		s.cluster.contents[name] = s.content(r)
	}
	if err := s.take(ctx, s.cluster.contents[name]); err != nil {
		delete(s.cluster.contents, name)
		return nil, err
	}
	rec, err := s.store.Lookup(ctx, s.id, s.cluster.contents[name].Handle())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &spec.CreateSnapshotResponse{Snapshot: snapshotOf(rec)}, nil
}

// content is what the snapshot-controller makes for a VolumeSnapshot.
func (s *service) content(r *spec.CreateSnapshotRequest) *snapshotapi.Content {
	name := snapshots
	return &snapshotapi.Content{
		ObjectMeta: metav1.ObjectMeta{
			Name: contentName(r.Name), UID: types.UID("content-" + r.Name), Finalizers: []string{snapshotapi.Finalizer}, Annotations: map[string]string{},
		},
		Spec: snapshotapi.ContentSpec{
			Driver: s.cluster.self.Provisioner, DeletionPolicy: snapshotapi.PolicyDelete, Class: &name,
			SnapshotRef: snapshotapi.SnapshotRef{Namespace: namespace, Name: r.Name, UID: types.UID(r.Name)},
			Source:      snapshotapi.ContentSource{VolumeHandle: &r.SourceVolumeId},
		},
	}
}

// take has the daemon look at a content until that says that its snapshot is ready.
func (s *service) take(ctx context.Context, of *snapshotapi.Content) error {
	return s.do(ctx, workOnContent(of), "VolumeSnapshot/"+of.Spec.SnapshotRef.Name, of.Ready)
}

func workOnContent(of *snapshotapi.Content) controllers.Work {
	return controllers.Work{Kind: controllers.WorkContent, Name: of.Name, UID: string(of.UID)}
}

// contentOf is the content that has this handle, nil if none has.
func (s *service) contentOf(handle string) *snapshotapi.Content {
	for _, one := range s.cluster.contents {
		if one.Handle() == handle {
			return one
		}
	}
	return nil
}

// DeleteSnapshot is part of spec.ControllerServer: the content is deleted with its VolumeSnapshot.
// The files and the record are gone when it returns.
func (s *service) DeleteSnapshot(ctx context.Context, r *spec.DeleteSnapshotRequest) (*spec.DeleteSnapshotResponse, error) {
	if r.SnapshotId == "" {
		return nil, status.Error(codes.InvalidArgument, "no snapshot_id")
	}
	content := s.contentOf(r.SnapshotId)
	if content == nil {
		return &spec.DeleteSnapshotResponse{}, nil
	}
	content.DeletionTimestamp = now()
	content.Annotations[snapshotapi.BeingDeleted] = "yes"
	s.cluster.touch(content)
	gone := func() bool { return s.cluster.contents[content.Name] == nil }
	if err := s.do(ctx, workOnContent(content), "VolumeSnapshot/"+content.Spec.SnapshotRef.Name, gone); err != nil {
		return nil, err
	}
	return &spec.DeleteSnapshotResponse{}, s.purge(ctx, r.SnapshotId)
}

// ListVolumes is part of spec.ControllerServer.
func (s *service) ListVolumes(ctx context.Context, r *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
	all, err := s.records(ctx, record.Volume)
	if err != nil {
		return nil, err
	}
	part, next, err := page(all, nameOf, r.StartingToken, r.MaxEntries)
	if err != nil {
		return nil, err
	}
	list := &spec.ListVolumesResponse{NextToken: next}
	for _, rec := range part {
		list.Entries = append(list.Entries, &spec.ListVolumesResponse_Entry{Volume: &spec.Volume{VolumeId: rec.PV, CapacityBytes: rec.Requested}})
	}
	return list, nil
}

// ListSnapshots is part of spec.ControllerServer.
func (s *service) ListSnapshots(ctx context.Context, r *spec.ListSnapshotsRequest) (*spec.ListSnapshotsResponse, error) {
	all, err := s.records(ctx, record.Snapshot)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(rec record.Record) bool {
		return r.SnapshotId != "" && rec.PV != r.SnapshotId || r.SourceVolumeId != "" && rec.Origin.Name != r.SourceVolumeId
	})
	part, next, err := page(all, nameOf, r.StartingToken, r.MaxEntries)
	if err != nil {
		return nil, err
	}
	list := &spec.ListSnapshotsResponse{NextToken: next}
	for _, rec := range part {
		list.Entries = append(list.Entries, &spec.ListSnapshotsResponse_Entry{Snapshot: snapshotOf(rec)})
	}
	return list, nil
}

// GetSnapshot is part of spec.ControllerServer.
func (s *service) GetSnapshot(ctx context.Context, r *spec.GetSnapshotRequest) (*spec.GetSnapshotResponse, error) {
	if r.SnapshotId == "" {
		return nil, status.Error(codes.InvalidArgument, "no snapshot_id")
	}
	all, err := s.records(ctx, record.Snapshot)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(rec record.Record) bool { return rec.PV == r.SnapshotId })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "snapshot %s", r.SnapshotId)
	}
	return &spec.GetSnapshotResponse{Snapshot: snapshotOf(all[i])}, nil
}

// records are those of one kind whose directory is in the pool, by name.
func (s *service) records(ctx context.Context, kind record.Kind) ([]record.Record, error) {
	inventory, err := s.store.List(ctx, s.id)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return slices.DeleteFunc(inventory.Volumes, func(rec record.Record) bool {
		return rec.Kind != kind || rec.Place != record.InPool
	}), nil
}

func snapshotOf(rec record.Record) *spec.Snapshot {
	return &spec.Snapshot{
		SnapshotId: rec.PV, SourceVolumeId: rec.Origin.Name, SizeBytes: rec.Requested, CreationTime: timestamppb.New(rec.Created), ReadyToUse: !rec.Unpublished,
	}
}

// after begins a token, before the name of the last record of the page before. That may be gone by
// now.
const after = "after "

func nameOf(rec record.Record) string { return rec.PV }

// page is the part of what is sorted by name that follows a token, and the token of what follows
// that.
func page[T any](all []T, name func(T) string, token string, most int32) (part []T, next string, err error) {
	last, ok := strings.CutPrefix(token, after)
	if token != "" && !ok {
		return nil, "", status.Errorf(codes.Aborted, "starting_token %q", token)
	}
	from, found := slices.BinarySearchFunc(all, last, func(one T, last string) int { return cmp.Compare(name(one), last) })
	if found {
		from++
	}
	part = all[from:]
	if most > 0 && len(part) > int(most) {
		part = part[:most]
		next = after + name(part[most-1])
	}
	return part, next, nil
}
