package kube

import (
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
)

// Files returns the absolute paths of what a kubeconfig needs of the host: itself, the files that it names, and the
// program that provides its user's credentials, "" for none. New returns the error of a file that cannot be read.
func Files(kubeconfig string) (files []string, program string) {
	files = []string{kubeconfig}
	raw, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil || clientcmd.ResolveLocalPaths(raw) != nil {
		return files, ""
	}
	context := raw.Contexts[raw.CurrentContext]
	if context == nil {
		return files, ""
	}
	if c := raw.Clusters[context.Cluster]; c != nil {
		files = append(files, c.CertificateAuthority)
	}
	user := raw.AuthInfos[context.AuthInfo]
	if user == nil {
		return named(files), ""
	}
	files = append(files, user.ClientCertificate, user.ClientKey, user.TokenFile)
	if user.Exec != nil {
		program = user.Exec.Command
		if !filepath.IsAbs(program) && filepath.Base(program) != program {
			program = filepath.Join(filepath.Dir(kubeconfig), program)
		}
	}
	return named(files), program
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
