package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
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

// Access is one verb on a resource.
type Access struct{ Group, Resource, Subresource, Name, Namespace, Verb string }

// Lacks returns those that the client's identity has no right to, as the API server itself says (SelfSubjectAccessReview).
func (c *Client) Lacks(ctx context.Context, all []Access) (lacks []Access, err error) {
	for _, a := range all {
		review := &authorizationv1.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, Namespace: a.Namespace, Verb: a.Verb,
			}},
		}
		body, err := json.Marshal(review)
		if err != nil {
			return nil, err
		}
		response, err := c.core.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
			SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
			Body(body).Timeout(callTimeout).Do(ctx).Raw()
		if err == nil {
			err = json.Unmarshal(response, review)
		}
		if err != nil {
			return nil, fmt.Errorf("review the rights of this identity: %w", err)
		}
		if !review.Status.Allowed {
			lacks = append(lacks, a)
		}
	}
	return lacks, nil
}

// Confined reports whether the cluster's policies refuse this identity a volume that no daemon makes. Nothing is created.
func (c *Client) Confined(ctx context.Context) (bool, error) {
	err := c.CheckVolume(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "hostpath-provisioner-confined", Annotations: map[string]string{plan.ProvisionedBy: "none"}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/hostpath-provisioner-confined"}},
		},
	})
	if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		return true, nil
	}
	return false, err
}
