package plan

import (
	"math"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	me    = us + "_boot"
	other = them + "_boot"
)

// lease is one that another daemon holds and renewed just now.
func lease() LeaseFacts {
	return LeaseFacts{
		Lease: &Lease{Name: "fast.p", Pool: "fast", Holder: other, Marker: "m", Term: Term{"u", 3, "t"}, Version: "7"},
		Me:    me, Node: us, Able: true, Marker: "m",
	}
}

func mine(f *LeaseFacts)      { f.Lease.Holder, f.Term = me, &Term{"u", 3, "t"} }
func earlier(f *LeaseFacts)   { f.Lease.Holder = me }
func speaks(f *LeaseFacts)    { f.Lease.Speaks = true }
func nobody(f *LeaseFacts)    { f.Lease.Holder = "" }
func none(f *LeaseFacts)      { f.Lease = nil }
func unable(f *LeaseFacts)    { f.Able = false }
func elsewhere(f *LeaseFacts) { f.Marker = "another" }
func damaged(f *LeaseFacts)   { f.Lease.Damage = "a label" }
func forged(f *LeaseFacts)    { f.Lease.Marker = "forged" }
func worked(f *LeaseFacts)    { f.Worked = f.Marker }
func here(f *LeaseFacts)      { f.Proof = ProofHere }
func not(f *LeaseFacts)       { f.Proof = ProofElsewhere }
func quietFor(d time.Duration) func(*LeaseFacts) {
	return func(f *LeaseFacts) { f.Quiet = d }
}

func TestForLease(t *testing.T) {
	type change = func(*LeaseFacts)
	long := LeaseDuration + leaseSpeak + time.Second
	for _, c := range []struct {
		name    string
		changes []change
		want    LeaseAction
	}{
		{"another works", nil, LeaseStand},
		{"another works, and we could not", []change{unable}, LeaseStand},
		{"another was silent for less than its time", []change{quietFor(LeaseDuration - time.Second)}, LeaseStand},
		{"another is silent", []change{quietFor(LeaseDuration + time.Second)}, LeaseTake},
		{"another is silent, and we cannot", []change{unable, quietFor(LeaseDuration + time.Second)}, LeaseStand},
		{"another is silent for long, and we cannot", []change{unable, quietFor(long)}, LeaseSpeak},
		{"there is none", []change{none, quietFor(time.Second)}, LeaseTake},
		{"there is none, and we cannot", []change{none, unable, quietFor(time.Second)}, LeaseStand},
		{"there is none for long, and we cannot", []change{none, unable, quietFor(long)}, LeaseSpeak},
		{"nobody has it", []change{nobody, quietFor(time.Second)}, LeaseTake},
		{"nobody has it, and we cannot", []change{nobody, unable, quietFor(time.Second)}, LeaseStand},
		{"nobody has it for long, and we cannot", []change{nobody, unable, quietFor(long)}, LeaseSpeak},
		{"another speaks, and we can work", []change{speaks, quietFor(time.Second)}, LeaseTake},
		{"another speaks, and we cannot work either", []change{speaks, unable, quietFor(time.Second)}, LeaseStand},
		{"another spoke and is silent", []change{speaks, unable, quietFor(long)}, LeaseSpeak},
		{"ours, renewed just now", []change{mine}, LeaseStand},
		{"ours, to be renewed", []change{mine, quietFor(LeaseRenewal)}, LeaseRenew},
		{"ours, and we cannot work any more", []change{mine, unable}, LeaseLeave},
		{"ours to speak, and we still cannot work", []change{mine, speaks, unable, quietFor(LeaseRenewal)}, LeaseRenew},
		{"ours to speak, and now we can work", []change{mine, speaks}, LeaseTake},
		{"ours of an earlier process", []change{earlier}, LeaseTake},
		{"ours of an earlier term", []change{mine, func(f *LeaseFacts) { f.Term.Number-- }}, LeaseTake},
		{"ours of a lease that was deleted", []change{mine, func(f *LeaseFacts) { f.Term.UID = "v" }}, LeaseTake},
		{"of another storage", []change{nobody, elsewhere, quietFor(time.Second)}, LeaseStand},
		{"of another storage, ours", []change{mine, elsewhere}, LeaseLeave},
		{"of another storage, and its holder is silent", []change{elsewhere, quietFor(LeaseDuration + time.Second)}, LeaseStand},
		{"ours, of a forged storage", []change{mine, worked, forged}, LeaseRenew},
		{"ours, of a forged storage, and ours was replaced", []change{mine, worked, forged, elsewhere}, LeaseLeave},
		{"ours, damaged", []change{mine, damaged}, LeaseRenew},
		{"another works, in a forged storage", []change{forged, here, worked}, LeaseStand},
		{"another works, damaged", []change{damaged}, LeaseStand},
		{"of a forged storage, and ours has the volumes", []change{nobody, forged, here, quietFor(time.Second)}, LeaseTake},
		{"of a forged storage, its holder is silent, and ours has the volumes", []change{forged, here, quietFor(LeaseDuration + time.Second)}, LeaseTake},
		{"of a forged storage, and we worked in ours", []change{nobody, forged, worked, quietFor(time.Second)}, LeaseTake},
		{"of a forged storage, we worked in ours, and it has no volume", []change{nobody, forged, worked, not, quietFor(time.Second)}, LeaseStand},
		{"of a forged storage, for long, and ours has no volume", []change{nobody, forged, not, quietFor(LeaseDuration + long)}, LeaseSpeak},
		{"of our storage, which has no volume", []change{nobody, not, quietFor(time.Second)}, LeaseStand},
		{"of our storage, which has no volume, for long", []change{nobody, not, quietFor(LeaseDuration + time.Second)}, LeaseTake},
		{"ours to speak, of a forged storage, and ours has the volumes", []change{mine, speaks, forged, here}, LeaseTake},
		{"of no storage yet", []change{nobody, quietFor(time.Second), func(f *LeaseFacts) { f.Lease.Marker = "" }}, LeaseTake},
	} {
		f := lease()
		for _, change := range c.changes {
			change(&f)
		}
		got, after := ForLease(f)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if after <= 0 {
			t.Errorf("%s: look again after %s", c.name, after)
		}
	}
}

// Standing by ends by itself: looked at again when it was said, or soon after, the decision is made.
func TestStandingByEnds(t *testing.T) {
	for _, change := range []func(*LeaseFacts){func(*LeaseFacts) {}, unable, none, nobody, speaks, mine, forged, not, elsewhere} {
		f, looks := lease(), 0
		change(&f)
		for action := LeaseStand; action == LeaseStand; looks++ {
			var after time.Duration
			action, after = ForLease(f)
			f.Quiet += after
			if looks > 3 {
				t.Fatalf("after %d looks: %s, %s", looks, action, after)
			}
		}
	}
}

// The disk is asked for its volumes only where this daemon could take the lease.
func TestVacant(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []func(*LeaseFacts)
		want    bool
	}{
		{"another works", nil, false},
		{"another is silent", []func(*LeaseFacts){quietFor(LeaseDuration + time.Second)}, true},
		{"another is silent, and we cannot", []func(*LeaseFacts){unable, quietFor(LeaseDuration + time.Second)}, false},
		{"nobody has it", []func(*LeaseFacts){nobody, quietFor(time.Second)}, true},
		{"ours", []func(*LeaseFacts){mine}, false},
		{"ours to speak", []func(*LeaseFacts){mine, speaks}, true},
	} {
		f := lease()
		for _, change := range c.changes {
			change(&f)
		}
		if got := f.Vacant(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Terms count on, also where somebody wrote a number that cannot grow.
func TestNextTerm(t *testing.T) {
	for number, want := range map[int32]int32{0: 1, 7: 8, math.MaxInt32: 1, -5: 1} {
		if got := (Term{"u", number, "old"}).Next("new"); got != (Term{"u", want, "new"}) {
			t.Errorf("after %d: %+v", number, got)
		}
	}
}

func TestLeaseWords(t *testing.T) {
	f := lease()
	for _, change := range []func(*LeaseFacts){mine, worked, damaged, func(f *LeaseFacts) { f.Lease.Marker = "x\x1b[2J" + strings.Repeat("y", 100) }} {
		change(&f)
	}
	other := lease()
	forged(&other)
	for got, want := range map[string]string{
		LeaseRepaired("fast.p", f.Repair()): `lease fast.p was changed by another program, and is corrected: its marker is "x\x1b[2J` + strings.Repeat("y", 59) +
			`...", and the storage that has the pool's volumes has m; it has a label`,
		LeaseLost("fast.p", nil): "lease fast.p was overwritten while this node held it: it was deleted; another program wrote it, " +
			"or the cluster's data was restored; this node stops work until it holds the lease again",
		LeaseLost("fast.p", &Lease{}): "lease fast.p was overwritten while this node held it: it has no holder; another program wrote it, " +
			"or the cluster's data was restored; this node stops work until it holds the lease again",
		LeaseLost("fast.p", &Lease{Holder: "node-b_boot", Term: Term{Number: 7}}): "lease fast.p was overwritten while this node held it: its holder is node-b_boot in term 7; " +
			"another program wrote it, or the cluster's data was restored; this node stops work until it holds the lease again",
		other.OtherStorage(): "the storage here has the marker m, and the other nodes work in forged (annotation of lease fast.p)",
		other.Repair():       "",
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// A holder stops trusting its lease before anybody else may take it.
func TestLeaseTimes(t *testing.T) {
	if LeaseTrust+LeaseRenewal >= LeaseDuration || LeaseRenewal*2 >= LeaseTrust {
		t.Errorf("renewed every %s, trusted for %s, taken after %s", LeaseRenewal, LeaseTrust, LeaseDuration)
	}
}

func TestLeaseName(t *testing.T) {
	if got := LeaseName("hostpath-provisioner", "shared"); got != "shared.hostpath-provisioner" {
		t.Errorf("got %s", got)
	}
	seen := map[string]string{}
	for _, provisioner := range []string{"a/b", "a.b", "A/b", "a/B", "a_b/c", "a-b/c", strings.Repeat("p", 253) + "/x", strings.Repeat("p", 253) + "/y"} {
		got := LeaseName(provisioner, strings.Repeat("n", 63))
		if bad := validation.IsDNS1123Subdomain(got); len(bad) > 0 {
			t.Errorf("%s: %q: %v", provisioner, got, bad)
		}
		if two, taken := seen[got]; taken {
			t.Errorf("%s and %s have the same lease", provisioner, two)
		}
		seen[got] = provisioner
	}
}

// Of those that do not work in a shared pool nobody says a word, but the node that the claim names
// writes its name on it.
func TestClaimsOfSharedPools(t *testing.T) {
	silent := func(f *ClaimFacts) { f.Leads, f.Silent = false, true }
	speaking := func(f *ClaimFacts) { f.Leads, f.Closed = false, "no node can work in it" }
	named := func(f *ClaimFacts) {
		f.Claim.Annotations = map[string]string{ProvisionOnNode: us}
	}
	for _, c := range []struct {
		name    string
		changes []func(*ClaimFacts)
		action  Action
		reason  string
	}{
		{"the leader, for another node's claim", nil, Provision, ""},
		{"the leader, Immediate", []func(*ClaimFacts){immediate, others}, Provision, ""},
		{"the leader, of a node without labels", []func(*ClaimFacts){func(f *ClaimFacts) { f.NodeLabels = nil }}, Provision, ""},
		{"the leader, too large: it is not given back", []func(*ClaimFacts){large, others}, Wait, ReasonNotEnoughSpace},
		{"the leader, block mode", []func(*ClaimFacts){block}, Refuse, ReasonBlockMode},
		{"another, too large", []func(*ClaimFacts){silent, large}, Ignore, ""},
		{"another, block mode", []func(*ClaimFacts){silent, block}, Ignore, ""},
		{"another, of the node that the claim names", []func(*ClaimFacts){silent, named}, Assign, ""},
		{"another, named before, and the scheduler chose a node", []func(*ClaimFacts){silent, func(f *ClaimFacts) { f.Claim.Annotations[ProvisionOnNode] = us }}, Ignore, ""},
		{"who speaks for all", []func(*ClaimFacts){speaking}, Wait, ReasonPoolClosed},
	} {
		f := shared()
		for _, change := range c.changes {
			change(&f)
		}
		if got := ForClaim(f); got.Action != c.action || got.Reason != c.reason {
			t.Errorf("%s: %s %s %q, want %s %s", c.name, got.Action, got.Reason, got.Message, c.action, c.reason)
		}
	}
}

func TestVolumesOfSharedPools(t *testing.T) {
	f := released()
	f.Pool.Scope = ScopeShared
	f.Volume.Labels = map[string]string{ScopeLabel: ScopeShared, PoolLabel: "fast"}
	if got := ForVolume(f); got.Action != Delete {
		t.Errorf("the leader: %+v", got)
	}
	f.Silent = true
	if got := ForVolume(f); got.Action != Ignore {
		t.Errorf("another: %+v", got)
	}
	f.Silent, f.Closed = false, "no node can work in it"
	if got := ForVolume(f); got.Action != Wait || got.Reason != ReasonPoolClosed {
		t.Errorf("who speaks for all: %+v", got)
	}
}
