package daemon

import (
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

// What a sandbox hides is told as that: a pool in /home that systemd does not know of is not
// missing.
func TestUnitExplains(t *testing.T) {
	pool := config.DefaultPool("home")
	pool.Path, pool.RequireMount = "/home/volumes", false
	const name = "hostpath-provisioner.service"
	missing := hostcheck.Finding{Reason: hostcheck.ReasonPathMissing, Severity: hostcheck.Close}
	whole := systemd.GeneratedDropIn(name, []systemd.Pool{UnitPool(pool)})
	for what, c := range map[string]struct {
		unit  Unit
		own   bool
		found []hostcheck.Finding
		want  string // reasons and severities
	}{
		"closed":         {Unit{name, ""}, true, []hostcheck.Finding{missing}, "UnitOutdated close, PathMissing close"},
		"closed, check":  {Unit{name, ""}, false, []hostcheck.Finding{missing}, "PathMissing close, UnitOutdated warn"},
		"open":           {Unit{name, ""}, true, nil, "UnitOutdated warn"},
		"up to date":     {Unit{name, whole}, true, []hostcheck.Finding{missing}, "PathMissing close"},
		"by hand":        {Unit{}, true, []hostcheck.Finding{missing}, "PathMissing close"},
		"another's":      {Unit{name, systemd.GeneratedDropIn(name, []systemd.Pool{{Path: "/srv/x", Purge: true}})}, true, []hostcheck.Finding{missing}, "UnitOutdated close, PathMissing close"},
		"a check's unit": {Unit{"hostpath-provisioner-check.service", strings.ReplaceAll(whole, "CAP_LINUX_IMMUTABLE", "")}, true, nil, ""},
	} {
		r := hostcheck.Report{Findings: c.found}
		c.unit.Explain(pool, c.own, &r)
		var got []string
		for _, f := range r.Findings {
			got = append(got, f.Reason+" "+f.Severity.String())
			if f.Reason == plan.ReasonUnitOutdated && what == "another's" && !strings.Contains(f.Message, name+" does not have ProtectHome=no, which the pool needs (it is in a home directory)") {
				t.Errorf("%s: %s", what, f.Message)
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	for cgroup, want := range map[string]string{
		"1:cpu:/x\n0::/system.slice/hostpath-provisioner.service\n": name, "0::/user.slice/user-0.slice/session-1.scope\n": "", "0::/\n": "", "": "",
	} {
		if got := systemd.OwnUnit(cgroup); got != want {
			t.Errorf("%q: %q, want %q", cgroup, got, want)
		}
	}
}
