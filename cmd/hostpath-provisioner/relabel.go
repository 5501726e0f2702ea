package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/inline"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

func (p *program) relabelCommand() *cobra.Command {
	var dryRun, module bool
	c := &cobra.Command{
		Use:               "relabel POOL|VOLUME",
		ValidArgsFunction: p.completePools,
		Short:             "Give volumes the SELinux label that they should have",
		Long: "Relabel gives a pool's volumes, or one volume, the type in selinux_type, and the pool's own\n" +
			"directory the one that the policy module has for it. What has the right label is only looked at,\n" +
			"so a run that was cut off is simply made again. It follows no link and enters no mount.",
		Args: func(c *cobra.Command, list []string) error {
			if module {
				return args(0, 0)(c, list)
			}
			return args(1, 1)(c, list)
		},
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			if module {
				_, err := io.WriteString(p.stdout, poolsModule(cfg))
				return err
			}
			return p.relabel(c.Context(), cfg, args[0], dryRun)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be relabelled, and change nothing")
	c.Flags().BoolVar(&module, "module", false, "print the policy module (CIL) that makes the labels of all pools, and of the CSI driver's sockets, permanent")
	return c
}

func poolsModule(cfg config.Config) string {
	var all []selinux.PoolLabels
	for _, p := range cfg.Pools {
		if p.SELinuxType != "" {
			all = append(all, selinux.PoolLabels{Path: p.Path, Type: p.SELinuxType, Network: daemon.OnNetwork(p), Clones: p.MakesCopies()})
		}
	}
	return selinux.PoolsModule(all, labelledSockets(cfg)...)
}

// labelledSockets are those of the CSI node service: also those for which no pool has a use yet.
// After a change of the configuration systemd makes them, and the policy need not be written again.
func labelledSockets(cfg config.Config) []string {
	return append(csiSockets(cfg), pause.SocketPath(cfg.KubeletRoot, cfg.Provisioner), inline.SocketPath(cfg.KubeletRoot, cfg.Provisioner))
}

// noVolumeError says that the command line names neither a pool nor a volume.
type noVolumeError struct{ name string }

func (e noVolumeError) Error() string {
	return fmt.Sprintf("no pool and no volume is named %q", e.name)
}

// closedError says that a pool cannot be worked in now.
type closedError struct {
	pool    config.Pool
	finding hostcheck.Finding
}

func (e closedError) Error() string {
	return fmt.Sprintf("pool %s: %s: %s", e.pool.Name, e.finding.Reason, e.finding.Message)
}

// relabel finds out what the name means and does it: a pool with all its volumes, or one volume.
func (p *program) relabel(ctx context.Context, cfg config.Config, what string, dryRun bool) error {
	if selinux.Mode() == "disabled" {
		fmt.Fprintf(p.stderr, "%s: warning: SELinux is disabled on this host: labels are written but have no effect\n", name)
	}
	var closed error
	pools := cfg.Named(what)
	for _, pool := range pools {
		r, err := p.relabeller(ctx, pool, dryRun)
		if err == nil {
			err = r.pool(ctx)
		}
		closed = errors.Join(closed, err)
	}
	if len(pools) > 0 {
		return closed
	}
	for _, pool := range cfg.Pools {
		if pool.SELinuxType == "" {
			continue
		}
		r, err := p.relabeller(ctx, pool, dryRun)
		if err != nil {
			closed = errors.Join(closed, err)
			continue
		}
		if v, err := r.store.Lookup(ctx, r.id, what); err == nil {
			r.report.Inodes = 0 // of all volumes
			return r.volumes(ctx, []record.Record{v})
		}
	}
	if closed != nil {
		return closed // it may be in there
	}
	return usageError{noVolumeError{what}}
}

// relabeller works in one pool.
type relabeller struct {
	p      *program
	config config.Pool
	store  *volume.Pool
	id     mounts.Identity
	dryRun bool
	report hostcheck.Report
}

// relabeller looks at the pool first: a full one is fine, and so is one whose labels are wrong.
func (p *program) relabeller(ctx context.Context, pool config.Pool, dryRun bool) (*relabeller, error) {
	if pool.SELinuxType == "" {
		return nil, usageError{fmt.Errorf("pool %s: selinux_type is \"\": its labels are the policy's", pool.Name)}
	}
	looking, cancel := context.WithTimeout(ctx, poolDeadline)
	defer cancel()
	remembered, err := state.Remembered(p.stateDir, pool.Name)
	if err != nil {
		return nil, err
	}
	report := hostcheck.NewProber(p.expect(pool, remembered)).Probe(looking)
	if f, shut := report.Shut(); shut {
		return nil, closedError{pool, f}
	}
	return &relabeller{
		p: p, config: pool, store: storeOf(pool), id: report.Identity, dryRun: dryRun, report: report,
	}, nil
}

// pool relabels the pool's own directory, if the policy has a type for it, and all volumes.
func (r *relabeller) pool(ctx context.Context) error {
	if selinux.Knows(selinux.PoolType) {
		done, err := r.store.RelabelOwn(ctx, r.id, volume.Relabelling{Want: selinux.Want{Type: selinux.PoolType}, DryRun: r.dryRun})
		if err != nil {
			return err
		}
		r.say(r.config.Path, done)
		if err := done.Err(); err != nil {
			return fmt.Errorf("pool %s: %w", r.config.Name, err)
		}
	}
	inventory, err := r.store.List(ctx, r.id)
	if err != nil {
		return err
	}
	var all []record.Record
	for _, v := range inventory.Volumes {
		if v.Place == record.InPool || v.Place == record.InTrash || v.Place == record.InArchive {
			all = append(all, v)
		}
	}
	return r.volumes(ctx, all)
}

// volumes relabels one after the other; one that cannot be does not keep the others from it.
func (r *relabeller) volumes(ctx context.Context, all []record.Record) error {
	takes, err := r.store.Projects(ctx, r.id)
	if err != nil { // without them the total is not known
		takes = nil
	}
	shown := r.p.show(r.p.filesOf(r.config, r.report, all, takes))
	var total volume.Relabelled
	var errs error
	for _, v := range all {
		pv, done, err := v.PV, volume.Relabelled{}, error(nil)
		shown.during(printable(pv), func() {
			done, err = r.store.Relabel(ctx, r.id, pv, volume.Relabelling{
				Want: want(r.config), DryRun: r.dryRun,
				Progress: func(volume.Relabelled) { shown.work.Add(1, 0) },
			})
		})
		if err == nil {
			if err = done.Err(); err != nil {
				err = fmt.Errorf("volume %s: %w", pv, err)
			}
		}
		errs = errors.Join(errs, err)
		total.Add(done)
		r.say(pv, done)
		if ctx.Err() != nil {
			break
		}
	}
	verb := "relabelled"
	if r.dryRun {
		verb = "to relabel"
	}
	fmt.Fprintf(r.p.stdout, "pool %s: %s, %d entries looked at, %d %s\n",
		r.config.Name, words.Count(len(all), "volume"), total.Seen, total.Changed, verb)
	return errs
}

// want is what the labels of a pool's volumes have to be, whose records say no source.
func want(pool config.Pool) selinux.Want {
	return selinux.Want{Type: pool.SELinuxType}.For(pool.Source)
}

// say prints a line for what was not as it should be.
func (r *relabeller) say(what string, done volume.Relabelled) {
	if done.Changed == 0 && done.Mounts == 0 {
		return
	}
	verb := "relabelled"
	if r.dryRun {
		verb = "would be relabelled"
	}
	mounts := ""
	if done.Mounts > 0 {
		mounts = fmt.Sprintf("; %s not entered", words.Count(done.Mounts, "mount"))
	}
	fmt.Fprintf(r.p.stdout, "%s: %d of %d entries %s%s\n", what, done.Changed, done.Seen, verb, mounts)
}

// wrongLabels looks at the volumes of a pool that can be looked at and whose files have labels.
func wrongLabels(ctx context.Context, pool config.Pool, r hostcheck.Report) (hostcheck.Finding, bool) {
	if !r.Labelled || !r.Removable() || pool.SELinuxType == "" {
		return hostcheck.Finding{}, false
	}
	seen, wrong, err := storeOf(pool).Labels(ctx, r.Identity, want(pool))
	if err != nil || len(wrong) == 0 {
		return hostcheck.Finding{}, false // what cannot be read is said by the volumes command
	}
	return hostcheck.Finding{Reason: hostcheck.ReasonWrongLabel, Severity: hostcheck.Warn, Message: wrongLabel(seen, wrong, pool)}, true
}

func wrongLabel(seen int, wrong []volume.Mislabelled, pool config.Pool) string {
	first := wrong[0]
	has := "no label"
	if first.Label != "" {
		has = "label " + first.Label
	}
	return fmt.Sprintf("volumes without the label %s: %d of %d; %s has %s",
		selinux.Label(pool.SELinuxType), len(wrong), seen, first.PV, has)
}
