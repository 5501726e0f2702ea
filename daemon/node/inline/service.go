package inline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
)

// Service is the node service's side: it has the ends on which a daemon works, and uses each for
// one request at a time.
type Service struct {
	idle chan *ipc.End
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
	// kept is how many ends are kept. A daemon that is started again sends new ones before the old
	// ones were found closed.
	kept = 4 * lines
	// within is how long a daemon may be away, or take: it is started again in that time.
	within = 15 * time.Second
)

func (s *Service) ends() chan *ipc.End {
	s.once.Do(func() { s.idle = make(chan *ipc.End, kept) })
	return s.idle
}

// Serve takes what a daemon sends until ctx ends.
func (s *Service) Serve(ctx context.Context, socket *net.UnixConn) error {
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	from, buffer := ipc.New(socket, nil), make([]byte, largest)
	for {
		_, end, err := from.Receive(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case end >= 0:
			s.take(from.End(end))
		}
	}
}

// take keeps an end, in the place of the oldest one: of a daemon that ended, most likely.
func (s *Service) take(end *ipc.End) {
	for {
		select {
		case s.ends() <- end:
			return
		default:
		}
		select {
		case oldest := <-s.ends():
			oldest.Close()
		default:
		}
	}
}

// Ask has the daemon do something. It waits for a daemon for a while. What is too long for a
// message is refused here: the daemon would read a part of it, and close the end, and the next one.
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

// exchange sends a request on an end. done is false if its daemon has ended: another one may be
// there.
func (s *Service) exchange(ctx context.Context, end *ipc.End, r Request) (done bool, err error) {
	got, err := ask(ctx, end, r)
	if err != nil {
		end.Close() // a late reply must not be taken for that to another request
		if ctx.Err() != nil {
			return true, fmt.Errorf("inline volume: %w", ErrLate)
		}
		return false, err
	}
	s.put(end)
	if got.Error != "" {
		return true, fmt.Errorf("%w: %s", ErrRefused, got.Error)
	}
	return true, nil
}

func ask(ctx context.Context, end *ipc.End, r Request) (got reply, err error) {
	text, err := json.Marshal(r)
	if err == nil {
		err = end.Send(text)
	}
	if err != nil {
		return got, err
	}
	buffer := make([]byte, largest)
	n, err := end.Receive(ctx, buffer)
	if err == nil {
		err = json.Unmarshal(buffer[:n], &got)
	}
	return got, err
}

// put gives an end back.
func (s *Service) put(end *ipc.End) {
	select {
	case s.ends() <- end:
	default:
		end.Close()
	}
}
