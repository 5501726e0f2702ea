package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/adoptrules"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// adoptDeadline is how long all of an adoption may take: thousands of volumes take seconds.
const adoptDeadline = 10 * time.Minute

// adoption is what the command line asks for.
type adoption struct {
	overrides    adoptrules.Overrides
	dryRun, undo bool
	asJSON       bool
	driver       string // of CSI volumes, "" for the others
}

// kubeletDirectory is where kubelet keeps the sockets of drivers, unless it has another --root-dir.
const kubeletDirectory = "/var/lib/kubelet"

// wrong returns what contradicts itself on the command line.
func (a adoption) wrong() error {
	told := a.overrides.HasData || a.overrides.Released || a.overrides.Outside || len(a.overrides.Stopped) > 0
	switch {
	case a.undo && (told || a.driver != ""):
		return usageError{errors.New("--undo cannot be combined with --from-csi, --stopped, --released, --yes-nothing-runs-outside or --yes-this-node-has-the-data")}
	case a.driver != "" && (len(a.overrides.Stopped) > 0 || a.overrides.Outside):
		return usageError{errors.New("--from-csi cannot be combined with --stopped or --yes-nothing-runs-outside: it checks by itself that the driver is stopped")}
	}
	return nil
}

func (p *program) adoptCommand() *cobra.Command {
	var a adoption
	c := &cobra.Command{
		Use:               "adopt POOL",
		ValidArgsFunction: p.completePools,
		Short:             "Take over volumes that another provisioner made in a pool, or undo that",
		Long: "Adopt finds the PersistentVolumes whose directories lie in the pool and that another provisioner\n" +
			"made, one that the configuration names in aliases. It writes a record for each and marks its\n" +
			"object; from then on the daemon removes, archives or keeps it as it does its own. Directories\n" +
			"are not touched. --undo takes record and marks away again, from those and from volumes that the\n" +
			"daemon made under another provisioner's name, so that the other program can have them.\n\n" +
			"Volumes of a CSI driver are taken over with --from-csi, once the driver and the pods that use them\n" +
			"are stopped: each PersistentVolume is replaced by one of the pool, of the same name and for the\n" +
			"same claim. What was cut off is finished by the next call.",
		Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.wrong(); err != nil {
				return err
			}
			if c.Flags().Changed("from-csi") && a.driver == "" { // a script's empty variable
				return usageError{errors.New("--from-csi: no driver is named")}
			}
			cfg, pool, err := p.loadPool(args)
			if err != nil {
				return err
			}
			return p.adopt(c.Context(), cfg, pool, a)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&a.dryRun, "dry-run", false, "print what would be done, and change nothing")
	flags.BoolVar(&a.undo, "undo", false, "undo the adoption: take records and labels away again")
	flags.BoolVar(&a.overrides.HasData, "yes-this-node-has-the-data", false, "take volumes too whose node affinity does not name this node alone: their data is on this node")
	flags.StringSliceVar(&a.overrides.Stopped, "stopped", nil, "the other program is stopped, whatever the cluster shows; its `provisioner`, may be repeated")
	flags.BoolVar(&a.overrides.Outside, "yes-nothing-runs-outside", false, "no other program runs outside of the cluster, where nothing shows it")
	flags.BoolVar(&a.overrides.Released, "released", false, "take volumes too whose data is removed as soon as they are adopted")
	flags.StringVar(&a.driver, "from-csi", "", "take the volumes of this CSI `driver`, and no others")
	flags.BoolVar(&a.asJSON, "json", false, "print JSON")
	return c
}

func (p *program) adopt(ctx context.Context, cfg config.Config, pool config.Pool, a adoption) error {
	if a.driver != "" && pool.Scope != plan.ScopeNode {
		return fmt.Errorf("pool %q has scope %s, and a CSI driver's volumes are one node's", pool.Name, pool.Scope)
	}
	ctx, cancel := within(ctx, adoptDeadline)
	defer cancel()
	options, err := p.adoptOptions(ctx, cfg, pool, a)
	if err != nil {
		return err
	}
	work := adopt.Run
	switch {
	case a.undo:
		work = adopt.Undo
	case a.driver != "":
		work = adopt.FromCSI
	}
	rows, wrong := work(ctx, options)
	if wrong != nil && len(rows) == 0 {
		return wrong
	}
	if err := errors.Join(p.tellAdopted(rows, a), wrong); err != nil {
		return err
	}
	if slices.ContainsFunc(rows, func(r adopt.Row) bool { return r.Action == plan.Refuse }) {
		return errNot
	}
	return nil
}

// adoptOptions returns what an adoption works with: a pool that is open and of this cluster, and
// the cluster's API.
func (p *program) adoptOptions(ctx context.Context, cfg config.Config, pool config.Pool, a adoption) (adopt.Options, error) {
	report, err := p.opened(ctx, pool)
	if err != nil {
		return adopt.Options{}, err
	}
	client, _, err := p.ofCluster(ctx, cfg, pool, report.Mark)
	if err != nil {
		return adopt.Options{}, err
	}
	table, err := mounts.Read()
	if err != nil {
		return adopt.Options{}, err
	}
	return adopt.Options{
		Pool:  daemon.PlanPool(pool),
		Store: volume.New(volume.Options{Name: pool.Name, Path: pool.Path}), Identity: report.Identity,
		Self: daemon.Self(cfg), API: client, Mounts: table, Overrides: a.overrides, DryRun: a.dryRun, Served: cfg.CSIDrivers,
		Driver: a.driver, Kubelet: kubeletDirectory,
		Say: func(text string) { fmt.Fprintln(p.stderr, text) },
	}, nil
}

func (p *program) tellAdopted(rows []adopt.Row, a adoption) error {
	if a.asJSON {
		return writeJSON(p.stdout, struct {
			Volumes []adopt.Row `json:"volumes"`
		}{append([]adopt.Row{}, rows...)})
	}
	if len(rows) > 0 {
		table := newTable(p.stdout, "VOLUME", "CLAIM", "PATH", "SYSTEM", "STATUS")
		for _, r := range rows {
			table.row(r.Volume, r.Claim, printable(r.Path), systemName(r.Provisioner), adoptVerdict(r))
		}
		if err := table.flush(); err != nil {
			return err
		}
		fmt.Fprintln(p.stdout)
	}
	for _, r := range rows {
		for _, note := range r.Notes {
			fmt.Fprintf(p.stdout, "note: %s: %s\n", r.Volume, note)
		}
	}
	_, err := fmt.Fprintln(p.stdout, adoptSummary(rows, a))
	adoptHints(p.stderr, rows)
	return err
}

func systemName(provisioner string) string {
	if s, known := plan.SystemOf(provisioner); known {
		return s.Name // our own word, with a space in one
	}
	return printable(provisioner)
}

func adoptVerdict(r adopt.Row) string {
	past := map[plan.Action]string{adoptrules.Adopt: "adopted", adoptrules.Undo: "undone"}
	switch {
	case r.Action == plan.Refuse:
		return "refused: " + r.Message
	case r.Done:
		return past[r.Action]
	default:
		return string(r.Action)
	}
}

// adoptSummary counts.
func adoptSummary(rows []adopt.Row, a adoption) string {
	count := map[plan.Action]int{}
	for _, r := range rows {
		count[r.Action]++
	}
	word, n := "adopted", count[adoptrules.Adopt]
	if a.undo {
		word, n = "undone", count[adoptrules.Undo]
	}
	if a.dryRun {
		word = "would be " + word
	}
	parts := []string{fmt.Sprintf("%d %s", n, word)}
	if count[adoptrules.Ours] > 0 {
		parts = append(parts, fmt.Sprintf("%d ours already", count[adoptrules.Ours]))
	}
	return strings.Join(append(parts, fmt.Sprintf("%d refused", count[plan.Refuse])), ", ")
}

// adoptReasonHints are what helps against a refusal, in this order.
var adoptReasonHints = []struct{ reason, hint string }{
	{adoptrules.ReasonNotAlias, "add the provisioner to aliases in the configuration, run: systemctl reload hostpath-provisioner; then run this again"},
	{adoptrules.ReasonRunning, "scale the other program to zero, then run this again; if what is shown is another program, add: --stopped PROVISIONER"},
	{adoptrules.ReasonNotKnown, "stop the other program, then add: --stopped PROVISIONER; or name a kubeconfig that may list pods with --kubeconfig"},
	{adoptrules.ReasonOutside, "stop it wherever it runs, then add: --yes-nothing-runs-outside"},
	{adoptrules.ReasonNoAffinity, "if this node has their data, add: --yes-this-node-has-the-data"},
	{adoptrules.ReasonReleased, "set their persistentVolumeReclaimPolicy to Retain; or, to have their data removed, add: --released"},
	{adoptrules.ReasonCSI, "list the driver in csi_drivers, and pods go on; or stop it and the pods that use its volumes, then run this again with: --from-csi PROVISIONER"},
	{adoptrules.ReasonDriverRuns, "delete the driver's DaemonSet, and stop its operator first if it has one; then run this again"},
	{adoptrules.ReasonDriverNotKnown, "apply what this version's manifests command prints, or name a kubeconfig that may list pods and read csinodes with --kubeconfig"},
	{adoptrules.ReasonUsed, "stop these pods, then run this again"},
	{adoptrules.ReasonDenied,
		"a node's own kubeconfig may not change other programs' volumes: name an administrator's with --kubeconfig"},
}

func adoptHints(w io.Writer, rows []adopt.Row) {
	for _, h := range adoptReasonHints {
		i := slices.IndexFunc(rows, func(r adopt.Row) bool { return r.Action == plan.Refuse && r.Reason == h.reason })
		if i >= 0 {
			fmt.Fprintln(w, "hint:", strings.ReplaceAll(h.hint, "PROVISIONER", rows[i].Provisioner))
		}
	}
}
