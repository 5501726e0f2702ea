package hostcheck

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
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
	hosttest.Without(t, func() { r = Check(p.expect, l.facts(func(string, Facts) {})) }, unix.CAP_SYS_ADMIN)
	return r
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
		"no response":       {Bare{Under: Under{Trouble: NoResponse, Error: "no response"}}, "NotAnswering", "LookNotPermitted"},
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
	hosttest.Without(t, func() { f = (&gatherer{expect: p.expect}).facts(func(string, Facts) {}) }, unix.CAP_SYS_ADMIN)
	if r := Check(p.expect, f); strings.Join(reasons(r), " ") != ReasonLookNotPermitted || r.Open() {
		t.Errorf("%+v", r)
	}
}
