package volume

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// InitMarker prepares a pool: it makes .hostpath-provisioner (0700) with what belongs in it and, at
// last, pool.json with the marker's text. A pool that has this marker is fine; one with another is
// ErrPrepared. Entries of the pool that are there already stay what they are: foreign.
func (p *Pool) InitMarker(ctx context.Context, id mounts.Identity, marker []byte) error {
	return p.with(ctx, id, "preparing", func(s *session) error { return wrap("preparing", s.initMarker(marker)) })
}

func (s *session) initMarker(marker []byte) error {
	if err := makeOwn(s.root, metaDir); err != nil {
		return err
	}
	meta, err := openDir(s.root, metaDir)
	if err != nil {
		return fmt.Errorf("%s: %w", metaDir, err)
	}
	defer unix.Close(meta)
	if err := s.sameMarker(meta, marker); err != nil {
		return err
	}
	for _, name := range []string{stagingDir, trashDir, volumesDir, archiveDir} {
		if err := makeOwn(meta, name); err != nil {
			return err
		}
		s.pool.crashPoint(name + " made")
		if _, err := s.dir(name); err != nil {
			return err
		}
	}
	return s.writeMarker(meta, marker)
}

// makeOwn makes one of our own directories, unless it is there. What else is of its name is refused
// when it is opened.
func makeOwn(dir int, name string) error {
	err := openat.Retry(func() error { return unix.Mkdirat(dir, name, 0o700) })
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return wrap("making "+name, err)
}

// Remark writes the marker anew, because whose the pool is was learnt or has changed. A pool that
// has a marker with another ID, or none, is ErrPrepared. A crash leaves the old marker or the new
// one, and perhaps a file beside it that the next call removes.
func (p *Pool) Remark(ctx context.Context, id mounts.Identity, m hostcheck.Marker) error {
	return p.with(ctx, id, "writing its marker", func(s *session) error { return wrap("writing its marker", s.remark(m)) })
}

func (s *session) remark(m hostcheck.Marker) error {
	text, err := hostcheck.EncodeMarker(m)
	if err != nil {
		return err
	}
	meta, err := openDir(s.root, metaDir)
	if err != nil {
		return wrap("opening "+metaDir, err)
	}
	defer unix.Close(meta)
	if now, err := hostcheck.ReadMarker(s.root); err != nil || now.ID != m.ID {
		return errors.Join(fmt.Errorf("%w: %s is another one", ErrPrepared, markerFile), err)
	}
	if err := removeOrphanedMarkers(meta); err != nil {
		return err
	}
	// A name of its own, because daemons of other nodes may write the same marker now. One that
	// loses its file to removeOrphanedMarkers of another finds nothing to rename, and tries again.
	aside := markerAside + rand.Text()
	fd, err := createFile(meta, aside, text)
	if err != nil {
		return errors.Join(wrap("writing "+aside, err), remove(meta, aside, 0))
	}
	defer unix.Close(fd)
	s.pool.crashPoint("marker written")
	if err := fsync(fd); err != nil {
		return errors.Join(wrap("fsync of "+aside, err), remove(meta, aside, 0))
	}
	if err := openat.Retry(func() error { return unix.Renameat(meta, aside, meta, markerFile) }); err != nil {
		return errors.Join(wrap("naming "+markerFile, err), remove(meta, aside, 0))
	}
	s.pool.crashPoint("marker named")
	return wrap("fsync of "+metaDir, fsync(meta))
}

// markerAside begins the name of a marker that has not its final name yet.
const markerAside = markerFile + ".new."

func removeOrphanedMarkers(meta int) error {
	fd, err := openDir(meta, ".") // a position of its own
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	all, err := names(fd)
	for _, name := range all {
		if strings.HasPrefix(name, markerAside) {
			err = errors.Join(err, remove(meta, name, 0))
		}
	}
	return err
}

func (s *session) sameMarker(meta int, marker []byte) error {
	text, err := readFile(meta, markerFile, record.MaxSize)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrPrepared, markerFile, err)
	case !bytes.Equal(text, marker):
		return fmt.Errorf("%w: %s is another one", ErrPrepared, markerFile)
	default:
		return nil
	}
}

// writeMarker: the marker comes last, so that a pool that has it has everything.
func (s *session) writeMarker(meta int, marker []byte) error {
	fd, err := writeNew(meta, markerFile+".new", marker)
	if err != nil {
		return wrap("writing "+markerFile, err)
	}
	defer unix.Close(fd)
	if err := errors.Join(fsync(fd), fsync(meta)); err != nil {
		return wrap("fsync of "+markerFile, err)
	}
	s.pool.crashPoint("marker written")
	err = moveOut(meta, markerFile+".new", meta, markerFile)
	if errors.Is(err, unix.EEXIST) { // the same one, as sameMarker saw
		err = remove(meta, markerFile+".new", 0)
	}
	s.pool.crashPoint("marker named")
	if err := errors.Join(err, fsync(meta)); err != nil {
		return wrap("naming "+markerFile, err)
	}
	return s.sync("")
}
