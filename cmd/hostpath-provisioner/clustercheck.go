package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/clustercheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/packaging"
)

// clusterDeadline is for all requests of a check of the cluster: about 90 small ones.
const clusterDeadline = 30 * time.Second

// clusterChecked is the output of check --cluster --json.
type clusterChecked struct {
	Schema  int           `json:"schema"` // daemon.SchemaVersion
	Cluster []clusterLine `json:"cluster"`
}

// clusterLine is what a check found, with what helps.
type clusterLine struct {
	clustercheck.Line
	Hint string `json:"hint,omitempty"`
}

// checkCluster prints what this node finds of its cluster, with the daemon's own credential.
func (p *program) checkCluster(ctx context.Context, cfg config.Config, asJSON bool) error {
	cfg.Namespace = cmp.Or(cfg.Namespace, kube.DefaultNamespace)
	ctx, cancel := context.WithTimeoutCause(ctx, clusterDeadline, fmt.Errorf("no response within %s", clusterDeadline))
	defer cancel()
	facts := p.gather(ctx, cfg)
	lines := clustercheck.Judge(facts)
	all := clusterChecked{Schema: daemon.SchemaVersion}
	for _, l := range lines {
		all.Cluster = append(all.Cluster, clusterLine{l, clusterHint(l.Reason, cfg, facts)})
	}
	var unsound error
	if !clustercheck.Sound(lines) {
		unsound = errNot
	}
	if asJSON {
		return cmp.Or(writeJSON(p.stdout, all), unsound)
	}
	return cmp.Or(p.writeCluster(all), unsound)
}

// whatWidth is how wide the last column is, so that a line has at most 100.
const whatWidth = 76

// wrapped is a text in lines of at most so many bytes, broken at spaces; a longer word stays whole.
func wrapped(text string, most int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > most {
			lines, line = append(lines, line), ""
		}
		line += strings.Repeat(" ", min(len(line), 1)) + word
	}
	return append(lines, line)
}

func (p *program) writeCluster(c clusterChecked) error {
	table := newTable(p.stdout, "CHECK", "STATUS", "WHAT")
	for _, l := range c.Cluster {
		what := l.Message
		if l.Reason != "" {
			what = l.Reason + ": " + what
		}
		if l.Hint != "" {
			what += "; " + l.Hint
		}
		mark := p.mark(levels[l.Status])
		for i, line := range wrapped(what, whatWidth) {
			if i == 0 {
				table.row(mark+l.Check, l.Status, line)
			} else {
				table.row(mark+" ", " ", line)
			}
		}
	}
	return table.flush()
}

var levels = map[string]slog.Level{clustercheck.Warning: slog.LevelWarn, clustercheck.Wrong: slog.LevelError, clustercheck.Unknown: slog.LevelError}

// gather asks the API server what the checks need.
func (p *program) gather(ctx context.Context, cfg config.Config) clustercheck.Facts {
	f := clustercheck.Facts{Now: p.now(), Configured: expected(cfg), Failed: map[string]error{}}
	client, err := p.asNode(cfg)
	if err != nil {
		f.API = clustercheck.API{Err: err, Refusal: clustercheck.RefusalKubeconfig}
		return f
	}
	is := client.Credential()
	f.Credential = clustercheck.Credential{Audiences: strings.Fields(is.Audiences), Issued: is.Issued, Expires: is.Expires}
	f.API.Server = client.Server()
	if f.API.Version, f.API.Err = client.ServerVersion(ctx); f.API.Err != nil {
		f.API.Refusal = kube.Refusal(f.API.Err)
		return f
	}
	for _, step := range gathering {
		if err := step.gather(ctx, client, &f); err != nil {
			f.Failed[step.check] = errors.Join(err, context.Cause(ctx))
		}
	}
	return f
}

// gathering is in the order in which one step needs what another found.
var gathering = []struct {
	check  string
	gather func(context.Context, *kube.Client, *clustercheck.Facts) error
}{
	{clustercheck.CheckIdentity, gatherIdentity}, {clustercheck.CheckNode, gatherNode}, {clustercheck.CheckPolicies, gatherPolicies},
	{clustercheck.CheckParameters, gatherParameters}, {clustercheck.CheckClaimIndex, gatherIndex}, {clustercheck.CheckRights, gatherRights},
}

func expected(cfg config.Config) clustercheck.Configured {
	is := clustercheck.Configured{
		InPlaceOf: cfg.CSIDrivers, Node: cfg.Node, Namespace: cfg.Namespace,
		Provisioners: append([]string{cfg.Provisioner}, cfg.Aliases...),
	}
	for _, pool := range cfg.Pools {
		is.Pools = append(is.Pools, clustercheck.Pool{Name: pool.Name, Path: pool.Path, Scope: pool.Scope})
	}
	return is
}

func gatherIdentity(ctx context.Context, client *kube.Client, f *clustercheck.Facts) error {
	user, err := client.Whoami(ctx)
	f.Identity = clustercheck.Identity{User: user.Name, Node: user.Node, Ignored: kube.Ignored(err)}
	if f.Identity.Ignored {
		return nil
	}
	return err
}

func gatherNode(ctx context.Context, client *kube.Client, f *clustercheck.Facts) error {
	node, err := client.GetNode(ctx, f.Configured.Node)
	if node != nil {
		f.Node = clustercheck.Node{Found: true, Hostname: node.Labels["kubernetes.io/hostname"]}
	}
	return err
}

// gatherPolicies reads the policies, and has the API server judge a volume that they forbid. A
// cluster that has none gives no right to read them.
func gatherPolicies(ctx context.Context, client *kube.Client, f *clustercheck.Facts) (err error) {
	f.Policies.Readable = true
	lists := packaging.Lists{}
	for _, known := range packaging.Policies(f.Configured.Namespace) {
		one := clustercheck.Policy{Name: known.Name}
		policy, err := client.Policy(ctx, known.Name)
		if err == nil && policy != nil {
			one.Found, one.Parametrised = true, packaging.ReadsParameters(policy.Spec)
			one.Same = known.SamePolicy(policy.Spec) && lists.Add(policy.Spec)
		}
		binding, bindingErr := client.PolicyBinding(ctx, known.Name)
		if bindingErr == nil && binding != nil {
			one.Bound, one.SameBinding = true, known.SameBinding(binding.Spec)
		}
		switch err := errors.Join(err, bindingErr); {
		case kube.Refusal(err) == kube.Forbidden:
			f.Policies.Readable = false
		case err != nil:
			return err
		}
		f.Policies.All = append(f.Policies.All, one)
	}
	if f.Parameters.Readable = len(lists) > 0; f.Parameters.Readable {
		f.Parameters.Lists, f.Parameters.Hostnames = map[string][]string{}, lists.Hostnames()
		for name := range lists {
			f.Parameters.Lists[name] = lists.Texts(name)
		}
	}
	f.Policies.Enforced, err = client.Confined(ctx)
	return err
}

// gatherParameters finds the classes that the policies have to list.
func gatherParameters(ctx context.Context, client *kube.Client, f *clustercheck.Facts) (err error) {
	if f.Parameters.Readable {
		f.Parameters.Classes, err = client.ClassesOf(ctx, f.Configured.Provisioners)
	}
	return err
}

func gatherIndex(ctx context.Context, client *kube.Client, f *clustercheck.Facts) (err error) {
	f.Index, err = client.ClaimIndex(ctx)
	return err
}

// excess are rights that no daemon needs: with one of them a thief of the credential has more than
// this node.
var excess = []kube.Access{
	{Resource: "secrets", Verb: "get"}, {Resource: "pods", Verb: "create"}, {Resource: "nodes", Verb: "patch"},
	{Resource: "persistentvolumeclaims", Verb: "delete"}, {Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Verb: "patch"},
}

// gatherRights reviews each right. Those that come with the policies count where the cluster has
// policies.
func gatherRights(ctx context.Context, client *kube.Client, f *clustercheck.Facts) error {
	always, withPolicies := needed(f.Configured)
	lacks, err := client.Lacks(ctx, always)
	if err != nil {
		return err
	}
	more, err := client.Lacks(ctx, withPolicies)
	if err != nil {
		return err
	}
	lacks, ofPods := withoutPods(lacks)
	f.Rights.Pods = texts(ofPods)
	f.Rights.Renewal = !slices.ContainsFunc(more, func(a kube.Access) bool { return a.Subresource == "token" })
	f.Rights.Reviewed, f.Rights.Lacks = len(always), texts(lacks)
	if f.Policies.Any() {
		f.Rights.Reviewed, f.Rights.Lacks = len(always)+len(withPolicies), texts(append(lacks, more...))
	}
	rare, err := client.Lacks(ctx, excess)
	if err == nil {
		f.Rights.Excess = texts(slices.DeleteFunc(slices.Clone(excess), func(a kube.Access) bool { return slices.Contains(rare, a) }))
	}
	return err
}

// withoutPods divides rights into those without which nothing works, and those that manifests
// --no-pods leaves out.
func withoutPods(all []kube.Access) (rest, pods []kube.Access) {
	for _, a := range all {
		if a.Resource == "pods" {
			pods = append(pods, a)
		} else {
			rest = append(rest, a)
		}
	}
	return rest, pods
}

// needed are the rights that the daemon needs in each cluster, and in one with policies.
func needed(c clustercheck.Configured) (always, withPolicies []kube.Access) {
	confined := packaging.Options{
		Namespace: c.Namespace, Provisioner: c.Provisioners[0],
		Confine: packaging.Confinement{Paths: []string{"/"}, Aliases: c.InPlaceOf},
	}
	for _, r := range packaging.Rights(confined) {
		if r.Confined {
			withPolicies = append(withPolicies, accessOf(r))
		} else {
			always = append(always, accessOf(r))
		}
	}
	return always, withPolicies
}

func accessOf(r packaging.Right) kube.Access {
	return kube.Access{Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Name: r.Name, Namespace: r.Namespace, Verb: r.Verb}
}

func texts(all []kube.Access) (texts []string) {
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return texts
}
