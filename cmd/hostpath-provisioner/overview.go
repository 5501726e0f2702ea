package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/overview"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// looking is how a list of the cluster is printed, with kubectl's flags.
type looking struct {
	installation
	output, of            string
	all, noHeaders, watch bool
}

const (
	overviewDeadline = time.Minute
	overviewMoment   = 200 * time.Millisecond
	overviewEvery    = 10 * time.Second // with --watch, for what time alone changes
)

// overviewList is the output with -o json and yaml.
type overviewList struct {
	Schema int      `json:"schema"` // daemon.SchemaVersion
	Kind   string   `json:"kind"`
	Items  any      `json:"items"`
	Unseen []string `json:"unseen,omitempty"`
}

// overviewCommands list what the cluster's daemons and objects say. Under kubectl's name the list of
// volumes is this one, too.
func (p *program) overviewCommands() (all []*cobra.Command) {
	for _, one := range []struct {
		use, short, long string
		namespaced       bool
		list             func(context.Context, *overview.Overview, looking) columned
	}{
		{"nodes", "List the cluster's daemons: what they tell, since when one is silent",
			"Nodes lists what each node's daemon tells of itself in its lease, and nodes with volumes\n" +
				"whose daemon never did. SEEN is how long ago it did: one that lives does every 5 minutes.",
			false, clusterNodes},
		{"pools", "List the pools of all nodes",
			"Pools lists the pools of all nodes, as their daemons told last.", false, clusterPools},
		{"volumes", "List the cluster's volumes",
			"Volumes lists the PersistentVolumes of the daemons by the namespaces of their claims.",
			true, clusterVolumes},
		{"snapshots", "List the cluster's snapshots",
			"Snapshots lists the VolumeSnapshotContents of the daemons.", true, clusterSnapshots},
	} {
		var l looking
		c := &cobra.Command{
			Use: one.use, Short: one.short, Args: noArgs,
			Long: one.long + "\nIt asks the API alone, with the rights of the kubeconfig, and exits with 1 " +
				"if these do not let\nit see all.",
			RunE: func(c *cobra.Command, _ []string) error {
				return p.overview(c.Context(), l, one.list)
			},
		}
		flags := c.Flags()
		if one.namespaced {
			flags.StringVarP(&l.of, "namespace", "n", "", "of the claims; default as kubectl's")
			flags.BoolVarP(&l.all, "all-namespaces", "A", false, "those of all namespaces")
		}
		flags.StringVarP(&l.output, "output", "o", "", "wide, json, yaml or name")
		flags.BoolVar(&l.noHeaders, "no-headers", false, "print the lines alone")
		flags.BoolVarP(&l.watch, "watch", "w", false, "print it again when something changed")
		l.flags(c, "daemons-namespace")
		all = append(all, c)
	}
	return all
}

// columned is a list as it is printed.
type columned struct {
	kind    string
	items   any
	columns []string
	wide    int // how many of the columns are for -o wide alone
	rows    [][]string
	names   []string
	notes   []note // what is not well, and what helps
}

type note struct{ what, help string }

func (p *program) overview(ctx context.Context, l looking,
	list func(context.Context, *overview.Overview, looking) columned) error {
	if !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, l.output) {
		return usageError{fmt.Errorf("--output: %q is none of wide, json, yaml, name", l.output)}
	}
	client, self, err := p.asAdministrator(l.installation)
	if err != nil {
		return err
	}
	if l.of == "" {
		l.of = kube.ContextNamespace(cmp.Or(p.kubeconfig, adminKubeconfig()), &l.overrides)
	}
	api, changed := overview.API(client), make(chan struct{}, 1)
	if l.watch {
		api = client.Follow(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}
	return p.repeated(ctx, l.watch, overviewEvery, changed, func(w, notes io.Writer) error {
		ctx, cancel := within(ctx, overviewDeadline)
		defer cancel()
		v := overview.Look(ctx, overview.Options{Self: self, API: api, Now: p.now()})
		return writeColumned(w, notes, list(ctx, v, l), l, v.Unseen)
	})
}

// repeated prints once, or again and again what is not as it was, until ctx ends: so often, and a
// moment after what changed tells. Notes, and errors, are part of a page.
func (p *program) repeated(ctx context.Context, watch bool, every time.Duration,
	changed <-chan struct{}, write func(page, notes io.Writer) error) error {
	on, is := p.stdout.(*terminal)
	if !watch || !is {
		return write(p.stdout, p.stderr)
	}
	for last := ""; ; {
		var page bytes.Buffer
		to := &terminal{to: &page, columns: on.columns, colours: on.colours}
		err := write(to, to)
		if err != nil && !errors.Is(err, errNot) {
			fmt.Fprintf(to, "%s: %v\n", name, err)
		}
		if page.String() != last {
			on.clear()
			if _, err := page.WriteTo(on.to); err != nil {
				return err
			}
		}
		last = page.String()
		select {
		case <-ctx.Done():
			return err
		case <-time.After(every):
		case <-changed:
			time.Sleep(overviewMoment) // for what comes with it
		}
	}
}

func writeColumned(w, notes io.Writer, is columned, l looking, unseen []string) error {
	var err error
	switch l.output {
	case "json", "yaml":
		all := overviewList{daemon.SchemaVersion, is.kind, is.items, unseen}
		if l.output == "json" {
			err = writeJSON(w, all)
			break
		}
		var text []byte
		if text, err = json.Marshal(all); err == nil {
			if text, err = yaml.JSONToYAML(text); err == nil {
				_, err = w.Write(text)
			}
		}
	case "name":
		for _, name := range is.names {
			fmt.Fprintln(w, name)
		}
	default:
		err = writeRows(w, is, l)
	}
	for _, what := range unseen {
		fmt.Fprintf(notes, "not seen: %s\n", what)
	}
	if err == nil && len(unseen) > 0 {
		return errNot
	}
	return err
}

// writeRows prints the table and, below, what is not well.
func writeRows(w io.Writer, is columned, l looking) error {
	columns := len(is.columns)
	if l.output != "wide" {
		columns -= is.wide
	}
	table := newTable(w)
	if !l.noHeaders {
		table.row(is.columns[:columns]...)
	}
	for _, row := range is.rows {
		table.row(row[:columns]...)
	}
	if err := table.flush(); err != nil || l.noHeaders {
		return err
	}
	for _, n := range is.notes {
		fmt.Fprintf(w, "\n%s\n", n.what)
		if n.help != "" {
			fmt.Fprintf(w, "what helps: %s\n", n.help)
		}
	}
	return nil
}

func clusterNodes(ctx context.Context, v *overview.Overview, _ looking) columned {
	nodes := v.Nodes(ctx)
	is := columned{kind: "NodeList", items: some(nodes), wide: 1, columns: []string{
		"NODE", "STATUS", "SEEN", "POOLS", "VOLUMES", "LARGEST", "VERSION"}}
	for _, n := range nodes {
		name := printable(n.Name)
		pools, free := fmt.Sprintf("%d/%d open", n.Open, n.Pools), words.Size(n.Free)
		if n.Seen.IsZero() {
			pools, free = "", ""
		}
		is.rows = append(is.rows, []string{name, n.Status, age(n.Seen, v.Now), pools,
			fmt.Sprint(n.Volumes), free, printable(n.Version)})
		is.names = append(is.names, "node/"+n.Name)
		if what, help := nodeNote(n, v.Now); what != "" {
			is.notes = append(is.notes, note{fmt.Sprintf("node %s: %s", name, what), help})
		}
	}
	return is
}

// nodeNote says what is wrong with a node.
func nodeNote(n overview.Node, now time.Time) (what, help string) {
	on, name := "on node "+printable(n.Name)+": ", printable(n.Name)
	switch n.Status {
	case overview.NodeReady:
		if n.Well() {
			return "", ""
		}
		var parts []string
		if n.Open < n.Pools {
			parts = append(parts, words.Count(n.Pools-n.Open, "pool")+" not open")
		}
		if n.Lost > 0 {
			parts = append(parts, words.Count(n.Lost, "volume")+" with data that is missing or not readable")
		}
		return strings.Join(parts, ", "), "kubectl hostpath pools"
	case overview.NodeGone:
		what = "the cluster has no Node of this name"
		if !n.Seen.IsZero() {
			what += "; its daemon told of itself " + age(n.Seen, now) + " ago"
		}
		return what, "kubectl hostpath forget-node " + name + " --dry-run, or take its disk to " +
			"another node and there: hostpath-provisioner import POOL --from-node " + name
	case overview.NodeSilent:
		return "its daemon has been silent for " + age(n.Seen, now), on +
			"systemctl status hostpath-provisioner, journalctl -u hostpath-provisioner"
	case overview.NodeAhead:
		return "its clock is " + age(now, n.Seen) + " ahead of this one's, so that nobody knows " +
			"whether it is silent", on + "timedatectl"
	case overview.NodeUnknown:
		return "it has volumes, and no daemon has told of itself: none runs, an earlier version, " +
			"or the node's token has ended", on + "hostpath-provisioner status"
	case overview.NodeNotReady:
		return "its daemon works, and the Node is not Ready", "kubectl describe node " + name
	}
	help = on + "hostpath-provisioner status"
	if slices.Contains(reasons(), n.Status) {
		help += "; what it means: kubectl hostpath explain " + n.Status
	}
	return n.Status + ": " + n.Message, help
}

func clusterPools(_ context.Context, v *overview.Overview, _ looking) columned {
	pools := v.Pools()
	is := columned{kind: "PoolList", items: some(pools), wide: 1, columns: []string{
		"NODE", "POOL", "STATUS", "SINCE", "VOLUMES", "USED", "PROMISED", "FREE", "LOST"}}
	for _, one := range pools {
		node, name := printable(one.Node), printable(one.Name)
		status := stateAndReason(one.State, one.Reason)
		quiet := one.NodeStatus == overview.NodeSilent || one.NodeStatus == overview.NodeGone
		if quiet {
			status = one.NodeStatus + "; was " + status
		}
		is.rows = append(is.rows, []string{node, name, status, age(one.Since, v.Now),
			fmt.Sprint(one.Volumes), taken(one.Used, one.UsedEstimate), known(one.Promised),
			freeOf(one.Free, one.Size), fmt.Sprint(one.Lost)})
		is.names = append(is.names, one.Node+"/"+one.Name)
		about := fmt.Sprintf("pool %s of node %s: ", name, node)
		if one.Lost > 0 {
			is.notes = append(is.notes, note{
				about + "the data of " + words.Count(one.Lost, "volume") + " is missing or not readable",
				fmt.Sprintf("on node %s: hostpath-provisioner volumes %s", node, name)})
		}
		if one.State != presence.PoolOpen && !quiet {
			is.notes = append(is.notes, note{
				about + one.Reason + ": " + one.Message, poolNoteHelp(node, one.Pool)})
		}
	}
	return is
}

// poolNoteHelp is what the host's own commands advise, as far as it holds without the configuration.
func poolNoteHelp(node string, pool presence.Pool) string {
	help := poolHint(pool.Reason, config.Pool{Name: pool.Name, Path: "PATH", MountPoint: "MOUNT"})
	return fmt.Sprintf("on node %s: %s", node, cmp.Or(help, "hostpath-provisioner check "+pool.Name))
}

func clusterVolumes(ctx context.Context, v *overview.Overview, l looking) columned {
	is := columned{kind: "VolumeList", wide: 3, columns: []string{"NAMESPACE", "CLAIM", "VOLUME", "NODE",
		"POOL", "SIZE", "STATUS", "AGE", "SCOPE", "CLASS", "POLICY"}}
	items := []overview.Volume{}
	for _, one := range v.Volumes(ctx) {
		if !l.all && one.Namespace != l.of {
			continue
		}
		items = append(items, one)
		status := one.Status
		if s := one.NodeStatus; s != "" && s != overview.NodeReady {
			status += "; node " + s
		}
		is.rows = append(is.rows, []string{printable(one.Namespace), printable(one.Claim),
			printable(one.Name), printable(one.Node), printable(one.Pool),
			sizeOf(uint64(max(one.Size, 0))), status, age(one.Created, v.Now), one.Scope,
			printable(one.Class), one.Reclaim})
		is.names = append(is.names, "persistentvolume/"+one.Name)
	}
	is.items = items
	return is
}

func clusterSnapshots(ctx context.Context, v *overview.Overview, l looking) columned {
	is := columned{kind: "SnapshotList", wide: 2, columns: []string{"NAMESPACE", "SNAPSHOT", "NODE",
		"SIZE", "STATUS", "AGE", "CONTENT", "MESSAGE"}}
	items := []overview.Snapshot{}
	for _, one := range v.Snapshots(ctx) {
		if !l.all && one.Namespace != l.of {
			continue
		}
		items = append(items, one)
		is.rows = append(is.rows, []string{printable(one.Namespace), printable(one.Name),
			printable(one.Node), sizeOf(uint64(one.Size)), one.Status, age(one.Created, v.Now),
			printable(one.Content), one.Message})
		is.names = append(is.names, "volumesnapshotcontent.snapshot.storage.k8s.io/"+one.Content)
		if one.Status == "failed" {
			is.notes = append(is.notes, note{
				fmt.Sprintf("snapshot %s/%s: %s", one.Namespace, one.Name, one.Message),
				"kubectl hostpath why volumesnapshot " + one.Name + " -n " + one.Namespace})
		}
	}
	is.items = items
	return is
}

// some is a list that is empty, and not nil: JSON has null for that.
func some[T any](all []T) []T { return append([]T{}, all...) }
