package kube

import (
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
)

// Files are what a kubeconfig needs of the host, all absolute: itself, the files that it names, and the
// program that its user's credentials come from, "" for none. What cannot be read is New's to report.
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
