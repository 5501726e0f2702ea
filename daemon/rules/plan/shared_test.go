package plan

import "testing"

// A daemon that stands by reports nothing about a claim of a shared pool, but the node that the
// claim names writes its name on it.
func TestClaimsOfSharedPools(t *testing.T) {
	silent := func(f *ClaimFacts) { f.Silent = true }
	speaking := func(f *ClaimFacts) { f.Closed = "no node can work in it" }
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
		f := changed(shared(), c.changes)
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
