package hosttest

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Lease makes a file and holds a lease on it (fcntl(2), F_SETLEASE) until a process wants to open
// it. asked reports whether that was so.
func Lease(t testing.TB, path string) (asked func() bool) {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	}
	Check(t, err)
	released := make(chan bool, 1)
	go func() {
		defer close(released)
		for {
			held, err := unix.FcntlInt(f.Fd(), unix.F_GETLEASE, 0)
			if err != nil {
				return
			}
			if held != unix.F_WRLCK {
				_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
				released <- err == nil
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	t.Cleanup(func() { f.Close() })
	return func() bool { return <-released }
}
