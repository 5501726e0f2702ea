package controller

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/gate"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// What daemons do with each other's leases is tested in test/e2e and test/chaos. Here are the single steps,
// which neither can time.

// leases is an API server's one lease. Its version grows with each write of anything in the cluster.
type leases struct {
	api
	now     *plan.Lease
	version int
}

func (s *leases) ReadLease(context.Context, string) (*plan.Lease, error) { return s.copy(), nil }

func (s *leases) copy() *plan.Lease {
	if s.now == nil {
		return nil
	}
	l := *s.now
	return &l
}

func (s *leases) WriteLease(_ context.Context, l plan.Lease) (*plan.Lease, error) {
	if (s.now == nil) != (l.Version == "") || s.now != nil && (l.Version != s.now.Version || l.Term.UID != s.now.Term.UID) {
		return nil, nil
	}
	if s.now == nil {
		l.Term.UID = "uid"
	}
	s.write(l)
	return s.copy(), nil
}

func (s *leases) write(l plan.Lease) {
	s.version++
	l.Version, l.Damage = strconv.Itoa(s.version), ""
	s.now = &l
}

// restore puts the server back to an earlier lease, and as far as version.
func (s *leases) restore(to *plan.Lease, version int) { s.now, s.version = to, version }

// listener keeps what the Node was told.
type listener struct {
	Speaker
	told []string
}

func (l *listener) Event(_ corev1.ObjectReference, _, reason, message string) {
	l.told = append(l.told, reason+": "+message)
}

// holding is a daemon that works in the shared pool "fast", whose lease this API server has. Its disk has these records.
func holding(t *testing.T, s *leases, records ...record.Record) (*Controller, *room, *listener) {
	t.Helper()
	g, ear := gate.New("fast"), &listener{}
	g.Set(hostcheck.Report{Pool: "fast", Marker: "m"}, time.Now())
	c := New(Options{
		Self: plan.Self{Provisioner: "p", Node: "node-a"}, Identity: "node-a_boot", API: s, Gate: g, Speaker: ear, Observer: deafObserver{},
		Log:   slog.New(slog.NewTextHandler(io.Discard, nil)),
		Pools: []PoolParts{{Pool: plan.Pool{Name: "fast", Scope: plan.ScopeShared}, Disk: &shelf{records: records}}},
		World: World{Claims: none[*corev1.PersistentVolumeClaim]{}, Volumes: none[*corev1.PersistentVolume]{}, Nodes: none[*corev1.Node]{}},
	})
	r := c.rooms["fast"]
	turn := time.Second // longer than any daemon's
	r.tenure.changed -= turn
	c.tend(t.Context(), r)
	if !r.leads() || s.now == nil || s.now.Holder != c.Identity || s.now.Marker != "m" {
		t.Fatalf("it did not take the lease: %+v", s.now)
	}
	return c, r, ear
}

// due makes the next renewal due.
func due(r *room) { r.tenure.changed -= plan.LeaseRenewal }

// overdue lets the time pass after which a silent holder is replaced.
func overdue(r *room) { r.tenure.changed -= plan.LeaseDuration + time.Second }

// A server that was restored has a lease with a lower version. Whatever it says, the daemon that asks takes it for the
// truth, and one works in the pool again.
func TestLeaseOfARestoredServer(t *testing.T) {
	for name, earlier := range map[string]plan.Lease{
		"the same holding":                {Holder: "node-a_boot", Marker: "m"},
		"an earlier holding of this node": {Holder: "node-a_boot", Marker: "m", Term: plan.Term{UID: "uid", Number: 1, Token: "x"}},
		"another holder":                  {Holder: "node-b_boot", Marker: "m", Term: plan.Term{UID: "uid", Number: 1, Token: "x"}},
		"no holder":                       {Marker: "m", Term: plan.Term{UID: "uid", Number: 1, Token: "x"}},
		"another lease of the name":       {Holder: "node-b_boot", Marker: "m", Term: plan.Term{UID: "another", Number: 1, Token: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &leases{version: 1000}
			c, r, ear := holding(t, s)
			old := *r.tenure.term
			if earlier.Term.UID == "" {
				earlier.Term = old
			}
			earlier.Name, earlier.Pool, earlier.Version = "fast.p", "fast", "500"
			s.restore(&earlier, 500)
			due(r)
			c.tend(t.Context(), r)
			if r.leads() || c.fence(t.Context(), r) == nil {
				t.Error("it goes on in a term that the server gave back")
			}
			overdue(r)
			c.tend(t.Context(), r)
			if !r.leads() || c.fence(t.Context(), r) != nil || s.now.Holder != c.Identity {
				t.Fatalf("nothing works in the pool: %+v", s.now)
			}
			if *r.tenure.term == old {
				t.Error("the new term is the old one")
			}
			if told := len(ear.told) == 1 && strings.HasPrefix(ear.told[0], "LeaseOverwritten: pool fast: lease fast.p was overwritten"); told != (name != "the same holding") {
				t.Errorf("told %q", ear.told)
			}
		})
	}
}

// A daemon that stands by sees through the watch that the server went back, and asks it.
func TestStandbySeesARestoredServer(t *testing.T) {
	s := &leases{version: 1000}
	s.write(plan.Lease{Name: "fast.p", Pool: "fast", Holder: "node-b_boot", Marker: "m", Term: plan.Term{UID: "uid", Number: 5, Token: "b"}})
	c, r := stand(&s.api, &shelf{})
	r.tenure, c.API = newTenure("node-a_boot"), s
	r.tenure.saw(s.copy())
	if got := c.Worker("fast"); got != "node-b_boot" {
		t.Errorf("works: %q", got)
	}
	s.restore(&plan.Lease{Name: "fast.p", Pool: "fast", Holder: "node-c_boot", Marker: "m", Version: "500", Term: plan.Term{UID: "uid", Number: 2, Token: "c"}}, 500)
	r.tenure.saw(s.copy())
	c.tend(t.Context(), r)
	if got := c.Worker("fast"); got != "node-c_boot" {
		t.Errorf("works: %q, want what the server says", got)
	}
	overdue(r)
	if got := c.Worker("fast"); got != "" {
		t.Errorf("%s is said to work, and does not renew", got)
	}
}

// One write of anything: the holder stops at once where it is not the holder any more, and the lease is right again
// after a bounded time, with the marker that was read from the disk.
func TestForgedLease(t *testing.T) {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Labels: map[string]string{plan.PoolLabel: "fast", plan.ScopeLabel: plan.ScopeShared}},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "1"}},
	}
	for _, volumes := range [][]*corev1.PersistentVolume{nil, {volume}} {
		for name, forge := range map[string]func(*plan.Lease){
			"the marker":                func(l *plan.Lease) { l.Marker = "forged" },
			"something useless":         func(l *plan.Lease) { l.Damage = "a label" },
			"the holder":                func(l *plan.Lease) { l.Holder = "x\x1b[2J" },
			"no holder":                 func(l *plan.Lease) { l.Holder = "" },
			"no holder and the marker":  func(l *plan.Lease) { l.Holder, l.Marker = "", "forged" },
			"the holder and the marker": func(l *plan.Lease) { l.Holder, l.Marker, l.Term.Number = "x", "forged", 99 },
			"the role":                  func(l *plan.Lease) { l.Speaks = true },
			"the term":                  func(l *plan.Lease) { l.Term.Number = 1<<31 - 1 },
			"the token":                 func(l *plan.Lease) { l.Term.Token = "" },
		} {
			t.Run(fmt.Sprintf("%s, %d volumes", name, len(volumes)), func(t *testing.T) {
				s := &leases{}
				c, r, ear := holding(t, s, record.Record{PV: "pvc-1", ClaimUID: "1"})
				c.World.Volumes = some{volumes}
				l := s.copy()
				forge(l)
				damage := l.Damage
				s.write(*l)
				s.now.Damage = damage
				r.tenure.saw(s.copy())
				if stays := name == "the marker" || damage != ""; r.leads() != stays || (c.fence(t.Context(), r) == nil) != stays {
					t.Errorf("it goes on with the work: %v, want %v", r.leads(), stays)
				}
				for range 2 { // it looks when it said, and once more when the forged holder's time is over
					c.tend(t.Context(), r)
					overdue(r)
				}
				if !r.leads() || s.now.Holder != c.Identity || s.now.Marker != "m" || s.now.Speaks || s.now.Damage != "" || s.now.Term.Number < 0 {
					t.Errorf("it is %+v", s.now)
				}
				if len(ear.told) == 0 || !strings.HasPrefix(ear.told[0], "LeaseOverwritten: pool fast: lease fast.p was ") || strings.Contains(strings.Join(ear.told, ""), "\x1b") {
					t.Errorf("told %q", ear.told)
				}
			})
		}
	}
}

// some is a store of these volumes.
type some struct{ volumes []*corev1.PersistentVolume }

func (s some) Get(string) (*corev1.PersistentVolume, bool) { return nil, false }
func (s some) List() []*corev1.PersistentVolume            { return s.volumes }

// What an admission webhook adds to each write is not repaired for ever.
func TestUsualDamage(t *testing.T) {
	s := &leases{}
	c, r, ear := holding(t, s)
	for range 3 {
		due(r)
		c.tend(t.Context(), r)
		s.now.Damage = "a label"
		r.tenure.wrote(s.copy(), plan.LeaseRenew, clock())
	}
	was := s.now.Version
	c.tend(t.Context(), r)
	if s.now.Version != was || len(ear.told) > 0 {
		t.Errorf("written again, and told %q", ear.told)
	}
}

// Our own writes come through the watch before they are answered, and give no alarm.
func TestOwnWritesGiveNoAlarm(t *testing.T) {
	s := &leases{}
	c, r, ear := holding(t, s)
	f := r.tenure.facts()
	for _, action := range []plan.LeaseAction{plan.LeaseRenew, plan.LeaseTake, plan.LeaseLeave} {
		f.Marker, f.Lease = "m", r.tenure.lease
		next := c.wanted(r, f, action)
		r.tenure.wants(next)
		now, err := c.API.WriteLease(t.Context(), next)
		if err != nil || now == nil {
			t.Fatal(action, now, err)
		}
		r.tenure.saw(now)
		r.tenure.wrote(now, action, clock())
		c.sayLost(r)
	}
	if len(ear.told) > 0 {
		t.Errorf("told %q", ear.told)
	}
}

// A daemon that started anew knows nothing of a storage but what is on the disk: the one that has the pool's volumes is
// worked in, whatever marker the lease has.
func TestTheDiskDecides(t *testing.T) {
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Labels: map[string]string{plan.PoolLabel: "fast", plan.ScopeLabel: plan.ScopeShared}},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "1"}},
	}
	for uid, works := range map[string]bool{"1": true, "2": false} { // of the claim that the record names
		s := &leases{}
		c, r, ear := holding(t, s, record.Record{PV: "pvc-1", ClaimUID: uid})
		c.World.Volumes = some{[]*corev1.PersistentVolume{volume}}
		s.write(plan.Lease{Name: "fast.p", Pool: "fast", Marker: "forged", Term: s.now.Term})
		r.tenure, ear.told = newTenure(c.Identity), nil
		r.tenure.saw(s.copy())
		overdue(r)
		c.tend(t.Context(), r)
		if r.leads() != works || (s.now.Marker == "m") != works {
			t.Errorf("a record of claim %s: works %v, and the lease is %+v", uid, r.leads(), s.now)
		}
		if told := strings.Join(ear.told, ""); strings.Contains(told, "its marker is forged") != works {
			t.Errorf("told %q", told)
		}
	}
}
