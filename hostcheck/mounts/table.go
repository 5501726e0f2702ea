package mounts

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/openat"
)

// Table is the mount table of this process, read again only when the kernel says that it changed.
// Its descriptor keeps no filesystem busy. It is for one user at a time.
type Table struct {
	fd         int
	mounts     []Mount
	generation uint64
	valid      bool
}

// OpenTable opens /proc/self/mountinfo. The table is closed by Close, or when it is garbage
// collected.
//
// It is opened past the os package: that would add it to the runtime's own epoll set, whose poll
// clears the kernel's change mark, and changes would be missed (TestWatchMissesNothing is red with
// os.Open).
func OpenTable() (*Table, error) {
	fd, err := openTable()
	if err != nil {
		return nil, err
	}
	t := &Table{fd: fd}
	runtime.AddCleanup(t, func(fd int) { _ = unix.Close(fd) }, fd)
	return t, nil
}

func openTable() (int, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, fmt.Errorf("opening /proc/self/mountinfo: %w", err)
	}
	return fd, nil
}

// Mounts is the present table and a number that grows with each reading: the same number, the same
// table. The slice is shared; do not change it.
func (t *Table) Mounts() ([]Mount, uint64, error) {
	changed, err := pollTable(t.fd)
	if err != nil {
		t.valid = false
		return nil, 0, err
	}
	if t.valid && !changed {
		return t.mounts, t.generation, nil
	}
	t.valid = false // the poll took the mark: if the reading fails, the next call reads again
	if err := t.read(); err != nil {
		return nil, 0, err
	}
	t.valid = true
	t.generation++
	runtime.KeepAlive(t)
	return t.mounts, t.generation, nil
}

// read reads until nothing changed in between: the kernel hands the table out a page at a time and
// takes its lock for each. While mounts change without pause the last reading must do; its mark
// stays set, so that the next call reads again.
func (t *Table) read() error {
	for range 8 {
		data, err := readAll(t.fd)
		if err != nil {
			return fmt.Errorf("reading /proc/self/mountinfo: %w", err)
		}
		// The strings of the table share these bytes, which are not written to any more.
		if t.mounts, err = parse(unsafe.String(unsafe.SliceData(data), len(data))); err != nil {
			return err
		}
		if changed, err := pollTable(t.fd); err != nil || !changed {
			return err
		}
	}
	return nil
}

// Read reads the whole mount table once.
func Read() ([]Mount, error) {
	fd, err := openTable()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	t := Table{fd: fd}
	err = t.read()
	return t.mounts, err
}

func readAll(fd int) ([]byte, error) {
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return nil, err
	}
	data := make([]byte, 0, 16<<10)
	for {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := retry(func() (int, error) { return unix.Read(fd, data[len(data):cap(data)]) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return data, nil
		}
		data = data[:len(data)+n]
	}
}

// pollTable reports whether the table changed since it was opened or polled last (mounts_poll in
// fs/proc_namespace.c: the mark belongs to the descriptor, and polling takes it).
func pollTable(fd int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
	_, err := retry(func() (int, error) { return unix.Poll(fds, 0) })
	if err != nil {
		return false, fmt.Errorf("polling /proc/self/mountinfo: %w", err)
	}
	return fds[0].Revents&(unix.POLLPRI|unix.POLLERR) != 0, nil
}

// retry is openat.Retry for a call that returns a value.
func retry[T any](call func() (T, error)) (v T, err error) {
	err = openat.Retry(func() error { v, err = call(); return err })
	return v, err
}
