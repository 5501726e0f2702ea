package inline

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/ipc"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// Daemon works on the requests of the node service that listens at a path.
type Daemon struct {
	Socket string
	Do     func(context.Context, Request) error
}

const (
	// lines is how many requests are worked on at once. A socket of datagrams has room for ten of a
	// daemon that is not read.
	lines = 4
	// offering is how long the node service has to take an end, and again how soon another one is
	// sent after that failed.
	offering = 5 * time.Second
	again    = time.Second
)

// Run works until ctx ends. Where the node service is not, it is asked again each second.
func (d Daemon) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range lines {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := d.line(ctx); err != nil {
					wake.Wait(ctx, again, nil)
				}
			}
		})
	}
	all.Wait()
}

// line works on what comes on one pair of sockets. It returns nil when the node service has closed
// its end after it asked for something.
func (d Daemon) line(ctx context.Context) error {
	end, err := ipc.Connect(d.Socket, "inline", time.Now().Add(offering))
	if err != nil {
		return err
	}
	defer end.Close()
	defer context.AfterFunc(ctx, func() { end.Close() })()
	asked := false
	for {
		r, err := receive[Request](end)
		if err != nil && asked && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		asked = true
		var done reply
		if err := d.Do(ctx, r); err != nil {
			done.Error = err.Error()
		}
		if err := send(end, done); err != nil {
			return err
		}
	}
}

// receive reads one message. A closed end is io.EOF.
func receive[T any](end *os.File) (message T, err error) {
	buffer := make([]byte, largest)
	n, err := end.Read(buffer)
	if err == nil {
		err = json.Unmarshal(buffer[:n], &message)
	}
	return message, err
}

func send(end *os.File, message any) error {
	text, err := json.Marshal(message)
	if err == nil {
		_, err = end.Write(text)
	}
	return err
}

// Act is what a request asks for.
type Act string

// The acts.
const (
	Make Act = "make" // the volume, if it is not there
	End  Act = "end"  // the volume was unpublished
)

// Request asks for something about one volume. All of it is judged by the daemon.
type Request struct {
	Act    Act    `json:"act"`
	Driver string `json:"driver,omitempty"` // kubelet's name of it
	Handle string `json:"handle"`
	// Of Make: the pool, the size as the pod says it, and the pod.
	Pool      string `json:"pool,omitempty"`
	Size      string `json:"size,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// reply is sent when the work on a request has ended.
type reply struct {
	Error string `json:"error,omitempty"` // why it was not done
}

// largest is the size of the largest message, in bytes.
const largest = 32 << 10

// SocketPath is the node service's socket, beside the one of the driver that the daemon provisions
// for.
func SocketPath(kubeletRoot, driver string) string {
	return path.Join(kubeletRoot, "plugins", driver, SocketName)
}

// SocketName is the last element of SocketPath.
const SocketName = "inline.sock"
