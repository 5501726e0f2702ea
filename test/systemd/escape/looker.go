package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Attempts against the service that looks under mount points, which has CAP_SYS_ADMIN.

// asked succeeds where there is a response; a pool's has to be that it is immutable.
func asked(path string, immutable bool) func() error {
	return func() error {
		b := mountpoint.Under(path, 30*time.Second)
		if b.Trouble == hostcheck.NotPermitted && strings.Contains(b.Error, "has no configured pool with mount point") || b.Trouble != "" {
			return errors.New(b.Error)
		}
		if immutable && !b.Immutable {
			return fmt.Errorf("%+v", b)
		}
		return nil
	}
}

// askedThroughLink asks for a path whose last part is replaced by a link: the daemon may write in a
// pool.
func askedThroughLink() error {
	link := pool + "/escape-link"
	if err := os.Symlink("/etc", link); err != nil { // Landlock refuses it, too
		link = pool + "/../../proc/self/root/etc"
	}
	defer os.Remove(pool + "/escape-link")
	return asked(link, false)()
}

// question sends a datagram with descriptors.
func question(text string, fds ...int) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: mountpoint.Socket}); err != nil {
		return err
	}
	return unix.Sendmsg(fd, []byte(text), unix.UnixRights(fds...), nil, 0)
}

// respondElsewhere hands over a datagram socket that is connected to the journal, to have it
// written there in another's name; it succeeds if the service responds there, which the next,
// honest request waits for.
func respondElsewhere() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "/run/systemd/journal/dev-log"}); err != nil {
		return err
	}
	if err := question(pool, fd); err != nil {
		return err
	}
	return dropped(fd)
}

// dropped is the error of an end on which nothing comes: the questions before were taken, because a
// later one was handled.
func dropped(fd int) error {
	if err := asked(pool, true)(); err != nil {
		return nil // it responds no more: that is a success
	}
	n, _, _, _, err := unix.Recvmsg(fd, make([]byte, 64), nil, unix.MSG_DONTWAIT)
	if err == nil && n == 0 {
		return errors.New("no response")
	}
	return err
}

// descriptorBack wants a descriptor with the response.
func descriptorBack() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	err = question(pool, fds[1])
	unix.Close(fds[1])
	if err != nil {
		return err
	}
	control := make([]byte, 256)
	_, n, _, _, err := unix.Recvmsg(fds[0], make([]byte, 64<<10), control, 0)
	if err == nil && n == 0 {
		return errors.New("a response without a descriptor")
	}
	return err
}

// flood succeeds if an honest request gets no response afterwards.
func flood() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	for i := range 20_000 {
		if err := question([]string{pool, "/no/pool", strings.Repeat("x", 4000)}[i%3], fds[1]); err != nil {
			return nil // it takes no more
		}
	}
	if err := asked(pool, true)(); err != nil {
		return nil
	}
	return errors.New("it responded all the while")
}
