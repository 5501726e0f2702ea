// Package mountpoint separates the privilege that a look under a mount point and a limit of a
// project take, CAP_SYS_ADMIN, from the daemon, which talks to the network. A service of its own
// has it, hostpath-provisioner-mountpoint, which systemd starts for a request on a socket; Server
// is that service, Under asks it.
//
// A request is a datagram that holds a path, and one end of a pair of connected sockets, by
// SCM_RIGHTS. The response is one message on that end: the JSON of reply. No descriptor comes back.
// The service looks under the mount points of configured pools alone, so that a client learns
// nothing but whether these are immutable.
//
// Another request is JSON, about the project quotas of a configured pool (quotaRequest): what
// projects take, and the limit of one that is in the pool's range.
//
// It judges nothing: what the response means for a pool, hostcheck decides.
package mountpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// reply is a response as it is sent.
type reply struct {
	hostcheck.Bare
	// Path is On.Path, of which JSON loses what is no UTF-8: a bind mount's root may be named in
	// any bytes.
	Path []byte `json:"path"`
}

// Names of the units, and the socket's path. The directory of the path is root's: in the daemon's
// own a daemon that was taken over could put another socket in its place, for the check unit to
// ask.
const (
	Service    = "hostpath-provisioner-mountpoint.service"
	SocketUnit = "hostpath-provisioner-mountpoint.socket"
	Socket     = "/run/hostpath-provisioner-mountpoint.socket"
)

// longest is the size of the largest datagram that is a request: PATH_MAX of linux/limits.h.
const longest = 4096

// Client sends requests to the service that listens at a path.
type Client struct {
	Socket string
	// Grace is how long a socket that is not there, and a request that was dropped, are tried
	// again: longer than it takes systemd to start the service again, or an upgrade to start the
	// socket. It counts anew for a request that waited for a look before it was dropped.
	Grace time.Duration
}

// Under looks at the bare directory of a configured pool's mount point through the service. It
// returns within the given time; what keeps it from a response is in Trouble and Error.
func Under(point string, within time.Duration) hostcheck.Bare {
	return Client{Socket: Socket, Grace: min(3*time.Second, within)}.Under(point, within)
}

// Under sends the request until there is a response.
func (c Client) Under(point string, within time.Duration) hostcheck.Bare {
	began := time.Now()
	failing := began // since then no request waited for a look
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		sent := time.Now()
		b, err := c.once(point, began.Add(within))
		if errors.Is(err, errDropped) && time.Since(sent) > c.Grace/2 {
			failing = time.Now()
		}
		switch {
		case err == nil:
			return b
		case errors.Is(err, os.ErrDeadlineExceeded):
			return trouble(hostcheck.NoResponse, fmt.Errorf("no response from %s within %s", Service, within))
		case !passing(err) || time.Since(failing)+pause > c.Grace:
			return trouble(hostcheck.NotPermitted, fmt.Errorf("this process has no CAP_SYS_ADMIN, and %w", explain(err)))
		}
		time.Sleep(pause)
	}
}

// errDropped: the service ended before it responded, or had too many requests. Its end of the pair
// is closed then, also when the datagram was never read.
var errDropped = errors.New("the request was dropped")

// passing reports whether an error may be gone a moment later.
func passing(err error) bool {
	for _, one := range []error{errDropped, unix.ENOENT, unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE, unix.ENOTCONN} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// explain names the unit that an operator has to look at.
func explain(err error) error {
	switch {
	case errors.Is(err, errDropped):
		return fmt.Errorf("%s did not respond: %w", Service, err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%s does not listen: %w", SocketUnit, err)
	default:
		return fmt.Errorf("%s: the request failed: %w", SocketUnit, err)
	}
}

// once sends the request once.
func (c Client) once(point string, until time.Time) (b hostcheck.Bare, err error) {
	message, err := c.exchange(point, until)
	if err != nil {
		return b, err
	}
	var r reply
	if err := json.Unmarshal(message, &r); err != nil {
		return b, fmt.Errorf("the reply is malformed: %w", err)
	}
	r.On.Path = string(r.Path)
	return r.Bare, nil
}

// exchange sends a request and returns the response. The descriptors of a request are closed when
// it returns.
func (c Client) exchange(request string, until time.Time) (message []byte, err error) {
	ours, err := ipc.Connect(c.Socket, request, until)
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	if err := ours.SetReadDeadline(until); err != nil {
		return nil, err
	}
	message = make([]byte, 64<<10) // a path and an error, of which JSON may make six times as much; or mostUsage
	n, err := ours.Read(message)
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		return nil, errDropped
	}
	return message[:n], err
}

func trouble(why hostcheck.Trouble, err error) hostcheck.Bare {
	return hostcheck.Bare{Under: hostcheck.Under{Looked: true, Trouble: why, Error: err.Error()}}
}
