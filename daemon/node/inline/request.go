package inline

import "path"

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
