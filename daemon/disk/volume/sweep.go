package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// Sweep removes what processes that died left half made: directories in staging, and records that
// never got their final name. Records whose data a power cut took are written again (repair). It
// returns how many directories it removed. Volumes that a call is working on are left to it; a
// record is left to the caller, who knows whether the volume is still wanted.
func (p *Pool) Sweep(ctx context.Context, id mounts.Identity) (int, error) {
	n, err := p.sweep(ctx, id)
	if err != nil {
		return n, fmt.Errorf("pool %q: sweeping: %w", p.name, err)
	}
	return n, nil
}

func (p *Pool) sweep(ctx context.Context, id mounts.Identity) (n int, err error) {
	s, err := p.begin(ctx, id, "sweeping")
	if err != nil {
		return 0, err
	}
	defer s.end()
	if err := s.share(ctx); err != nil { // Apply may have begun a record
		return 0, err
	}
	staging, err := s.names(stagingDir)
	if err != nil {
		return 0, err
	}
	files, err := s.names(volumesDir)
	if err != nil {
		return 0, err
	}
	for _, pv := range sorted(staging) {
		gone, err := s.sweepOne(ctx, pv, s.sweepStaging)
		if err != nil {
			return n, err
		}
		if gone {
			n++
		}
	}
	for _, name := range sorted(files) {
		if pv, is := strings.CutSuffix(name, p.newSuffix()); is && record.CheckPV(pv) == nil {
			if _, err := s.sweepOne(ctx, pv, s.sweepRecord); err != nil {
				return n, err
			}
		}
	}
	return n, s.sweepOrphanedFiles(files)
}

// sweepOne does one volume's part, if no call is working on it.
func (s *session) sweepOne(ctx context.Context, pv string, do func(string) (bool, error)) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.pool.progress(s.call)
	unlock, free := s.pool.locks.Try(pv)
	if !free {
		return false, nil
	}
	defer unlock()
	return do(pv)
}

// sweepStaging: while staging/<pv> is there, a directory in the volume's place is foreign,
// so the record that would claim it goes first, durably. Since the names were read, a call may have
// moved it to its place, and then the record must stay (TestConcurrently).
func (s *session) sweepStaging(pv string) (bool, error) {
	volumes, err := s.dir(volumesDir)
	if err != nil {
		return false, err
	}
	if there, err := exists(s.dirs[stagingDir], pv); !there || err != nil {
		return false, err
	}
	if r, err := s.load(pv); s.receives(pv) || err == nil && r.Partial != "" {
		return false, nil
	}
	if discarded, err := s.discardCopy(pv); discarded || err != nil {
		return discarded, err
	}
	r, err := s.load(pv)
	if err == nil {
		taken, err := exists(s.root, r.Directory)
		if err != nil {
			return false, err
		}
		if taken {
			return true, s.rollBack(pv, volumes)
		}
	}
	err = s.dropStaged(pv)
	s.pool.crashPoint("staging swept")
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EBUSY) {
		return false, nil // not of our making: List shows it
	}
	return err == nil, wrap("staging", err)
}

// sweepRecord: a complete record gets its final name, a torn one goes.
func (s *session) sweepRecord(pv string) (bool, error) {
	_, err := s.load(pv)
	s.pool.crashPoint("record looked at")
	switch {
	case err == nil:
		return true, s.finishRecordName(pv)
	case errors.Is(err, ErrNotRecorded):
		return true, wrap("a torn record", remove(s.dirs[volumesDir], s.newName(pv), 0))
	case errors.Is(err, record.ErrDamaged):
		return false, nil
	default:
		return false, err
	}
}
