package volume

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// Relabelling says what labels are wanted.
type Relabelling struct {
	Want   selinux.Want
	DryRun bool
	// Progress is told after each entry, and before what is in it, how far the work is. It may be
	// nil.
	Progress func(Relabelled)
}

// Visited says what a walk through a volume's files did, or in a dry run would do.
type Visited struct {
	Seen    int // entries, with the volume's own directory
	Changed int // of them, those that were not as they should be
	Mounts  int // places where something is mounted, which were not entered
	Rest        // what could not be changed
}

// Relabelled says what became of labels.
type Relabelled struct{ Visited }

// Add sums two results up.
func (r *Relabelled) Add(other Relabelled) {
	r.Seen += other.Seen
	r.Changed += other.Changed
	r.Mounts += other.Mounts
	r.Left += other.Left
	r.Paths = append(r.Paths, other.Paths[:min(len(other.Paths), leftMax-min(len(r.Paths), leftMax))]...)
}

// Err is ErrUnlabelled, with what was left, or nil.
func (r Relabelled) Err() error {
	if r.Left == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d relabelled, %v", ErrUnlabelled, r.Changed, r.Rest)
}

// Relabel gives a recorded volume, wherever it is, and everything in it the wanted label. It works
// beneath descriptors, follows no link and enters no mount. What fits already is only looked at: a
// call that was cut off (ctx ends it between two entries) is simply made again.
//
// It does not wait for other calls: a volume that is moved to the trash meanwhile is relabelled
// there.
func (p *Pool) Relabel(ctx context.Context, id mounts.Identity, pv string, o Relabelling) (done Relabelled, err error) {
	err = p.beside(ctx, id, "relabelling", pv, func(s *session) error {
		r, place, err := s.find(pv)
		if err != nil {
			return err
		}
		dir, name, err := s.at(r, place)
		if err != nil {
			return err
		}
		fd, err := openDir(dir, name)
		if err != nil {
			return fmt.Errorf("directory %q: %w", name, err)
		}
		defer unix.Close(fd)
		w := relabeller{o: o}
		w.o.Want = o.Want.For(r.Source)
		err = tree.Walk(ctx, fd, ".", w.visit)
		done = w.done
		return err
	})
	return done, err
}

// at is where a volume's directory is.
func (s *session) at(r record.Record, place record.Place) (dir int, name string, err error) {
	switch place {
	case record.InPool:
		return s.root, r.Directory, nil
	case record.InTrash:
		dir, err = s.dir(trashDir)
		return dir, r.PV, err
	case record.InArchive:
		dir, err = s.dir(archiveDir)
		return dir, r.Directory, err
	default: // half made, and made again with the right label, or half removed
		return -1, "", wrongPlace(place)
	}
}

// RelabelOwn gives the pool's own directory, and what the daemon keeps in it, the label of pools.
// What lies in staging, trash and archive are volumes, and not looked at.
func (p *Pool) RelabelOwn(ctx context.Context, id mounts.Identity, o Relabelling) (Relabelled, error) {
	w := relabeller{o: o}
	err := p.with(ctx, id, "relabelling the pool", w.own)
	return w.done, err
}

// own relabels the daemon's directories and what they have, but no volume.
func (w *relabeller) own(s *session) error {
	all := []string{".", metaDir, metaDir + "/" + stagingDir, metaDir + "/" + trashDir, metaDir + "/" + archiveDir, metaDir + "/" + volumesDir, hostcheck.MarkerPath}
	if err := w.each(s.root, "", all); err != nil {
		return err
	}
	fd, err := openDir(s.root, metaDir+"/"+volumesDir)
	if err != nil {
		return nil // counted above, unless there is none
	}
	defer unix.Close(fd)
	records, err := names(fd)
	return errors.Join(w.each(fd, metaDir+"/"+volumesDir, records), err)
}

// each relabels some entries of a directory, which is at the path.
func (w *relabeller) each(dir int, at string, names []string) error {
	for _, name := range names {
		if _, err := w.entry(dir, name, func() string { return path.Join(at, name) }); err != nil {
			return err
		}
	}
	return nil
}

// Mislabelled is a volume whose own directory has a label that does not fit.
type Mislabelled struct{ PV, Label string }

// Labels looks at the directories of all volumes in the pool, not at what is in them, and returns
// how many there are and which do not fit.
func (p *Pool) Labels(ctx context.Context, id mounts.Identity, want selinux.Want) (seen int, wrong []Mislabelled, err error) {
	err = p.with(ctx, id, "reading labels", func(s *session) error {
		inventory, err := s.list(ctx)
		if err != nil {
			return err
		}
		for _, v := range inventory.Volumes {
			if v.Place != record.InPool || ctx.Err() != nil {
				continue
			}
			fd, err := s.volumeDir(v.Directory)
			if err != nil {
				continue // removed meanwhile, or a mount: the volumes command says so
			}
			label, err := selinux.Of(fd)
			unix.Close(fd)
			if err != nil {
				return fmt.Errorf("volume %q: %w", v.PV, err)
			}
			seen++
			if !want.For(v.Source).Fits(label) {
				wrong = append(wrong, Mislabelled{v.PV, label})
			}
		}
		return ctx.Err()
	})
	return seen, wrong, err
}

// relabeller relabels what package tree walks, which says what is refused. It opens each entry for
// its label alone:
//
//	links out of the volume    O_NOFOLLOW, RESOLVE_NO_SYMLINKS: the link itself is relabelled   TestRelabel
//	hard links                 the file is relabelled; a volume is one filesystem, and its owner's
//	mounts inside              RESOLVE_NO_XDEV: counted                                         TestRelabel
//	devices and FIFOs          O_PATH: relabelled without being opened                          TestRelabel
//	trees of any depth         package tree goes back by ".."                                   TestRelabelDeep
type relabeller struct {
	o    Relabelling
	done Relabelled
}

// visit relabels one entry; a directory is entered.
func (w *relabeller) visit(at tree.Entry) (tree.Leave, error) {
	directory, err := w.entry(at.Dir, at.Name, at.Path)
	if err == nil && w.o.Progress != nil {
		w.o.Progress(w.done)
	}
	if err != nil || !directory {
		return nil, err
	}
	return w.done.leave, nil
}

// leave counts a directory that was not walked to its end, unless its owner replaced it meanwhile.
func (d *Visited) leave(at tree.Entry, _ int, err error) (again bool, stop error) {
	if !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		d.skip(at.Path, err)
	}
	return false, nil
}

// skip counts what was not opened, unless it was removed meanwhile.
func (d *Visited) skip(path func() string, err error) {
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
	case errors.Is(err, unix.EXDEV):
		d.Mounts++
	default:
		d.add(path, err)
	}
}

// entry relabels an entry of a directory, whatever it is. An error means that nothing can be
// relabelled.
func (w *relabeller) entry(dir int, name string, path func() string) (directory bool, err error) {
	fd, err := openat.Open(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0, beneath)
	if err != nil {
		w.done.skip(path, err)
		return false, nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		w.done.add(path, err)
		return false, nil
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, w.label(fd, path)
}

// label gives one inode its label, if it has not got it.
func (w *relabeller) label(fd int, path func() string) error {
	w.done.Seen++
	label, err := selinux.Of(fd)
	if err == nil && !w.o.Want.Fits(label) {
		if !w.o.DryRun {
			err = selinux.Set(fd, w.o.Want.Mended(label))
		}
		if err == nil {
			w.done.Changed++
		}
	}
	if errors.Is(err, selinux.ErrNoLabels) {
		return err
	}
	if err != nil {
		w.done.add(path, err)
	}
	return nil
}

const (
	// leftMax is how many paths of what is left are kept for the message.
	leftMax = 5
	// pathMax is how much is said of a path within a volume, in bytes. Its owner may make it of any
	// length.
	pathMax = 160
)

// Rest is what of a volume could not be removed, or relabelled.
type Rest struct {
	Left  int      // entries
	Paths []string // the first few of them, relative to the volume, quoted, with the reason
}

// add counts an entry. Its path is asked for only if it is kept.
func (r *Rest) add(path func() string, err error) {
	r.Left++
	if len(r.Paths) < leftMax {
		r.Paths = append(r.Paths, fmt.Sprintf(`"%s": %v`, words.Ends(path(), pathMax), err))
	}
}

// String is the number and the first paths: "2 left: ...".
func (r Rest) String() string {
	more := ""
	if n := r.Left - len(r.Paths); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%d left: %s%s", r.Left, strings.Join(r.Paths, ", "), more)
}
