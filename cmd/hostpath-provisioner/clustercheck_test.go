package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/clustercheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// What check --cluster says without an API server that works with it. What it says of one that does
// is in test/identity.
func TestCheckCluster(t *testing.T) {
	h := newHost(t, plain)
	s := &story{h: h}
	s.says("no kubeconfig")
	s.call("check", "--cluster")
	s.says("a token that is not known")
	h.apiServer(refusing(http.StatusUnauthorized, "Unauthorized", "Unauthorized"))
	s.call("check", "--cluster")
	s.call("check", "--cluster", "--json")
	s.says("a pool")
	s.call("check", "fast", "--cluster")
	golden(t, "check-cluster", regexp.MustCompile(`http://127.0.0.1:\d+`).ReplaceAllString(s.b.String(), "SERVER"))
}

// Each reason has a hint that says what to do, and each hint is of a reason.
func TestEveryClusterReasonHasAHint(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "daemon", "rules", "clustercheck", "reasons.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if value, ok := n.(*ast.BasicLit); ok && value.Kind == token.STRING {
			reason, err := strconv.Unquote(value.Value)
			known[reason] = err == nil && clusterHints[reason] != ""
		}
		return true
	})
	for reason, hinted := range known {
		if !hinted {
			t.Errorf("%s has no hint", reason)
		}
	}
	if len(clusterHints) != len(known) || len(known) < 25 {
		t.Errorf("%d hints for %d reasons", len(clusterHints), len(known))
	}
}

// The command of a hint is of this node. Only where the cluster has policies the hint for a missing
// right applies them again.
func TestClusterHint(t *testing.T) {
	cfg := config.Config{Node: "node-a", Namespace: "s", Provisioner: "p", Aliases: []string{"q"}, Pools: []config.Pool{
		{Path: "/srv/a", Scope: plan.ScopeNode}, {Path: "/srv/b", Scope: plan.ScopeShared}, {Path: "/srv/c", Scope: plan.ScopeEveryNode}}}
	paths := " --pool-path /srv/a --shared-pool-path /srv/b --every-node-pool-path /srv/c --alias q"
	for name, c := range map[string]struct {
		reason, want string
		confined     bool
	}{
		"no policies":            {clustercheck.ReasonNoPolicies, "manifests --no-classes --provisioner p --namespace s" + paths + " | kubectl apply -f -", false},
		"a right":                {clustercheck.ReasonRightsMissing, "manifests --no-classes --provisioner p --namespace s | kubectl apply -f -", false},
		"a right, with policies": {clustercheck.ReasonRightsMissing, "manifests --no-classes --provisioner p --namespace s" + paths + " | kubectl apply -f -", true},
		"a label":                {clustercheck.ReasonHostnameMissing, "kubectl label node node-a kubernetes.io/hostname=node-a", false},
		"a server":               {clustercheck.ReasonServerUnreachable, "curl -k https://x:1/healthz", false},
		"a path":                 {clustercheck.ReasonPoolNotListed, "kubectl get validatingadmissionpolicy volumes.s.hostpath-provisioner -o yaml", true},
		"an earlier version":     {clustercheck.ReasonPoliciesReadConfigMap, paths + " | kubectl apply -f -; and a minute later: kubectl delete configmap -n s hostpath-provisioner-confinement", true},
		"nothing":                {"", "", false},
	} {
		f := clustercheck.Facts{API: clustercheck.API{Server: "https://x:1"}, Policies: clustercheck.Policies{Enforced: c.confined}}
		if got := clusterHint(c.reason, cfg, f); !strings.HasSuffix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}
