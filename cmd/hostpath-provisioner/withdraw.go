package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

// withdrawCommand is called when the package is removed: what the scheduler was told of this node
// is taken back. The last node has it compare nothing any more.
func (p *program) withdrawCommand() *cobra.Command {
	return &cobra.Command{
		Use: "withdraw-capacity", Short: "Take back what the scheduler was told of this node's capacity", Hidden: true, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			client, err := p.asNode(cfg)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), apiDeadline)
			defer cancel()
			var all storagecapacity.Group
			for _, driver := range daemon.Self(cfg).Drivers() {
				all = append(all, storagecapacity.New(storagecapacity.Options{
					Provisioner: driver, Node: plan.NodeLabelValue(cfg.Node),
					API: client.Publishing(driver),
					Log: slog.New(systemd.NewHandler(p.stderr, slog.LevelInfo)),
				}))
			}
			return errors.Join(all.Withdraw(ctx, false),
				client.DeleteNodeLease(ctx, cfg.Node, leadership.Identity(cfg.Node)))
		},
	}
}
