package clustercheck

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// What the API server or a program that gets credentials wrote is shown on one line of bounded
// length, and commands no terminal.
func TestOthersWords(t *testing.T) {
	const hostile = "\x1b[2J\nx"
	long := errors.New(strings.Repeat("x", 5000))
	for name, c := range map[string]struct {
		change func(*Facts)
		check  string
	}{
		"an error of the kubeconfig": {func(f *Facts) { f.API.Err, f.API.Refusal = errors.New(hostile), RefusalKubeconfig }, CheckAPI},
		"an error of a request":      {func(f *Facts) { f.Failed[CheckRights] = errors.New(hostile) }, CheckRights},
		"a long first error":         {func(f *Facts) { f.API.Err = long }, CheckAPI},
		"a long error of a request":  {func(f *Facts) { f.Failed[CheckNode] = long }, CheckNode},
		"a version":                  {func(f *Facts) { f.API.Version = hostile }, CheckAPI},
		"a user":                     {func(f *Facts) { f.Identity.User = hostile }, CheckIdentity},
		"the node of a token":        {func(f *Facts) { f.Identity.Node = hostile }, CheckIdentity},
		"audiences":                  {func(f *Facts) { f.Credential.Audiences = []string{hostile} }, CheckParameters},
	} {
		f, good := good(), good()
		c.change(&f)
		for i, line := range Judge(f) {
			if line.Check == c.check && (strings.ContainsAny(line.Message, "\x1b\n") || len(line.Message) > 600 || line.Message == Judge(good)[i].Message) {
				t.Errorf("%s: %q", name, line.Message)
			}
		}
	}
}

// A pool is listed as the policies take it: itself, or the directory that it is right in; in the
// list of its scope.
func TestPoolIsListed(t *testing.T) {
	for listed, want := range map[string]bool{
		"/srv/fast": true, "/srv/*": true,
		"": false, "/": false, "/srv": false, "/*": false, "/srv/fast/*": false, "/srv/fas": false, "/srv/fast/a": false, "srv/fast": false,
	} {
		f := good()
		f.Configured.Pools = []Pool{{"fast", "/srv/fast", "node"}}
		f.Parameters.Lists["paths"] = []string{"/a", listed}
		if line, lacks := poolNotListed(f); lacks == want {
			t.Errorf("%q: %s", listed, line.Message)
		}
		f.Parameters.Lists["sharedPaths"], f.Parameters.Lists["paths"] = []string{listed}, nil
		if _, lacks := poolNotListed(f); !lacks {
			t.Errorf("%q counts in the list of another scope", listed)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 minutes", 59 * time.Second: "0 minutes", 119 * time.Minute: "119 minutes", 2 * time.Hour: "2 hours",
		48*time.Hour - 1: "47 hours", 48 * time.Hour: "2 days", 365 * day: "365 days",
	} {
		if got := span(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
