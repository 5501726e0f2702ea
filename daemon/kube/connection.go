package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// connection sends the client's requests with the credentials of the kubeconfig as it is on disk now, and
// notes what becomes of them. It is an http.RoundTripper.
type connection struct {
	options Options
	host    string // the server's address in the first kubeconfig, which the requests have
	now     atomic.Pointer[http.RoundTripper]
	success atomic.Int64  // when a request was last taken, in ns since the epoch
	stale   chan struct{} // the server does not know the credentials

	mu   sync.Mutex
	read [sha256.Size]byte // of the file that is in use
	seen stamp             // of the file that was looked at last
}

// stamp tells that a file was written or replaced.
type stamp struct {
	size, changed, written int64
	device, inode          uint64
}

func stampOf(info os.FileInfo) stamp {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}
	}
	return stamp{s.Size, s.Ctim.Nano(), s.Mtim.Nano(), uint64(s.Dev), s.Ino}
}

// ErrOtherServer says that a kubeconfig leads to another API server now: what is known is of no use.
var ErrOtherServer = errors.New("the kubeconfig names another API server")

func newConnection(o Options) (*connection, *rest.Config, error) {
	t := &connection{options: o, stale: make(chan struct{}, 1)}
	t.seen, t.read = look(o.Kubeconfig)
	config, err := loadKubeconfig(o.Kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	t.host = config.Host + config.APIPath
	return t, config, t.use(config)
}

// look returns the file's stamp and the hash of its text, zero where it cannot be read: loadKubeconfig says why.
func look(path string) (stamp, [sha256.Size]byte) {
	info, err := os.Stat(path)
	if err != nil || plain(path) != nil {
		return stamp{}, [sha256.Size]byte{}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return stamp{}, [sha256.Size]byte{}
	}
	return stampOf(info), sha256.Sum256(text)
}

// use sends requests with these credentials from now on. Connections that carry the old ones are closed
// once they are idle; a watch under way goes on to its end.
func (t *connection) use(config *rest.Config) error {
	tune(config, t.options)
	next, err := rest.TransportFor(config)
	if err != nil {
		return fmt.Errorf("kubeconfig %q: %w", t.options.Kubeconfig, err)
	}
	if before := t.now.Swap(&next); before != nil && *before != next {
		utilnet.CloseIdleConnectionsFor(*before)
	}
	return nil
}

// RoundTrip is part of http.RoundTripper.
func (t *connection) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := (*t.now.Load()).RoundTrip(r)
	switch {
	case err != nil && r.Context().Err() == nil:
		t.options.OnRefused("Unreachable")
	case err == nil:
		t.note(response.StatusCode)
	}
	return response, err
}

// refusals are the reasons that the API server gives with a status code
// (k8s.io/apimachinery/pkg/api/errors, NewGenericServerResponse).
var refusals = map[int]string{
	http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden", http.StatusUnprocessableEntity: "Invalid",
	http.StatusBadRequest: "BadRequest", http.StatusTooManyRequests: "TooManyRequests", http.StatusInternalServerError: "InternalError",
	http.StatusServiceUnavailable: "ServiceUnavailable", http.StatusGatewayTimeout: "Timeout",
}

func (t *connection) note(code int) {
	if code == http.StatusUnauthorized {
		select {
		case t.stale <- struct{}{}:
		default:
		}
	}
	switch reason, known := refusals[code]; {
	case known:
		t.options.OnRefused(reason)
	case code >= 400 && code != http.StatusNotFound && code != http.StatusConflict && code != http.StatusGone:
		t.options.OnRefused("Other")
	default:
		t.success.Store(time.Now().UnixNano())
	}
}

// reread takes the kubeconfig into use if it has changed, and reports whether it did. The error is of a file
// that cannot be used, or ErrOtherServer; the credentials in use stay, and the same file is not tried again.
func (t *connection) reread() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.options.Kubeconfig)
	if err != nil || stampOf(info) == t.seen {
		return false, nil // one that is being replaced is there again soon
	}
	var read [sha256.Size]byte
	if t.seen, read = look(t.options.Kubeconfig); read == t.read {
		return false, nil
	}
	config, err := loadKubeconfig(t.options.Kubeconfig)
	switch {
	case err != nil:
		return false, err
	case config.Host+config.APIPath != t.host:
		return false, ErrOtherServer
	}
	if err := t.use(config); err != nil {
		return false, err
	}
	t.read = read
	return true, nil
}

const (
	// rereadEvery is how soon a kubeconfig that was replaced is taken into use; one that the server refuses
	// (401) is looked at at once.
	rereadEvery = 5 * time.Second
	// rereadPause is between two looks that refusals have asked for.
	rereadPause = time.Second
)

// FollowKubeconfig takes the kubeconfig into use whenever it is replaced, until ctx ends. said is called with
// nil for each that was taken, and with the error for each that cannot be: ErrOtherServer, or a
// *KubeconfigError. Files that it names (tokens, certificates) client-go reads again by itself.
func (c *Client) FollowKubeconfig(ctx context.Context, said func(error)) {
	every := time.NewTicker(rereadEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-c.connection.stale:
			if !pause(ctx, rereadPause) {
				return
			}
		}
		if changed, err := c.connection.reread(); changed || err != nil {
			said(err)
		}
	}
}

// LastSuccess is when the API server last took a request or sent something on a watch; zero is never.
func (c *Client) LastSuccess() time.Time {
	last := time.Time{}
	if at := c.connection.success.Load(); at != 0 {
		last = time.Unix(0, at)
	}
	for _, heard := range c.heard {
		if at := heard(); at.After(last) {
			last = at
		}
	}
	return last
}
