package model

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// naming is which provisioner a daemon's configuration names. The classes, and what was made by
// them, have the default name.
type naming uint8

const (
	ownName naming = iota
	aliased        // another name, of which the classes' is an alias
	unnamed        // another name, and no alias
)

const otherName = "another.example"

// self is what the product is told of itself.
func (of setting) self() plan.Self {
	self := selfOf(int(of.node))
	if of.peer {
		self.Aliases = []string{plan.Kubevirt}
	}
	switch of.names {
	case aliased:
		self.Provisioner, self.Aliases = otherName, []string{plan.DefaultProvisioner}
	case unnamed:
		self.Provisioner = otherName
	}
	return self
}

// otherPattern is before the names of directories after the pattern was changed.
const otherPattern = "d-"

// configured is a pool as the configuration has it.
func (of setting) configured(n int) plan.Pool {
	p := pool(n, of.archive)
	if of.pattern {
		p.Directory = func(pv, _, _ string) (string, error) { return otherPattern + pv, nil }
	}
	if n == sharedPool && of.single {
		p.Scope = plan.ScopeNode
	}
	return p
}

// clusterOf is the ID of the pools' cluster, or of another one.
func clusterOf(other bool) string {
	if other {
		return "k1"
	}
	return clusterID
}

// patternChanged: the daemon ended before.
func patternChanged(_ *worker, s *state, node int) bool {
	d := &s.daemons[node]
	if d.up || !d.exists || !s.spend(patterns) {
		return false
	}
	d.pattern = !d.pattern
	return true
}

// nameChanged: the configuration names another provisioner, first with the alias and then without.
func nameChanged(_ *worker, s *state, node int) bool {
	d := &s.daemons[node]
	if d.up || !d.exists || d.names == unnamed || !s.spend(renames) {
		return false
	}
	d.names++
	return true
}

// aliasSet: people find that volumes stay, and restart the daemon with the alias.
func aliasSet(w *worker, s *state, node int) bool {
	d := &s.daemons[node]
	if !d.up || d.task != 0 || d.names != unnamed {
		return false
	}
	s.die(node)
	d.names = aliased
	return started(w, s, node)
}

// clusterChanged: another cluster's API server has the address. In the middle of a piece of work
// that is left out: an Undo that was decided on what two clusters responded would remove the empty
// directory of a claim, and no request tells which cluster another one goes to.
func clusterChanged(_ *worker, s *state, _ int) bool {
	if s.busy() || s.other || !s.spend(clusters) {
		return false
	}
	s.other = true
	return true
}

func clusterBack(_ *worker, s *state, _ int) bool {
	was := s.other
	s.other = was && s.busy()
	return was != s.other
}

// mayOpen is whether a pool is in order for a daemon that looks at it: mounted, and of the cluster
// that it knows. A daemon that knows another one asks again (ownership.Cluster, Recall).
func (w *worker) mayOpen(s *state, d *daemon, pool int) bool {
	d.elsewhere = d.elsewhere && s.other
	return s.mounted[d.node][pool] && !d.elsewhere && (pool != int(s.spare.pool) || s.inOrder(d)) && (pool != sharedPool || w.ofScope(s, d))
}
