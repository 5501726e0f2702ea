package main

import "github.com/hostpath-provisioner/hostpath-provisioner/test/controlplane/internal/state"

const frontProxyUser = "front-proxy-client"

// credentials is what the components are started with.
type credentials struct {
	admin             []byte // a kubeconfig, written only when the cluster is usable
	controllerManager string // path of a kubeconfig
	scheduler         string // path of a kubeconfig
}

// makeCredentials writes the PKI and the components' kubeconfigs. The cluster's
// authority stays in pki/ca.crt and pki/ca.key, so that a test can sign a
// kubelet's certificate itself.
func makeCredentials(dir *state.Dir, server string) (credentials, error) {
	ca, err := dir.Authority("ca")
	if err != nil {
		return credentials{}, err
	}
	if err := writeCertificates(dir, ca); err != nil {
		return credentials{}, err
	}
	admin, err := ca.Kubeconfig(server, state.Leaf{Name: "admin", Groups: []string{"system:masters"}})
	if err != nil {
		return credentials{}, err
	}
	kcm, err := componentKubeconfig(dir, ca, server, "kube-controller-manager")
	if err != nil {
		return credentials{}, err
	}
	scheduler, err := componentKubeconfig(dir, ca, server, "kube-scheduler")
	return credentials{admin: admin, controllerManager: kcm, scheduler: scheduler}, err
}

func writeCertificates(dir *state.Dir, ca *state.Authority) error {
	if _, err := dir.SigningKey("sa"); err != nil {
		return err
	}
	err := dir.IssueFile(ca, "apiserver", state.Leaf{Name: "kube-apiserver", Hosts: []string{
		address, "::1", "localhost", firstServiceIP,
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}})
	if err != nil {
		return err
	}
	err = dir.IssueFile(ca, "apiserver-kubelet-client", state.Leaf{
		Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"},
	})
	if err != nil {
		return err
	}
	// An authority of its own: a client that it signs for may claim to be any user.
	frontProxy, err := dir.Authority("front-proxy-ca")
	if err != nil {
		return err
	}
	return dir.IssueFile(frontProxy, "front-proxy-client", state.Leaf{Name: frontProxyUser})
}

func componentKubeconfig(dir *state.Dir, ca *state.Authority, server, component string) (string, error) {
	data, err := ca.Kubeconfig(server, state.Leaf{Name: "system:" + component})
	if err != nil {
		return "", err
	}
	return dir.WriteKubeconfig(component, data)
}
