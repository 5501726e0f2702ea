package kube

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// KubeconfigWarning returns what is unsafe about the permissions of a kubeconfig, "" if nothing is.
// New returns the error of a file that does not exist.
func KubeconfigWarning(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		return fmt.Sprintf("kubeconfig %q can be changed by every user of this host (mode %04o)", path, mode)
	case mode&0o004 != 0:
		return fmt.Sprintf("kubeconfig %q can be read by every user of this host (mode %04o)", path, mode)
	default:
		return ""
	}
}

// KubeconfigRisks returns the settings of a kubeconfig that let others on the network read or
// change the requests to the API server. New returns the error of a file that cannot be used.
func KubeconfigRisks(path string) []string {
	config, err := readKubeconfig(path, nil)
	if err != nil {
		return nil
	}
	var risks []string
	server, err := url.Parse(config.Host)
	if err == nil && server.Scheme != "https" && !loopback(server.Hostname()) {
		risks = append(risks, fmt.Sprintf("kubeconfig %q has server %q without TLS: its token can be read on the network", path, config.Host))
	}
	if config.Insecure {
		risks = append(risks, fmt.Sprintf("kubeconfig %q has insecure-skip-tls-verify: another server than %q can take its token", path, config.Host))
	}
	return risks
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// loadKubeconfig reads one file and no other source: not $KUBECONFIG, not the home directory, not
// the ServiceAccount of a pod. A daemon of the host must not use credentials that its configuration
// does not name. TestDeadServer shows it.
func loadKubeconfig(path string, overrides *clientcmd.ConfigOverrides) (*rest.Config, error) {
	if path == "" {
		return nil, &KubeconfigError{errors.New("no kubeconfig is configured")}
	}
	config, err := readKubeconfig(path, overrides)
	if err != nil {
		return nil, &KubeconfigError{fmt.Errorf("kubeconfig %q: %w", path, err)}
	}
	return config, nil
}

// KubeconfigError is the error of a kubeconfig that cannot be used. It names the file.
type KubeconfigError struct{ Err error }

func (e *KubeconfigError) Error() string { return e.Err.Error() }

// Unwrap is the error itself: one for a file that does not exist matches fs.ErrNotExist.
func (e *KubeconfigError) Unwrap() error { return e.Err }

// kubeconfigMax is the size limit in bytes. Certificates are a few KiB each.
const kubeconfigMax = 4 << 20

// plain refuses what is not a kubeconfig before it is opened, each with its test:
//   - a FIFO, whose open would block the process without a writer, and a device, which may have no end
//     (not a regular file; TestUnreadableKubeconfig);
//   - a file of more than kubeconfigMax bytes (TestUnreadableKubeconfig).
//
// A symlink is followed (TestLinkedKubeconfig). Who can replace the file between this check and the
// open can write to a directory of root's configuration, and needs no kubeconfig to stop the
// daemon.
func plain(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil || info.IsDir():
		return nil // the open returns the error
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Size() > kubeconfigMax:
		return fmt.Errorf("larger than %d MiB", kubeconfigMax>>20)
	}
	return nil
}

func readKubeconfig(path string, overrides *clientcmd.ConfigOverrides) (*rest.Config, error) {
	raw, err := loadFiles(path, overrides != nil)
	if err != nil {
		return nil, err
	}
	if overrides == nil {
		overrides = &clientcmd.ConfigOverrides{}
	}
	current := cmp.Or(overrides.CurrentContext, raw.CurrentContext)
	switch _, known := raw.Contexts[current]; {
	case known || current == "":
	case overrides.CurrentContext != "":
		return nil, fmt.Errorf("no context %q", current)
	default:
		return nil, fmt.Errorf("no context %q, which is its current-context", current)
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		// Its own message advises to set KUBERNETES_MASTER, which nothing here reads.
		return nil, fmt.Errorf("the current context %q names no cluster", current)
	case err != nil:
		return nil, err
	}
	if err := holdToken(config); err != nil {
		return nil, err
	}
	return config, holdCertificate(config)
}

// loadFiles reads a kubeconfig, or several of which the first that has something says it, as
// kubectl merges those of $KUBECONFIG. Those that do not exist are left out then, as there. Paths
// in a file are relative to where it lies.
func loadFiles(path string, several bool) (*clientcmdapi.Config, error) {
	files := []string{path}
	if several {
		files = filepath.SplitList(path)
	}
	for _, file := range files {
		if err := plain(file); err != nil {
			return nil, err
		}
	}
	if len(files) > 1 {
		rules := clientcmd.ClientConfigLoadingRules{Precedence: files}
		return rules.Load()
	}
	raw, err := clientcmd.LoadFromFile(path)
	var in *os.PathError
	switch {
	case errors.As(err, &in):
		return nil, in.Err // without the path, which the caller adds
	case err != nil:
		return nil, fmt.Errorf("not a kubeconfig: %w", err)
	}
	return raw, clientcmd.ResolveLocalPaths(raw)
}

// holdToken reads the token's file, of which client-go, given the file, takes up another one after
// 50 seconds, whatever the server responds to the old one (TestTokenFileIsFollowed).
func holdToken(config *rest.Config) error {
	file := config.BearerTokenFile
	if file == "" {
		return nil
	}
	if token := strings.TrimSpace(string(readSmall(file))); token != "" {
		config.BearerToken = token
	}
	if config.BearerToken = strings.TrimSpace(config.BearerToken); config.BearerToken == "" {
		return fmt.Errorf("the file of its token %q has none", file)
	}
	config.BearerTokenFile = ""
	return nil
}

// holdCertificate reads the client certificate, of which client-go, given the files, takes up
// another one after five minutes (transport, CertCallbackRefreshDuration), and with which it cuts
// off all watches then.
func holdCertificate(config *rest.Config) (err error) {
	if config.CertFile == "" || len(config.CertData) > 0 {
		return nil
	}
	if config.CertData, err = os.ReadFile(config.CertFile); err != nil {
		return err
	}
	if len(config.KeyData) == 0 {
		config.KeyData, err = os.ReadFile(config.KeyFile)
	}
	config.CertFile, config.KeyFile = "", ""
	return err
}

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
	return slices.DeleteFunc(files, func(file string) bool { return !filepath.IsAbs(file) })
}
