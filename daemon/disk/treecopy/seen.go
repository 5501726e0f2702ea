package treecopy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Seen is what the passes of one copy know of each other. The zero value is of none.
//
// It knows what each file and directory was copied to, by the inodes: names below a directory that
// was renamed do not change. What has no place there is copied again in each pass.
type Seen struct {
	began  time.Time         // when the last pass did
	clock  clock             // from the first one on
	margin time.Duration     // 0 is that of the package; tests have less to wait for
	copies map[uint64]uint64 // inodes of the source, and of their copies
	both   map[uint64]bool   // copies that have files of more than one directory
	lost   int
	mounts int // that the last one met
	links  *linkStore

	name  string // of the directory in the copy for what was moved aside, "" before it is made
	dir   int
	moved int
	top   unix.Stat_t // how the source's top was
}

// mostCopies is how many inodes are remembered, some 40 bytes each.
const mostCopies = 1_000_000

// margin is how much older than a pass a change time may be that is taken for newer. The clock of
// change times is behind by a tick.
const margin = time.Second

// begin begins a pass.
func (s *Seen) begin() error {
	err := s.clock.start()
	s.began = time.Now()
	return err
}

// since is the oldest change time of what changed after the last pass began.
func (s *Seen) since() unix.Timespec {
	return unix.NsecToTimespec(s.began.Add(-cmp.Or(s.margin, margin)).UnixNano())
}

// version tells apart what a file was in two passes. A change time that is not older than a pass
// may be that of a write after its copy, too, until the clock of change times goes on.
func (s *Seen) version(changed unix.Timespec) string {
	version := fmt.Sprintf("-%d-%d", changed.Sec, changed.Nsec)
	if !older(changed, s.since()) {
		version += fmt.Sprintf("-%d", s.began.UnixNano())
	}
	return version
}

// note notes what an open file or directory was copied to.
func (s *Seen) note(from, to int) error {
	var of, made unix.Stat_t
	if err := errors.Join(unix.Fstat(from, &of), unix.Fstat(to, &made)); err != nil {
		return err
	}
	if s.copies == nil {
		s.copies = map[uint64]uint64{}
	}
	delete(s.copies, of.Ino)
	if len(s.copies) < mostCopies {
		s.copies[of.Ino] = made.Ino
	}
	return nil
}

// isOf reports whether one inode is the copy of another one, and of no other. An inode that was
// another file's before has nothing that is older than the pass.
func (s *Seen) isOf(inode, made uint64) bool {
	copied, is := s.copies[inode]
	return is && copied == made && !s.both[made]
}

// mix notes that a directory of the copy was entered for another one of the source.
func (s *Seen) mix(to int) error {
	var made unix.Stat_t
	if err := unix.Fstat(to, &made); err != nil {
		return err
	}
	if s.both == nil {
		s.both = map[uint64]bool{}
	}
	s.both[made.Ino] = true
	return nil
}

// aside moves an entry of the copy, if it is there, out of the way: to remove it may take long.
// Sweep does.
func (s *Seen) aside(top, dir int, name string) error {
	if s.name == "" {
		if err := s.make(top); err != nil {
			return err
		}
	}
	s.moved++
	err := openat.Retry(func() error {
		return unix.Renameat2(dir, name, s.dir, fmt.Sprint(s.moved), unix.RENAME_NOREPLACE)
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func (s *Seen) make(top int) (err error) {
	name := ".stale-" + rand.Text()
	if err := unix.Mkdirat(top, name, 0o700); err != nil {
		return err
	}
	s.name, s.dir = name, -1
	s.dir, err = openat.Open(top, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, openat.Beneath)
	return err
}

// Close closes what the passes need.
func (s *Seen) Close() {
	s.clock.close()
	if s.links != nil {
		s.links.close()
	}
	s.closeAside()
}

// Sweep removes what the passes moved aside and noted in the copy. It is called when no pass
// follows.
func (s *Seen) Sweep(ctx context.Context, top int, step func() error) error {
	if err := s.links.remove(); err != nil {
		return err
	}
	if err := s.Clear(ctx, top, step); err != nil {
		return err
	}
	return setTimes(top, ".", s.top)
}

// Clear removes what the passes moved aside, also between two.
func (s *Seen) Clear(ctx context.Context, top int, step func() error) error {
	if s.name == "" {
		return nil
	}
	err := tree.Walk(ctx, top, s.name, func(e tree.Entry) (tree.Leave, error) {
		if err := step(); err != nil {
			return nil, err
		}
		return unlink(e)
	})
	if err != nil {
		return fmt.Errorf("removing what was copied again: %w", err)
	}
	s.closeAside()
	s.name = ""
	return nil
}

func (s *Seen) closeAside() {
	if s.name != "" && s.dir >= 0 {
		unix.Close(s.dir)
		s.dir = -1
	}
}

// unlink removes an entry of a walk: a directory when all that is in it was removed.
func unlink(e tree.Entry) (tree.Leave, error) {
	err := unix.Unlinkat(e.Dir, e.Name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return nil, err
	}
	return sweepDirectory, nil
}

func sweepDirectory(e tree.Entry, _ int, err error) (again bool, stop error) {
	if err != nil {
		return false, err
	}
	err = unix.Unlinkat(e.Dir, e.Name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		return true, nil
	}
	return false, err
}
