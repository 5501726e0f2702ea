package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/follow"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/forget"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/prepare"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// importing is what the command line asks for.
type importing struct {
	from   string
	dryRun bool
	force  again
}

const importLong = `Import has everything that another node's disk brought follow to this node: it
writes into the pool's marker that the pool is this node's, as prepare --from-node does, and makes
each PersistentVolume again for this node, of the same name and for the same claim. The claim is
Lost for some seconds, and then Bound. Snapshots follow, too. No data is touched.

It refuses while the other node is Ready, or its daemon writes, and leaves volumes that a pod there
uses. What was cut off is finished by the next call. The disk may move back in the same way.`

func (p *program) importCommand() *cobra.Command {
	var o importing
	c := &cobra.Command{
		Use:               "import POOL",
		ValidArgsFunction: p.completePools,
		Short:             "Take over the volumes on a disk that was another node's",
		Long:              importLong,
		Args:              args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, pools, err := p.loadPools(args)
			if err != nil {
				return err
			}
			switch {
			case o.from == "":
				return usageError{errors.New("--from-node: no node is named")}
			case o.from == cfg.Node:
				return usageError{fmt.Errorf("--from-node: %q is this node's own name", cfg.Node)}
			case pools[0].Scope != config.ScopeNode:
				return usageError{fmt.Errorf("pool %s has scope %s: its volumes are not one node's",
					pools[0].Name, pools[0].Scope)}
			}
			forced, err := o.force.confirmed(o.from, c.InOrStdin(), p.stderr)
			if err != nil {
				return err
			}
			return p.imports(c.Context(), cfg, pools[0], o, forced)
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.from, "from-node", "", "the pool was this `node`'s")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print what would be done, and change nothing")
	flags.Var(&o.force, "force",
		"go on though that node looks alive; asks for its name, which is --force=NODE in a script")
	flags.Lookup("force").NoOptDefVal = anyName
	return c
}

func (p *program) imports(ctx context.Context, cfg config.Config, pool config.Pool, o importing,
	forced bool) error {
	late := fmt.Errorf("not done within %s", adoptDeadline)
	ctx, cancel := context.WithTimeoutCause(ctx, adoptDeadline, late)
	defer cancel()
	self := daemon.Self(cfg)
	client, err := kube.New(kube.Options{Kubeconfig: cfg.Kubeconfig, TokenFile: p.tokenFile(),
		Self: self, Namespace: cfg.Namespace, UserAgent: pluginName + "/" + p.version()})
	if err != nil {
		return err
	}
	former := self
	former.Node = o.from
	alive, err := forget.Alive(ctx, forget.Options{Self: former, API: client, Forced: forced,
		Watch: 2 * leadership.Renewal})
	if err != nil {
		return err
	}
	if alive.Action != forget.Forget {
		return aliveError{alive.Message}
	}
	store := volume.New(volume.Options{Name: pool.Name, Path: pool.Path})
	report, err := p.takenOver(ctx, client, pool, store, o)
	if err != nil {
		return err
	}
	rows, err := follow.Run(ctx, follow.Options{
		Self: self, From: o.from, Store: store, Identity: report.Identity, API: client,
		Pool:   plan.Pool{Name: pool.Name, Path: pool.Path, Scope: pool.Scope, Source: pool.Source},
		DryRun: o.dryRun,
	})
	if told := p.tellImported(rows, o); told != nil || err != nil {
		return errors.Join(told, err)
	}
	if slices.ContainsFunc(rows, func(r follow.Row) bool { return r.Action == plan.Refuse }) {
		return errNot
	}
	return nil
}

// takenOver makes the pool this node's, by its marker, if it is still the other node's. A call that
// changes nothing looks into that one's.
func (p *program) takenOver(ctx context.Context, client *kube.Client, pool config.Pool,
	store *volume.Pool, o importing) (hostcheck.Report, error) {
	cluster, err := client.ClusterID(ctx)
	if err != nil {
		return hostcheck.Report{}, err
	}
	report := p.looked(ctx, pool)
	if f, other := otherCluster(pool, report.Mark, cluster); other {
		return report, closedError{pool, f}
	}
	theirs := report.Mark.Node == o.from
	if theirs && !o.dryRun {
		done, err := p.runPrepare(ctx, pool, store, false, prepare.Owner{From: o.from})
		for _, line := range done.Done {
			fmt.Fprintln(p.stdout, line)
		}
		if err != nil {
			return report, err
		}
		report = p.looked(ctx, pool)
	}
	for _, f := range report.Findings {
		meant := theirs && o.dryRun && f.Reason == hostcheck.ReasonOtherNode
		if f.Severity == hostcheck.Close && !meant {
			return report, closedError{pool, f}
		}
	}
	if !theirs && !slices.Contains(report.Mark.Former(), o.from) {
		return report, fmt.Errorf("pool %q: its marker does not say that it was node %q's: %w",
			pool.Name, o.from, prepare.ErrNotOwner)
	}
	return report, nil
}

func (p *program) looked(ctx context.Context, pool config.Pool) hostcheck.Report {
	ctx, done := context.WithTimeout(ctx, poolDeadline)
	defer done()
	return p.probe(ctx, pool)
}

func (p *program) tellImported(rows []follow.Row, o importing) error {
	if len(rows) > 0 {
		table := newTable(p.stdout, "NAME", "OF", "STATUS")
		for _, r := range rows {
			table.row(printable(r.Name), printable(r.Of), importVerdict(r, o.dryRun))
		}
		if err := table.flush(); err != nil {
			return err
		}
		fmt.Fprintln(p.stdout)
	}
	count := map[plan.Action]int{}
	for _, r := range rows {
		count[r.Action]++
	}
	word := "moved"
	if o.dryRun {
		word = "would be moved"
	}
	_, err := fmt.Fprintf(p.stdout, "%d %s, %d left, %d refused\n",
		count[follow.Move]+count[follow.Finish], word, count[plan.Keep], count[plan.Refuse])
	if slices.ContainsFunc(rows, func(r follow.Row) bool {
		return r.Action == plan.Refuse && strings.Contains(r.Message, "forbidden")
	}) {
		fmt.Fprintln(p.stderr, "hint: name an administrator's kubeconfig with --kubeconfig")
	}
	return err
}

func importVerdict(r follow.Row, dryRun bool) string {
	switch {
	case r.Action == plan.Refuse:
		return "refused: " + r.Message
	case r.Action == plan.Keep:
		return "left: " + r.Message
	case dryRun:
		return string(r.Action)
	}
	return "moved"
}
