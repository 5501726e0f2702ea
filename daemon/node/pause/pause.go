// Package pause asks the CSI node service to stop the pods that write to a volume for a moment
// (daemon/node/csi). The daemon itself has no rights over other processes.
//
// A request is a datagram of JSON with one end of a pair of connected sockets (package ipc). The
// service responds on it when the pods stand still, and once more when they go on. They do so when
// the daemon's end is closed, by whatever it is, and when the time is over that the configuration
// gives.
package pause

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
)

// Request asks for a pause.
type Request struct {
	Pool   string `json:"pool"`
	Volume string `json:"volume"` // its handle
}

// Reply is sent when the pods stand still, and when they go on.
type Reply struct {
	Error string        `json:"error,omitempty"` // why they do not stand still, or did not all the time
	Pods  int           `json:"pods"`            // that were stopped
	For   time.Duration `json:"for"`             // how long, in ns
}

// Largest is the size of the largest message, in bytes.
const Largest = 4096

// SocketPath is the service's socket, beside the one of the driver that the daemon provisions for.
func SocketPath(kubeletRoot, driver string) string {
	return path.Join(kubeletRoot, "plugins", driver, "pause.sock")
}

// Client sends requests to the service that listens at a path.
type Client struct{ Socket string }

// Pause is a time in which the pods of a volume stand still.
type Pause struct {
	Pods int // that were stopped

	end  *os.File
	over context.CancelFunc
	last chan error
	took time.Duration // is read after last
}

// within is how long the service has for a request, and for what follows the end of a pause.
const within = 5 * time.Second

// Begin returns when the pods stand still, for which it may have to wait until those of other
// volumes go on. The context that it returns ends when they go on.
func (c Client) Begin(ctx context.Context, pool, volume string) (context.Context, *Pause, error) {
	message, err := json.Marshal(Request{pool, volume})
	if err != nil {
		return nil, nil, err
	}
	end, err := ipc.Connect(c.Socket, string(message), time.Now().Add(within))
	if err != nil {
		return nil, nil, fmt.Errorf("the CSI node service does not listen at %s: %w", c.Socket, err)
	}
	stop := context.AfterFunc(ctx, func() { end.Close() })
	first, err := read(end)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		end.Close()
		return nil, nil, err
	}
	paused, over := context.WithCancel(ctx)
	p := &Pause{Pods: first.Pods, end: end, over: over, last: make(chan error, 1)}
	go func() {
		last, err := read(end)
		over()
		p.took = last.For
		p.last <- err
	}()
	return paused, p, nil
}

// read reads a reply. That the pods could not be stopped, or not for as long, is an error.
func read(end *os.File) (r Reply, err error) {
	buffer := make([]byte, Largest)
	n, err := end.Read(buffer)
	if err == nil {
		err = json.Unmarshal(buffer[:n], &r)
	}
	switch {
	case errors.Is(err, io.EOF):
		return r, errors.New("the CSI node service ended")
	case err != nil:
		return r, err
	case r.Error != "":
		return r, errors.New(r.Error)
	}
	return r, nil
}

// End has the pods go on, and returns how long they stood still. An error says that they did not
// all the time. It is called once.
func (p *Pause) End() (time.Duration, error) {
	defer p.end.Close()
	defer p.over()
	_, err := p.end.Write([]byte("end"))
	if wrong := p.end.SetReadDeadline(time.Now().Add(within)); wrong != nil {
		p.end.Close()
	}
	if last := <-p.last; last != nil {
		return 0, last
	}
	return p.took, err
}
