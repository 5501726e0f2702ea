package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// cordonPrefix begins the name of the empty file, right in the state directory, that says that a
// pool is to have no new volumes. The state directory keeps it, and not the pool: a disk that moves
// to another node is not cordoned there.
const cordonPrefix = "cordoned-"

// Cordoned reports whether a person wants no new volumes in a pool. Whatever has the file's name
// counts.
func Cordoned(dir, pool string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, cordonPrefix+pool))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Cordon notes that, or that it is over. When it returns nil this is on stable storage.
func Cordon(dir, pool string, is bool) error {
	if _, err := fileOf(dir, pool); err != nil {
		return err
	}
	if is {
		return WriteFileDurable(dir, cordonPrefix+pool, nil, 0o644)
	}
	d, err := openDir(dir, "", 0, false)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unlink(d, cordonPrefix+pool); err != nil {
		return err
	}
	return syncDir(dir)
}

// Watch reports each change of a name in a directory, several as one, until ctx ends; then the
// channel is closed.
func Watch(ctx context.Context, dir string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	// With O_NONBLOCK the Go runtime waits for it, and Close ends a Read.
	watch := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		watch.Close()
		return nil, &os.PathError{Op: "inotify_add_watch", Path: dir, Err: err}
	}
	context.AfterFunc(ctx, func() { watch.Close() })
	changes := make(chan struct{}, 1)
	go func() {
		defer close(changes)
		for events := make([]byte, 16<<10); ; {
			if _, err := watch.Read(events); err != nil {
				return
			}
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}()
	return changes, nil
}
