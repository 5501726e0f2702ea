package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// Enroll requests a token for a node's daemon, with an administrator's rights. The server may give it a shorter life.
func (c *Client) Enroll(ctx context.Context, node string, life time.Duration) (Enrolled, error) {
	object, err := c.GetNode(ctx, node)
	switch {
	case err != nil:
		return Enrolled{}, err
	case object == nil:
		return Enrolled{}, fmt.Errorf("node %q: %w", node, ErrNoNode)
	}
	token, err := requestToken(ctx, c.core, Credential{Namespace: c.options.Namespace, Account: component, Node: node, NodeUID: string(object.UID)}, life)
	if err != nil {
		return Enrolled{}, err
	}
	config := rest.CopyConfig(c.connection.config.Load())
	if err := rest.LoadTLSFiles(config); err != nil {
		return Enrolled{}, err
	}
	return Enrolled{Token: token, Expires: parseToken(token).Expires, cluster: &clientcmdapi.Cluster{
		Server: config.Host + config.APIPath, CertificateAuthorityData: config.CAData, TLSServerName: config.ServerName, InsecureSkipTLSVerify: config.Insecure,
	}}, nil
}

// Kubeconfig returns the kubeconfig of the node's daemon. The token is in this file, or in it with "".
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
