package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	volumeusage "github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

func (p *program) quotaCommand() *cobra.Command {
	var apply bool
	c := &cobra.Command{
		Use:               "quota POOL",
		ValidArgsFunction: p.completePools,
		Short:             "List the limits of volumes, or give one to those that have none",
		Long: "Quota lists the volumes of a pool that has quota = \"project\", with their limits. With --apply the\n" +
			"volumes that have none get one, of the size in their records: those that were adopted, or made\n" +
			"before. Each of their files is visited; a run that was cut off is simply made again. Pods may go on.",
		Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			_, pool, err := p.loadPool(args)
			if err != nil {
				return err
			}
			l, err := p.limiter(c.Context(), pool)
			if err != nil {
				return err
			}
			if apply {
				return l.apply(c.Context())
			}
			return l.list(c.Context())
		},
	}
	c.Flags().BoolVar(&apply, "apply", false, "give a limit to each volume that has none")
	return c
}

// projects finds files that no limit of a volume counts, and whether there are projects for more
// volumes, in a pool that can be looked at. A process that may not ask the kernel finds nothing:
// the daemon tells the node.
func projects(takes volumeusage.Pool) (all []hostcheck.Finding) {
	if message := volumeusage.Escaped(takes); message != "" {
		all = append(all, hostcheck.Finding{Reason: plan.ReasonQuotaEscaped, Severity: hostcheck.Warn, Message: message})
	}
	if message := volumeusage.Scarce(takes); message != "" {
		all = append(all, hostcheck.Finding{Reason: plan.ReasonFewProjects, Severity: hostcheck.Warn, Message: message})
	}
	return all
}

// limiter works in one pool.
type limiter struct {
	p     *program
	pool  config.Pool
	store *volume.Pool
	id    mounts.Identity

	report hostcheck.Report
}

// limiter looks at the pool first: a full one is fine.
func (p *program) limiter(ctx context.Context, pool config.Pool) (*limiter, error) {
	if pool.Quota != plan.QuotaProject {
		return nil, usageError{fmt.Errorf("pool %s: quota is %q, and only with %q volumes have limits "+
			"that this command knows", pool.Name, pool.Quota, plan.QuotaProject)}
	}
	report, err := p.opened(ctx, pool)
	if err != nil {
		return nil, err
	}
	return &limiter{p, pool, storeOf(pool), report.Identity, report}, nil
}

// volumes are the volumes in the pool, and what projects take.
func (l *limiter) volumes(ctx context.Context) (all []record.Record, takes map[uint32]quota.Usage, err error) {
	inventory, err := l.store.List(ctx, l.id)
	if err != nil {
		return nil, nil, err
	}
	if takes, err = projectsTaken(ctx, l.store, l.id); err != nil {
		return nil, nil, err
	}
	for _, v := range inventory.Volumes {
		if v.Place == record.InPool {
			all = append(all, v)
		}
	}
	return all, takes, nil
}

func hasLimit(v record.Record, takes map[uint32]quota.Usage) bool {
	return v.ProjectID != 0 && takes[v.ProjectID].Limit.Bytes > 0
}

func (l *limiter) list(ctx context.Context) error {
	all, takes, err := l.volumes(ctx)
	if err != nil {
		return err
	}
	table := newTable(l.p.stdout, "VOLUME", "CLAIM", "SIZE", "PROJECT", "USED", "LIMIT")
	for _, v := range all {
		project, used, limit := "", "", "none"
		if u, known := takes[v.ProjectID]; known && v.ProjectID != 0 {
			project, used = fmt.Sprint(v.ProjectID), words.Size(u.Bytes)
		}
		if hasLimit(v, takes) {
			limit = words.Size(takes[v.ProjectID].Limit.Bytes)
		}
		table.row(printable(v.PV), printable(v.Namespace+"/"+v.Claim), sizeOf(uint64(max(v.Requested, 0))), project, used, limit)
	}
	return table.flush()
}

// apply limits one volume after the other; one that cannot be does not keep the others from it.
func (l *limiter) apply(ctx context.Context) error {
	all, takes, err := l.volumes(ctx)
	if err != nil {
		return err
	}
	var errs error
	limited := 0
	unlimited := slices.DeleteFunc(slices.Clone(all),
		func(v record.Record) bool { return hasLimit(v, takes) })
	shown := l.p.show(l.p.filesOf(l.pool, l.report, unlimited, slices.Collect(maps.Values(takes))))
	for _, v := range unlimited {
		var done volume.Applied
		var err error
		shown.during(printable(v.PV), func() { done, err = l.store.Apply(ctx, l.id, v.PV, shown.work) })
		if err == nil {
			limited++
			l.say(v, done)
			if err = done.Err(); err != nil {
				err = fmt.Errorf("volume %s: %w", v.PV, err)
			}
		}
		errs = errors.Join(errs, err)
		if ctx.Err() != nil || errors.Is(err, volume.ErrApplying) {
			break
		}
	}
	fmt.Fprintf(l.p.stdout, "pool %s: %s, %d got a limit\n", l.pool.Name, words.Count(len(all), "volume"), limited)
	return errs
}

func (l *limiter) say(v record.Record, done volume.Applied) {
	skipped := ""
	if done.Special > 0 {
		skipped += fmt.Sprintf("; %s of links, FIFOs, sockets and devices skipped", words.Count(done.Special, "inode"))
	}
	if done.Mounts > 0 {
		skipped += fmt.Sprintf("; %s not entered", words.Count(done.Mounts, "mount"))
	}
	fmt.Fprintf(l.p.stdout, "%s: limited to %s, %d entries counted%s\n", printable(v.PV), words.Size(uint64(max(v.Requested, v.Promised))), done.Seen-done.Special-done.Left, skipped)
}
