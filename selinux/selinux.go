// Package selinux makes files that are born with a label, reads labels and mends them, one at a
// time, and writes down for the host's policy which path of a pool has which.
//
// A label that is set after mkdir leaves a moment in which the directory has the wrong one, and a
// relabelling walk over a volume with data takes minutes; the kernel's fscreate attribute has
// neither trouble. Beside this package lies the policy module that confines the daemon. This
// package will not walk trees (daemon/disk/volume does, beneath a descriptor), load policy, or judge a
// host.
package selinux

import (
	"errors"
	"fmt"
	"runtime"

	lib "github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"
)

// DefaultType is the type that container_t may read and write (container-selinux, container.te).
const DefaultType = "container_file_t"

// Enabled reports whether this kernel enforces or logs by an SELinux policy (selinuxfs is mounted).
func Enabled() bool { return lib.GetEnabled() }

// Mounted reports whether there is a selinuxfs. Other than Enabled it opens nothing in /proc, of
// which go-selinux keeps a procfs of its own for good where it may make one (fsopen(2), with
// CAP_SYS_ADMIN): Landlock's rules, which come later, are not of that one.
func Mounted() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/selinux", &st) == nil && st.Type == unix.SELINUX_MAGIC
}

// ErrFSCreate: the kernel, or what confines this process, refuses the label for new files.
var ErrFSCreate = errors.New("the label of new files cannot be set to")

// CreatedAs calls fn, and everything that fn creates on its own goroutine has the label. Without
// SELinux, or with an empty label, fn is simply called. The label belongs to the thread
// (/proc/thread-self/attr/fscreate), so fn must not start goroutines that create files.
//
// Where the label is refused the error is ErrFSCreate, and fn is not called: with EINVAL the
// policy does not know it.
func CreatedAs(label string, fn func() error) error {
	if label == "" || !Enabled() {
		return fn()
	}
	return createdAs(lib.SetFSCreateLabel, label, fn)
}

// createdAs keeps a thread whose label could not be taken back locked, so that the runtime ends it
// with its goroutine (runtime.LockOSThread) and no other goroutine creates files with that label.
// The caller's goroutine is not the one that is spent for it.
func createdAs(set func(label string) error, label string, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err, clean := labelled(set, label, fn)
		if clean {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

func labelled(set func(label string) error, label string, fn func() error) (err error, clean bool) {
	if err := set(label); err != nil {
		return fmt.Errorf("%w %q: %w", ErrFSCreate, label, err), false
	}
	err = fn()
	return err, set("") == nil
}
