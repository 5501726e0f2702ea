package main

import (
	"context"
	"fmt"

	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

func schedulerFlags(s settings, kubeconfig string) []string {
	flags := []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
	}
	if s.schedulerQPS > 0 {
		flags = append(flags,
			fmt.Sprintf("--kube-api-qps=%g", s.schedulerQPS),
			fmt.Sprintf("--kube-api-burst=%d", int(2*s.schedulerQPS)))
	}
	return flags
}

// parseScheduler makes kube-scheduler's options of its flags.
func parseScheduler(args []string) (*scheduleroptions.Options, error) {
	options := scheduleroptions.NewOptions()
	return options, parse("kube-scheduler", options.Flags.FlagSets, args)
}

// runScheduler schedules until the context ends.
func runScheduler(ctx context.Context, options *scheduleroptions.Options) error {
	completed, scheduler, err := schedulerapp.Setup(ctx, options)
	if err != nil {
		return err
	}
	return schedulerapp.Run(ctx, completed, scheduler)
}
