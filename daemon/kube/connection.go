package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// connection is the http.RoundTripper of the client. It sends requests with the credentials of the
// kubeconfig as it is on disk now, and records refusals and the last success.
type connection struct {
	options Options
	host    string // the server's address in the first kubeconfig, which the requests have
	now     atomic.Pointer[http.RoundTripper]
	config  atomic.Pointer[rest.Config] // what now was made of
	success atomic.Int64                // when a request last succeeded, in nanoseconds since the epoch
	stale   chan struct{}               // receives when the server responds with 401

	mu    sync.Mutex
	read  [sha256.Size]byte // of the files that are in use
	files []string          // that were read last: the kubeconfig, what it names, and the renewed token
	seen  []stamp           // of files
}

// stamp differs when a file was written or replaced.
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

// ErrOtherServer is the error of a kubeconfig that names another API server than before: the
// objects that are known are those of the old one.
var ErrOtherServer = errors.New("the kubeconfig names another API server")

func newConnection(o Options) (*connection, *rest.Config, error) {
	t := &connection{options: o, stale: make(chan struct{}, 1)}
	t.read = t.look()
	config, err := loadKubeconfig(o.Kubeconfig, o.Overrides)
	if err != nil {
		return nil, nil, err
	}
	t.host = config.Host + config.APIPath
	return t, config, t.use(config)
}

// look notes the stamps of the files that the credentials are in, and returns the hash of their
// text: loadKubeconfig returns the error of one that cannot be read. What is replaced meanwhile has
// another stamp at the next look.
func (t *connection) look() [sha256.Size]byte {
	path := t.options.Kubeconfig
	t.files = []string{path}
	if plain(path) == nil {
		cluster, user := current(path)
		t.files = append(t.files, named([]string{cluster.CertificateAuthority, user.ClientCertificate, user.ClientKey, user.TokenFile, t.options.TokenFile})...)
	}
	t.seen = stamps(t.files)
	var all []byte
	for _, file := range t.files {
		text := sha256.Sum256(readSmall(file))
		all = append(all, text[:]...)
	}
	return sha256.Sum256(all)
}

// stamps returns a zero one for a file that is not there.
func stamps(files []string) []stamp {
	all := make([]stamp, len(files))
	for i, file := range files {
		if info, err := os.Stat(file); err == nil {
			all[i] = stampOf(info)
		}
	}
	return all
}

// use makes requests use these credentials from now on. Connections with the old ones are closed
// when they are idle; a watch under way continues to its end.
func (t *connection) use(config *rest.Config) error {
	tune(config, t.options)
	preferRenewed(config, t.options.TokenFile)
	next, err := rest.TransportFor(config)
	if err != nil {
		return fmt.Errorf("kubeconfig %q: %w", t.options.Kubeconfig, err)
	}
	t.config.Store(config)
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
		t.observe(response.StatusCode, r.Context().Value(uncounted{}) != nil)
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

// uncounted is the key of a context whose requests are for something that the daemon can do
// without: a right that is missing for them is no refusal for Options.OnRefused.
type uncounted struct{}

// observe records the status code of a response.
func (t *connection) observe(code int, optional bool) {
	if code == http.StatusUnauthorized {
		t.suspect()
	}
	switch reason, known := refusals[code]; {
	case optional && code == http.StatusForbidden:
	case known:
		t.options.OnRefused(reason)
	case code >= 400 && code != http.StatusNotFound && code != http.StatusConflict && code != http.StatusGone:
		t.options.OnRefused("Other")
	default:
		t.success.Store(time.Now().UnixNano())
	}
}

// suspect has FollowKubeconfig look whether the credential is still the right one.
func (t *connection) suspect() {
	wake.Signal(t.stale)
}

// reread uses the kubeconfig if it has changed, or a file that it names, or the renewed token, and
// reports whether it did. The error is a *KubeconfigError or ErrOtherServer: then the old
// credentials stay in use, and the same file is not read again.
func (t *connection) reread() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := stamps(t.files)
	if now[0] == (stamp{}) || slices.Equal(now, t.seen) {
		return false, nil // a file that is being replaced exists again soon
	}
	read := t.look()
	if read == t.read {
		return false, nil
	}
	err := t.reuse(read)
	return err == nil, err
}

// reuse uses the kubeconfig as it was read, with this hash. mu is held.
func (t *connection) reuse(read [sha256.Size]byte) error {
	config, err := loadKubeconfig(t.options.Kubeconfig, t.options.Overrides)
	switch {
	case err != nil:
		return err
	case config.Host+config.APIPath != t.host:
		return ErrOtherServer
	}
	if err = t.use(config); err == nil {
		t.read = read
	}
	return err
}

// preferRenewed has a configuration use the renewed token, if that succeeds its own.
func preferRenewed(config *rest.Config, file string) {
	if file == "" {
		return
	}
	renewed := strings.TrimSpace(string(readSmall(file)))
	if parseToken(renewed).succeeds(credentialOf(config)) {
		config.BearerToken = renewed
	}
}

// renewed uses the token that was renewed.
func (t *connection) renewed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reuse(t.look())
}

// LastSuccess returns when the API server last accepted a request or sent something on a watch. The
// zero time is never.
func (c *Client) LastSuccess() time.Time {
	last := time.Time{}
	if at := c.connection.success.Load(); at != 0 {
		last = time.Unix(0, at)
	}
	for _, contact := range c.contacts {
		if at := contact(); at.After(last) {
			last = at
		}
	}
	return last
}

const (
	// rereadEvery is how often the files of the credential are looked at. After a 401 that is done
	// at once.
	rereadEvery = 2 * time.Second
	// rereadPause is the shortest time between two looks after a 401: a server that starts may send
	// one.
	rereadPause = time.Second
	// reviewWait is how long a server may take to say whether it accepts the credential.
	reviewWait = 5 * time.Second
)

// ErrCredentialRefused is what Options.OnHealth is called with while the API server accepts no
// request with the client's credential. Only another credential helps.
var ErrCredentialRefused = errors.New("the API server does not accept this node's credential")

// FollowKubeconfig uses the kubeconfig again whenever it was replaced, or a file that it names, or
// Options.TokenFile, until ctx ends. It calls onReload with nil for each credential that is in use
// now, and with the error for each that cannot be used: ErrOtherServer or a *KubeconfigError.
// Requests that wait after an error are sent at once then.
//
// After a 401 it tries the credential that is in use, and as long as the server refuses that.
func (c *Client) FollowKubeconfig(ctx context.Context, onReload func(error)) {
	every := time.NewTicker(rereadEvery)
	defer every.Stop()
	for {
		suspect := c.health.is(credentialResource)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-c.connection.stale:
			if suspect = true; !wake.Wait(ctx, rereadPause, nil) {
				return
			}
		}
		changed, err := c.connection.reread()
		if changed || suspect {
			c.reviewCredential(ctx)
		}
		if changed {
			c.breaker.retry()
		}
		if changed || err != nil {
			onReload(err)
		}
	}
}

// credentialResource is what health knows the credential by.
const credentialResource = "credential"

// reviewCredential reports whether the API server accepts the credential. What the server has of
// the Node counts first: it accepts a token for ten seconds more, of which it knew that it was
// good.
func (c *Client) reviewCredential(ctx context.Context) {
	if c.nodeReplaced() {
		c.health.failed(credentialResource, errNodeReplaced)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reviewWait)
	defer cancel()
	_, err := c.ServerVersion(ctx)
	switch {
	case apierrors.IsUnauthorized(err):
		c.health.failed(credentialResource, err)
	case err == nil || fromServer(err):
		c.health.recovered(credentialResource)
	}
}

// nodeReplaced reports whether the credential is bound to another Node object than the one that is
// known.
func (c *Client) nodeReplaced() bool {
	is, uid := c.Credential(), c.nodeUID.Load()
	return uid != nil && is.NodeUID != "" && is.Node == c.options.Node && is.NodeUID != *uid
}

// errNodeReplaced says that the Node object is not the one that the token is bound to.
var errNodeReplaced = fmt.Errorf("%w: the Node object that it is bound to was deleted", ErrCredentialRefused)

// nodeChanged has the credential reviewed when this node's object is another one, or none. What was
// read of it for the first time was read with that credential: nothing has to be asked then.
func (c *Client) nodeChanged(was, now *corev1.Node) {
	uid := ""
	if now != nil {
		uid = string(now.UID)
	}
	first := c.nodeUID.Swap(&uid) == nil && now != nil
	if (was == nil || now == nil) && (!first || c.nodeReplaced()) {
		c.connection.suspect()
	}
}
