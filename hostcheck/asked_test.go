package hostcheck

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// askedOf probes a pool in a process without CAP_SYS_ADMIN, whose request gets this response.
func (p *pool) askedOf(t *testing.T, response Bare) (r Report) {
	t.Helper()
	l := gatherer{expect: p.expect, who: "client", ask: func(point string, within time.Duration) Bare {
		if point != p.expect.MountPoint || within <= 0 {
			t.Errorf("asked for %s within %s", point, within)
		}
		return response
	}}
	withoutAdmin(t, func() { r = Check(p.expect, l.facts(func(string, Facts) {})) })
	return r
}

// withoutAdmin runs f on a thread without CAP_SYS_ADMIN, which ends with it.
func withoutAdmin(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&header, &caps[0])
		if err == nil {
			caps[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
			if err = unix.Capset(&header, &caps[0]); err == nil {
				f()
			}
		}
		done <- err
	}()
	must(t, <-done)
}

// What a response means for a pool that requires the flag, and for one that is only warned of it.
func TestAsked(t *testing.T) {
	p := newPool(t)
	good := LookUnder(p.dir)
	if !good.Immutable || good.Trouble != "" {
		t.Fatalf("%+v", good)
	}
	response := func(change func(*Bare)) Bare {
		b := good
		change(&b)
		return b
	}
	for what, one := range map[string]struct {
		response      Bare
		require, warn string
	}{
		"good":              {good, "", ""},
		"not immutable":     {response(func(b *Bare) { b.Immutable = false }), "NotImmutable", "NotImmutable"},
		"another directory": {response(func(b *Bare) { b.On.Path += "x" }), "LookFailed", "LookFailed"},
		"another device":    {response(func(b *Bare) { b.On.Minor++ }), "LookFailed", "LookFailed"},
		"nothing":           {Bare{}, "LookFailed", "LookFailed"},
		"not permitted":     {Bare{Under: Under{Trouble: NotPermitted, Error: "no service"}}, "LookNotPermitted", "LookNotPermitted"},
		"cannot tell":       {Bare{Under: Under{Trouble: CannotTell}}, "ImmutableUnknown", "ImmutableUnknown"},
		"no response":       {Bare{Under: Under{Trouble: NoAnswer, Error: "no response"}}, "NotAnswering", "LookNotPermitted"},
	} {
		for immutable, want := range map[Immutability]string{ImmutableRequire: one.require, ImmutableWarn: one.warn} {
			p.expect.Immutable = immutable
			r := p.askedOf(t, one.response)
			if got := strings.Join(reasons(r), " "); got != want || r.Open() != (want == "" || immutable == ImmutableWarn) {
				t.Errorf("%s, %s: %+v, want %q", what, immutable, r, want)
			}
		}
	}
}

// Where there is no service to ask, the pool is closed.
func TestNobodyToAsk(t *testing.T) {
	p := newPool(t)
	var f Facts
	withoutAdmin(t, func() { f = (&gatherer{expect: p.expect}).facts(func(string, Facts) {}) })
	if r := Check(p.expect, f); strings.Join(reasons(r), " ") != ReasonLookNotPermitted || r.Open() {
		t.Errorf("%+v", r)
	}
}
