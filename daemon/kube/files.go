package kube

import (
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Files returns the absolute paths of what a kubeconfig needs of the host: itself, the files that
// it names, and the program that provides its user's credentials, "" for none. New returns the
// error of a file that cannot be read.
func Files(kubeconfig string) (files []string, program string) {
	cluster, user := current(kubeconfig)
	files = []string{kubeconfig, cluster.CertificateAuthority, user.ClientCertificate, user.ClientKey, user.TokenFile}
	if user.Exec != nil {
		program = user.Exec.Command
		if !filepath.IsAbs(program) && filepath.Base(program) != program {
			program = filepath.Join(filepath.Dir(kubeconfig), program)
		}
	}
	return named(files), program
}

// current returns the cluster and the user of the current context, with absolute paths; empty ones
// where there is none.
func current(kubeconfig string) (cluster clientcmdapi.Cluster, user clientcmdapi.AuthInfo) {
	raw, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil || clientcmd.ResolveLocalPaths(raw) != nil {
		return cluster, user
	}
	context := raw.Contexts[raw.CurrentContext]
	if context == nil {
		return cluster, user
	}
	if c := raw.Clusters[context.Cluster]; c != nil {
		cluster = *c
	}
	if u := raw.AuthInfos[context.AuthInfo]; u != nil {
		user = *u
	}
	return cluster, user
}

func named(files []string) []string {
	var all []string
	for _, file := range files {
		if filepath.IsAbs(file) {
			all = append(all, file)
		}
	}
	return all
}
