package leadership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What daemons do with each other's leases is tested in test/e2e and test/weather. Here are the
// single steps, which neither can time.

// server is an API server's one lease. Its version grows with each write of anything in the
// cluster.
type server struct {
	now     *Lease
	version int
	err     error
}

func (s *server) ReadLease(context.Context, string) (*Lease, error) { return s.copy(), s.err }

func (s *server) copy() *Lease {
	if s.now == nil {
		return nil
	}
	l := *s.now
	return &l
}

func (s *server) WriteLease(_ context.Context, l Lease) (*Lease, error) {
	if s.err != nil {
		return nil, s.err
	}
	if (s.now == nil) != (l.Version == "") || s.now != nil && (l.Version != s.now.Version || l.Term.UID != s.now.Term.UID) {
		return nil, nil
	}
	if s.now == nil {
		l.Term.UID = "uid"
	}
	s.write(l)
	return s.copy(), nil
}

func (s *server) write(l Lease) {
	s.version++
	l.Version, l.Damage = strconv.Itoa(s.version), ""
	s.now = &l
}

// restore puts the server back to an earlier lease, and as far as version.
func (s *server) restore(to *Lease, version int) { s.now, s.version = to, version }

// host is a daemon with its clock, its storage and what it was told.
type host struct {
	*Elector
	now     time.Duration
	usable  bool
	marker  string
	proof   Proof
	asked   int // for a proof
	resumed int
	events  []string
	failed  []error // how the requests ended
}

func (h *host) Usable() (bool, string) { return h.usable, h.marker }

func (h *host) Proof(context.Context) Proof { h.asked++; return h.proof }

func (h *host) Event(_ corev1.ObjectReference, _, reason, message string) {
	h.events = append(h.events, reason+": "+message)
}

// standing is node-a, which has the storage "m" of the shared pool "fast" and does not know the
// server's lease yet.
func standing(s *server) *host {
	h := &host{usable: true, marker: "m", now: time.Hour}
	h.Elector = New(Options{
		Pool: "fast", Provisioner: "p", Identity: me, Node: "node-a", Leases: s, Storage: h, Events: h,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Clock: func() time.Duration { return h.now }, Resumed: func() { h.resumed++ },
		Requested: func(err error) { h.failed = append(h.failed, err) },
	})
	return h
}

// leading is node-a as the Leader.
func leading(t *testing.T, s *server) *host {
	t.Helper()
	h := standing(s)
	h.now += time.Second // longer than any daemon's stagger
	h.Tend(t.Context())
	if !h.Leads() || s.now == nil || s.now.Holder != me || s.now.Marker != "m" || h.resumed != 1 {
		t.Fatalf("it did not take the lease: %+v, resumed %d times", s.now, h.resumed)
	}
	return h
}

// due makes the next renewal due.
func (h *host) due() { h.now += Renewal }

// overdue lets the time pass after which a holder that does not renew is replaced.
func (h *host) overdue() { h.now += Duration + time.Second }

// A server that was restored has a lease with a lower version. Whatever is in it, the daemon that
// reads it takes it for the truth, and one works in the pool again.
func TestLeaseOfARestoredServer(t *testing.T) {
	for name, earlier := range map[string]Lease{
		"the same holding":                {Holder: me, Marker: "m"},
		"an earlier holding of this node": {Holder: me, Marker: "m", Term: Term{UID: "uid", Number: 1, Token: "x"}},
		"another holder":                  {Holder: other, Marker: "m", Term: Term{UID: "uid", Number: 1, Token: "x"}},
		"no holder":                       {Marker: "m", Term: Term{UID: "uid", Number: 1, Token: "x"}},
		"another lease of the name":       {Holder: other, Marker: "m", Term: Term{UID: "another", Number: 1, Token: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{version: 1000}
			h := leading(t, s)
			old := *h.held()
			if earlier.Term.UID == "" {
				earlier.Term = old
			}
			earlier.Name, earlier.Pool, earlier.Version = "fast.p", "fast", "500"
			s.restore(&earlier, 500)
			h.due()
			h.Tend(t.Context())
			if h.Leads() || h.Fence(t.Context()) == nil {
				t.Error("it goes on in a term that the server gave back")
			}
			h.overdue()
			h.Tend(t.Context())
			if !h.Leads() || h.Fence(t.Context()) != nil || s.now.Holder != me {
				t.Fatalf("no daemon works in the pool: %+v", s.now)
			}
			if *h.held() == old {
				t.Error("the new term is the old one")
			}
			if told := len(h.events) == 1 && strings.HasPrefix(h.events[0], "LeaseOverwritten: pool fast: lease fast.p was overwritten"); told != (name != "the same holding") {
				t.Errorf("events %q", h.events)
			}
		})
	}
}

// A daemon that stands by sees through the watch that the server went back, and reads the lease.
func TestStandbySeesARestoredServer(t *testing.T) {
	s := &server{version: 1000}
	s.write(Lease{Name: "fast.p", Pool: "fast", Holder: other, Marker: "m", Term: Term{UID: "uid", Number: 5, Token: "b"}})
	h := standing(s)
	h.Changed("fast.p", s.copy())
	if got := h.Leader(); got != other {
		t.Errorf("the leader is %q", got)
	}
	s.restore(&Lease{Name: "fast.p", Pool: "fast", Holder: "node-c_boot", Marker: "m", Version: "500", Term: Term{UID: "uid", Number: 2, Token: "c"}}, 500)
	h.Changed("fast.p", s.copy())
	h.Tend(t.Context())
	if got := h.Leader(); got != "node-c_boot" {
		t.Errorf("the leader is %q, want the holder that the server has", got)
	}
	h.overdue()
	if got := h.Leader(); got != "" {
		t.Errorf("%s is taken for the leader, and does not renew", got)
	}
}

// One write of anything: the holder stops at once where it is not the holder any more, and the
// lease is right again after a bounded time, with the marker that was read from the disk.
func TestForgedLease(t *testing.T) {
	for _, proof := range []Proof{"", ProofHere} {
		for name, forge := range map[string]func(*Lease){
			"the marker":                func(l *Lease) { l.Marker = "forged" },
			"something useless":         func(l *Lease) { l.Damage = "a label" },
			"the holder":                func(l *Lease) { l.Holder = "x\x1b[2J" },
			"no holder":                 func(l *Lease) { l.Holder = "" },
			"no holder and the marker":  func(l *Lease) { l.Holder, l.Marker = "", "forged" },
			"the holder and the marker": func(l *Lease) { l.Holder, l.Marker, l.Term.Number = "x", "forged", 99 },
			"the role":                  func(l *Lease) { l.Reporter = true },
			"the term":                  func(l *Lease) { l.Term.Number = 1<<31 - 1 },
			"the token":                 func(l *Lease) { l.Term.Token = "" },
		} {
			t.Run(fmt.Sprintf("%s, proof %q", name, proof), func(t *testing.T) {
				s := &server{}
				h := leading(t, s)
				h.proof = proof
				l := s.copy()
				forge(l)
				damage := l.Damage
				s.write(*l)
				s.now.Damage = damage
				h.Changed("fast.p", s.copy())
				if stays := name == "the marker" || damage != ""; h.Leads() != stays || (h.Fence(t.Context()) == nil) != stays {
					t.Errorf("it goes on with the work: %v, want %v", h.Leads(), stays)
				}
				for range 2 { // it looks when it is due, and once more when the forged holder's time is over
					h.Tend(t.Context())
					h.overdue()
				}
				if s.now.Holder != me || s.now.Marker != "m" || s.now.Reporter || s.now.Damage != "" || s.now.Term.Number < 0 {
					t.Errorf("it is %+v", s.now)
				}
				if h.Tend(t.Context()); !h.Leads() {
					t.Error("it does not lead")
				}
				if len(h.events) == 0 || !strings.HasPrefix(h.events[0], "LeaseOverwritten: pool fast: lease fast.p ") || strings.Contains(strings.Join(h.events, ""), "\x1b") {
					t.Errorf("events %q", h.events)
				}
			})
		}
	}
}

// What an admission webhook adds to each write is not repaired for ever.
func TestUsualDamage(t *testing.T) {
	s := &server{}
	h := leading(t, s)
	for range 3 {
		h.due()
		h.Tend(t.Context())
		s.now.Damage = "a label"
		h.wrote(s.copy(), Renew, h.now)
	}
	was := s.now.Version
	h.Tend(t.Context())
	if s.now.Version != was || len(h.events) > 0 {
		t.Errorf("written again, events %q", h.events)
	}
}

// A daemon's own writes come through the watch before their responses, and give no alarm.
func TestOwnWritesGiveNoAlarm(t *testing.T) {
	s := &server{}
	h := leading(t, s)
	f := h.facts()
	for _, action := range []Action{Renew, Lead, Resign} {
		f.Marker, f.Lease = "m", h.lease
		next := h.next(f, action)
		h.wants(next)
		now, err := s.WriteLease(t.Context(), next)
		if err != nil || now == nil {
			t.Fatal(action, now, err)
		}
		h.watched(now)
		h.wrote(now, action, h.now)
		h.reportLost()
	}
	if len(h.events) > 0 {
		t.Errorf("events %q", h.events)
	}
}

// A daemon that started anew knows nothing of a storage but what is on the disk: the one that has
// the pool's volumes is worked in, whatever marker the lease has.
func TestTheDiskDecides(t *testing.T) {
	for proof, leads := range map[Proof]bool{ProofHere: true, ProofElsewhere: false} {
		s := &server{}
		term := leading(t, s).held()
		s.write(Lease{Name: "fast.p", Pool: "fast", Marker: "forged", Term: *term})
		h := standing(s)
		h.proof = proof
		h.Changed("fast.p", s.copy())
		h.overdue()
		h.Tend(t.Context())
		if h.Leads() != leads || (s.now.Marker == "m") != leads || h.asked == 0 {
			t.Errorf("proof %s: leads %v, the disk was asked %d times, and the lease is %+v", proof, h.Leads(), h.asked, s.now)
		}
		if told := strings.Join(h.events, ""); strings.Contains(told, "its marker is forged") != leads {
			t.Errorf("proof %s: events %q", proof, told)
		}
	}
}

// A storage that stays another one is reported once, and not before its Leader could correct the
// lease.
func TestMismatchIsReported(t *testing.T) {
	s := &server{}
	s.write(Lease{Name: "fast.p", Pool: "fast", Holder: other, Marker: "n", Term: Term{UID: "uid", Number: 5, Token: "b"}})
	h := standing(s)
	h.Changed("fast.p", s.copy())
	for i := range 20 {
		h.Tend(t.Context())
		if reported := len(h.events) > 0; reported != (time.Duration(i)*time.Second >= 2*Renewal) {
			t.Fatalf("after %d s: events %q", i, h.events)
		}
		h.now += time.Second
		s.write(*s.now) // its Leader renews
		h.Changed("fast.p", s.copy())
	}
	want := "pool fast: the storage here has the marker m, and the other nodes work in n (annotation of lease fast.p)"
	if len(h.events) != 1 || !strings.HasSuffix(h.events[0], want) {
		t.Errorf("events %q", h.events)
	}
	if got := h.Blocked(""); got != "no node can work in it; here "+strings.TrimPrefix(want, "pool fast: ") {
		t.Errorf("blocked: %q", got)
	}
}

// The three roles, one after the other, and what each lets the callers do.
func TestRoles(t *testing.T) {
	s := &server{}
	h := leading(t, s)
	check := func(when string, role Role, blocked string) {
		t.Helper()
		if h.Role() != role || h.Blocked("why") != blocked {
			t.Errorf("%s: %s, blocked %q; want %s, %q", when, h.Role(), h.Blocked("why"), role, blocked)
		}
		if err := h.Fence(t.Context()); (err == nil) != (role == Leader) || err != nil && !errors.Is(err, ErrNotLeading) {
			t.Errorf("%s: the fence returns %v", when, err)
		}
	}
	check("it works", Leader, "why")
	h.now += Trust
	check("it could not renew in time", Standby, "no node can work in it; here why")
	h.Tend(t.Context())
	check("it renewed after all", Leader, "why")
	if h.resumed != 2 {
		t.Errorf("resumed %d times, want once more after it stood by", h.resumed)
	}
	h.usable = false
	h.Tend(t.Context())
	if s.now.Holder != "" {
		t.Errorf("it keeps a lease that it cannot use: %+v", s.now)
	}
	check("its storage is gone", Standby, "no node can work in it; here why")
	h.overdue()
	h.Tend(t.Context())
	check("no other daemon took it", Reporter, "no node can work in it; here why")
	if h.Blocked("") != "no leader at the moment" || h.Leader() != "" {
		t.Errorf("blocked %q, leader %q", h.Blocked(""), h.Leader())
	}
	h.usable = true
	h.Tend(t.Context())
	check("its storage is back", Leader, "why")
	h.Resign()
	check("the daemon ends", Standby, "no node can work in it; here why")
	if s.now.Holder != "" || s.now.Marker != "m" {
		t.Errorf("the lease is %+v", s.now)
	}
}

// A pool that is not shared has no elector, and its daemon always works.
func TestNoElector(t *testing.T) {
	var e *Elector
	if e.Role() != Leader || !e.Leads() || e.Fence(t.Context()) != nil || e.Blocked("closed") != "closed" || e.Leader() != "" {
		t.Error("a pool without an elector is not its daemon's")
	}
	e.Look()
	e.Changed("fast.p", nil)
	e.Resign()
}

// Each request that fails is told, and that they fail no more.
func TestRefusedRequests(t *testing.T) {
	s := &server{err: forbidden}
	h := standing(s)
	for range 5 {
		h.overdue()
		if after := h.Tend(t.Context()); after <= 0 || h.Leads() {
			t.Errorf("again after %s, leads %v", after, h.Leads())
		}
	}
	s.err = nil
	h.overdue()
	h.Tend(t.Context())
	if want := []error{forbidden, forbidden, forbidden, forbidden, forbidden, nil}; !slices.Equal(h.failed, want) {
		t.Errorf("told %q, want %q", h.failed, want)
	}
}

// Run decides at once, again when it is told to look, and ends with its context.
func TestRun(t *testing.T) {
	s := &server{}
	h := standing(s)
	h.now += time.Second
	ctx, cancel := context.WithCancel(t.Context())
	resumed := make(chan struct{}, 1)
	h.Resumed = func() { resumed <- struct{}{} }
	ended := make(chan struct{})
	go func() { h.Run(ctx); close(ended) }()
	<-resumed
	cancel()
	<-ended
	if !h.Leads() {
		t.Error("it does not lead")
	}
}

// The clock does not stand still, and does not run backwards.
func TestBootTime(t *testing.T) {
	a := BootTime()
	time.Sleep(time.Millisecond)
	if b := BootTime(); b-a < time.Millisecond || a <= 0 {
		t.Errorf("first %s, then %s", a, b)
	}
}

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "fast.p", errors.New("no"))
