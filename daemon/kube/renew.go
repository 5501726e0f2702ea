package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	// renewAt is the part of a token's life after which it is renewed, and renewJitter what is
	// added to that at most, so that the nodes of a cluster that were enrolled together do not
	// renew together.
	renewAt, renewJitter = 0.6, 0.15
	// renewLook is how often the credential is looked at: another one may have been put in its
	// place, and clocks are set.
	renewLook = time.Minute
	// renewRetry is the shortest time between two attempts.
	renewRetry = 5 * time.Minute
)

// errNoRenewal says that the cluster does not let the identity renew its token.
var errNoRenewal = errors.New("this identity has no right to renew its token (manifests --pool-path gives it)")

// RunRenewal renews the token before it ends, until ctx ends: it requests the next one of the same
// ServiceAccount for the same Node, and has save write it to Options.TokenFile. Credentials of
// other kinds are left alone. report is called with nil after each renewal, and with the error of
// each attempt that failed.
func (c *Client) RunRenewal(ctx context.Context, save func(token []byte) error, report func(Credential, error)) {
	jitter := rand.Float64() * renewJitter
	for tried := (time.Time{}); pause(ctx, c.renewLook()); {
		now, is := time.Now(), c.Credential()
		if !is.renewable() || now.Before(renewalOf(is, jitter)) || now.Sub(tried) < min(renewRetry, is.Expires.Sub(is.Issued)/100) {
			continue
		}
		tried = now
		err := c.renew(ctx, is, save)
		if ctx.Err() != nil {
			return
		}
		report(c.Credential(), err)
	}
}

// renewLook is shorter in a test.
func (c *Client) renewLook() time.Duration {
	if c.options.renewLook > 0 {
		return c.options.renewLook
	}
	return renewLook
}

// renewalOf is when a credential is to be renewed.
func renewalOf(c Credential, jitter float64) time.Time {
	return c.Issued.Add(time.Duration(float64(c.Expires.Sub(c.Issued)) * (renewAt + jitter)))
}

// renew has a token saved that lasts as long as this one did, and uses it.
//
//	token requested   it is lost: the next attempt requests another
//	token saved       the next start uses it
func (c *Client) renew(ctx context.Context, is Credential, save func([]byte) error) error {
	token, err := requestToken(ctx, c.groups[core], is, is.Expires.Sub(is.Issued))
	if apierrors.IsForbidden(err) {
		return errors.Join(errNoRenewal, err)
	}
	if err != nil {
		return err
	}
	if err := save([]byte(token)); err != nil {
		return err
	}
	return c.connection.renewed()
}

// requestToken requests a token of a ServiceAccount that is bound to a Node. The server may give it
// a shorter life.
func requestToken(ctx context.Context, client rest.Interface, of Credential, life time.Duration) (string, error) {
	seconds := int64(life.Round(time.Second) / time.Second)
	request := &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &seconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: of.Node, UID: types.UID(of.NodeUID)},
		},
	}
	body, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	response, err := rawOf(client.Post().Namespace(of.Namespace).Resource("serviceaccounts").Name(of.Account).SubResource("token").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
		Body(body).Timeout(callTimeout).Do(ctx))
	if err != nil {
		return "", fmt.Errorf("request a token for node %s: %w", of.Node, err)
	}
	granted := &authenticationv1.TokenRequest{}
	if err := json.Unmarshal(response, granted); err != nil {
		return "", fmt.Errorf("request a token for node %s: %w", of.Node, err)
	}
	if parseToken(granted.Status.Token).Node != of.Node {
		return "", fmt.Errorf("request a token for node %s: the server gave one that is not bound to it", of.Node)
	}
	return granted.Status.Token, nil
}
