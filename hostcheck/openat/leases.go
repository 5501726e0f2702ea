package openat

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Leases waits for leases (F_SETLEASE), which file servers have on what their clients work with.
// The zero value is ready.
type Leases struct{ waited time.Duration }

const (
	// mostWait is how long one Leases waits in all. The kernel takes a lease after
	// lease-break-time, 45 s by default.
	mostWait = 2 * time.Minute
	// leaseLook is how long it waits before it tries again.
	leaseLook = 5 * time.Millisecond
)

// Open repeats open, which opens a file with O_NONBLOCK, until no lease is in its way: the first
// try has the kernel ask the holder to give it up. step is called before each further try, and its
// error ends it.
func (l *Leases) Open(step func() error, open func() (int, error)) (fd int, err error) {
	for {
		if fd, err = open(); !errors.Is(err, unix.EAGAIN) || l.waited >= mostWait {
			return fd, err
		}
		time.Sleep(leaseLook)
		l.waited += leaseLook
		if err := step(); err != nil {
			return -1, err
		}
	}
}
