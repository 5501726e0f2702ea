package main

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/confine"
)

// `systemctl reload` fails, and changes nothing, for a configuration that the daemon which runs
// could not take over.
func TestReloadable(t *testing.T) {
	const valid, restart = "configuration is valid\nexit 0\n", "confine = false comes too late for a daemon that is confined: it has to be restarted"
	own := strconv.Itoa(os.Getpid())
	status := func(confined *confine.Confined) string {
		text, err := json.Marshal(daemon.Status{PID: os.Getpid(), Confined: confined})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	confined := status(&confine.Confined{ABI: 7, Work: []string{"/"}, Read: []string{"/"}})
	narrow := status(&confine.Confined{ABI: 7, Work: []string{"BASE", "/run"}, Read: []string{"/proc", "/sys", "/dev", "/etc", "/usr", "/var"}})
	for _, c := range []struct{ name, config, mainPID, status, want string }{
		{"confined daemon", "confine = false\n" + minimal, own, confined, restart},
		{"not at a reload", "confine = false\n" + minimal, "", confined, valid},
		{"status of another process", "confine = false\n" + minimal, "1", confined, valid},
		{"no status yet", "confine = false\n" + minimal, own, "", valid},
		{"status cut off", "confine = false\n" + minimal, own, confined[:len(confined)/2], valid},
		{"daemon that is not confined", "confine = false\n" + minimal, own, status(nil), valid},
		{"daemon whose confinement failed", "confine = false\n" + minimal, own, status(&confine.Confined{Failed: "no"}), valid},
		{"all in its reach", minimal, own, confined, valid},
		{"all in a narrower reach", minimal, own, narrow, valid},
		{"pool out of its reach", "node = 'node-a'\n[pool.fast]\npath = '/elsewhere/pool'\n", own, narrow, "/elsewhere is outside of what the daemon confined itself to"},
		{"kubeconfig out of its reach", "kubeconfig = '/elsewhere/of/cluster'\n" + minimal, own, narrow, "/elsewhere/of is outside of what the daemon confined itself to"},
		{"set-group-ID that it gave up", minimal + "mode = '2770'\n", own, confined, "the daemon gave up the right to set the set-group-ID bit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("MAINPID", c.mainPID)
			h := newHost(t, c.config)
			if c.status != "" {
				h.write("run/status.json", strings.ReplaceAll(c.status, "BASE", h.base))
			}
			got := h.call("check", "--config-only")
			if !strings.Contains(got, c.want) || strings.HasSuffix(got, "exit 0\n") != (c.want == valid) {
				t.Errorf("got\n%s\nwant %s", got, c.want)
			}
		})
	}
}

// A shell completes one name of a pool, and no file: what is completed is not checked again by the
// user.
func TestCompletePools(t *testing.T) {
	h := newHost(t, minimal+"[pool.bulk]\npath = 'BASE/bulk'\n")
	for _, c := range []struct {
		name, config string
		args, want   []string
	}{
		{"first word", "config.toml", nil, []string{"bulk", "fast"}},
		{"second word", "config.toml", []string{"fast"}, nil},
		{"no configuration", "none.toml", nil, nil},
	} {
		p := &program{config: h.path(c.config)}
		got, directive := p.completePools(nil, c.args, "")
		slices.Sort(got)
		if !slices.Equal(got, c.want) || directive != cobra.ShellCompDirectiveNoFileComp {
			t.Errorf("%s: %q with %v, want %q", c.name, got, directive, c.want)
		}
	}
}
