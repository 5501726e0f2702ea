package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

func schedulerFlags(s settings, kubeconfig string) []string {
	flags := []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--v=" + strconv.Itoa(s.verbosity),
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
	flags := pflag.NewFlagSet("kube-scheduler", pflag.ContinueOnError)
	for _, set := range options.Flags.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return nil, fmt.Errorf("kube-scheduler: %w", err)
	}
	return options, nil
}

// runScheduler schedules until the context ends.
func runScheduler(ctx context.Context, options *scheduleroptions.Options) error {
	completed, scheduler, err := schedulerapp.Setup(ctx, options)
	if err != nil {
		return err
	}
	return schedulerapp.Run(ctx, completed, scheduler)
}
