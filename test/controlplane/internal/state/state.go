// Package state keeps what must survive between two runs of the control plane
// in one directory: who holds it, the port, the authorities, the kubeconfigs.
//
// It starts no component and talks to none; it reads and writes files. It
// keeps secrets in plain files of mode 0600 beneath a directory of mode 0700,
// which is good enough for a cluster that lives as long as a test and for
// nothing else.
package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dir is the state directory of one control plane, held by this process.
type Dir struct {
	path string
	lock *os.File
}

// Open makes the directory where it is missing and takes it for this process.
//
// The lock is the kernel's and goes away with the process, also after SIGKILL.
// Without it a second control plane would wait forever inside etcd, which
// opens its database with a lock but without a deadline.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(path, "pki"), 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%s is in use by another control plane", path)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Dir{path: path, lock: lock}, nil
}

// Close gives the directory back. Its content stays.
func (d *Dir) Close() error { return d.lock.Close() }

// Path is the absolute path of a file in the directory.
func (d *Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// write puts a file in place in one step: a process that waits for it to appear never
// reads half of it, and a process killed here leaves no half of it behind.
func (d *Dir) write(name string, mode fs.FileMode, data []byte) error {
	tmp := d.Path(name) + ".tmp"
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return err
	}
	return os.Rename(tmp, d.Path(name))
}
