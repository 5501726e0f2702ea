package state

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// HeldError says that another daemon works with a state directory.
type HeldError struct {
	File string // the lock
	PID  int    // of the holder, as it wrote itself; 0 if it has not yet
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another daemon holds %s", e.File)
	}
	return fmt.Sprintf("another daemon (pid %d) holds %s", e.PID, e.File)
}

// Lock takes dir/lock for this process, without waiting; *HeldError says that another one has it.
// The kernel gives it back when the process ends, however it ends (flock(2)): a file that is left
// behind is no lock. The file is never removed: it might be the one that another process has locked
// since.
func Lock(dir string) (release func(), err error) {
	d, err := openDir(dir, "", 0o700, true)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	name := filepath.Join(dir, "lock")
	f, err := openPlain(d, "lock", unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &HeldError{name, holder(f)}
		}
		return nil, &os.PathError{Op: "flock", Path: name, Err: err}
	}
	if err := sign(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// sign writes who holds the lock, for the message that the next one gets. A full disk does not
// matter to that: the lock holds without it.
func sign(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	return err
}

func holder(f *os.File) int {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
