package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// cordonDeadline is how long the daemon has to see it: by its slow look at each pool at the latest.
const cordonDeadline = 30 * time.Second

const poolLong = `Pool cordon has a pool take no new volumes: its node publishes no capacity for it,
and claims are refused (PoolCordoned) until pool uncordon. Volumes that are there go on, may become
larger, and are removed. It stays after a restart. Both return when the running daemon does so. The
name of several disks is each of them.`

func (p *program) poolCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "pool", Short: "Keep new volumes out of a pool, or let them in again", Long: poolLong,
		Args: args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return usageError{fmt.Errorf("pool: cordon or uncordon is needed")}
		},
	}
	for _, one := range []struct {
		verb, short string
		is          bool
	}{
		{"cordon", "Take no new volumes in a pool", true},
		{"uncordon", "Take new volumes in a pool again", false},
	} {
		c.AddCommand(&cobra.Command{
			Use: one.verb + " POOL", Short: one.short, Args: args(1, 1),
			ValidArgsFunction: p.completePools,
			RunE: func(c *cobra.Command, args []string) error {
				cfg, err := p.load()
				if err != nil {
					return err
				}
				pools := cfg.Named(args[0])
				if len(pools) == 0 {
					pools = []config.Pool{{Name: args[0]}} // it may have been configured
				}
				for _, pool := range pools {
					err = errors.Join(err, p.cordon(c.Context(), cfg, pool.Name, one.verb+"ed", one.is))
				}
				return err
			},
		})
	}
	return c
}

// cordon notes it for a configured pool, and waits for the daemon to see it. A pool that is not
// configured any more can be uncordoned.
func (p *program) cordon(ctx context.Context, cfg config.Config, pool, done string, is bool) error {
	was, err := state.Cordoned(p.stateDir, pool)
	if _, known := cfg.Pool(pool); err == nil && !known && (is || !was) {
		return usageError{noPoolError{pool, cfg}}
	}
	if err == nil {
		err = os.MkdirAll(p.stateDir, 0o700)
	}
	if err == nil && was != is {
		err = state.Cordon(p.stateDir, pool, is)
	}
	if err != nil {
		return err
	}
	if was == is {
		done = "already " + done
	}
	s, err := p.status()
	if err != nil {
		_, err = fmt.Fprintf(p.stdout, "pool %s %s; the daemon is not running\n", pool, done)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cordonDeadline)
	defer cancel()
	for ; !tells(s, pool, is); s, err = p.status() {
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pool %q is %s, and the daemon has not seen it within %s; "+
				"is %s its state directory?", pool, done, cordonDeadline, p.stateDir)
		case <-time.After(50 * time.Millisecond):
		}
	}
	_, err = fmt.Fprintf(p.stdout, "pool %s %s\n", pool, done)
	return err
}

// tells reports whether the daemon tells that it sees a pool cordoned, or not. What it has not
// checked, or has not as a pool, takes no volumes either way.
func tells(s daemon.Status, pool string, is bool) bool {
	at := slices.IndexFunc(s.Pools, func(one daemon.PoolStatus) bool { return one.Name == pool })
	return at < 0 || is == slices.ContainsFunc(s.Pools[at].Findings, func(f hostcheck.Finding) bool {
		return f.Reason == plan.ReasonCordoned
	})
}
