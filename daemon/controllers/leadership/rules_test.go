package leadership

import (
	"testing"
	"time"
)

const (
	me    = "node-a_boot"
	other = "node-b_boot"
)

// lease is one that another daemon holds and renewed just now.
func lease() Facts {
	return Facts{
		Lease: &Lease{Name: "fast.p", Pool: "fast", Holder: other, Marker: "m", Term: Term{"u", 3, "t"}, Version: "7"},
		Me:    me, Node: "node-a", Usable: true, Marker: "m",
	}
}

func mine(f *Facts)      { f.Lease.Holder, f.Term = me, &Term{"u", 3, "t"} }
func earlier(f *Facts)   { f.Lease.Holder = me }
func reports(f *Facts)   { f.Lease.Reporter = true }
func free(f *Facts)      { f.Lease.Holder = "" }
func none(f *Facts)      { f.Lease = nil }
func unable(f *Facts)    { f.Usable = false }
func elsewhere(f *Facts) { f.Marker = "another" }
func damaged(f *Facts)   { f.Lease.Damage = "a label" }
func forged(f *Facts)    { f.Lease.Marker = "forged" }
func worked(f *Facts)    { f.Worked = f.Marker }
func here(f *Facts)      { f.Proof = ProofHere }
func not(f *Facts)       { f.Proof = ProofElsewhere }
func unchangedFor(d time.Duration) func(*Facts) {
	return func(f *Facts) { f.Unchanged = d }
}

func TestDecide(t *testing.T) {
	type change = func(*Facts)
	long := Duration + noLeader + time.Second
	for _, c := range []struct {
		name    string
		changes []change
		want    Action
	}{
		{"another works", nil, StandBy},
		{"another works, and we could not", []change{unable}, StandBy},
		{"another did not renew for less than its time", []change{unchangedFor(Duration - time.Second)}, StandBy},
		{"another does not renew", []change{unchangedFor(Duration + time.Second)}, Lead},
		{"another does not renew, and we cannot", []change{unable, unchangedFor(Duration + time.Second)}, StandBy},
		{"another does not renew for long, and we cannot", []change{unable, unchangedFor(long)}, Report},
		{"there is none", []change{none, unchangedFor(time.Second)}, Lead},
		{"there is none, and we cannot", []change{none, unable, unchangedFor(time.Second)}, StandBy},
		{"there is none for long, and we cannot", []change{none, unable, unchangedFor(long)}, Report},
		{"no daemon has it", []change{free, unchangedFor(time.Second)}, Lead},
		{"no daemon has it, and we cannot", []change{free, unable, unchangedFor(time.Second)}, StandBy},
		{"no daemon has it for long, and we cannot", []change{free, unable, unchangedFor(long)}, Report},
		{"another reports, and we can work", []change{reports, unchangedFor(time.Second)}, Lead},
		{"another reports, and we cannot work either", []change{reports, unable, unchangedFor(time.Second)}, StandBy},
		{"another reported and does not renew", []change{reports, unable, unchangedFor(long)}, Report},
		{"ours, renewed just now", []change{mine}, StandBy},
		{"ours, to be renewed", []change{mine, unchangedFor(Renewal)}, Renew},
		{"ours, and we cannot work any more", []change{mine, unable}, Resign},
		{"ours to report, and we still cannot work", []change{mine, reports, unable, unchangedFor(Renewal)}, Renew},
		{"ours to report, and now we can work", []change{mine, reports}, Lead},
		{"ours of an earlier process", []change{earlier}, Lead},
		{"ours of an earlier term", []change{mine, func(f *Facts) { f.Term.Number-- }}, Lead},
		{"ours of a lease that was deleted", []change{mine, func(f *Facts) { f.Term.UID = "v" }}, Lead},
		{"of another storage", []change{free, elsewhere, unchangedFor(time.Second)}, StandBy},
		{"of another storage, ours", []change{mine, elsewhere}, Resign},
		{"of another storage, and its holder does not renew", []change{elsewhere, unchangedFor(Duration + time.Second)}, StandBy},
		{"ours, of a forged storage", []change{mine, worked, forged}, Renew},
		{"ours, of a forged storage, and ours was replaced", []change{mine, worked, forged, elsewhere}, Resign},
		{"ours, damaged", []change{mine, damaged}, Renew},
		{"another works, in a forged storage", []change{forged, here, worked}, StandBy},
		{"another works, damaged", []change{damaged}, StandBy},
		{"of a forged storage, and ours has the volumes", []change{free, forged, here, unchangedFor(time.Second)}, Lead},
		{"of a forged storage, its holder does not renew, and ours has the volumes", []change{forged, here, unchangedFor(Duration + time.Second)}, Lead},
		{"of a forged storage, and we worked in ours", []change{free, forged, worked, unchangedFor(time.Second)}, Lead},
		{"of a forged storage, we worked in ours, and it has no volume", []change{free, forged, worked, not, unchangedFor(time.Second)}, StandBy},
		{"of a forged storage, for long, and ours has no volume", []change{free, forged, not, unchangedFor(Duration + long)}, Report},
		{"of our storage, which has no volume", []change{free, not, unchangedFor(time.Second)}, StandBy},
		{"of our storage, which has no volume, for long", []change{free, not, unchangedFor(Duration + time.Second)}, Lead},
		{"ours to report, of a forged storage, and ours has the volumes", []change{mine, reports, forged, here}, Lead},
		{"of no storage yet", []change{free, unchangedFor(time.Second), func(f *Facts) { f.Lease.Marker = "" }}, Lead},
	} {
		f := lease()
		for _, change := range c.changes {
			change(&f)
		}
		got, after := Decide(f)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if after <= 0 {
			t.Errorf("%s: look again after %s", c.name, after)
		}
	}
}

// Standing by ends by itself: looked at again when it was said, or soon after, the decision is
// made.
func TestStandingByEnds(t *testing.T) {
	for _, change := range []func(*Facts){func(*Facts) {}, unable, none, free, reports, mine, forged, not, elsewhere} {
		f, looks := lease(), 0
		change(&f)
		for action := StandBy; action == StandBy; looks++ {
			var after time.Duration
			action, after = Decide(f)
			f.Unchanged += after
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
		changes []func(*Facts)
		want    bool
	}{
		{"another works", nil, false},
		{"another does not renew", []func(*Facts){unchangedFor(Duration + time.Second)}, true},
		{"another does not renew, and we cannot", []func(*Facts){unable, unchangedFor(Duration + time.Second)}, false},
		{"no daemon has it", []func(*Facts){free, unchangedFor(time.Second)}, true},
		{"ours", []func(*Facts){mine}, false},
		{"ours to report", []func(*Facts){mine, reports}, true},
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

// Each rule can be asked by itself, also about nothing.
func TestRulesAreTotal(t *testing.T) {
	for i, rule := range rules {
		if action, after, applies := rule(Facts{}); applies && after < 0 {
			t.Errorf("rule %d: %s, again after %s", i, action, after)
		}
		rule(Facts{Lease: &Lease{}, Term: &Term{}, Usable: true})
	}
}
