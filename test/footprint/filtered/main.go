// Command filtered is the small program whose memory the footprint benchmark measures: it watches
// what the daemon watches, through package kube, and says "synced". It does nothing else. With the
// second argument "indexed" it reads the claims by the label of the claim index.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube/claimindex"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

func main() { os.Exit(run(os.Args[1], os.Args[2] == "indexed")) }

func run(kubeconfig string, indexed bool) int {
	ctx := context.Background()
	self := plan.Self{Provisioner: plan.DefaultProvisioner, Node: "node-a"}
	c, err := kube.New(kube.Options{Kubeconfig: kubeconfig, Self: self})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	claims := c.Claims(self.KeepClaim, nil)
	volumes := c.Volumes(plan.NodeLabelValue(self.Node), nil)
	if indexed {
		claims.Select(claimindex.SelectionOf(self).String())
	}
	go claims.Run(ctx)
	go volumes.Run(ctx)
	<-claims.Synced()
	<-volumes.Synced()
	fmt.Println("synced", len(claims.List()), len(volumes.List()))
	select {}
}
