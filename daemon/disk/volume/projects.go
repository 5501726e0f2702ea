package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/keylock"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// A volume that is limited by a project quota has a project of its own: a number of the pool's
// range that no other file, limit or record has. The number is in the record before anything on the
// disk has it, and then:
//
//	project set    staging/<pv> has the number and hands it down: no other volume is given it, and what was given it
//	               by another process at the same moment is seen now (alone)
//	quota set      the project has its limit; what is written from here on is counted and limited
//	renamed        the volume is seen, limited from its first byte on
//	removed        the directory is gone: the limit is cleared, then the record goes
//
// A limit is changed only while the volume's directory, or its record, holds the number. What a
// crash leaves is found by the same two: a directory in staging has the number that its limit has
// (dropStaged), and a record without a directory names a number whose limit is cleared if no file
// has it (release). So neither a number nor a limit is lost, and none is taken from its owner
// (TestProjectCrash; test/vm kills the daemon where limits are real).

// QuotaKernel makes the calls for the filesystem of a pool's directory, which is open at root
// (package quota).
type QuotaKernel interface {
	Get(root int, id uint32) (quota.Usage, error)
	Set(root int, id uint32, l quota.Limit) error
	// From returns what the filesystem knows of projects, in their order, from an id on; none at
	// the end.
	From(root int, id uint32) ([]quota.Usage, error)
}

// ProjectQuotas says how the volumes of a pool are limited by project quotas.
type ProjectQuotas struct {
	Kernel       QuotaKernel
	First, Last  uint32 // the projects that volumes may be given
	InodesPerGiB uint64 // of a volume's size; 0 limits no inodes
	// Named are the projects that the host has names for, which volumes are not given; nil for
	// none.
	Named func() map[uint32]bool
	// Begun has the projects of volumes that are being made, of all pools of this process.
	Begun *BegunProjects
}

// ErrNoProject: each project of the pool's range is used.
var ErrNoProject = errors.New("no project of the range is free")

// BegunProjects are the projects that volumes of one process are about to have. Until the directory
// has its project nothing on the disk tells two pools of one filesystem that it is taken. The zero
// value is ready.
type BegunProjects struct{ keylock.Locks }

// recorded are the projects that a pool's records have, read once for each filesystem that is
// mounted there.
type recorded struct {
	mu      sync.Mutex
	id      mounts.Identity
	held    map[uint32]record.Record // which volume has a project
	foreign map[uint32]time.Time     // seen in use without a record, and when
	first   uint32                   // where the range begins
	lowest  uint32                   // all projects of the range below it are held
}

// foreignFor is how long a project that something else uses is not looked at again.
const foreignFor = time.Minute

// assign gives a volume that is to be limited its project. It is the volume's alone until done is
// called, which gives it back unless kept is true.
func (s *session) assign(spec *Spec) (done func(kept bool), err error) {
	of := s.quotas
	switch {
	case !spec.Project:
		return func(bool) {}, nil
	case of == nil:
		return nil, fmt.Errorf("%w: the pool has no project quota", ErrNoQuota)
	}
	r := &s.pool.recorded
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := s.readProjects(r); err != nil {
		return nil, wrap("reading which projects are taken", err)
	}
	r.rangeFrom(of.First)
	named := map[uint32]bool{}
	if of.Named != nil {
		named = of.Named()
	}
	for id := max(r.lowest, of.First); id <= of.Last; id++ {
		if _, held := r.held[id]; held || named[id] || time.Since(r.foreign[id]) < foreignFor {
			continue
		}
		done, free, err := s.tryProject(id)
		if err != nil {
			return nil, fmt.Errorf("asking for project %d: %w", id, err)
		}
		if !free {
			if err := s.passForeign(r, id); err != nil {
				return nil, fmt.Errorf("asking for projects from %d on: %w", id, err)
			}
			continue
		}
		delete(r.foreign, id)
		spec.ProjectID = id
		r.hold(spec.Record, named)
		return func(kept bool) {
			done()
			if !kept {
				r.forget(id)
			}
		}, nil
	}
	return nil, fmt.Errorf("%w: of %d to %d volumes have %d, and other files, limits or names the rest", ErrNoProject, of.First, of.Last, of.among(r.held))
}

// passForeign notes that something else uses a project, and which of those after it are used: the
// owners of files can give them any project, and each one that is asked for alone is a request.
func (s *session) passForeign(r *recorded, id uint32) error {
	r.foreign[id] = time.Now()
	some, err := s.quotas.Kernel.From(s.root, id)
	for _, u := range some {
		if _, held := r.held[u.ID]; !held && u.ID <= s.quotas.Last {
			r.foreign[u.ID] = time.Now()
		}
	}
	return err
}

// tryProject reports whether a project is free, and begins it.
func (s *session) tryProject(id uint32) (done func(), free bool, err error) {
	done, free = s.quotas.Begun.Try(fmt.Sprint(s.id.DevMajor, s.id.DevMinor, id))
	if !free {
		return nil, false, nil
	}
	u, err := s.quotas.Kernel.Get(s.root, id)
	if err != nil || !u.Free() {
		done()
		return nil, false, err
	}
	return done, true, nil
}

// readProjects reads the records of a filesystem that was not mounted here before.
func (s *session) readProjects(r *recorded) error {
	if r.held != nil && r.id == s.id {
		return nil
	}
	inventory, err := s.list(context.Background())
	if err != nil {
		return err
	}
	r.id, r.held, r.foreign, r.lowest = s.id, map[uint32]record.Record{}, map[uint32]time.Time{}, 0
	for _, all := range [][]record.Record{inventory.Volumes, inventory.Archived} {
		for _, one := range all {
			if one.ProjectID != 0 {
				r.held[one.ProjectID] = one
			}
		}
	}
	return nil
}

// rangeFrom says where the range begins: a reload may have given it another beginning.
func (r *recorded) rangeFrom(first uint32) {
	if r.first != first {
		r.first, r.lowest = first, 0
	}
}

func (r *recorded) hold(of record.Record, named map[uint32]bool) {
	r.held[of.ProjectID] = of
	if len(r.foreign) == 0 && len(named) == 0 {
		r.lowest = of.ProjectID // all below were held, or it would be one of them
	}
}

// forget is of a project that no record has any more.
func (r *recorded) forget(id uint32) {
	if id == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, id)
	r.lowest = min(r.lowest, id)
}

// project gives a directory that was made in staging its project: the volume's own, or else the one
// that it would have if it had been made in the pool itself.
func (s *session) project(dir int, r record.Record) error {
	if r.ProjectID == 0 {
		return s.inherit(dir)
	}
	err := quota.SetProject(dir, quota.Project{ID: r.ProjectID, Inherits: true})
	s.pool.crashPoint("project set")
	if err == nil {
		err = s.alone(dir, r.ProjectID)
	}
	return wrap(fmt.Sprintf("setting project %d", r.ProjectID), err)
}

// errTaken: another process gave the project away at the same moment.
var errTaken = errors.New("something else has had it since it was free")

// alone makes sure that a directory is all that has its project, and takes it back if not: another
// daemon of the host, with a pool of its own on the filesystem, may have seen that it is free at
// the same time. Of two directories at least the later one is seen here, before it has a limit.
func (s *session) alone(dir int, id uint32) error {
	u, err := s.quotas.Kernel.Get(s.root, id)
	if err != nil || u.Inodes <= 1 && u.Limit == (quota.Limit{}) {
		return err
	}
	return errors.Join(errTaken, quota.SetProject(dir, quota.Project{}))
}

// dropStaged removes a directory from staging, and before it the limit of the project that it has,
// unless something else has that project as well.
func (s *session) dropStaged(pv string) error {
	staging, err := s.dir(stagingDir)
	if err != nil {
		return err
	}
	if s.quotas != nil {
		if err := s.clearStaged(staging, pv); err != nil {
			return err
		}
	}
	return remove(staging, pv, unix.AT_REMOVEDIR)
}

func (s *session) clearStaged(staging int, pv string) error {
	fd, err := openDir(staging, pv)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EXDEV) {
		return nil // remove says what it is
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	p := quota.ProjectOf(fd)
	if !p.Inherits || !s.quotas.has(p.ID) {
		return nil
	}
	u, err := s.quotas.Kernel.Get(s.root, p.ID)
	if err != nil || u.Inodes > 1 {
		return wrap(fmt.Sprintf("asking for project %d", p.ID), err)
	}
	return s.clear(p.ID)
}

// among is how many projects of the range are among these.
func (q *ProjectQuotas) among(held map[uint32]record.Record) (n int) {
	for id := range held {
		if q.has(id) {
			n++
		}
	}
	return n
}

func (q *ProjectQuotas) has(id uint32) bool { return id != 0 && q.First <= id && id <= q.Last }

func (s *session) clear(id uint32) error {
	err := s.quotas.Kernel.Set(s.root, id, quota.Limit{})
	s.pool.crashPoint("limit cleared")
	return wrap(fmt.Sprintf("clearing the limit of project %d", id), err)
}

// release clears the limit of a volume whose directory is gone, before its record goes. removed
// says that this call removed it: else the project may be another volume's by now, if a file has
// it. The limit of a project that is not in the range any more may be refused, and stays then.
func (s *session) release(r record.Record, removed bool) error {
	if r.ProjectID == 0 || s.quotas == nil {
		return nil
	}
	if !removed {
		u, err := s.quotas.Kernel.Get(s.root, r.ProjectID)
		if err != nil || u.Inodes > 0 || u.Bytes > 0 {
			return wrap(fmt.Sprintf("asking for project %d", r.ProjectID), err)
		}
	}
	if err := s.clear(r.ProjectID); s.quotas.has(r.ProjectID) {
		return err
	}
	return nil
}
