package volume

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/tree"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/progress"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// Applied says what was done to give a volume that has files a limit.
type Applied struct {
	Visited
	// Special are links, FIFOs, sockets and devices, which can have no project and take no space but
	// an inode.
	Special int
}

// Errors of Apply.
var (
	// ErrApplying: another process gives volumes of the pool their limits.
	ErrApplying = errors.New("another process gives volumes of this pool their limits")
	// ErrUncounted: Apply could not give everything the volume's project; Applied has what is left.
	ErrUncounted = errors.New("not everything is counted to the volume")
	// ErrNoSize: the volume's record has no size.
	ErrNoSize = errors.New("the record has no size")
)

// Err is ErrUncounted, with what was left, or nil.
func (a Applied) Err() error {
	if a.Left == 0 {
		return nil
	}
	return fmt.Errorf("%w: %v", ErrUncounted, a.Rest)
}

// Apply gives a volume in the pool that has no limit one: its record gets a project, then all its
// files, and then the project gets the limit. It takes as long as there are files. Pods may use the
// volume meanwhile; a rename between two of its directories can be EXDEV for that long, as between
// filesystems.
//
//	record named   the record has a project that nothing uses: Apply goes on with it
//	walked         files are counted, some or all of them, and nothing is limited: the same
//	quota set      done
//
// The running daemon gives projects from the first one on, and Apply from the last one downwards:
// so the two give none twice as long as the range has room. work, which may be nil, counts what was
// visited.
func (p *Pool) Apply(ctx context.Context, id mounts.Identity, pv string, work *progress.Work) (
	done Applied, err error) {
	err = p.beside(ctx, id, "limiting", pv, func(s *session) error {
		if err := s.only(); err != nil {
			return err
		}
		r, err := s.nameProject(ctx, pv)
		if err != nil {
			return err
		}
		dir, err := openDir(s.root, r.Directory)
		if err != nil {
			return fmt.Errorf("directory %q: %w", r.Directory, err)
		}
		defer unix.Close(dir)
		w := projector{ctx: ctx, work: work, project: r.ProjectID}
		err = tree.Walk(ctx, dir, ".", w.visit)
		if done = w.done; err != nil {
			return err
		}
		s.pool.crashPoint("walked")
		return s.finishApply(ctx, dir, r)
	})
	return done, err
}

// finishApply sets the limit, by the record of now: the daemon may have made the volume larger
// while it was walked, or removed it, and given its project away.
func (s *session) finishApply(ctx context.Context, dir int, was record.Record) error {
	if err := s.exclude(ctx); err != nil {
		return err
	}
	defer s.admit()
	now, err := s.load(was.PV)
	switch {
	case err != nil:
		return err
	case now.ProjectID != was.ProjectID:
		return fmt.Errorf("%w: its record has another project now", ErrConflict)
	}
	return s.limit(dir, now, max(now.Requested, now.Promised))
}

// only keeps a second process out for as long as the session lasts: the kernel ends the lock with
// the process.
func (s *session) only() error {
	staging, err := s.dir(stagingDir)
	if err != nil {
		return err
	}
	err = openat.Retry(func() error { return unix.Flock(staging, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrApplying
	}
	return wrap("locking "+stagingDir, err)
}

// nameProject returns the record of a volume with the project that it has, or gets.
func (s *session) nameProject(ctx context.Context, pv string) (r record.Record, err error) {
	if s.quotas == nil {
		return r, fmt.Errorf("%w: the pool has no project quota", ErrNoQuota)
	}
	if err := s.exclude(ctx); err != nil {
		return r, err
	}
	defer s.admit()
	r, err = s.inPool(pv)
	switch {
	case err != nil:
		return r, err
	case max(r.Requested, r.Promised) <= 0:
		return r, ErrNoSize
	case r.ProjectID != 0:
		return r, nil
	}
	if r.ProjectID, err = s.lastFree(); err != nil {
		return r, err
	}
	return r, s.rewrite(r)
}

// lastFree returns the highest project of the range that no record, file or limit has.
func (s *session) lastFree() (uint32, error) {
	all, err := s.projects(context.Background())
	if err != nil {
		return 0, err
	}
	r := recorded{}
	if err := s.readProjects(&r); err != nil {
		return 0, err
	}
	taken := map[uint32]bool{}
	if s.quotas.Named != nil {
		taken = s.quotas.Named()
	}
	for _, u := range all {
		taken[u.ID] = true
	}
	for id := s.quotas.Last; id >= s.quotas.First; id-- {
		if _, held := r.held[id]; !held && !taken[id] {
			return id, nil
		}
	}
	return 0, fmt.Errorf("%w: %d to %d", ErrNoProject, s.quotas.First, s.quotas.Last)
}

// projector gives what package tree walks, which says what is refused, a project. A directory hands
// it down before its entries are visited, so that what is made meanwhile has it.
type projector struct {
	ctx     context.Context
	work    *progress.Work
	leases  openat.Leases
	project uint32
	done    Applied
}

func (w *projector) visit(at tree.Entry) (tree.Leave, error) {
	w.done.Seen++
	w.work.Add(1, 0)
	fd, err := w.leases.Open(w.ctx.Err, func() (int, error) { return openPlain(at.Dir, at.Name) })
	if errors.Is(err, errNotAFile) {
		w.done.Special++
		return nil, w.ctx.Err()
	}
	if err != nil {
		w.done.skip(at.Path, err)
		return nil, w.ctx.Err()
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		w.done.skip(at.Path, err)
		return nil, nil
	}
	directory := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if want := (quota.Project{ID: w.project, Inherits: directory}); quota.ProjectOf(fd) != want {
		if err := quota.SetProject(fd, want); err != nil {
			w.done.skip(at.Path, err)
			return nil, nil
		}
		w.done.Changed++
	}
	if !directory {
		return nil, nil
	}
	return w.done.leave, nil
}
