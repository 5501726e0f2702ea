package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
			if suspect = true; !pause(ctx, rereadPause) {
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
	is, uid := c.Credential(), c.nodeUID.Load()
	if uid != nil && is.NodeUID != "" && is.Node == c.options.Node && is.NodeUID != *uid {
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

// errNodeReplaced says that the Node object is not the one that the token is bound to.
var errNodeReplaced = fmt.Errorf("%w: the Node object that it is bound to was deleted", ErrCredentialRefused)

// nodeChanged has the credential reviewed when this node's object is another one, or none.
func (c *Client) nodeChanged(was, now *corev1.Node) {
	uid := ""
	if now != nil {
		uid = string(now.UID)
	}
	if c.nodeUID.Store(&uid); was == nil || now == nil {
		c.connection.suspect()
	}
}
