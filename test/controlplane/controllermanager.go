package main

import (
	"context"
	"fmt"

	kcmapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kcmconfig "k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	kcmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/controlplane/internal/state"
)

// controllerManagerFlags leave every controller on that upstream has on.
//
// The node lifecycle controller above all: it takes the not-ready taint off
// each new Node, and with the taint in place the scheduler selects no node for
// any claim. What would hurt is the other half of its work, to mark Nodes that
// no kubelet reports for; the grace period takes care of that.
//
// The volume binder has a deleter of its own for hostPath volumes: one that is
// Released, has the policy Delete, lacks the annotation
// pv.kubernetes.io/provisioned-by and matches /tmp/.+ anywhere in its path is
// deleted by kube-controller-manager, on the machine that this process runs on.
// Tests must annotate the volumes they make by hand.
func controllerManagerFlags(dir *state.Dir, s settings, kubeconfig string) []string {
	pki := func(name string) string { return dir.Path("pki", name) }
	flags := []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		// No port of its own: nothing scrapes it, and a port could be taken.
		"--secure-port=0",
		// It makes this directory, and its default is under /usr.
		"--flex-volume-plugin-dir=" + dir.Path("flexvolume"),
		// Each controller under its own ServiceAccount, whose role allows what
		// it does. The role of the whole component allows almost nothing.
		"--use-service-account-credentials=true",
		"--node-monitor-grace-period=" + s.nodeGrace.String(),
		// Claims whose event was missed wait for this; 15 s is upstream's.
		"--pvclaimbinder-sync-period=15s",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--service-account-private-key-file=" + pki("sa.key"),
		"--root-ca-file=" + pki("ca.crt"),
		"--cluster-signing-cert-file=" + pki("ca.crt"),
		"--cluster-signing-key-file=" + pki("ca.key"),
	}
	if s.kcmQPS > 0 {
		flags = append(flags, fmt.Sprintf("--kube-api-qps=%g", s.kcmQPS))
	}
	if s.kcmBurst > 0 {
		flags = append(flags, fmt.Sprintf("--kube-api-burst=%d", s.kcmBurst))
	}
	return flags
}

// parseControllerManager makes kube-controller-manager's options of its flags.
func parseControllerManager(args []string) (*kcmoptions.KubeControllerManagerOptions, error) {
	options, err := kcmoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, fmt.Errorf("kube-controller-manager: %w", err)
	}
	sets := options.Flags(kcmapp.KnownControllers(), kcmapp.ControllersDisabledByDefault(), kcmapp.ControllerAliases())
	return options, parse("kube-controller-manager", sets.FlagSets, args)
}

// runControllerManager runs the controllers until the context ends.
func runControllerManager(ctx context.Context, options *kcmoptions.KubeControllerManagerOptions) error {
	config, err := configure(ctx, options)
	if err != nil {
		return err
	}
	return kcmapp.Run(ctx, config.Complete())
}

// configure calls options.Config, which takes a context from Kubernetes 1.34 on.
func configure(ctx context.Context, options any) (*kcmconfig.Config, error) {
	known, off, aliases := kcmapp.KnownControllers(), kcmapp.ControllersDisabledByDefault(), kcmapp.ControllerAliases()
	switch o := options.(type) {
	case interface {
		Config(context.Context, []string, []string, map[string]string) (*kcmconfig.Config, error)
	}:
		return o.Config(ctx, known, off, aliases)
	case interface {
		Config([]string, []string, map[string]string) (*kcmconfig.Config, error)
	}:
		return o.Config(known, off, aliases)
	}
	return nil, fmt.Errorf("%T has no Config that is known here", options)
}
