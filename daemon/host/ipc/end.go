package ipc

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// End is an end that is used for more than one response.
type End struct {
	file  *os.File
	aside chan struct{}
}

// End takes an end that was received. Every end that is taken is closed by Close.
func (s *Socket) End(fd int) *End {
	_ = unix.SetNonblock(fd, true) // for NewFile: without it Receive returns an error
	return &End{file: os.NewFile(uintptr(fd), "end"), aside: s.aside}
}

// Send sends one message, and does not wait.
func (e *End) Send(message []byte) error {
	return e.with(func(fd uintptr) (bool, error) { return true, Send(int(fd), message) }, false)
}

// Receive waits for one message until ctx ends; of a closed end it is io.EOF. After an error
// nothing is received any more, and the buffer may still be written to: what comes with a message
// is closed by recvmsg(2), and that may wait.
func (e *End) Receive(ctx context.Context, buffer []byte) (int, error) {
	n, received := 0, make(chan error, 1)
	go func() {
		received <- e.with(func(fd uintptr) (bool, error) {
			err := again(func() (err error) {
				n, _, err = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
				return err
			})
			return !errors.Is(err, unix.EAGAIN), err
		}, true)
	}()
	select {
	case err := <-received:
		if err == nil && n == 0 {
			err = io.EOF
		}
		return n, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (e *End) with(call func(fd uintptr) (done bool, err error), reads bool) error {
	raw, err := e.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	do := raw.Write
	if reads {
		do = raw.Read
	}
	err = do(func(fd uintptr) (done bool) {
		done, failed = call(fd)
		return done
	})
	if err != nil {
		return err
	}
	return failed
}

// Close closes the end aside, and does not wait.
func (e *End) Close() {
	go func() {
		e.aside <- struct{}{}
		defer func() { <-e.aside }()
		e.file.Close()
	}()
}
