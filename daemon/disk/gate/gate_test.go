package gate

import (
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

func found(severity hostcheck.Severity, reason, message string) hostcheck.Report {
	return hostcheck.Report{Pool: "fast", Findings: []hostcheck.Finding{{Reason: reason, Severity: severity, Message: message}}}
}

// A gate is closed until the pool was checked, and an unknown pool stays closed.
func TestClosedUntilChecked(t *testing.T) {
	g := New("fast")
	for _, pool := range []string{"fast", "unknown"} {
		s := g.State(pool)
		if reason, message := s.Closed(); s.Open() || s.Removable() || reason != "NotChecked" || message == "" {
			t.Errorf("pool %s: open %v, removable %v, %s %q", pool, s.Open(), s.Removable(), reason, message)
		}
	}
	g.Set(hostcheck.Report{Pool: "unknown"}, time.Now())
	if g.State("unknown").Open() {
		t.Error("a report opened a pool that is not configured")
	}
}

func TestVerdicts(t *testing.T) {
	cases := []struct {
		name            string
		report          hostcheck.Report
		open, removable bool
		reason          string
	}{
		{"nothing found", hostcheck.Report{Pool: "fast"}, true, true, ""},
		{"a warning", found(hostcheck.Warn, "ModeTooOpen", "m"), true, true, ""},
		{"full", found(hostcheck.Full, "LowSpace", "m"), false, true, "LowSpace"},
		{"not mounted", found(hostcheck.Close, "NotMounted", "m"), false, false, "NotMounted"},
	}
	for _, c := range cases {
		g := New("fast")
		_, s := g.Set(c.report, time.Now())
		if reason, _ := s.Closed(); s.Open() != c.open || s.Removable() != c.removable || reason != c.reason {
			t.Errorf("%s: open %v, removable %v, %q", c.name, s.Open(), s.Removable(), reason)
		}
	}
}

// Since is when the verdict became what it is; new words for the same reason do not change it, so
// that free space that moves is not news.
func TestSinceFollowsTheReason(t *testing.T) {
	g, begin := New("fast"), time.Unix(1000, 0)
	g.Set(found(hostcheck.Close, "LowSpace", "1 GiB is free"), begin)
	before, after := g.Set(found(hostcheck.Close, "LowSpace", "2 GiB are free"), begin.Add(time.Minute))
	if Changed(before, after) || !after.Since.Equal(begin) {
		t.Errorf("the same reason counts as news, since %s", after.Since)
	}
	before, after = g.Set(found(hostcheck.Close, "ReadOnly", "m"), begin.Add(time.Hour))
	if !Changed(before, after) || !after.Since.Equal(begin.Add(time.Hour)) {
		t.Errorf("another reason is no news, since %s", after.Since)
	}
	before, after = g.Set(found(hostcheck.Warn, "ReadOnly", "m"), begin.Add(2*time.Hour))
	if !Changed(before, after) {
		t.Error("another severity is no news")
	}
}

// What stands in the pool's place is never handed out as the pool.
func TestIdentityOfAClosedPoolIsNone(t *testing.T) {
	for severity, want := range map[hostcheck.Severity]mounts.Identity{
		hostcheck.Close: {}, hostcheck.Full: {MountID: 7, Inode: 2}, hostcheck.Warn: {MountID: 7, Inode: 2},
	} {
		g, r := New("fast"), found(severity, "Reason", "m")
		r.Identity = mounts.Identity{MountID: 7, Inode: 2}
		if _, s := g.Set(r, time.Now()); s.Identity() != want {
			t.Errorf("%s: %+v, want %+v", severity, s.Identity(), want)
		}
	}
	if got := New("fast").State("fast").Identity(); got != (mounts.Identity{}) {
		t.Errorf("not checked yet: %+v", got)
	}
}
