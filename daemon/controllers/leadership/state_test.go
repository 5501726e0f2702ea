package leadership

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Before something is destroyed the API server is asked: only the same term of the same lease lets
// it be done, and a request without a response is no permission. What took the lease away is then
// known, and read before the next decision.
func TestFence(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		change func(h *host, s *server)
		want   error
	}{
		"nothing changed":                    {func(*host, *server) {}, nil},
		"another field of the lease changed": {func(_ *host, s *server) { l := *s.now; l.Damage = "a label"; s.write(l) }, nil},
		"another holder":                     {func(_ *host, s *server) { s.now.Holder = other }, ErrNotLeading},
		"another term":                       {func(_ *host, s *server) { s.now.Term.Number++ }, ErrNotLeading},
		"another token":                      {func(_ *host, s *server) { s.now.Term.Token = "forged" }, ErrNotLeading},
		"another object of the name":         {func(_ *host, s *server) { s.now.Term.UID = "new" }, ErrNotLeading},
		"only to report":                     {func(_ *host, s *server) { s.now.Reporter = true }, ErrNotLeading},
		"deleted":                            {func(_ *host, s *server) { s.now = nil }, ErrNotLeading},
		"an API server that is away":         {func(_ *host, s *server) { s.err = refused }, refused},
		"a host that was asleep":             {func(h *host, _ *server) { h.now += Trust }, ErrNotLeading},
	} {
		s := &server{}
		h := leading(t, s)
		asleep := name == "a host that was asleep"
		c.change(h, s)
		if err := h.Fence(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if lost := c.want == ErrNotLeading && !asleep; h.Leads() == (lost || asleep) || h.mustRead() != lost {
			t.Errorf("%s: leads %t, reads the lease next: %t", name, h.Leads(), h.mustRead())
		}
	}
}

// A response about a term that is over says nothing about the term that this process holds by now.
func TestResponseAboutAnEarlierTerm(t *testing.T) {
	s := &server{}
	h := leading(t, s)
	earlier := Term{UID: "uid", Number: s.now.Term.Number - 1, Token: "earlier"}
	if h.confirm(earlier, s.copy()) || !h.Leads() || h.mustRead() {
		t.Errorf("the earlier term is confirmed, or the present one ended: leads %t", h.Leads())
	}
}

// slow is an API server at which something happens between a write and its response.
type slow struct {
	*server
	during func()
}

func (s slow) WriteLease(ctx context.Context, l Lease) (*Lease, error) {
	now, err := s.server.WriteLease(ctx, l)
	s.during()
	return now, err
}

// A lease is trusted from before the request was sent: the others count its time from the write,
// which may have been right after that.
func TestTrustBeginsBeforeTheRequest(t *testing.T) {
	for name, c := range map[string]struct {
		took  time.Duration
		leads bool
	}{
		"at once":              {0, true},
		"just in time":         {Trust - time.Millisecond, true},
		"as long as the trust": {Trust, false},
	} {
		h := standing(nil)
		h.Leases = slow{&server{}, func() { h.now += c.took }}
		h.now += time.Second
		if h.Tend(t.Context()); h.Leads() != c.leads {
			t.Errorf("%s: leads %t", name, h.Leads())
		}
		if h.now += Trust - c.took; h.Leads() {
			t.Errorf("%s: leads for longer than %s", name, Trust)
		}
	}
}

// The watch may bring a later write before this write's response. The lease is read then, and
// nothing is done before.
func TestWatchIsFasterThanTheResponse(t *testing.T) {
	s := &server{}
	h := standing(s)
	h.Leases = slow{s, func() {
		l := *s.now
		l.Holder, l.Term = other, l.Term.Next("theirs")
		s.write(l)
		h.Changed(l.Name, s.copy())
	}}
	h.now += time.Second
	if h.Tend(t.Context()); h.Leads() || !h.mustRead() {
		t.Errorf("leads %t, reads the lease next: %t", h.Leads(), h.mustRead())
	}
	if h.Tend(t.Context()); h.Leads() || h.Leader() != other || h.mustRead() {
		t.Errorf("leads %t, the leader is %q", h.Leads(), h.Leader())
	}
}

// A daemon that ends gives up its own lease, and no other.
func TestResign(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *host, s *server)
		want   string // the holder
	}{
		"its own":                    {func(*host, *server) {}, ""},
		"another's, and it knows":    {func(h *host, s *server) { s.now.Holder = other; s.write(*s.now); h.Changed(s.now.Name, s.copy()) }, other},
		"another's, and it does not": {func(_ *host, s *server) { s.now.Holder = other; s.write(*s.now) }, other},
		"an API server that is away": {func(_ *host, s *server) { s.err = errors.New("refused") }, me},
	} {
		s := &server{}
		h := leading(t, s)
		c.change(h, s)
		if h.Resign(); s.now.Holder != c.want {
			t.Errorf("%s: the holder is %q, want %q", name, s.now.Holder, c.want)
		}
	}
}
