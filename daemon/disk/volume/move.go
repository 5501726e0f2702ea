package volume

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Moving notes in the record which object is to be made for a volume whose disk was another node's,
// durably. Wherever the directory is, it is not touched. A crash leaves the record before or after.
func (p *Pool) Moving(ctx context.Context, id mounts.Identity, pv, object string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		return s.noteBeside(pv, func(r *record.Record) { r.Moving = object })
	})
}

// Moved notes in the record that the volume is this node's, and has its object. A volume that was
// removed meanwhile is fine.
func (p *Pool) Moved(ctx context.Context, id mounts.Identity, pv, node string) error {
	return p.on(ctx, id, pv, func(s *session) error {
		err := s.noteBeside(pv, func(r *record.Record) { r.Moving, r.Node = "", node })
		if errors.Is(err, ErrNotRecorded) {
			return nil
		}
		return err
	})
}

// attempts is how often a note is written beside a daemon that writes the same record.
const attempts = 3

// noteBeside changes a record from another process than the daemon's, whose locks it has not. A
// record that has no name yet the daemon's sweep may take away, or its own write may stand in its
// place: so what is there is read afterwards, and changed again where the note is not in it.
func (s *session) noteBeside(pv string, note func(*record.Record)) error {
	for range attempts {
		is, err := s.load(pv)
		if err != nil {
			return err
		}
		noted := is
		if note(&noted); noted == is { // by this call, or by an earlier one, which may have died
			return errors.Join(s.finishRecordName(pv), s.sync(volumesDir))
		}
		if err := s.rewrite(noted); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return fmt.Errorf("the record of volume %q is written by another process", pv)
}
