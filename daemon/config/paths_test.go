package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// A table of several paths is a pool for each, with the table's settings.
func TestPaths(t *testing.T) {
	var paths []string
	for i := range 12 {
		paths = append(paths, fmt.Sprintf("'/srv/d%02d'", i))
	}
	got := load(t, "node='n'\n[pool.fast]\nmode='0770'\npaths=["+strings.Join(paths, ",")+"]\n")
	want := Default()
	want.Node = "n"
	for i := range 12 {
		p := DefaultPool(fmt.Sprintf("fast-d%02d", i))
		p.Set, p.Path, p.Mode, p.Default = "fast", fmt.Sprintf("/srv/d%02d", i), 0o770, true
		p.MountPoint = p.Path
		want.Pools = append(want.Pools, p)
	}
	same(t, got, want)
	if len(got.Named("fast")) != 12 || len(got.Named("fast-d03")) != 1 || len(got.Named("other")) != 0 {
		t.Errorf("named fast: %v", got.Named("fast"))
	}
}

// The path of a table that has paths besides keeps the table's name, mount point and device.
func TestPathAndPaths(t *testing.T) {
	got := load(t, minimal+"mount_point='/srv'\ndevice='/dev/sda'\npaths=['/mnt/b']\n[pool.other]\npath='/srv/o'\n")
	var said []string
	for _, p := range got.Pools {
		said = append(said, fmt.Sprintf("%s of %s: %s on %s %s %t", p.Name, p.Table(), p.Path, p.MountPoint, p.Device, p.Default))
	}
	want := "other of other: /srv/o on /srv/o  false|p of p: /srv/p on /srv /dev/sda false|p-b of p: /mnt/b on /mnt/b  false"
	if strings.Join(said, "|") != want {
		t.Errorf("%q, want %q", said, want)
	}
}

func TestPathsRefused(t *testing.T) {
	table := "node='n'\n[pool.p]\n"
	for name, c := range map[string]struct{ config, want string }{
		"no array":    {table + "paths='/srv/a'\n", `config.toml:3: pool.p.paths: want an array of strings, got the string "/srv/a"`},
		"none":        {table + "paths=[]\n", "config.toml:3: pool.p.paths: names no path"},
		"relative":    {table + "paths=['a']\n", `config.toml:3: pool.p.paths: "a" is not an absolute path`},
		"no name":     {table + "paths=['/srv/A_b']\n", `config.toml:3: pool.p.paths: "/srv/A_b": its pool is named after`},
		"same name":   {table + "paths=['/srv/a','/mnt/a']\n", `config.toml:3: pool.p.paths: "/mnt/a" ends as another one does`},
		"same path":   {table + "path='/srv/p'\npaths=['/srv/p']\n", `config.toml:4: pool.p.paths: "/srv/p" is the path of pool "p" too`},
		"inside":      {table + "paths=['/srv/a','/srv/a/b']\n", `config.toml:3: pool.p.paths: "/srv/a/b" is inside pool "p-a" (/srv/a)`},
		"a table":     {table + "paths=['/srv/a']\n[pool.p-a]\npath='/srv/b'\n", `config.toml:3: pool.p.paths: the pool of "/srv/a" is "p-a", which is a table`},
		"mount point": {table + "paths=['/srv/a']\nmount_point='/srv'\n", "config.toml:4: pool.p.mount_point: is for path, and the table has paths alone"},
		"scope":       {table + "paths=['/srv/a']\nscope='shared'\n", `config.toml:3: pool.p.paths: are for a pool of one node, and the pool's scope is "shared"`},
		"once":        {table + "paths=['/srv/a','/srv/b']\nmodee='0700'\n", `config.toml:4: pool.p.modee: unknown key`},
		"of each":     {table + "paths=['/srv/a','/srv/b']\nquota='ceph'\nscope='every-node'\n", `config.toml:3: pool.p.paths: are for a pool of one node`},
		"two defaults": {table + "paths=['/srv/a','/srv/b']\ndefault=true\n[pool.q]\npath='/srv/q'\ndefault=true\n",
			`config.toml:7: pool.q.default: pool "p" is the default already`},
	} {
		file := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(file, []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file)
		got := strings.ReplaceAll(fmt.Sprint(err), filepath.Dir(file)+"/", "")
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if lines := strings.Split(got, "\n"); name != "of each" && len(lines) > 1 {
			t.Errorf("%s: said more than once: %q", name, lines)
		}
	}
}

// Volumes have source local by default where they are one node's.
func TestDefaultSource(t *testing.T) {
	for scope, want := range map[string]string{plan.ScopeNode: plan.SourceLocal, plan.ScopeShared: plan.SourceHostPath, plan.ScopeEveryNode: plan.SourceHostPath} {
		p := load(t, minimal+"scope='"+scope+"'\n").Pools[0]
		said := load(t, minimal+"scope='"+scope+"'\nsource='hostPath'\n").Pools[0]
		if p.Source != want || p.SourceSet || said.Source != plan.SourceHostPath || !said.SourceSet {
			t.Errorf("%s: %s, %t, %s, %t", scope, p.Source, p.SourceSet, said.Source, said.SourceSet)
		}
	}
}
