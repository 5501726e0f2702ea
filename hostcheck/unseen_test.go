package hostcheck

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// A pool at its mount point that could be opened once and not again is closed, in the kernel's
// words; and whatever else was not seen, the pool is never open.
func TestNeverOpenUnseen(t *testing.T) {
	for name, c := range map[string]struct {
		hides func(*Facts)
		want  string
	}{
		"refused":     {func(f *Facts) { f.Path = Entry{Kind: Failing, Error: "permission denied"} }, "PathUnreadable"},
		"gone":        {func(f *Facts) { f.Path = Entry{Kind: Missing} }, "PathMissing"},
		"not looked":  {func(f *Facts) { f.Path = Entry{} }, "NotSeen"},
		"no identity": {func(f *Facts) { f.Path = Entry{Kind: Directory, MountID: 2} }, "NotSeen"},
		"no marker":   {func(f *Facts) { f.Marker = MarkerFact{} }, "NotSeen"},
	} {
		e, f := good()
		e.Path, f.Path = e.MountPoint, f.MountPoint
		c.hides(&f)
		r := Check(e, f)
		if why, _ := r.Closed(); r.Open() || r.Removable() || why.Reason != c.want {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A user who may not read the pool's directory learns that, and not that it is open.
func TestProbeWithoutRights(t *testing.T) {
	p := newPool(t)
	must(t, unix.Chown(p.dir, 1234, 1234))
	p.look.expect.Immutable = ImmutableOff
	p.expect.Immutable = ImmutableOff
	var found Report
	hosttest.Without(t, func() { found = Check(p.expect, p.look.facts(func(string, Facts) {})) }, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_ADMIN)
	if found.Open() || !strings.Contains(found.Findings[0].Message, "permission denied") {
		t.Errorf("%+v", found)
	}
}
