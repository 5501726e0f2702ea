package volume

import (
	"context"
	"maps"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// readingUsage is what a call does that reads what volumes take.
const readingUsage = "reading what volumes take"

// Projects returns the projects of which the pool's filesystem knows something, in their order: of
// those that are not in the pool's range a bounded number. There are none where the pool has no
// project quotas. No file of a volume is looked at.
func (p *Pool) Projects(ctx context.Context, id mounts.Identity) ([]quota.Usage, error) {
	return of(ctx, p, id, readingUsage, func(s *session) ([]quota.Usage, error) {
		all, err := s.projects(ctx)
		return all, wrap(readingUsage, err)
	})
}

// How many projects are read at a time. The owners of files can give them any number of projects,
// which are in no range.
const (
	mostOurs   = 1 << 17 // of the range that volumes have
	mostOthers = 1 << 12 // below it, and above it
)

func (s *session) projects(ctx context.Context) (all []quota.Usage, err error) {
	of := s.quotas
	if of == nil {
		return nil, nil
	}
	for _, part := range []struct {
		first, last uint32
		most        int
	}{
		{0, of.First - 1, mostOthers}, {of.First, of.Last, mostOurs}, {of.Last + 1, math.MaxUint32, mostOthers},
	} {
		some, err := s.projectsOf(ctx, part.first, part.last, part.most)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// projectsOf are the projects from one to another, and not many more than most of them.
func (s *session) projectsOf(ctx context.Context, next, last uint32, most int) (all []quota.Usage, err error) {
	for len(all) < most {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.pool.progress(s.call)
		some, err := s.quotas.Kernel.From(s.root, next)
		for _, u := range some {
			if u.ID <= last {
				all = append(all, u)
			}
		}
		if err != nil || len(some) == 0 || some[len(some)-1].ID >= last {
			return all, err
		}
		next = some[len(some)-1].ID + 1
	}
	return all, nil
}

// Usage returns what the pool's volumes take, by their projects. Volumes without one are not in it.
func (p *Pool) Usage(ctx context.Context, id mounts.Identity) (usage.Pool, error) {
	return of(ctx, p, id, readingUsage, func(s *session) (usage.Pool, error) {
		u, err := s.usage(ctx)
		return u, wrap(readingUsage, err)
	})
}

func (s *session) usage(ctx context.Context) (u usage.Pool, err error) {
	all, err := s.projects(ctx)
	if err != nil || s.quotas == nil {
		return u, err
	}
	owners, err := s.owners()
	if err != nil {
		return u, err
	}
	if slices.ContainsFunc(all, func(u quota.Usage) bool { _, known := owners[u.ID]; return !known && s.quotas.has(u.ID) }) {
		if owners, err = s.learn(); err != nil { // another process may have given a volume its limit (Apply)
			return u, err
		}
	}
	for _, one := range all {
		r, known := owners[one.ID]
		if !known {
			u.Others = append(u.Others, one)
			continue
		}
		u.Used += one.Bytes
		if r.Kind != record.Volume { // a snapshot was full from the start, and an inline volume has no claim to tell
			continue
		}
		u.Volumes = append(u.Volumes, usage.Volume{PV: r.PV, Namespace: r.Namespace, Claim: r.Claim, ClaimUID: r.ClaimUID, Usage: one})
	}
	u.Records = len(owners)
	u.Taken, u.Range = s.quotas.taken(owners, u.Others), int(s.quotas.Last-s.quotas.First)+1
	u.Mixed, err = s.mixed(owners)
	return u, err
}

// taken is how many projects of the range volumes have, or something else.
func (q *ProjectQuotas) taken(owners map[uint32]record.Record, others []quota.Usage) (n int) {
	n = q.among(owners)
	for _, u := range others {
		if q.has(u.ID) {
			n++
		}
	}
	return n
}

// owners are the volumes that have a project, by that.
func (s *session) owners() (map[uint32]record.Record, error) {
	r := &s.pool.recorded
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := s.readProjects(r); err != nil {
		return nil, err
	}
	owners := make(map[uint32]record.Record, len(r.held))
	for id, owner := range r.held {
		owners[id] = owner
	}
	return owners, nil
}

// learn is owners after the records were read anew.
func (s *session) learn() (map[uint32]record.Record, error) {
	var now recorded
	if err := s.readProjects(&now); err != nil {
		return nil, err
	}
	r := &s.pool.recorded
	r.mu.Lock()
	if r.id == now.id {
		maps.Copy(r.held, now.held)
	}
	r.mu.Unlock()
	return s.owners()
}

// mixed reports whether files without a project may be others' than the daemon's own: the pool is
// not the root of its filesystem, or has directories without a project of ours.
func (s *session) mixed(owners map[uint32]record.Record) (bool, error) {
	var root, above unix.Stat_t
	if err := unix.Fstat(s.root, &root); err != nil {
		return false, err
	}
	if err := unix.Fstatat(s.root, "..", &above, 0); err != nil {
		return false, err
	}
	if above.Dev == root.Dev {
		return true, nil
	}
	known := map[string]bool{metaDir: true, "lost+found": true}
	for _, r := range owners {
		known[r.Directory] = true
	}
	all, err := s.names("")
	for name := range all {
		if !known[name] {
			return true, err
		}
	}
	return false, err
}
