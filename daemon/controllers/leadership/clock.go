package leadership

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is the time since the host started. Unlike Go's monotonic time it goes on while the host
// sleeps (clock_gettime(2), CLOCK_BOOTTIME): a lease does not sleep with its holder.
func BootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // only for an unknown clock, and this one is older than any kernel we run on
	}
	return time.Duration(t.Nano())
}
