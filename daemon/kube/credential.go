package kube

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/wake"
)

// Credential is what the client's credential says of itself. The API server alone knows whether
// that is true.
type Credential struct {
	Namespace, Account, AccountUID string // of a ServiceAccount's token
	Node, NodeUID                  string // that the token is bound to
	Audiences                      string // of the token, one a line
	Issued, Expires                time.Time
}

// Credential returns the one in use. It is zero for one that does not say when it ends: that of a
// program, or a token of another kind.
func (c *Client) Credential() Credential {
	config := c.connection.config.Load()
	if config == nil {
		return Credential{}
	}
	return credentialOf(config)
}

func credentialOf(config *rest.Config) Credential {
	if config.BearerToken != "" {
		return parseToken(config.BearerToken)
	}
	block, _ := pem.Decode(config.CertData)
	if block == nil {
		return Credential{}
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Credential{}
	}
	return Credential{Issued: parsed.NotBefore, Expires: parsed.NotAfter}
}

// readSmall returns nothing for what is no kubeconfig's file.
func readSmall(file string) []byte {
	if plain(file) != nil {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return text
}

// parseToken reads a ServiceAccount's token (kubernetes, pkg/serviceaccount/claims.go), without
// looking at its signature.
func parseToken(token string) Credential {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Credential{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	type object struct{ Name, UID string }
	var claims struct {
		Audiences  []string `json:"aud"`
		Issued     int64    `json:"iat"`
		Expires    int64    `json:"exp"`
		Kubernetes struct {
			Namespace      string
			Node           object
			ServiceAccount object
		} `json:"kubernetes.io"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires == 0 {
		return Credential{}
	}
	k := claims.Kubernetes
	return Credential{
		Namespace: k.Namespace, Account: k.ServiceAccount.Name, AccountUID: k.ServiceAccount.UID, Node: k.Node.Name, NodeUID: k.Node.UID,
		Audiences: strings.Join(claims.Audiences, "\n"), Issued: time.Unix(claims.Issued, 0), Expires: time.Unix(claims.Expires, 0),
	}
}

// renewable reports whether the credential can get its own successor: a ServiceAccount's token,
// bound to a Node.
func (c Credential) renewable() bool {
	return c.Account != "" && c.Node != "" && c.NodeUID != "" && c.Expires.After(c.Issued)
}

// succeeds reports whether a credential is of the same identity as another, was not issued before
// it, and lasts longer. Where the other is the newer one, an administrator put it there: the server
// may not accept the older one any more.
func (c Credential) succeeds(other Credential) bool {
	was, is := other, c
	was.Issued, was.Expires, was.Audiences, is.Issued, is.Expires, is.Audiences = time.Time{}, time.Time{}, "", time.Time{}, time.Time{}, ""
	return c.renewable() && is == was && !c.Issued.Before(other.Issued) && c.Expires.After(other.Expires)
}

const (
	// renewAt is the part of a token's life after which it is renewed, and renewJitter what is
	// added to that at most, so that the nodes of a cluster that were enrolled together do not
	// renew together.
	renewAt, renewJitter = 0.6, 0.15
	// overdueAt is the part of its life after which a token has been renewed unless that fails.
	overdueAt = 0.8
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
	for tried := (time.Time{}); wake.Wait(ctx, c.renewLook(), nil); {
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

// RenewedBy is when the daemon has renewed the credential, unless that fails: at four fifths of its
// life. Zero: it is not one that the daemon renews.
func (c Credential) RenewedBy() time.Time {
	if !c.renewable() {
		return time.Time{}
	}
	return renewalOf(c, overdueAt-renewAt)
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
	if err := post(ctx, client.Post().Namespace(of.Namespace).Resource("serviceaccounts").
		Name(of.Account).SubResource("token"), request); err != nil {
		return "", fmt.Errorf("request a token for node %s: %w", of.Node, err)
	}
	if parseToken(request.Status.Token).Node != of.Node {
		return "", fmt.Errorf("request a token for node %s: the server gave one that is not bound to it", of.Node)
	}
	return request.Status.Token, nil
}

// Enrolled is a node's identity: a ServiceAccount's token that is bound to its Node object.
type Enrolled struct {
	Token   string
	Expires time.Time
	cluster *clientcmdapi.Cluster
}

// ErrNoNode says that the cluster has no Node of a name.
var ErrNoNode = errors.New("the cluster has no such node")

// Enroll requests a token for a node's daemon, with an administrator's rights. The server may give
// it a shorter life.
func (c *Client) Enroll(ctx context.Context, node string, life time.Duration) (Enrolled, error) {
	object, err := c.GetNode(ctx, node)
	switch {
	case err != nil:
		return Enrolled{}, err
	case object == nil:
		return Enrolled{}, fmt.Errorf("node %q: %w", node, ErrNoNode)
	}
	token, err := requestToken(ctx, c.groups[core], Credential{Namespace: c.options.Namespace, Account: component, Node: node, NodeUID: string(object.UID)}, life)
	if err != nil {
		return Enrolled{}, err
	}
	cluster, err := c.cluster()
	return Enrolled{Token: token, Expires: parseToken(token).Expires, cluster: cluster}, err
}

// cluster returns how this client reaches its API server, for a kubeconfig.
func (c *Client) cluster() (*clientcmdapi.Cluster, error) {
	config := rest.CopyConfig(c.connection.config.Load())
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	return &clientcmdapi.Cluster{
		Server: config.Host + config.APIPath, CertificateAuthorityData: config.CAData,
		TLSServerName: config.ServerName, InsecureSkipTLSVerify: config.Insecure,
	}, nil
}

// Judge returns why the credential of a node's own client is not what Enroll makes for the node, ""
// if it is, and lasts. The API server of this client, which may be an administrator's, has to
// accept it, for the Node that there is. The error is that of a request that says nothing about it.
func (c *Client) Judge(ctx context.Context, own *Client, now time.Time) (unfit string, err error) {
	ours, err := c.cluster()
	if err != nil {
		return "", err
	}
	if theirs, err := own.cluster(); err != nil || !reflect.DeepEqual(ours, theirs) {
		return "its kubeconfig has another address or authority of the API server", nil
	}
	is, node := own.Credential(), own.options.Node
	if unfit := is.unfit(c.options.Namespace, node, now); unfit != "" {
		return unfit, nil
	}
	_, err = own.Whoami(ctx)
	switch {
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept its token", nil
	case Ignored(err):
		return "the API server ignores its token", nil
	case err != nil && !apierrors.IsNotFound(err) && c != own:
		return err.Error(), nil
	case err != nil && !apierrors.IsNotFound(err): // a server before Kubernetes 1.28 has no such review
		return "", err
	}
	object, err := c.GetNode(ctx, node)
	switch {
	case apierrors.IsUnauthorized(err) && c == own: // it was accepted for 10 s more (TokenSuccessCacheTTL)
		return "the API server does not accept its token", nil
	case err != nil && !(apierrors.IsForbidden(err) && c == own): // what an identity may is reviewed by Lacks
		return "", err
	case err == nil && object == nil:
		return "", fmt.Errorf("node %q: %w", node, ErrNoNode)
	case err == nil && string(object.UID) != is.NodeUID:
		return "its token is bound to a Node object that was deleted", nil
	}
	return "", nil
}

// unfit returns why a credential is not one that Enroll made, by what it says of itself, or that it
// does not last.
func (c Credential) unfit(namespace, node string, now time.Time) string {
	switch {
	case c.Account == "":
		return "its credential is no token that is bound to a Node"
	case c.Node != node || c.NodeUID == "":
		return fmt.Sprintf("its token is bound to the Node %q", c.Node)
	case c.Namespace != namespace || c.Account != component:
		return fmt.Sprintf("its token is of the ServiceAccount %s/%s", c.Namespace, c.Account)
	case c.Expires.Sub(now) <= c.Expires.Sub(c.Issued)/4:
		return "its token ends at " + c.Expires.UTC().Format(time.RFC3339)
	}
	return ""
}

// Kubeconfig returns the kubeconfig of the node's daemon. The token is in this file, or in it with
// "".
func (e Enrolled) Kubeconfig(tokenFile string) ([]byte, error) {
	user := &clientcmdapi.AuthInfo{Token: e.Token}
	if tokenFile != "" {
		user = &clientcmdapi.AuthInfo{TokenFile: tokenFile}
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"], config.AuthInfos[component] = e.cluster, user
	config.Contexts["default"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: component}
	config.CurrentContext = "default"
	return clientcmd.Write(*config)
}
