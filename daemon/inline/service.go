package inline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/mountpoint"
)

// Service is the node service's side: it has the ends on which a daemon works, and uses each for one request at a time.
type Service struct {
	idle chan *os.File
	once sync.Once
}

// Errors of Ask, wrapped.
var (
	// ErrAway: no daemon works on requests now.
	ErrAway = errors.New("hostpath-provisioner.service does not respond")
	// ErrLate: a daemon has the request, and may do it at any time.
	ErrLate = fmt.Errorf("%w in time", ErrAway)
	// ErrRefused: the daemon did not do it, and says why.
	ErrRefused = errors.New("inline volume")
)

const (
	// kept is how many ends are kept. A daemon that is started again sends new ones before the old ones were found closed.
	kept = 4 * lines
	// within is how long a daemon may be away, or take: it is started again in that time.
	within = 15 * time.Second
)

func (s *Service) ends() chan *os.File {
	s.once.Do(func() { s.idle = make(chan *os.File, kept) })
	return s.idle
}

// Serve takes what a daemon sends until ctx ends.
func (s *Service) Serve(ctx context.Context, socket *net.UnixConn) error {
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	request, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	for {
		_, c, flags, _, err := socket.ReadMsgUnix(request, control)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		s.take(mountpoint.Descriptors(control[:c]), flags)
	}
}

// take keeps an end. What is none, and one too many, is closed; that may wait.
func (s *Service) take(fds []int, flags int) {
	if len(fds) == 1 && flags&unix.MSG_CTRUNC == 0 && mountpoint.IsPairEnd(fds[0]) && unix.SetNonblock(fds[0], true) == nil {
		end := os.NewFile(uintptr(fds[0]), "inline")
		for {
			select {
			case s.ends() <- end:
				return
			default:
			}
			select {
			case oldest := <-s.ends(): // of a daemon that ended, most likely
				oldest.Close()
			default:
			}
		}
	}
	go func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
}

// Ask has the daemon do something. It waits for a daemon for a while. What is too long for a message is refused here: the daemon
// would read a part of it, and close the end, and the next one.
func (s *Service) Ask(ctx context.Context, r Request) error {
	if text, err := json.Marshal(r); err != nil || len(text) > largest {
		return fmt.Errorf("%w: a request of %d bytes, of at most %d", ErrRefused, len(text), largest)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		select {
		case end := <-s.ends():
			if done, err := s.exchange(ctx, end, r); done {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("inline volume: %w within %s", ErrAway, within)
		}
	}
}

// Tell is Ask for what need not be done: it waits for no daemon that is away or busy.
func (s *Service) Tell(ctx context.Context, r Request) error {
	ctx, cancel := context.WithTimeout(ctx, telling)
	defer cancel()
	for {
		select {
		case end := <-s.ends():
			if done, err := s.exchange(ctx, end, r); done {
				return err
			}
		default:
			return ErrAway
		}
	}
}

// telling is how long kubelet waits for the end of a volume at most, besides.
const telling = 2 * time.Second

// exchange sends a request on an end. done is false if its daemon has ended: another one may be there.
func (s *Service) exchange(ctx context.Context, end *os.File, r Request) (done bool, err error) {
	stop := context.AfterFunc(ctx, func() { end.Close() })
	err = send(end, r)
	var got reply
	if err == nil {
		got, err = receive[reply](end)
	}
	if !stop() { // it was closed: a late reply must not be taken for that to another request
		return true, fmt.Errorf("inline volume: %w", ErrLate)
	}
	if err != nil {
		end.Close()
		return false, err
	}
	s.put(end)
	if got.Error != "" {
		return true, fmt.Errorf("%w: %s", ErrRefused, got.Error)
	}
	return true, nil
}

// put gives an end back.
func (s *Service) put(end *os.File) {
	select {
	case s.ends() <- end:
	default:
		end.Close()
	}
}
