package hosttest

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Without runs f on a thread that lacks these capabilities, such as unix.CAP_SYS_ADMIN. The thread
// ends with f, and all other threads keep what they have: a goroutine that f starts may have the
// capabilities.
func Without(t T, f func(), capabilities ...uint) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: it is not unlocked
		if err := drop(capabilities); err != nil {
			done <- fmt.Errorf("capabilities %d cannot be given up: %w", capabilities, err)
			return
		}
		f()
	}()
	Check(t, <-done)
}

// drop takes capabilities out of this thread's effective set.
func drop(capabilities []uint) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // of 32 capabilities each
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	for _, c := range capabilities {
		sets[c/32].Effective &^= 1 << (c % 32)
	}
	return unix.Capset(&header, &sets[0])
}
