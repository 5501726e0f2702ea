package mountpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Server looks on request, and reads and sets the limits of projects. A process that may send
// requests may have taken the daemon over: what a request makes grow is bounded, and nothing that
// it holds is waited for.
//
// What a client may send, what refuses it, and the test that sends it:
//
//	path of another directory      knows: it is not configured as written     TestConfiguredPointsOnly
//	".." or another spelling       the same: paths are compared byte by byte  TestConfiguredPointsOnly
//	configured symbolic link       RESOLVE_NO_SYMLINKS (hostcheck/mounts)     TestConfiguredPointsOnly
//	directory beside a mount       On: the client compares what was looked at  TestAnotherDirectory
//	replaced parent, new mount     mount's number, RESOLVE_NO_XDEV            TestUnderInAStorm (hostcheck/mounts), TestStorm
//	file, connection, listener     ipc.Socket: an end of a pair of sockets    TestGarbage
//	many or long messages          ipc.Socket: MSG_TRUNC, MSG_CTRUNC          TestGarbage
//	more requests than looks       mostWaiting                                TestFlood
//	end whose queue is full        ipc.Send: MSG_DONTWAIT                       TestEndsThatAreNotRead
//	quotas of another directory    permits: it is not configured as written   TestQuotaRequests
//	project of others              permits: it is not in the pool's range     TestQuotaRequests
//	filesystem in a pool's place   quotaTask.do: the client names its device  TestQuotaRequests
//	malformed JSON, other calls    takeQuota, quotaTask.do                    TestQuotaGarbage, TestQuotaRequests
//	descriptors that do not close  ipc.Socket, errStuck                       TestStuckDescriptors, TestStuckEnds
//	filesystem that hangs          one goroutine for each mount point         TestHungParent
type Server struct {
	// Points are the mount points that the configuration has now, under which pools want to be
	// looked. ErrStartAgain ends the service.
	Points func() ([]string, error)
	Look   func(point string) hostcheck.Bare // hostcheck.LookUnder
	// QuotaPools are the pools that the configuration has now, whose project quotas may be read and
	// set; with an error, those of the last valid one. nil: none.
	QuotaPools func() ([]QuotaPool, error)
	Idle       time.Duration // without a request, after which Serve returns
	Log        *slog.Logger

	quotaPools []QuotaPool // of QuotaPools
	quotas     map[string]*quotaQueue
	known      map[string]bool // of Points, since the start
	told       time.Time       // when a refusal was logged last
	mu         sync.Mutex
	places     map[string]*place
	socket     *ipc.Socket
}

// Bounds.
const (
	// mostWaiting clients wait for one mount point's next look. One daemon and a few commands are
	// usual.
	mostWaiting = 16
	// quiet is how long after a logged refusal none is logged.
	quiet = time.Minute
)

// place is a mount point: at most one look at a time, by a goroutine that ends when no request
// waits.
type place struct {
	looking bool
	next    []int // ends that get a response by the look that begins next
}

// ErrStartAgain says that this process cannot read the configuration, and another one could. What
// was asked is asked again.
var ErrStartAgain = errors.New("a file that the configuration needs was replaced, and Landlock allows the old one")

// errStuck: systemd starts another process, and the kernel closes the descriptors of this one.
var errStuck = errors.New("descriptors that came with requests cannot be closed")

// Serve responds until ctx ends, or until no request came for Idle and no look is under way; both
// are no error. What is asked afterwards waits in the socket, which the service manager holds.
func (s *Server) Serve(ctx context.Context, socket *net.UnixConn) error {
	s.known, s.places, s.quotas = map[string]bool{}, map[string]*place{}, map[string]*quotaQueue{}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.socket = ipc.New(socket, func() { stop(errStuck) })
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	ended := make(chan error, 1)
	go func() { ended <- s.serve() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if errors.Is(context.Cause(ctx), errStuck) {
		return errStuck // without waiting for serve, which may be what is stuck
	}
	return <-ended
}

func (s *Server) serve() error {
	buffer := make([]byte, longest+1)
	for {
		if err := s.socket.Conn.SetReadDeadline(time.Now().Add(s.Idle)); err != nil {
			return ended(err)
		}
		request, end, err := s.socket.Receive(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if s.idle() {
				return nil
			}
		case err != nil:
			return ended(err)
		default:
			if err := s.take(request, end); err != nil {
				return err
			}
		}
	}
}

// ended is the error of a socket that was not closed by this process.
func ended(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.places {
		if p.looking {
			return false
		}
	}
	for _, q := range s.quotas {
		if q.working {
			return false
		}
	}
	return true
}

// take has a look respond to one request, refuses it, or drops it. An error ends the service.
func (s *Server) take(request []byte, end int) error {
	if end < 0 {
		s.refuse("a malformed request was dropped")
		return nil
	}
	if isQuota(request) {
		return s.takeQuota(request, end)
	}
	point := string(request)
	if known, err := s.knows(point); errors.Is(err, ErrStartAgain) {
		return err
	} else if !known {
		s.refuse("a request for a path that is not a pool's mount point was refused")
		s.respond([]int{end}, trouble(hostcheck.NotPermitted, unknown(point, err)))
		return nil
	}
	s.enqueue(point, end)
	return nil
}

func unknown(point string, err error) error {
	if err != nil {
		return notRead(err)
	}
	return fmt.Errorf("%s has no configured pool with mount point %q and immutable on", Service, point)
}

// notRead is the error to a client while the configuration has errors, of which there may be any
// number.
func notRead(err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("%s cannot read the configuration: %s", Service, first)
}

func (s *Server) refuse(what string) {
	if time.Since(s.told) > quiet {
		s.told = time.Now()
		s.Log.Warn(what)
	}
}

// knows reports whether a path is the mount point of a configured pool, or was since the service
// started: a daemon goes on with the configuration that it has, while the present one has errors or
// needs a restart.
func (s *Server) knows(point string) (bool, error) {
	if s.known[point] {
		return true, nil
	}
	points, err := s.Points()
	for _, p := range points {
		s.known[p] = true
	}
	return s.known[point], err
}

// enqueue has a look respond to a client that begins after now: one that is under way may have
// begun before the client read its mount table.
func (s *Server) enqueue(point string, end int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[point]
	if p == nil {
		p = &place{}
		s.places[point] = p
	}
	if len(p.next) >= mostWaiting {
		var gone []int
		p.next, gone = waiting(p.next)
		s.socket.Discard(gone...)
	}
	if len(p.next) >= mostWaiting {
		s.socket.Discard(end)
		return
	}
	p.next = append(p.next, end)
	if !p.looking {
		p.looking = true
		go s.work(point, p)
	}
}

// work looks for as long as a request waits.
func (s *Server) work(point string, p *place) {
	for {
		s.mu.Lock()
		ends := p.next
		p.next = nil
		p.looking = len(ends) > 0
		s.mu.Unlock()
		if len(ends) == 0 {
			return
		}
		s.respond(ends, s.Look(point))
	}
}

// respond sends one message to each end, and closes it. An end that is full or closed gets none.
func (s *Server) respond(ends []int, b hostcheck.Bare) {
	message, err := json.Marshal(reply{b, []byte(b.On.Path)})
	for _, end := range ends {
		if err == nil {
			_ = ipc.Send(end, message)
		}
	}
	s.socket.Discard(ends...)
}

// waiting separates the ends whose clients are still there from the others.
func waiting(ends []int) (there, gone []int) {
	for _, end := range ends {
		fds := []unix.PollFd{{Fd: int32(end)}}
		if n, err := unix.Poll(fds, 0); err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
			gone = append(gone, end)
			continue
		}
		there = append(there, end)
	}
	return there, gone
}
