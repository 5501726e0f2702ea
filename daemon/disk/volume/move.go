package volume

import (
	"context"
	"errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Moving notes in the record which object is to be made for a volume whose disk was another node's,
// durably. Wherever the directory is, it is not touched. A crash leaves the record before or after.
func (p *Pool) Moving(ctx context.Context, id mounts.Identity, pv, object string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		if err := s.open(volumesDir); err != nil {
			return err
		}
		r, err := s.load(pv)
		if err != nil {
			return err
		}
		if r.Moving == object { // by an earlier call, which may have died before it was durable
			return errors.Join(s.finishRecordName(pv), s.sync(volumesDir))
		}
		r.Moving = object
		return s.rewrite(r)
	})
}

// Moved notes in the record that the volume is this node's, and has its object. A volume that was
// removed meanwhile is fine.
func (p *Pool) Moved(ctx context.Context, id mounts.Identity, pv, node string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		if err := s.open(volumesDir); err != nil {
			return err
		}
		r, err := s.load(pv)
		switch {
		case errors.Is(err, ErrNotRecorded):
			return nil
		case err != nil:
			return err
		case r.Moving == "" && r.Node == node:
			return errors.Join(s.finishRecordName(pv), s.sync(volumesDir))
		}
		r.Moving, r.Node = "", node
		return s.rewrite(r)
	})
}
