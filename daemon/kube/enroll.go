package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

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
