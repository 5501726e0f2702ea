package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi/target"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/inline"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// Keys of a volume context that kubelet sets: whether the volume is written in a pod, where the
// CSIDriver allows that, and of which (Kubernetes v1.36, pkg/volume/csi, csi_mounter.go and
// csi_util.go).
const (
	ephemeral    = "csi.storage.k8s.io/ephemeral"
	podUID       = "csi.storage.k8s.io/pod.uid"
	podName      = "csi.storage.k8s.io/pod.name"
	podNamespace = "csi.storage.k8s.io/pod.namespace"
)

// ErrInline: an inline volume that cannot be. The text is the whole sentence.
var ErrInline = errors.New("inline volume")

// openInline opens the directory of an inline volume, which the daemon makes. One that is there
// already needs no daemon.
func (s *Server) openInline(ctx context.Context, r *spec.NodePublishVolumeRequest, t *target.Target) (int, error) {
	pod := r.VolumeContext[podUID]
	if !plan.InlineHandle(r.VolumeId) || pod != t.Pod() {
		return -1, fmt.Errorf("%w: handle %q of pod %q is none that kubelet gives to a volume of pod %q", ErrInline, r.VolumeId, pod, t.Pod())
	}
	cfg, err := s.Pools.Config()
	if err != nil {
		return -1, err
	}
	var pools []string
	for _, p := range cfg.Pools {
		if p.MakesInline() {
			pools = append(pools, p.Name)
		}
	}
	name, err := plan.InlinePool(s.Driver, r.VolumeContext, pools)
	if err != nil {
		return -1, fmt.Errorf("%w: %w", ErrInline, err)
	}
	of, _ := cfg.Pool(name)
	if s.ending.has(r.VolumeId) { // the daemon may be about to take it out of the pool, and does one thing of it at a time
		if err := s.makeInline(ctx, r, name); err != nil {
			return -1, err
		}
		s.ending.forget(r.VolumeId)
	}
	o, err := s.Pools.openIn(ctx, cfg, of, r.VolumeId, record.Inline)
	if errors.Is(err, ErrUnknown) {
		if err = s.makeInline(ctx, r, name); err == nil {
			o, err = s.Pools.openIn(ctx, cfg, of, r.VolumeId, record.Inline)
		}
	}
	if err == nil && (o.r.ClaimUID != pod || o.r.Directory != r.VolumeId) {
		closeOpen(o.fd)
		return -1, fmt.Errorf("volume %q: %w: it is directory %q of pod %q", r.VolumeId, ErrMismatch, o.r.Directory, o.r.ClaimUID)
	}
	if err != nil {
		return -1, err
	}
	return o.fd, nil
}

// makeInline has the daemon make the volume.
func (s *Server) makeInline(ctx context.Context, r *spec.NodePublishVolumeRequest, pool string) error {
	if s.Inline == nil {
		return fmt.Errorf("%w: this service was started before a pool had inline_volumes: systemctl daemon-reload, and restart the socket unit", ErrInline)
	}
	return s.Inline.Ask(ctx, inline.Request{
		Act: inline.Make, Driver: s.Driver, Handle: r.VolumeId, Pool: pool, Size: r.VolumeContext[plan.InlineSize],
		Namespace: r.VolumeContext[podNamespace], Pod: r.VolumeContext[podName], UID: r.VolumeContext[podUID],
	})
}

// endInline tells the daemon that a volume is mounted for no pod any more, if it can be an inline
// one. Kubelet does not wait for what comes of it: a daemon that is away removes the directory when
// it is back.
func (s *Server) endInline(ctx context.Context, handle string) {
	if s.Inline == nil || !plan.InlineHandle(handle) {
		return
	}
	if err := s.Inline.Tell(ctx, inline.Request{Act: inline.End, Driver: s.Driver, Handle: handle}); err != nil {
		if errors.Is(err, inline.ErrLate) {
			s.ending.note(handle)
		}
		s.Log.Warn("the daemon was not told of the end of an inline volume, and removes it later: "+err.Error(), "volume", handle)
	}
}

// handles are some that something happens to, the oldest first.
type handles struct {
	mu  sync.Mutex
	all []string
}

// mostHandles are kept: what is older happened long ago.
const mostHandles = 1024

func (h *handles) note(handle string) {
	h.forget(handle)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all[max(0, len(h.all)-mostHandles+1):], handle)
}

func (h *handles) has(handle string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.all, handle)
}

func (h *handles) forget(handle string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = slices.DeleteFunc(h.all, func(one string) bool { return one == handle })
}
