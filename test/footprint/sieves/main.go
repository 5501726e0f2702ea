// Command sieves is the small program whose memory the footprint benchmark measures: it watches what
// the daemon watches, through package kube, and says "synced". It does nothing else.
package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
)

func main() { os.Exit(run(os.Args[1])) }

func run(kubeconfig string) int {
	ctx, node := context.Background(), "node-a"
	c, err := kube.New(kube.Options{Kubeconfig: kubeconfig, Node: node, Provisioner: plan.DefaultProvisioner})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	claims := c.Claims(func(claim *corev1.PersistentVolumeClaim) bool {
		return plan.KeepClaim(claim, plan.DefaultProvisioner, node)
	}, nil)
	volumes := c.Volumes(plan.NodeLabelValue(node), nil)
	go claims.Run(ctx)
	go volumes.Run(ctx)
	<-claims.Synced()
	<-volumes.Synced()
	fmt.Println("synced", len(claims.List()), len(volumes.List()))
	select {}
}
