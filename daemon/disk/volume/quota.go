package volume

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// cephQuota is the attribute that limits a directory of CephFS: bytes as decimal digits, 0 for no
// limit (docs.ceph.com, CephFS quotas).
const cephQuota = "ceph.quota.max_bytes"

// limit sets or changes the limit of a volume's directory, in bytes; 0 or less changes nothing. A
// volume that has a project is limited by that, every other one as CephFS does it. It can be
// repeated.
func (s *session) limit(dir int, r record.Record, bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	err := error(nil)
	if r.ProjectID != 0 {
		err = s.limitProject(r.ProjectID, bytes)
	} else {
		err = limitCeph(dir, bytes)
	}
	s.pool.crashPoint("quota set")
	return err
}

func limitCeph(dir int, bytes int64) error {
	err := openat.Retry(func() error {
		return unix.Fsetxattr(dir, cephQuota, []byte(strconv.FormatInt(bytes, 10)), 0)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: setting %s: %w", ErrNoQuota, cephQuota, err)
	}
	return wrap("setting "+cephQuota, err)
}

func (s *session) limitProject(id uint32, bytes int64) error {
	of := s.quotas
	if of == nil {
		return fmt.Errorf("%w: the volume has project %d, and the pool no project quotas (quota)", ErrNoQuota, id)
	}
	return s.setLimit(id, of.limitOf(bytes))
}

func (s *session) setLimit(id uint32, l quota.Limit) error {
	err := s.quotas.Kernel.Set(s.root, id, l)
	return wrap(fmt.Sprintf("setting the limit of project %d", id), err)
}

// limitOf is the limit of a volume of this size. A part of a GiB has its share of the inodes; the
// volume's own directory and one file are allowed beside that.
func (q *ProjectQuotas) limitOf(bytes int64) quota.Limit {
	const block, gib = 512, 1 << 30
	l := quota.Limit{Bytes: (uint64(bytes) + block - 1) / block * block}
	if q.InodesPerGiB > 0 {
		l.Inodes = l.Bytes/gib*q.InodesPerGiB + l.Bytes%gib*q.InodesPerGiB/gib + 2
	}
	return l
}

// limitCopy gives a copy that is being made its limit, and a project some more until it is whole
// (prepareCopy): xfs refuses what could take the rest of a limit, 190 KiB of it and more, there is
// a directory of our own in it, and in a paused copy also what was copied before and changed.
func (s *session) limitCopy(dir int, spec Spec) error {
	if spec.ProjectID == 0 || spec.Quota <= 0 {
		return s.limitAsRecorded(dir, spec.Record, spec.Quota)
	}
	const bytes, inodes, part = 4 << 20, 64, 64
	l := s.quotas.limitOf(spec.Quota)
	if spec.Pause != nil {
		l.Bytes, l.Inodes = 2*l.Bytes, 2*l.Inodes
	}
	l.Bytes += bytes + l.Bytes/part
	if l.Inodes > 0 {
		l.Inodes += inodes + l.Inodes/part
	}
	err := s.setLimit(spec.ProjectID, l)
	s.pool.crashPoint("quota set")
	return err
}

// What is renamed into a directory that hands its project down must have that project already:
// rename(2) says EXDEV else, as for another filesystem (xfs_rename, ext4_rename). Administrators
// set projects on a pool for a limit of the whole, or on a volume for a limit of its own; so can
// the owner of a volume's directory.

// inherit gives a directory that was made in staging the project that it would have if it had been
// made in the pool itself.
func (s *session) inherit(dir int) error {
	of := quota.ProjectOf(s.root)
	if !of.Inherits {
		of = quota.Project{}
	}
	if quota.ProjectOf(dir) == of {
		return nil
	}
	err := quota.SetProject(dir, of)
	s.pool.crashPoint("project set")
	return wrap("setting the project", err)
}

// unkept moves a volume's directory, also where a pod has made that immutable, through a descriptor
// that it had open for instance.
func unkept(move func(from int, name string, to int, newName string) error,
	from int, name string, to int, newName string) error {
	err := move(from, name, to, newName)
	if kept(err) {
		unflag(from, name)
		err = move(from, name, to, newName)
	}
	return err
}

// moveOut is move into a directory of our own, or into one that is being emptied. That one's
// project limits no volume: it is handed down no more, and what comes keeps its own.
func moveOut(from int, name string, to int, newName string) error {
	err := move(from, name, to, newName)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	of := quota.ProjectOf(to)
	if !of.Inherits || quota.SetProject(to, quota.Project{ID: of.ID}) != nil {
		return err
	}
	return move(from, name, to, newName)
}

// moveBack is move of a volume's directory into the pool. If it has another project than the pool
// hands down, it has the pool's for the moment of the rename. A crash in that moment leaves it with
// the pool's: its files keep theirs, and the administrator sets the directory's again.
func moveBack(from int, name string, root int, newName string) error {
	err := move(from, name, root, newName)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	fd, openErr := openDir(from, name)
	if openErr != nil {
		return err
	}
	defer unix.Close(fd)
	own, pools := quota.ProjectOf(fd), quota.ProjectOf(root)
	if !pools.Inherits || own.ID == pools.ID {
		return err
	}
	if err := quota.SetProject(fd, quota.Project{ID: pools.ID, Inherits: own.Inherits}); err != nil {
		return wrap("setting the project", err)
	}
	err = move(from, name, root, newName)
	return errors.Join(err, wrap("setting the project back", quota.SetProject(fd, own)))
}
