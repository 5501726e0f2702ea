package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/forget"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// forgetDeadline is how long all of it may take: thousands of volumes take minutes.
const forgetDeadline = time.Hour

// forgetting is what the command line asks for.
type forgetting struct {
	installation
	claims, dryRun bool
	force          again
}

// again is a flag whose value is the node's name, typed once more. Without a value it is asked for
// on standard input.
type again struct {
	set  bool
	name string
}

// anyName is the flag without a value, as pflag has it for one that the help shows without. A Node
// of that name is typed on standard input.
const anyName = "true"

func (a *again) String() string { return "" }
func (a *again) Type() string   { return "bool" } // the help shows no value
func (a *again) Set(name string) error {
	a.set, a.name = true, name
	return nil
}

func (a *again) flag(flags *pflag.FlagSet, node string) {
	flags.Var(a, "force", "go on though "+node+
		" looks alive; asks for its name, which is --force=NODE in a script")
	flags.Lookup("force").NoOptDefVal = anyName
}

// confirmed reports whether the administrator typed the node's name once more.
func (a *again) confirmed(node string, stdin io.Reader, ask io.Writer) (bool, error) {
	if !a.set {
		return false, nil
	}
	name := a.name
	if name == anyName {
		fmt.Fprintf(ask, "type the name of the node, to go on whatever it looks like: ")
		line, err := bufio.NewReader(io.LimitReader(stdin, 1<<10)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		name = strings.TrimSpace(line)
	}
	if name != node {
		return false, usageError{fmt.Errorf("--force: %q is not the node's name again", name)}
	}
	return true, nil
}

const forgetLong = `Forget-node is for a node that does not come back, with its disks. With an
administrator's kubeconfig it removes the node's PersistentVolumes, the contents of its snapshots,
and what the scheduler was told of it. Each claim is told. --claims also deletes the claims whose
data is gone, and their pods that would wait for ever, so that StatefulSets go on with empty
volumes.

It refuses while the node is Ready, or its daemon writes. What nodes share stays, and so does all
that is another node's or another provisioner's. If the node comes back all the same, its daemon
keeps the data. What was cut off is finished by the next call. First look, with --dry-run.`

func (p *program) forgetCommand() *cobra.Command {
	var f forgetting
	c := &cobra.Command{
		Use:   "forget-node NODE",
		Short: "Remove what is left in the cluster of a node that does not come back",
		Long:  forgetLong,
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if !plan.NodeNamePossible(args[0]) {
				return usageError{fmt.Errorf("%q cannot be a node's name", args[0])}
			}
			forced, err := f.force.confirmed(args[0], c.InOrStdin(), p.stderr)
			if err != nil {
				return err
			}
			return p.forget(c.Context(), args[0], f, forced)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&f.claims, "claims", false,
		"delete the claims whose data is gone, too, with the pods that keep them or wait for them")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would be lost, and change nothing")
	f.force.flag(flags, "the node")
	f.flags(c, "namespace")
	return c
}

func (p *program) forget(ctx context.Context, node string, f forgetting, forced bool) error {
	ctx, cancel := within(ctx, forgetDeadline)
	defer cancel()
	client, self, err := p.asAdministrator(f.installation)
	if err != nil {
		return err
	}
	self.Node = node
	o := forget.Options{Self: self, API: client, Claims: f.claims, Forced: forced,
		Watch: 2 * leadership.Renewal}
	published := p.published(client, o.Publishing(), node)
	o.Withdraw = func(ctx context.Context) error { return published.Withdraw(ctx, false) }
	s, err := forget.Look(ctx, o)
	if err != nil {
		return ofAdministrator(err)
	}
	if s.Node.Action != forget.Forget && !f.dryRun {
		return aliveError{s.Node.Message}
	}
	if err := p.tellForgotten(s, node); err != nil || s.Empty() {
		return err
	}
	if f.dryRun {
		return p.dryForgotten(s, node)
	}
	done, err := s.Run(ctx)
	for _, note := range done.Notes {
		fmt.Fprintln(p.stdout, "note:", note)
	}
	fmt.Fprintf(p.stdout, "forgot of node %s: %s, %s, %s, %s\n", node,
		words.Count(done.Volumes, "volume"), words.Count(done.Contents, "snapshot"),
		words.Count(done.Claims, "claim"), words.Count(done.Pods, "pod"))
	if !s.NodeGone {
		fmt.Fprintf(p.stdout, "next: kubectl delete node %s; until then its token is good\n",
			node)
	}
	if err == nil && refusesAny(s) {
		return errNot
	}
	return ofAdministrator(err)
}

// aliveError says why a node is not forgotten.
type aliveError struct{ message string }

func (e aliveError) Error() string { return e.message }

func refusesAny(s *forget.Survey) bool {
	return slices.ContainsFunc(s.Rows, func(r forget.Row) bool { return r.Action == plan.Refuse })
}

func (p *program) tellForgotten(s *forget.Survey, node string) error {
	if s.Empty() {
		fmt.Fprintf(p.stdout, "nothing of provisioner %s is left of node %s\n", s.Provisioner, node)
	}
	if len(s.Rows) > 0 {
		table := newTable(p.stdout, "KIND", "NAME", "OF", "POOL", "SIZE", "STATUS")
		for _, r := range s.Rows {
			status := r.Message
			if r.Action == plan.Refuse {
				status = "refused: " + status
			}
			table.row(r.Kind, printable(r.Name), printable(r.Claim), r.Pool,
				sizeOf(uint64(max(r.Size, 0))), status)
		}
		if err := table.flush(); err != nil {
			return err
		}
		fmt.Fprintln(p.stdout)
	}
	var notes []string
	for stay, n := range s.Stays {
		notes = append(notes, fmt.Sprintf("note: %s of pool %s left alone: %s\n",
			words.Count(n, "volume"), stay.Pool, stay.Why))
	}
	slices.Sort(notes)
	_, err := io.WriteString(p.stdout, strings.Join(notes, ""))
	return err
}

// dryForgotten says what a call without --dry-run would do.
func (p *program) dryForgotten(s *forget.Survey, node string) error {
	if s.Node.Action != forget.Forget {
		fmt.Fprintf(p.stdout, "would be refused: %s\n", s.Node.Message)
		return errNot
	}
	gone := 0
	for _, r := range s.Rows {
		if r.Action == forget.Forget {
			gone++
		}
	}
	_, err := fmt.Fprintf(p.stdout, "would forget %s of node %s; nothing was changed\n",
		words.Count(gone, "object"), node)
	if err == nil && refusesAny(s) {
		return errNot
	}
	return err
}

// asAdministrator is a client with an administrator's kubeconfig, and the provisioners that are
// meant. Its writes have another field manager than those of the daemons, whose signs of life they
// would be.
func (p *program) asAdministrator(i installation) (*kube.Client, plan.Self, error) {
	self, namespace, err := p.installed(i)
	if err != nil {
		return nil, self, err
	}
	client, err := kube.New(kube.Options{
		Kubeconfig: cmp.Or(p.kubeconfig, adminKubeconfig()), Self: self, Namespace: namespace,
		Overrides: &i.overrides,
		UserAgent: pluginName + "/" + p.version(),
	})
	return client, self, ofAdministrator(err)
}
