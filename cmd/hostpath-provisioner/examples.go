package main

import "github.com/spf13/cobra"

// examples are what the help of a command, and its man page, show of its use.
var examples = map[string]string{
	"adopt": `
  hostpath-provisioner adopt fast --dry-run
  hostpath-provisioner adopt fast --from-csi kubevirt.io.hostpath-provisioner`,
	"backup": `
  hostpath-provisioner backup >/root/volumes.json`,
	"check": `
  hostpath-provisioner check fast
  hostpath-provisioner check --cluster`,
	"enroll": `
  hostpath-provisioner enroll --admin-kubeconfig /root/admin.conf
  hostpath-provisioner enroll --all -o kubeconfigs`,
	"explain": `
  hostpath-provisioner explain MountMissing`,
	"forget-node": `
  kubectl hostpath forget-node node-c --dry-run
  kubectl hostpath forget-node node-c --claims`,
	"import": `
  hostpath-provisioner import fast --from-node node-a --dry-run
  hostpath-provisioner import fast --new-cluster --claims --class fast=fast-xfs`,
	"manifests": `
  hostpath-provisioner manifests --pool-path /srv/fast | kubectl apply -f -
  hostpath-provisioner manifests --delete | kubectl delete --ignore-not-found -f -`,
	"nodes": `
  kubectl hostpath nodes -o wide`,
	"pool": `
  hostpath-provisioner pool cordon fast
  hostpath-provisioner pool uncordon fast`,
	"pools": `
  kubectl hostpath pools --watch`,
	"prepare": `
  hostpath-provisioner prepare fast
  hostpath-provisioner prepare fast --from-node node-a`,
	"quota": `
  hostpath-provisioner quota fast --apply`,
	"relabel": `
  hostpath-provisioner relabel fast --dry-run`,
	"snapshots": `
  kubectl hostpath snapshots -n shop`,
	"status": `
  hostpath-provisioner status --watch`,
	"volumes": `
  hostpath-provisioner volumes fast
  kubectl hostpath volumes -n shop -o wide`,
	"why": `
  kubectl hostpath why pvc data
  kubectl hostpath why -n shop pod/db-0`,
}

// withExamples gives each command its examples.
func withExamples(root *cobra.Command) {
	for _, c := range root.Commands() {
		if text := examples[c.Name()]; text != "" {
			c.Example = text[1:] // without the line's end before it
		}
	}
}
