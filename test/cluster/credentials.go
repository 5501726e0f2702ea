package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const tokenSeconds = 24 * 60 * 60

// ServiceAccountKubeconfig writes a kubeconfig (0600) with a token of a
// ServiceAccount, good for a day. It is how a test runs the daemon with the
// rights that it has in earnest.
//
// With a node's name the token is bound to that Node: the API server then
// knows which node its bearer is on, and takes it no more once the Node is
// deleted. With an empty one it is bound to nothing.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name, node, path string) error {
	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if node != "" {
		object, err := c.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("token of service account %s/%s: %w", namespace, name, err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Node", Name: node, UID: object.UID,
		}
	}
	response, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token of service account %s/%s: %w", namespace, name, err)
	}
	return c.writeKubeconfig(path, name, &clientcmdapi.AuthInfo{Token: response.Status.Token})
}

// NodeKubeconfig writes a kubeconfig (0600) with a kubelet's identity, for a
// kubelet that joins, or for a test of what a kubelet may not do. The
// certificate is signed by the cluster on request, as a kubelet's own is.
func (c *Cluster) NodeKubeconfig(ctx context.Context, node, path string) error {
	subject := pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
	cert, key, err := c.certificate(ctx, certificatesv1.KubeAPIServerClientKubeletSignerName, subject)
	if err != nil {
		return fmt.Errorf("certificate of node %q: %w", node, err)
	}
	return c.writeKubeconfig(path, "system:node:"+node, &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
}

// Certificate returns a user's client certificate and its key, in PEM, which the cluster signed on
// request.
func (c *Cluster) Certificate(ctx context.Context, user string) (cert, key []byte, err error) {
	return c.certificate(ctx, certificatesv1.KubeAPIServerClientSignerName, pkix.Name{CommonName: user})
}

// UserKubeconfig writes a kubeconfig (0600) with these credentials.
func (c *Cluster) UserKubeconfig(path string, auth *clientcmdapi.AuthInfo) error {
	return c.writeKubeconfig(path, "user", auth)
}

func (c *Cluster) certificate(ctx context.Context, signer string, subject pkix.Name) (cert, pemKey []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	cert, err = c.sign(ctx, signer, csr)
	return cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// sign has the cluster sign a certificate request.
func (c *Cluster) sign(ctx context.Context, signer string, csr []byte) ([]byte, error) {
	requests := c.client.CertificatesV1().CertificateSigningRequests()
	request, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-node-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}),
			SignerName: signer,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "Test", Message: "a test asked for it",
	})
	// kube-controller-manager approves it too, because the administrator may ask for any node's
	// certificate (isNodeClientCert in its approver): the second request has a conflict.
	if _, err := requests.UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		return nil, err
	}
	signed, err := WaitFor(ctx, requests, request.Name, func(r *certificatesv1.CertificateSigningRequest) bool {
		return len(r.Status.Certificate) > 0
	})
	if err != nil {
		return nil, err
	}
	return signed.Status.Certificate, nil
}

// Redirect writes a kubeconfig that is another one but for the server, whose certificate this
// authority has signed, with nil the same as before.
func Redirect(from, to, server string, authority []byte) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for _, c := range config.Clusters {
		if c.Server = server; authority != nil {
			c.CertificateAuthorityData, c.CertificateAuthority = authority, ""
		}
	}
	return clientcmd.WriteToFile(*config, to)
}

// writeKubeconfig writes one for this cluster in one step, so that a daemon
// which reads it meanwhile sees the old one or the new one.
func (c *Cluster) writeKubeconfig(path, user string, auth *clientcmdapi.AuthInfo) error {
	const cluster = "controlplane"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{
		Server:                   c.config.Host,
		CertificateAuthorityData: c.config.CAData,
	}
	config.AuthInfos[user] = auth
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
