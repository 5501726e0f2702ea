package state

import (
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is a kubeconfig with everything in it, for a user whose
// certificate the authority signs now.
func (a *Authority) Kubeconfig(server string, user Leaf) ([]byte, error) {
	cert, key, err := a.Issue(user)
	if err != nil {
		return nil, err
	}
	const cluster = "controlplane"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{
		Server:                   server,
		CertificateAuthorityData: a.PEM(),
	}
	config.AuthInfos[user.Name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: cert,
		ClientKeyData:         key,
	}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user.Name}
	config.CurrentContext = cluster
	return clientcmd.Write(*config)
}

// WriteKubeconfig puts NAME.kubeconfig into the directory in one step and
// returns its path.
func (d *Dir) WriteKubeconfig(name string, data []byte) (string, error) {
	file := name + ".kubeconfig"
	return d.Path(file), d.write(file, 0o600, data)
}
