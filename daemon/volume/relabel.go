package volume

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// Relabelling says what labels are wanted.
type Relabelling struct {
	Want   selinux.Want
	DryRun bool
	// Progress is told, after each directory, how far the work is. It may be nil.
	Progress func(Relabelled)
}

// Relabelled says what was done, or in a dry run would be.
type Relabelled struct {
	Seen    int      // entries, with the volume's own directory
	Changed int      // of them, those whose label did not fit
	Mounts  int      // places where something is mounted, which were not entered
	Left    int      // entries that could not be changed
	Paths   []string // the first few of them, relative to the volume, quoted, with the reason
}

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
	more := ""
	if n := r.Left - len(r.Paths); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("%w: %d relabelled, %d left: %s%s", ErrUnlabelled, r.Changed, r.Left, strings.Join(r.Paths, ", "), more)
}

// Relabel gives a recorded volume, wherever it is, and everything in it the wanted label. It works
// beneath descriptors, follows no link and enters no mount. What fits already is only looked at: a
// call that was cut off (ctx ends it between two directories) is simply made again.
//
// It does not wait for other calls: a volume that is moved to the trash meanwhile is relabelled there.
func (p *Pool) Relabel(ctx context.Context, id mounts.Identity, pv string, o Relabelling) (done Relabelled, err error) {
	err = p.about(pv, func() error {
		if err := record.CheckPV(pv); err != nil {
			return err
		}
		s, err := p.begin(ctx, id, "relabelling volume "+pv)
		if err != nil {
			return err
		}
		defer s.end()
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
		w := relabeller{ctx: ctx, o: o}
		err = w.tree(fd)
		done = w.done
		return err
	}())
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
	s, err := p.begin(ctx, id, "relabelling the pool")
	if err != nil {
		return Relabelled{}, fmt.Errorf("pool %q: %w", p.name, err)
	}
	defer s.end()
	w := relabeller{ctx: ctx, o: o}
	own := func(dir int, name, at string) { w.with(dir, name, at, func(fd int) { w.label(fd, at) }) }
	w.label(s.root, ".")
	for _, name := range []string{metaDir, metaDir + "/" + stagingDir, metaDir + "/" + trashDir, metaDir + "/" + archiveDir, metaDir + "/" + volumesDir, hostcheck.MarkerPath} {
		own(s.root, name, name)
	}
	if fd, err := openDir(s.root, metaDir+"/"+volumesDir); err == nil {
		defer unix.Close(fd)
		records, err := names(fd)
		for _, name := range records {
			own(fd, name, path.Join(metaDir, volumesDir, name))
		}
		w.stopped = errors.Join(w.stopped, err)
	}
	if w.stopped != nil {
		return w.done, fmt.Errorf("pool %q: %w", p.name, w.stopped)
	}
	return w.done, nil
}

// Mislabelled is a volume whose own directory has a label that does not fit.
type Mislabelled struct{ PV, Label string }

// Labels looks at the directories of all volumes in the pool, not at what is in them, and returns how
// many there are and which do not fit.
func (p *Pool) Labels(ctx context.Context, id mounts.Identity, want selinux.Want) (seen int, wrong []Mislabelled, err error) {
	s, err := p.begin(ctx, id, "reading labels")
	if err != nil {
		return 0, nil, fmt.Errorf("pool %q: %w", p.name, err)
	}
	defer s.end()
	inventory, err := s.list(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("pool %q: %w", p.name, err)
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
			return seen, wrong, p.about(v.PV, err)
		}
		seen++
		if !want.Fits(label) {
			wrong = append(wrong, Mislabelled{v.PV, label})
		}
	}
	return seen, wrong, ctx.Err()
}

// relabeller walks one volume. However deep its owner made the tree, it holds two directories open:
// it goes up through "..", and makes sure that it came back to where it was.
type relabeller struct {
	ctx     context.Context
	o       Relabelling
	done    Relabelled
	stopped error

	fd    int     // the directory that is worked in
	stack []level // the way to it
}

// level is a directory on the way down, with the directories in it that are still to be entered.
type level struct {
	identity mounts.Identity
	path     string
	dirs     []string
}

// tree relabels a directory, open at fd, which it closes, and everything below it.
func (w *relabeller) tree(fd int) error {
	w.fd = fd
	defer func() { unix.Close(w.fd) }()
	err := w.enter("")
	for err == nil && len(w.stack) > 0 {
		if err = errors.Join(w.stopped, w.ctx.Err()); err == nil {
			err = w.next()
		}
	}
	return err
}

// enter does the directory that was just opened, and leaves those in it for later.
func (w *relabeller) enter(at string) error {
	id, err := mounts.IdentityOf(w.fd)
	if err == nil {
		w.stack = append(w.stack, level{id, at, w.directory(w.fd, at)})
	}
	return err
}

// next goes down to the next directory, or up if there is none.
func (w *relabeller) next() error {
	top := &w.stack[len(w.stack)-1]
	if len(top.dirs) > 0 {
		at := path.Join(top.path, top.dirs[0])
		below, ok := w.down(w.fd, top.dirs[0], at)
		top.dirs = top.dirs[1:]
		if !ok {
			return nil
		}
		w.work(below)
		return w.enter(at)
	}
	w.stack = w.stack[:len(w.stack)-1]
	if len(w.stack) == 0 {
		return nil
	}
	above, err := w.up(w.fd, w.stack[len(w.stack)-1])
	if err == nil {
		w.work(above)
	}
	return err
}

// work goes on in another directory.
func (w *relabeller) work(fd int) {
	unix.Close(w.fd)
	w.fd = fd
}

// down opens a directory that was seen in the one that is open at fd.
func (w *relabeller) down(fd int, name, at string) (int, bool) {
	below, err := openDir(fd, name)
	switch {
	case err == nil:
		return below, true
	case errors.Is(err, unix.EXDEV):
		w.done.Mounts++
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		// Its owner removed or replaced it meanwhile.
	default:
		w.left(at, err)
	}
	return -1, false
}

// up opens the directory above, which may be another one if the tree was moved meanwhile.
func (w *relabeller) up(fd int, to level) (int, error) {
	above, err := openat.Open(fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_XDEV)
	if err != nil {
		return -1, fmt.Errorf("going back to %q: %w", to.path, err)
	}
	id, err := mounts.IdentityOf(above)
	if err == nil && id != to.identity {
		err = fmt.Errorf("going back to %q: %w", to.path, errMovedInside)
	}
	if err != nil {
		unix.Close(above)
		return -1, err
	}
	return above, nil
}

var errMovedInside = errors.New("directories of the volume were moved meanwhile")

// directory relabels a directory and what is in it, and returns the directories among that.
func (w *relabeller) directory(fd int, at string) (dirs []string) {
	w.label(fd, at)
	// A descriptor of its own for reading: a position belongs to the open file.
	all, err := names(fd)
	if err != nil {
		w.left(at, err)
	}
	for _, name := range all {
		if w.stopped != nil {
			return nil
		}
		if w.entry(fd, name, path.Join(at, name)) {
			dirs = append(dirs, name)
		}
	}
	if w.o.Progress != nil {
		w.o.Progress(w.done)
	}
	return dirs
}

// entry relabels an entry that is no directory; for a directory it returns true, and leaves it to directory.
func (w *relabeller) entry(dir int, name, at string) (isDir bool) {
	w.with(dir, name, at, func(fd int) {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			w.left(at, err)
			return
		}
		if isDir = st.Mode&unix.S_IFMT == unix.S_IFDIR; !isDir {
			w.label(fd, at)
		}
	})
	return isDir
}

// with opens an entry, whatever it is, for its label alone: a FIFO or a device is not woken.
func (w *relabeller) with(dir int, name, at string, do func(fd int)) {
	fd, err := openat.Open(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0, beneath)
	switch {
	case err == nil:
		defer unix.Close(fd)
		do(fd)
	case errors.Is(err, unix.EXDEV):
		w.done.Mounts++
	case !errors.Is(err, unix.ENOENT):
		w.left(at, err)
	}
}

// label gives one inode its label, if it has not got it.
func (w *relabeller) label(fd int, at string) {
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
	switch {
	case errors.Is(err, selinux.ErrNoLabels):
		w.stopped = err
	case err != nil:
		w.left(at, err)
	}
}

func (w *relabeller) left(at string, err error) {
	w.done.Left++
	if len(w.done.Paths) < leftMax {
		w.done.Paths = append(w.done.Paths, fmt.Sprintf("%q: %v", at, err))
	}
}
