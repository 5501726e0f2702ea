package treecopy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// setID are the bits that a confined process may not set (package confine).
const setID = unix.S_ISUID | unix.S_ISGID

// attributes gives a file or directory the owner, mode and extended attributes of another one, in
// that order: chown(2) clears set-id bits and capabilities, and chmod(2) changes the mask of an
// ACL. Times come later. What it has beyond those goes first: it inherits the default ACL of the
// directory that it is made in (TestAgainInheritsNothing).
func (c *copier) attributes(from attributed, to int, st unix.Stat_t) error {
	if err := c.dropXattrs(from, to); err != nil {
		return err
	}
	if err := c.own(unix.Fchown(to, int(st.Uid), int(st.Gid)), st); err != nil {
		return err
	}
	if err := c.mode(to, st.Mode&0o7777); err != nil {
		return fmt.Errorf("setting its mode: %w", err)
	}
	return c.xattrs(from, to)
}

// own counts an owner that was not set. What is made here is root's or the daemon's.
func (c *copier) own(err error, st unix.Stat_t) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	if int(st.Uid) != unix.Geteuid() || int(st.Gid) != unix.Getegid() {
		c.done.Lost++
	}
	return nil
}

// mode sets a mode. Without CAP_FSETID the kernel clears the set-group-ID bit and reports no error
// (chmod(2)).
func (c *copier) mode(to int, mode uint32) error {
	err := unix.Fchmod(to, mode)
	if errors.Is(err, unix.EPERM) && mode&setID != 0 {
		c.done.Lost++
		return unix.Fchmod(to, mode&^setID)
	}
	var st unix.Stat_t
	if err == nil && mode&setID != 0 && unix.Fstat(to, &st) == nil && st.Mode&0o7777 != mode {
		c.done.Lost++
	}
	return err
}

// xattrs copies extended attributes, ACLs among them.
func (c *copier) xattrs(from attributed, to int) error {
	n, err := 0, error(nil)
	err = openat.Retry(func() error { n, err = from.list(c.text); return err })
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && n == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing its attributes: %w", err)
	}
	for name := range bytes.SplitSeq([]byte(strings.TrimSuffix(string(c.text[:n]), "\x00")), []byte{0}) {
		if err := c.xattr(from, to, string(name)); err != nil {
			return fmt.Errorf("copying attribute %.100q: %w", name, err)
		}
	}
	return nil
}

// attributed is what has extended attributes. Those of a descriptor that is open by O_PATH are read
// by its magic link; without a descriptor they were read before.
type attributed struct {
	fd    int
	path  bool
	given []attribute
}

func (a attributed) list(into []byte) (int, error) {
	if a.fd < 0 {
		var names []byte
		for _, one := range a.given {
			names = append(append(names, one.Name...), 0)
		}
		if len(names) > len(into) {
			return 0, unix.ERANGE
		}
		return copy(into, names), nil
	}
	if a.path {
		return unix.Listxattr(descriptor(a.fd), into)
	}
	return unix.Flistxattr(a.fd, into)
}

func (a attributed) get(name string, into []byte) (int, error) {
	if a.fd < 0 {
		for _, one := range a.given {
			if string(one.Name) == name {
				copy(into, one.Value)
				return len(one.Value), nil
			}
		}
		return 0, unix.ENODATA
	}
	if a.path {
		return unix.Getxattr(descriptor(a.fd), name, into)
	}
	return unix.Fgetxattr(a.fd, name, into)
}

// label is not copied: what is made is born with the label of new volumes.
const label = "security.selinux"

// ofCeph are attributes that stand for settings of a directory, such as its limit.
const ofCeph = "ceph."

// xattr copies one attribute. One that this process may not read or set, or that the filesystem
// keeps for itself, is counted; one that is gone was removed meanwhile.
func (c *copier) xattr(from attributed, to int, name string) error {
	if name == label {
		return nil
	}
	n, err := 0, error(nil)
	err = openat.Retry(func() error { n, err = from.get(name, c.text); return err })
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	if err == nil {
		err = openat.Retry(func() error { return unix.Fsetxattr(to, name, c.text[:n], 0) })
	}
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		c.done.Lost++
		return nil
	default:
		return err
	}
}

// dropXattrs removes those that the source has not.
func (c *copier) dropXattrs(from attributed, to int) error {
	n, err := attributed{fd: to}.list(c.text)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && n == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the copy's attributes: %w", err)
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(c.text[:n]), "\x00"), "\x00") {
		if _, err := from.get(name, nil); !errors.Is(err, unix.ENODATA) || name == label || strings.HasPrefix(name, ofCeph) {
			continue
		}
		switch err := unix.Fremovexattr(to, name); {
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
			c.done.Lost++
		case err != nil && !errors.Is(err, unix.ENODATA):
			return fmt.Errorf("removing attribute %.100q: %w", name, err)
		}
	}
	return nil
}

// setTimes gives an entry the times of another one.
func setTimes(dir int, name string, st unix.Stat_t) error {
	times := []unix.Timespec{st.Atim, st.Mtim}
	return openat.Retry(func() error { return unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW) })
}
