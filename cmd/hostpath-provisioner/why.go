package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/adopt/why"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/docs"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// whyDeadline is how long all requests of one question may take.
const whyDeadline = 30 * time.Second

const whyLong = `Why says what a pod, a claim (pvc), a volume (pv) or a volumesnapshot waits for:
whose turn it is, what each node could give, the last events, and what helps. It asks the API alone,
with the rights of the kubeconfig, and says what those do not let it see. Nothing is changed.`

// answered is the output of why --json.
type answered struct {
	Schema int `json:"schema"` // daemon.SchemaVersion
	why.Page
}

func (p *program) whyCommand() *cobra.Command {
	var i installation
	var of string
	var asJSON bool
	c := &cobra.Command{
		Use:   "why KIND NAME",
		Short: "Say what a pod, claim, volume or snapshot waits for",
		Long:  whyLong,
		Args:  args(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := whatFor(args)
			if err != nil {
				return err
			}
			page, err := p.why(c.Context(), i, kind, of, name)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(p.stdout, answered{daemon.SchemaVersion, page})
			}
			p.tellWhy(page)
			for _, note := range page.Unseen {
				fmt.Fprintf(p.stdout, "not seen: %s\n", note)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&of, "namespace", "n", "", "of the object; default as kubectl's")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	i.flags(c, "daemons-namespace")
	return c
}

// whatFor is the object that is meant: KIND NAME or KIND/NAME.
func whatFor(args []string) (kind, name string, err error) {
	if len(args) == 1 {
		var is bool
		if args[0], name, is = strings.Cut(args[0], "/"); !is {
			return "", "", usageError{fmt.Errorf("%q names no object: why KIND NAME", args[0])}
		}
		args = append(args, name)
	}
	kind = why.Kinds[strings.ToLower(args[0])]
	if kind == "" {
		return "", "", usageError{fmt.Errorf("%q is none of pod, pvc, pv, volumesnapshot", args[0])}
	}
	if name = args[1]; name == "" || strings.ContainsAny(name, "/%?#") {
		return "", "", usageError{fmt.Errorf("%q cannot be a name", name)}
	}
	return kind, name, nil
}

func (p *program) why(ctx context.Context, i installation, kind, namespace, name string) (why.Page,
	error) {
	ctx, cancel := within(ctx, whyDeadline)
	defer cancel()
	client, self, err := p.asAdministrator(i)
	if err != nil {
		return why.Page{}, err
	}
	if namespace == "" {
		namespace = kube.ContextNamespace(cmp.Or(p.kubeconfig, adminKubeconfig()), &i.overrides)
	}
	page, err := why.Ask(ctx, why.Options{Self: self, API: client}, kind, namespace, name)
	return page, ofAdministrator(err)
}

// tellWhy prints a page, and those that belong to it.
func (p *program) tellWhy(page why.Page) {
	fmt.Fprintf(p.stdout, "%s: %s\n", words.Line(page.Object, 600), words.Line(page.State, 600))
	waits := cmp.Or(page.Waits, "nothing")
	fmt.Fprintf(p.stdout, "  waits for: %s\n", words.Line(waits, 1000))
	if page.Help != "" {
		fmt.Fprintf(p.stdout, "  what helps: %s\n", words.Line(page.Help, 600))
	}
	if len(page.Rooms) > 0 {
		fmt.Fprintln(p.stdout, "  what each node could give:")
		table := newTable(indented{p.stdout, "    "}, "NODE", "LARGEST", "STATUS")
		for _, r := range page.Rooms {
			table.row(printable(r.Node), sizeOf(uint64(max(r.Bytes, 0))), roomSays(r))
		}
		_ = table.flush()
	}
	if len(page.Events) > 0 {
		fmt.Fprintln(p.stdout, "  events:")
	}
	for _, e := range page.Events {
		fmt.Fprintf(p.stdout, "    %s ago, %s %s: %s\n", duration.HumanDuration(p.now().Sub(e.At)),
			words.Name(e.Type), words.Name(e.Reason), words.Line(e.Message, 1000))
	}
	if text := meaning(page); text != "" {
		fmt.Fprintf(p.stdout, "  %s\n", text)
	}
	fmt.Fprintln(p.stdout)
	for _, part := range page.Parts {
		p.tellWhy(part)
	}
}

func roomSays(r why.Room) string {
	switch {
	case r.Closed != "":
		return "nothing: " + printable(r.Closed)
	case r.Bytes == storagecapacity.Unbounded:
		return "it publishes nothing"
	case r.Fits:
		return "fits"
	}
	return "too little"
}

// meaning points to the reason of the last warning of an object that waits.
func meaning(page why.Page) string {
	if page.Waits == "" {
		return ""
	}
	for _, e := range page.Events {
		if e.Type == "Warning" && slices.Contains(reasons(), e.Reason) {
			return "what it means: hostpath-provisioner explain " + e.Reason
		}
	}
	return ""
}

// indented begins each line with the same.
type indented struct {
	to   io.Writer
	with string
}

func (i indented) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		if _, err := io.WriteString(i.to, i.with+line); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (p *program) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "explain REASON",
		Short:             "Say what a reason means, and what to do",
		Long:              "Explain prints what docs/troubleshooting.md says of a reason. It needs no cluster.",
		Args:              args(1, 1),
		ValidArgsFunction: cobra.FixedCompletions(reasons(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, r := range docs.Reasons(docs.Troubleshooting) {
				if strings.EqualFold(r.Name, args[0]) {
					_, err := fmt.Fprintf(p.stdout, "%s\n\n%s\n", r.Name, r.Text)
					return err
				}
			}
			return usageError{fmt.Errorf("%q is no reason", args[0])}
		},
	}
}

func reasons() (all []string) {
	for _, r := range docs.Reasons(docs.Troubleshooting) {
		all = append(all, r.Name)
	}
	return all
}
