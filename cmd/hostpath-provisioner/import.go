package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/follow"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/forget"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/prepare"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// importing is what the command line asks for.
type importing struct {
	anew
	from   string
	dryRun bool
	force  again
}

// anew is what the command line says of objects that the cluster does not have.
type anew struct {
	newCluster, claims bool
	classes            map[string]string
}

func (o *anew) flags(flags *pflag.FlagSet, newCluster, claims string) {
	flags.BoolVar(&o.newCluster, "new-cluster", false, "the cluster knows nothing of "+newCluster)
	flags.BoolVar(&o.claims, "claims", false, "with --new-cluster: make "+claims+", too")
	flags.StringToStringVar(&o.classes, "class", nil,
		"with --new-cluster: a class has another name here, `OLD=NEW`; may be repeated")
}

// wrong is why this cannot be done in a pool, nil if it can.
func (o *anew) wrong(pool config.Pool) error {
	switch {
	case !o.newCluster && (o.claims || len(o.classes) > 0):
		return usageError{errors.New("--claims and --class go with --new-cluster")}
	case pool.Scope != plan.ScopeNode:
		return usageError{fmt.Errorf("pool %s has scope %s: its volumes are not one node's",
			pool.Name, pool.Scope)}
	}
	return nil
}

// wrong is why the words of the command line do not go together, nil if they do.
func (o importing) wrong(pool config.Pool) error {
	if o.from == "" && !o.newCluster {
		return usageError{errors.New("--from-node: no node is named")}
	}
	return o.anew.wrong(pool)
}

const importLong = `Import has everything that another node's disk brought follow to this node: it
writes into the pool's marker that the pool is this node's, as prepare --from-node does, and makes
each PersistentVolume again for this node, of the same name and for the same claim. The claim is
Lost for some seconds, and then Bound. Snapshots follow, too. No data is touched.

It refuses while the other node is Ready, or its daemon writes, and leaves volumes that a pod there
uses. What was cut off is finished by the next call. The disk may move back in the same way.

With this node's own name, the objects are made again that say another hostname label of the node or
another path of the pool than there is now.

With --new-cluster it makes the PersistentVolumes anew from the records on the disk: in another
cluster, where etcd was lost, or after forget-node. Each waits for the claim of the recorded
namespace and name, which --claims makes, too. A claim of the name that is not the volume's own is
left alone.`

func (p *program) importCommand() *cobra.Command {
	var o importing
	c := &cobra.Command{
		Use:               "import POOL",
		ValidArgsFunction: p.completePools,
		Short:             "Take over the volumes on a disk that was another node's",
		Long:              importLong,
		Args:              args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, pool, err := p.loadPool(args)
			if err != nil {
				return err
			}
			if err := o.wrong(pool); err != nil {
				return err
			}
			forced, err := o.force.confirmed(o.from, c.InOrStdin(), p.stderr)
			if err != nil {
				return err
			}
			return p.imports(c.Context(), cfg, pool, o, forced)
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.from, "from-node", "", "the pool was this `node`'s")
	o.flags(flags, "the volumes: make their objects from the records", "the claims")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print what would be done, and change nothing")
	o.force.flag(flags, "that node")
	return c
}

func (p *program) imports(ctx context.Context, cfg config.Config, pool config.Pool, o importing,
	forced bool) error {
	ctx, cancel := within(ctx, adoptDeadline)
	defer cancel()
	client, err := p.asNode(cfg)
	if err != nil {
		return err
	}
	store := volume.New(volume.Options{Name: pool.Name, Path: pool.Path})
	f := follow.Options{
		Self: daemon.Self(cfg), From: o.from, Store: store, API: client, DryRun: o.dryRun, Forced: forced,
		Pool: daemon.PlanPool(pool),
	}
	of := importer{p, pool, store, client}
	var rows []follow.Row
	if o.newCluster {
		rows, err = of.anew(ctx, f, o)
	} else {
		rows, err = of.follows(ctx, f)
	}
	if err != nil && rows == nil {
		return err
	}
	if told := p.tellImported(rows, o); told != nil || err != nil {
		return errors.Join(told, err)
	}
	if slices.ContainsFunc(rows, func(r follow.Row) bool { return r.Action == plan.Refuse }) {
		return errNot
	}
	return nil
}

// importer is a pool whose disk came from elsewhere.
type importer struct {
	*program
	pool   config.Pool
	store  *volume.Pool
	client *kube.Client
}

// follows has the volumes follow that the cluster knows.
func (d importer) follows(ctx context.Context, f follow.Options) ([]follow.Row, error) {
	if err := d.gone(ctx, f); err != nil {
		return nil, err
	}
	report, err := d.takenOver(ctx, f)
	if err != nil {
		return nil, err
	}
	f.Identity = report.Identity
	return follow.Run(ctx, f)
}

// gone is why the former node must not be taken for gone, nil if it may.
func (d importer) gone(ctx context.Context, f follow.Options) error {
	if f.From == f.Node {
		return nil
	}
	former := f.Self
	former.Node = f.From
	alive, err := forget.Alive(ctx, forget.Options{Self: former, API: d.client, Forced: f.Forced,
		Watch: 2 * leadership.Renewal})
	if err == nil && alive.Action != forget.Forget {
		return aliveError{alive.Message}
	}
	return err
}

// takenOver makes the pool this node's, by its marker, if it is still the other node's. A call that
// changes nothing looks into that one's.
func (d importer) takenOver(ctx context.Context, f follow.Options) (hostcheck.Report, error) {
	cluster, err := d.client.ClusterID(ctx)
	if err != nil {
		return hostcheck.Report{}, err
	}
	report := d.looked(ctx, d.pool)
	if found, other := otherCluster(d.pool, report.Mark, cluster); other {
		return report, closedError{d.pool, found}
	}
	if f.Identity = report.Identity; report.Mark.ID != "" && !f.Forced {
		if v, node, err := follow.Elsewhere(ctx, f); err != nil || v != "" {
			return report, cmp.Or(err, error(aliveError{fmt.Sprintf("volume %s is on node %s by "+
				"now, which has another disk with the same records", v, node)}))
		}
	}
	theirs := report.Mark.Node == f.From && f.From != f.Node
	if theirs && !f.DryRun {
		if err := d.remark(ctx, prepare.Owner{From: f.From}); err != nil {
			return report, err
		}
		report = d.looked(ctx, d.pool)
	}
	var meant []string
	if theirs && f.DryRun {
		meant = []string{hostcheck.ReasonOtherNode}
	}
	if err := d.closed(report, meant...); err != nil {
		return report, err
	}
	if !theirs && report.Mark.Node != f.From && !slices.Contains(report.Mark.Former(), f.From) {
		return report, fmt.Errorf("pool %q: its marker does not say that it was node %q's: %w",
			d.pool.Name, f.From, prepare.ErrNotOwner)
	}
	return report, nil
}

// anew makes objects of what the disk has recorded. The marker becomes this cluster's, and this
// node's, when it is noted on the disk what is to be made.
func (d importer) anew(ctx context.Context, f follow.Options, o importing) ([]follow.Row, error) {
	cluster, err := d.client.ClusterID(ctx)
	if err != nil {
		return nil, err
	}
	report := d.looked(ctx, d.pool)
	_, other := otherCluster(d.pool, report.Mark, cluster)
	meant := []string{hostcheck.ReasonOtherCluster}
	if owner := report.Mark.Node; owner != "" && owner != f.Node {
		if owner != o.from {
			return nil, fmt.Errorf("pool %q: its marker says that it is node %q's: "+
				"--from-node %s: %w", d.pool.Name, owner, owner, prepare.ErrNotOwner)
		}
		if !other { // else a node of that name here is another one
			if err := d.gone(ctx, f); err != nil {
				return nil, err
			}
		}
		meant, other = append(meant, hostcheck.ReasonOtherNode), true
	}
	if err := d.closed(report, meant...); err != nil {
		return nil, err
	}
	f.Identity, f.From = report.Identity, ""
	return follow.Anew(ctx, follow.AnewOptions{
		Options: f, Claims: o.claims, Classes: o.classes, CreateClaim: d.client.CreateClaim,
		Own: func(ctx context.Context) error {
			if !other {
				return nil
			}
			return d.remark(ctx, prepare.Owner{From: o.from, NewCluster: true})
		},
	})
}

// remark writes into the marker whose the pool is.
func (d importer) remark(ctx context.Context, owner prepare.Owner) error {
	done, err := d.runPrepare(ctx, d.pool, d.store, false, owner)
	for _, line := range done.Done {
		fmt.Fprintln(d.stdout, line)
	}
	return err
}

// closed is why nothing can be done in the pool, nil if something can. The findings of these
// reasons are why the command was called.
func (d importer) closed(report hostcheck.Report, meant ...string) error {
	for _, f := range report.Findings {
		if f.Severity == hostcheck.Close && !slices.Contains(meant, f.Reason) {
			return closedError{d.pool, f}
		}
	}
	return nil
}

func (p *program) looked(ctx context.Context, pool config.Pool) hostcheck.Report {
	ctx, done := context.WithTimeout(ctx, poolDeadline)
	defer done()
	return p.probe(ctx, pool)
}

// opened looks at a pool that a command works in, where a full one is fine.
func (p *program) opened(ctx context.Context, pool config.Pool) (hostcheck.Report, error) {
	report := p.looked(ctx, pool)
	if f, shut := report.Shut(); shut {
		return report, closedError{pool, f}
	}
	return report, nil
}

// ofCluster is a client with this node's identity, and the ID of its cluster, which a pool with
// this marker has to be of.
func (p *program) ofCluster(ctx context.Context, cfg config.Config, pool config.Pool,
	mark hostcheck.Marker) (client *kube.Client, cluster string, err error) {
	if client, err = p.asNode(cfg); err != nil {
		return nil, "", err
	}
	if cluster, err = client.ClusterID(ctx); err != nil {
		return nil, "", err
	}
	if f, other := otherCluster(pool, mark, cluster); other {
		return nil, "", closedError{pool, f}
	}
	return client, cluster, nil
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
	if o.newCluster {
		word = "made"
	}
	if o.dryRun {
		word = "would be " + word
	}
	done := count[follow.Move] + count[follow.Finish] + count[follow.Drop] +
		count[follow.Make] + count[follow.Claim]
	_, err := fmt.Fprintf(p.stdout, "%d %s, %d left, %d refused\n",
		done, word, count[plan.Keep], count[plan.Refuse])
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
	case r.Action == follow.Drop:
		return "dropped"
	case r.Action == follow.Make, r.Action == follow.Claim:
		return "made"
	}
	return "moved"
}
