package hostcheck

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A pool at its mount point that could be opened once and not again is closed, in the kernel's words; and
// whatever else was not seen, the pool is never open.
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
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // which ends with the goroutine, and its lack of rights with it
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Error(err)
			return
		}
		found = Check(p.expect, p.look.facts(func(string, Facts) {}))
	}()
	<-done
	if found.Open() || !strings.Contains(found.Findings[0].Message, "permission denied") {
		t.Errorf("%+v", found)
	}
}
