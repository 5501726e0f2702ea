package volume

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
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
		return s.rewriteBeside(r)
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
		return s.rewriteBeside(r)
	})
}

// rewriteBeside is rewrite in another process than the daemon's, whose sweep may take away a record
// that has no name yet: it is written again then.
func (s *session) rewriteBeside(r record.Record) (err error) {
	for range 3 {
		if err = s.rewrite(r); !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return err
}
