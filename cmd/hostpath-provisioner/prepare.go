package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/prepare"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// prepareDeadline is how long the pool's filesystem may take to respond.
const prepareDeadline = 10 * time.Second

func (p *program) prepareCommand() *cobra.Command {
	var replace bool
	var owner prepare.Owner
	c := &cobra.Command{
		Use:               "prepare POOL",
		ValidArgsFunction: p.completePools,
		Short:             "Make the mount point, or mark the filesystem that is mounted there",
		Long: "Prepare makes a pool's mount point and the immutable flag on it. Once the storage is mounted, it\n" +
			"closes the pool's directory to other users, and writes the marker that tells this filesystem from\n" +
			"every other. It never mounts or removes anything, and on a prepared pool it does nothing.\n\n" +
			"A pool remembers its node and its cluster. --from-node says that another node's pool is this\n" +
			"node's from now on: the node was renamed, or the disk moved; --from-pool that the pool had\n" +
			"another name there. --new-cluster says that it belongs to the cluster that the daemon finds next.\n" +
			"--from-shared says that nodes do not share it any more: stop the daemons of the other ones\n" +
			"before. None of them changes anything else.",
		Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, pools, err := p.loadPools(args)
			if err != nil {
				return err
			}
			pool := pools[0] // several have the same settings
			owner.Shared = pool.Scope == plan.ScopeShared
			if owner.From != "" && pool.Scope == plan.ScopeEveryNode {
				return usageError{fmt.Errorf("--from-node: pool %s has scope %s, and belongs to no single node", pool.Name, pool.Scope)}
			}
			if len(pools) > 1 && (replace || owner.FromPool != "") {
				return usageError{fmt.Errorf("--replace and --from-pool are for one pool, and %s is several: %s",
					args[0], daemon.NamesOf(pools))}
			}
			if c.Flags().Changed("from-pool") && (owner.FromPool == "" || owner.From == "") {
				return usageError{errors.New("--from-pool: names a pool, and --from-node its node")}
			}
			if owner.FromShared && owner.Shared {
				return usageError{fmt.Errorf("--from-shared: pool %s has scope %s", pool.Name, pool.Scope)}
			}
			if c.Flags().Changed("from-node") && owner.From == "" { // a script's empty variable
				return usageError{errors.New("--from-node: no node is named")}
			}
			if owner.From == cfg.Node && owner.FromPool == "" {
				return usageError{fmt.Errorf("--from-node: %q is this node's own name", cfg.Node)}
			}
			for _, pool := range pools {
				err = errors.Join(err, p.prepare(c.Context(), pool, replace, owner))
			}
			return err
		},
	}
	c.Flags().BoolVar(&replace, "replace", false, "accept another filesystem than the one that was prepared before")
	c.Flags().StringVar(&owner.From, "from-node", "", "the pool was `node`'s, and is this node's from now on")
	c.Flags().StringVar(&owner.FromPool, "from-pool", "", "that node called the pool `name`, and it is this one from now on")
	c.Flags().BoolVar(&owner.FromShared, "from-shared", false, "the pool was shared by nodes, and is this node's from now on")
	c.Flags().BoolVar(&owner.NewCluster, "new-cluster", false, "the pool belongs to the cluster that the daemon finds next")
	return c
}

func (p *program) prepare(ctx context.Context, pool config.Pool, replace bool, owner prepare.Owner) error {
	store := volume.New(volume.Options{Name: pool.Name, Path: pool.Path})
	r, err := p.runPrepare(ctx, pool, store, replace, owner)
	for _, done := range r.Done {
		fmt.Fprintln(p.stdout, done)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(p.stdout, "note:", note)
	}
	if errors.Is(err, prepare.ErrSymlink) {
		return linkError{err, pool}
	}
	if err != nil {
		return err
	}
	labelled := 0
	if r.Mounted || !pool.RequireMount {
		if labelled, err = p.labelPool(ctx, pool, store); err != nil {
			return err
		}
	}
	if len(r.Done) == 0 && labelled == 0 {
		fmt.Fprintf(p.stdout, "pool %s: nothing had to be done\n", pool.Name)
	}
	fmt.Fprintln(p.stdout, "next:", next(pool, r.Mounted))
	return nil
}

// runPrepare prepares a pool, and says nothing.
func (p *program) runPrepare(ctx context.Context, pool config.Pool, store *volume.Pool,
	replace bool, owner prepare.Owner) (prepare.Result, error) {
	owner.Node = p.node
	owner.Recorded = func(ctx context.Context, r hostcheck.Report) ([]string, error) {
		return recordedNodes(ctx, pool, r)
	}
	return prepare.Run(ctx, prepare.Options{
		Pool: pool, StateDir: p.stateDir, Replace: replace, Owner: owner, Marking: store,
		Check: func(ctx context.Context) hostcheck.Report {
			ctx, cancel := context.WithTimeout(ctx, prepareDeadline)
			defer cancel()
			r := hostcheck.NewProber(p.expect(pool, "")).Probe(ctx)
			said := func(f hostcheck.Finding) bool { // by the operator
				return owner.FromShared && f.Reason == plan.ReasonScopeChanged
			}
			found := p.foreignRecords(pool, r, inventoryOf(ctx, pool, r))
			r.Findings = append(r.Findings, slices.DeleteFunc(found, said)...)
			return r
		},
	})
}

// labelPool gives the pool's own directory the type that the policy module has for it, if it is
// loaded.
func (p *program) labelPool(ctx context.Context, pool config.Pool, store *volume.Pool) (int, error) {
	if !selinux.Knows(selinux.PoolType) {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, prepareDeadline)
	defer cancel()
	report := hostcheck.NewProber(p.expect(pool, "")).Probe(ctx)
	if !report.Labelled {
		return 0, nil
	}
	done, err := store.RelabelOwn(ctx, report.Identity, volume.Relabelling{Want: selinux.Want{Type: selinux.PoolType}})
	if err == nil {
		err = done.Err()
	}
	if done.Changed > 0 {
		fmt.Fprintf(p.stdout, "labelled %s and what the daemon keeps in it with type %s\n", pool.Path, selinux.PoolType)
	}
	return done.Changed, err
}

// next is what the operator does then.
func next(pool config.Pool, mounted bool) string {
	if mounted {
		return "run: hostpath-provisioner check " + pool.Name
	}
	what := "the pool's storage"
	if pool.Device != "" {
		what = pool.Device
	}
	return fmt.Sprintf("mount %s at %s, now and at each boot (/etc/fstab or a mount unit), then run: hostpath-provisioner prepare %s", what, pool.MountPoint, pool.Name)
}
