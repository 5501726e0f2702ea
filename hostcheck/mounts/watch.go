package mounts

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Watch signals whenever the mount table changed, from the moment it returns until ctx ends. It
// never blocks and it joins changes: one signal stands for all that happened before it is received.
// It only says *that* something changed. The channel is never closed.
//
// Changes are mounts, unmounts, moves and changed options, in this process's mount namespace. A
// filesystem that goes read-only by itself or stops responding changes nothing here.
func Watch(ctx context.Context) (<-chan struct{}, error) {
	table, err := openTable()
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(table)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	changed := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch(ctx, table, wake, changed)
	}()
	go func() { // the only one that closes, after both users of the descriptors are done
		<-ctx.Done()
		_, _ = unix.Write(wake, binary.NativeEndian.AppendUint64(nil, 1))
		<-ended
		_ = unix.Close(wake)
		_ = unix.Close(table)
	}()
	return changed, nil
}

// watch spends its life in poll(2), on a thread of its own.
func watch(ctx context.Context, table, wake int, changed chan<- struct{}) {
	fds := []unix.PollFd{{Fd: int32(table), Events: unix.POLLPRI}, {Fd: int32(wake), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		_, err := retry(func() (int, error) { return unix.Poll(fds, -1) })
		if err != nil {
			// Out of memory is all that is left (poll(2)). The listener then looks every second.
			pause(ctx, time.Second)
		}
		if err == nil && fds[0].Revents == 0 {
			continue
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
