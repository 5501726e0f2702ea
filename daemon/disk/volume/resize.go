package volume

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Resize makes a volume in the pool one of this many bytes: in its record and, if its directory has
// a limit, in that. A volume that has no limit gets none. One that is elsewhere is ErrPlace.
//
// What the pool keeps for the volume is counted by the record, so the limit is never above what the
// record says:
//
//	to more:  record written .. durable, then limit set   a crash in between leaves a limit that is too low: Resize again
//	to less:  limit set, then record written .. durable   a crash in between leaves a record that says too much: the same
func (p *Pool) Resize(ctx context.Context, id mounts.Identity, pv string, bytes int64) error {
	return p.on(ctx, id, pv, func(s *session) error {
		r, err := s.resizable(pv, bytes)
		if err != nil {
			return err
		}
		return s.resize(r, bytes)
	})
}

// ResizeFrom is Resize of a volume whose record still says was. Of any other one it changes
// nothing, and returns false: what the caller knows of the record may be of an earlier moment. One
// that has more files than the new limit allows keeps the old.
func (p *Pool) ResizeFrom(
	ctx context.Context, id mounts.Identity, pv string, was, bytes int64,
) (resized bool, err error) {
	err = p.on(ctx, id, pv, func(s *session) error {
		r, err := s.resizable(pv, bytes)
		if err != nil || r.Reserved() != uint64(was) {
			return err
		}
		if bytes < was && r.ProjectID != 0 && s.quotas != nil {
			u, err := s.quotas.Kernel.Get(s.root, r.ProjectID)
			if err != nil {
				return wrap(readingUsage, err)
			}
			if u.Bytes > uint64(bytes) {
				return fmt.Errorf("volume %s takes %d bytes, not %d", pv, u.Bytes, bytes)
			}
		}
		resized = true
		return s.resize(r, bytes)
	})
	return resized, err
}

func (s *session) resizable(pv string, bytes int64) (record.Record, error) {
	r, err := s.inPool(pv)
	if err == nil && bytes <= 0 {
		err = fmt.Errorf("a size of %d bytes", bytes)
	}
	return r, err
}

func (s *session) resize(r record.Record, bytes int64) error {
	first, second := s.promise, s.relimit
	if bytes < max(r.Requested, r.Promised) {
		first, second = s.relimit, s.promise
	}
	if err := first(r, bytes); err != nil {
		return err
	}
	return second(r, bytes)
}

// promise writes the size in the volume's record.
func (s *session) promise(r record.Record, bytes int64) error {
	if r.Requested == bytes && (r.Promised == 0 || r.Promised == bytes) {
		return errors.Join(s.finishRecordName(r.PV), s.sync(volumesDir)) // an earlier call may have died before that
	}
	if r.Requested = bytes; r.Promised != 0 {
		r.Promised = bytes
	}
	return s.rewrite(r)
}

// relimit changes the limit of a volume's directory, if it has one.
func (s *session) relimit(r record.Record, bytes int64) error {
	dir, err := s.openVolume(r.Directory)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if r.ProjectID == 0 {
		if has, err := limited(dir); !has {
			return wrap("reading "+cephQuota, err)
		}
	}
	return s.limitAsRecorded(dir, r, bytes)
}

// limitAsRecorded is limit of a volume that has this record, or one with the new size. A daemon of
// a shared pool may have been paused before it set the limit: the one that worked meanwhile may
// have written another size, and set its limit first. The record has neither of the two sizes then,
// and the limit becomes that of the record, whichever daemon is the last to look.
func (s *session) limitAsRecorded(dir int, r record.Record, bytes int64) error {
	if err := s.limit(dir, r, bytes); err != nil || s.pool.hostID == "" || bytes <= 0 {
		return err
	}
	now, err := s.load(r.PV)
	if errors.Is(err, ErrNotRecorded) || err == nil && (now.Requested == r.Requested || now.Requested == bytes) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.limit(dir, now, now.Requested)
}

// limited reports whether a directory has a limit of CephFS. ENODATA is of one without, and the
// other two of filesystems that do not know the attribute.
func limited(dir int) (bool, error) {
	var size int
	err := openat.Retry(func() (err error) { size, err = unix.Fgetxattr(dir, cephQuota, make([]byte, 32)); return err })
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	return size > 0, err
}
