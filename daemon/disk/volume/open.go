package volume

import (
	"context"
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Open returns a descriptor (O_PATH) of a volume's directory, which the caller closes, and the
// volume's record. It is ErrNotRecorded without a record, ErrPlace for a volume that is not in the
// pool, and ErrForeign for what is no directory, or has something mounted on it.
func (p *Pool) Open(ctx context.Context, id mounts.Identity, pv string) (fd int, r record.Record, err error) {
	if err := record.CheckPV(pv); err != nil {
		return -1, r, p.about(pv, fmt.Errorf("%w: %w", ErrNotRecorded, err))
	}
	fd = -1
	err = p.on(ctx, id, pv, func(s *session) error {
		r, r.Place, err = s.find(pv)
		switch {
		case err != nil:
			return err
		case r.Kind != record.Volume && r.Kind != record.Inline:
			return fmt.Errorf("%w: the record is one of kind %q", ErrNotRecorded, r.Kind)
		case r.Place != record.InPool:
			return wrongPlace(r.Place)
		}
		fd, err = s.volumeDir(r.Directory)
		return err
	})
	return fd, r, err
}
