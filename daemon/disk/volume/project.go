package volume

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

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
