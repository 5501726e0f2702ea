package treecopy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrClock: the host's clock was set, so that change times say nothing.
var ErrClock = errors.New("the host's clock was set while it was copied")

// clock notices that the host's clock is set, also back and forth. The zero value does not run.
type clock struct {
	timer int
	runs  bool
}

// start has it notice what is set from now on.
func (c *clock) start() error {
	if c.runs {
		return nil
	}
	fd, err := clockTimer()
	if err != nil {
		return fmt.Errorf("watching the host's clock: %w", err)
	}
	c.timer, c.runs = fd, true
	return nil
}

// clockTimer is a timer that does not end before the clock is set (timerfd_create(2)).
func clockTimer() (int, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return -1, err
	}
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: 1 << 40}}
	const flags = unix.TFD_TIMER_ABSTIME | unix.TFD_TIMER_CANCEL_ON_SET
	if err := unix.TimerfdSettime(fd, flags, &never, nil); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// set is ErrClock if the clock was set since.
func (c *clock) set() error {
	_, err := unix.Read(c.timer, make([]byte, binary.Size(uint64(0))))
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	return ErrClock
}

func (c *clock) close() {
	if c.runs {
		unix.Close(c.timer)
	}
	c.runs = false
}
