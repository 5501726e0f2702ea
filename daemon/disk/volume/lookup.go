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

// load reads a volume's record. A record that is complete under its new name counts: it was durable
// before the directory was visible, the rename to its final name need not be. A torn one does not:
// nothing was made yet when it was written.
func (s *session) load(pv string) (record.Record, error) {
	dir, err := s.dir(volumesDir)
	if err != nil {
		return record.Record{}, err
	}
	r, err := readRecord(dir, pv+recordSuffix, pv)
	switch {
	case errors.Is(err, unix.ENOENT):
		return s.loadNew(dir, pv)
	case errors.Is(err, record.ErrDamaged):
		return record.Record{}, fmt.Errorf("%s%s: %w", pv, recordSuffix, err)
	case err != nil:
		return record.Record{}, fmt.Errorf("%w: %s%s: %w", record.ErrDamaged, pv, recordSuffix, err)
	}
	return r, nil
}

func (s *session) loadNew(dir int, pv string) (record.Record, error) {
	r, err := readRecord(dir, s.newName(pv), pv)
	switch {
	case errors.Is(err, record.ErrNewer):
		return record.Record{}, err
	case errors.Is(err, unix.ENOENT), errors.Is(err, record.ErrDamaged):
		return record.Record{}, ErrNotRecorded
	case err != nil:
		return record.Record{}, fmt.Errorf("%w: %s: %w", record.ErrDamaged, s.newName(pv), err)
	}
	return r, nil
}

// place looks where a recorded directory is, our own places first: what has the volume's name in
// the pool while its directory is still, or already, elsewhere is foreign.
func (s *session) place(r record.Record) (record.Place, error) {
	place, _, err := s.locate(r)
	return place, err
}

// locate is place, with the directory's name there.
func (s *session) locate(r record.Record) (record.Place, string, error) {
	return locate(r, func(dir, name string) (bool, error) {
		fd, err := s.fd(dir)
		if err != nil {
			return false, err
		}
		return exists(fd, name)
	})
}

// locate looks where a recorded directory is. has reports whether one of our directories, or the
// pool itself (""), has an entry of a name.
func locate(r record.Record, has func(dir, name string) (bool, error)) (
	record.Place, string, error) {
	for _, at := range []struct {
		dir, name string
		place     record.Place
	}{
		{stagingDir, r.PV, record.InStaging}, {trashDir, r.PV, record.InTrash},
		{trashDir, r.PV + emptyingSuffix, record.Emptying},
	} {
		if there, err := has(at.dir, at.name); there || err != nil {
			return at.place, at.name, err
		}
	}
	archived := func(name string) (bool, error) { return has(archiveDir, name) }
	if name, err := halfArchived(r.PV, archived); name != "" || err != nil {
		return record.InArchive, name, err
	}
	if there, err := has("", r.Directory); there || err != nil {
		return record.InPool, r.Directory, err
	}
	return record.Nowhere, "", nil
}

func (s *session) find(pv string) (record.Record, record.Place, error) {
	r, err := s.load(pv)
	if err != nil {
		return r, "", err
	}
	place, err := s.place(r)
	return r, place, err
}

// inPool is find of a volume that is in its place; of any other one it is ErrPlace.
func (s *session) inPool(pv string) (record.Record, error) {
	r, place, err := s.find(pv)
	if err == nil && place != record.InPool {
		err = wrongPlace(place)
	}
	return r, err
}

// Found divides what Lookup returned into a record, nil where there is none, why there is one that
// cannot be read, and every other error.
func Found(r record.Record, err error) (found *record.Record, unreadable string, other error) {
	switch {
	case errors.Is(err, ErrNotRecorded):
		return nil, "", nil
	case errors.Is(err, record.ErrDamaged):
		return nil, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	return &r, "", nil
}

// Lookup returns a volume's record, with the place of its directory; ErrNotRecorded or ErrDamaged,
// if there is no record or none that can be read. A name that no record could have is not recorded.
func (p *Pool) Lookup(ctx context.Context, id mounts.Identity, pv string) (r record.Record, err error) {
	if err := record.CheckPV(pv); err != nil {
		return r, p.about(pv, fmt.Errorf("%w: %w", ErrNotRecorded, err))
	}
	err = p.on(ctx, id, pv, func(s *session) error {
		r, r.Place, err = s.find(pv)
		return err
	})
	return r, err
}

// Exists reports whether the pool has an entry of this name, of any owner and kind.
func (p *Pool) Exists(ctx context.Context, id mounts.Identity, directory string) (bool, error) {
	if err := record.CheckDirectory(directory); err != nil {
		return false, fmt.Errorf("pool %q: %w", p.name, err)
	}
	return of(ctx, p, id, "looking for "+directory, func(s *session) (bool, error) {
		return exists(s.root, directory)
	})
}

// volumeDir returns a descriptor of a volume's directory in the pool, if it is one: a directory, no
// symbolic link and no mount. It can be asked for its inode only (O_PATH).
func (s *session) volumeDir(name string) (int, error) {
	fd, err := openat.Open(s.root, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, beneath)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return -1, fmt.Errorf("directory %q: %w: it is no directory", name, ErrForeign)
	case errors.Is(err, unix.EXDEV):
		return -1, fmt.Errorf("directory %q: %w: something is mounted on it", name, ErrForeign)
	case err != nil:
		return -1, fmt.Errorf("directory %q: %w", name, err)
	}
	return fd, nil
}

// openVolume is volumeDir for a directory whose attributes are read or changed.
func (s *session) openVolume(name string) (int, error) {
	there, err := s.volumeDir(name)
	if err != nil {
		return -1, err
	}
	unix.Close(there)
	fd, err := openDir(s.root, name)
	return fd, wrap("opening the directory", err)
}

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

// readRecord reads the record of a volume. What it cannot decode is ErrDamaged.
func readRecord(dir int, name, pv string) (record.Record, error) {
	text, err := readFile(dir, name, record.MaxSize)
	if err != nil {
		return record.Record{}, err
	}
	return decodeVolume(text, pv)
}

// decodeVolume refuses what is recorded as another thing than a volume, an inline volume or a
// snapshot: nothing of this package is right for it.
func decodeVolume(text []byte, pv string) (record.Record, error) {
	r, err := record.Decode(text, pv)
	if err == nil && r.Kind != record.Volume && r.Kind != record.Snapshot && r.Kind != record.Inline {
		return record.Record{}, fmt.Errorf("%w: it is of a %q, and %w", record.ErrDamaged, r.Kind, record.ErrNewer)
	}
	return r, err
}

// conflict is what an older record of a volume has that the record of one to be made has not, nil
// if they agree.
func conflict(r, old record.Record) error {
	if old.Directory == r.Directory && old.ClaimUID == r.ClaimUID && old.Kind == r.Kind {
		return nil
	}
	return fmt.Errorf("%w: directory %q for claim %s/%s with UID %s", ErrConflict, old.Directory, old.Namespace, old.Claim, old.ClaimUID)
}

// wrongPlace is the error of a call that does not work on a directory at p.
func wrongPlace(p record.Place) error { return fmt.Errorf("%w: it is %s", ErrPlace, p.Describe()) }
