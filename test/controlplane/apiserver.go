package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/controlplane/internal/state"
)

const readyTimeout = 2 * time.Minute

// apiserverFlags are kube-apiserver's own flags, so that its documentation
// explains them.
func apiserverFlags(dir *state.Dir, s settings, port int) []string {
	pki := func(name string) string { return dir.Path("pki", name) }
	return []string{
		"--etcd-servers=" + cmp.Or(s.etcd, etcdClientSocket),
		"--bind-address=" + address,
		"--advertise-address=" + address,
		"--secure-port=" + strconv.Itoa(port),
		"--service-cluster-ip-range=" + serviceCIDR,
		// The reconciler would publish the advertised address as the endpoint
		// of the service "kubernetes", and a loopback address is not valid there.
		"--endpoint-reconciler-type=none",
		"--allow-privileged=true",

		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--client-ca-file=" + pki("ca.crt"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",

		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pki("sa.key"),
		"--service-account-signing-key-file=" + pki("sa.key"),

		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=" + frontProxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + pki("front-proxy-client.key"),

		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
	}
}

// parseAPIServer makes kube-apiserver's options of its flags.
func parseAPIServer(args []string) (*apiserveroptions.ServerRunOptions, error) {
	options := apiserveroptions.NewServerRunOptions()
	return options, parse("kube-apiserver", options.Flags().FlagSets, args)
}

// runAPIServer serves until the context ends.
func runAPIServer(ctx context.Context, options *apiserveroptions.ServerRunOptions) error {
	completed, err := complete(ctx, options)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return utilerrors.NewAggregate(errs)
	}
	return apiserverapp.Run(ctx, completed)
}

// complete calls options.Complete, which takes a context from Kubernetes 1.32 on.
func complete(ctx context.Context, options any) (apiserveroptions.CompletedOptions, error) {
	switch o := options.(type) {
	case interface {
		Complete(context.Context) (apiserveroptions.CompletedOptions, error)
	}:
		return o.Complete(ctx)
	case interface {
		Complete() (apiserveroptions.CompletedOptions, error)
	}:
		return o.Complete()
	}
	return apiserveroptions.CompletedOptions{}, fmt.Errorf("%T has no Complete that is known here", options)
}

// waitReady asks /readyz until it says yes. It covers the hooks that run after
// the start, among them the one that creates the RBAC roles without which the
// other components may not read anything.
//
// There is nothing to watch before the server responds, so this one asks again
// and again.
func waitReady(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.QPS = -1 // no limit
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		last = client.Discovery().RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for kube-apiserver: %w (last response: %v)", err, last)
	}
	return nil
}
