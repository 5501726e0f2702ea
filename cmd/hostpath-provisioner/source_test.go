package main

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// The note about the default source comes while there is a volume of the earlier one, and ends when
// the configuration says the source.
func TestSourceNote(t *testing.T) {
	p := &program{loaded: config.Default()}
	of := func(provisioner, source string) *volume.Inventory {
		r := record.Record{Kind: record.Volume, Provisioner: provisioner, Source: source}
		return &volume.Inventory{Volumes: []record.Record{r}}
	}
	own := p.loaded.Provisioner
	said, shared := config.DefaultPool("fast"), config.DefaultPool("fast")
	said.SourceSet, shared.Source = true, plan.SourceHostPath
	for name, c := range map[string]struct {
		pool      config.Pool
		inventory *volume.Inventory
		want      bool
	}{
		"of the earlier default": {config.DefaultPool("fast"), of(own, "hostPath"), true},
		"of the present one":     {config.DefaultPool("fast"), of(own, "local"), false},
		"of an alias":            {config.DefaultPool("fast"), of("hostpath", "hostPath"), false},
		"not read":               {config.DefaultPool("fast"), nil, false},
		"written":                {said, of(own, "hostPath"), false},
		"of another scope":       {shared, of(own, "hostPath"), false},
	} {
		if got := p.sourceNote(c.pool, c.inventory); strings.Contains(got, "1 volume of source") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A name of several pools is for the commands that take several, and refused by the others.
func TestSeveralNamed(t *testing.T) {
	h := newHost(t, "node = 'node-a'\n[pool.fast]\npaths = ['BASE/a', 'BASE/b']\nrequire_mount = false\n")
	if got := h.call("prepare", "fast"); strings.Count(got, "next: run: hostpath-provisioner check fast-") != 2 {
		t.Errorf("prepare: %s", got)
	}
	if got := h.call("check", "fast"); !strings.Contains(got, "fast-a") || !strings.Contains(got, "fast-b") || !strings.Contains(got, "exit 0") {
		t.Errorf("check: %s", got)
	}
	for _, line := range []string{"prepare fast --replace", "adopt fast", "quota fast", "import fast --from-node node-b"} {
		if got := h.call(strings.Fields(line)...); !strings.Contains(got, "fast-a,fast-b") || !strings.Contains(got, "exit 2") {
			t.Errorf("%s: %s", line, got)
		}
	}
}
