package config

import (
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// Whatever the file holds, Load returns, returns the same twice, and what it accepts keeps the
// promises that others build on.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{"testdata/full/config.toml", "testdata/everything/config.toml"} {
		text, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add(minimal)
	f.Add("pool = { p = { path = '/srv/p' } }\npool.q.path = '/srv/q'\n")
	f.Add("\"\" = 1\n[pool.\"a\\nb\"]\npath = '''/srv'''\n[[pool.p]]\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(dir, "config.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(file)
		again, err2 := Load(file)
		if !reflect.DeepEqual(c, again) || errText(err) != errText(err2) {
			t.Fatalf("two results:\n%+v %v\n%+v %v", c, err, again, err2)
		}
		if err != nil {
			checkErrors(t, err.(Errors), file, text)
			return
		}
		checkConfig(t, c)
	})
}

func checkErrors(t *testing.T, errs Errors, file, text string) {
	lines := strings.Count(text, "\n") + 1
	for _, e := range errs {
		if e.File != file || e.Line < 0 || e.Line > lines || e.Text == "" || strings.Contains(e.Error(), "\n") {
			t.Errorf("not an error of one line in one place: %+v", e)
		}
	}
}

func checkConfig(t *testing.T, c Config) {
	if len(c.Pools) == 0 || c.Node == "" || c.Provisioner == "" || !path.IsAbs(c.Kubeconfig) {
		t.Fatalf("accepted: %+v", c)
	}
	defaults := 0
	for i, p := range c.Pools {
		if p.Default {
			defaults++
		}
		if !path.IsAbs(p.Path) || path.Clean(p.Path) != p.Path || p.Path == "/" || !under(p.Path, p.MountPoint) ||
			p.Scope != plan.ScopeNode || p.Name == "" || p.UID < 0 || p.GID < 0 || p.ReservePercent < 0 || p.ReservePercent >= 100 {
			t.Errorf("accepted: %+v", p)
		}
		if name, err := p.Directory.Expand(pv, "ns", "claim"); err != nil || strings.Contains(name, "/") {
			t.Errorf("accepted directory %q: %q %v", p.Directory, name, err)
		}
		for _, q := range c.Pools[:i] {
			if under(p.Path, q.Path) || under(q.Path, p.Path) || p.Name == q.Name {
				t.Errorf("accepted together: %+v %+v", p, q)
			}
		}
	}
	if defaults > 1 {
		t.Errorf("accepted %d defaults", defaults)
	}
}

// A pattern that is accepted makes one visible path element of what the API server allows, and of
// anything else too, or refuses.
func FuzzPattern(f *testing.F) {
	f.Add("{{.PV}}", pv, "shop", "data")
	f.Add("{{.Namespace}}-{{ .Claim }}-{{.PV}}", pv, "shop", "data")
	f.Add("..{{.PV}}", "..", "/", "\x00")
	f.Add("{{.PV}}{{.", "a", "{{.PV}}", "}}")
	f.Fuzz(func(t *testing.T, text, pv, namespace, claim string) {
		p, err := ParsePattern(text)
		if err != nil {
			return
		}
		name, err := p.Expand(pv, namespace, claim)
		if err != nil {
			if name != "" {
				t.Errorf("a name %q beside the error %v", name, err)
			}
			return
		}
		if name == "" || len(name) > 255 || name[0] == '.' || strings.ContainsAny(name, "/\x00\n") || !strings.Contains(name, pv) {
			t.Errorf("%q of %q %q %q made %q", text, pv, namespace, claim, name)
		}
	})
}
