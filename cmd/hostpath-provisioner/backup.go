package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// backupDeadline is how long all reads may take.
const backupDeadline = 10 * time.Minute

func (p *program) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup",
		Short: "Print this provisioner's volumes and claims, to be created again",
		Long: "Backup prints the PersistentVolumes of this provisioner, of all nodes, and their\n" +
			"claims as JSON without what binds them in this cluster alone. kubectl create -f\n" +
			"makes them again where they are lost. The data is not in it.",
		Args: noArgs,
		RunE: p.ofPools(func(ctx context.Context, cfg config.Config, _ []config.Pool) error {
			return p.backup(ctx, cfg)
		}),
	}
}

// backup prints the volumes before the claims: a claim without its volume is Lost until it is
// there.
func (p *program) backup(ctx context.Context, cfg config.Config) error {
	ctx, cancel := within(ctx, backupDeadline)
	defer cancel()
	self := daemon.Self(cfg)
	client, err := p.asNode(cfg)
	if err != nil {
		return err
	}
	var found []*corev1.PersistentVolume
	err = client.EachVolume(ctx, func(v *corev1.PersistentVolume) {
		if self.Serves(v.Annotations[plan.ProvisionedBy]) || plan.Adopted(v) {
			found = append(found, v)
		}
	})
	if err != nil {
		return err
	}
	var volumes, claims []runtime.Object
	for _, v := range found {
		var claim *corev1.PersistentVolumeClaim
		if ref := v.Spec.ClaimRef; ref != nil {
			if claim, err = client.GetClaim(ctx, ref.Namespace, ref.Name); err != nil {
				return err
			}
		}
		volume, bound, ok := plan.Backup(v, claim)
		if !ok {
			continue
		}
		if volumes = append(volumes, volume); bound != nil {
			claims = append(claims, bound)
		}
	}
	return writeJSON(p.stdout, struct {
		metav1.TypeMeta
		Items []runtime.Object `json:"items"`
	}{metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, append(volumes, claims...)})
}
