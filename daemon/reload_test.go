package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/confine"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// What a reload does with the file, and what it tells of it: in the log, and in the status while
// the old one is in force.
func TestReload(t *testing.T) {
	const pool = "node = 'node-b'\nconfine = %t\n[pool.p]\npath = '/srv/p'\n"
	for _, c := range []struct {
		name, file string
		confined   *confine.Confined
		taken      bool
		log        string
		sentence   string
	}{
		{"a good file", fmt.Sprintf(pool, true), nil, true, `level=INFO msg="configuration reloaded" reason=ConfigurationReloaded file=FILE node=node-b pools=p`, ""},
		{"errors", "node = 'N'\n[pool.p]\npath = '/srv/p'\n", nil, false,
			`level=ERROR msg="the configuration was not reloaded, the old one stays in force: FILE:1: node: \"N\" cannot be a node's name" reason=ReloadFailed file=FILE`,
			"the configuration file has errors and an older one is in force; "},
		{"a change that needs a restart", fmt.Sprintf(pool, false), &confine.Confined{ABI: 7}, false,
			`level=ERROR msg="the configuration was not reloaded, the old one stays in force: confine = false comes too late for a daemon that is confined: it has to be restarted" reason=ReloadFailed file=FILE`,
			"the configuration file was changed and an older one is in force: for this change it has to be restarted; "},
		{"a kubeconfig that is gone", "kubeconfig = '/nonexistent'\n" + fmt.Sprintf(pool, true), nil, false,
			`level=ERROR msg="the configuration was not reloaded, the old one stays in force: kubeconfig \"/nonexistent\": no such file or directory" reason=ReloadFailed file=FILE`,
			"the configuration file has errors and an older one is in force; "},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, g := newDaemon(t)
			log, lines := logged()
			d.Log, d.confined, d.Config = log, c.confined, filepath.Join(hosttest.Dir(t), "config.toml")
			if !strings.HasPrefix(c.file, "kubeconfig") {
				c.file = "kubeconfig = '" + g.cfg.Kubeconfig + "'\n" + c.file
				c.log = strings.Replace(c.log, "FILE:1", "FILE:2", 1)
			}
			if err := os.WriteFile(d.Config, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			next := d.reload(g)
			if (next != nil) != c.taken || c.taken && next.cfg.Node != "node-b" {
				t.Errorf("next: %+v", next)
			}
			if got := strings.TrimSpace(strings.ReplaceAll(lines.String(), d.Config, "FILE")); got != c.log {
				t.Errorf("logged\n%s\nwant\n%s", got, c.log)
			}
			if s := g.status(); !strings.HasPrefix(s.Sentence, c.sentence+"reading the API; ") || s.OldConfig == c.taken {
				t.Errorf("the status of the old one: %q, old %t", s.Sentence, s.OldConfig)
			}
		})
	}
}
