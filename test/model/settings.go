package model

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/ownership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
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

// configured is the event that a node's configuration is changed, whose daemon ended before.
func configured(b budget, change func(*setting) bool) func(*worker, *state, int) bool {
	return func(_ *worker, s *state, node int) bool {
		d := &s.daemons[node]
		now := d.setting
		if d.up || !d.exists || !change(&now) || !s.spend(b) {
			return false
		}
		d.setting = now
		return true
	}
}

// What can be changed in a configuration, each false if it cannot.
func otherDeletion(of *setting) bool  { of.archive = !of.archive; return true }
func patternOfPaths(of *setting) bool { of.pattern = !of.pattern; return true }
func otherScope(of *setting) bool     { of.single = !of.single; return true }

// lessNamed names another provisioner, first with the alias and then without.
func lessNamed(of *setting) bool { of.names++; return of.names <= unnamed }

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

// In some worlds each node's configuration has scope node or shared for the second pool, which both
// have mounted. It changes while the node's daemon is off. Whether a gate opens is what hostcheck's
// and daemon/controllers/ownership's rules say of the marker and of the records; who opens it writes into the
// marker whose the pool is. A look at the marker with what is written into it is one step.

// whose is what the second pool's marker says.
type whose uint8

const (
	nobodys whose = iota
	firstNodes
	secondNodes
	allNodes
)

// soleHost is the host in a call to the second pool by a daemon that has it alone.
const soleHost = nodes

// host is by which daemons of a shared pool tell their files apart.
func (of setting) host() uint8 {
	if of.single {
		return soleHost
	}
	return of.node
}

// marker is that of the second pool.
func (of whose) marker() hostcheck.Marker {
	m := markOf(sharedPool)
	switch of {
	case firstNodes, secondNodes:
		m.Node = nodeName(int(of - firstNodes))
	case allNodes:
		m.Scope = hostcheck.ScopeShared
	}
	return m
}

// whoseBy is what a marker says.
func whoseBy(m hostcheck.Marker) whose {
	switch {
	case m.Node == nodeName(0):
		return firstNodes
	case m.Node == nodeName(1):
		return secondNodes
	case m.Scope == hostcheck.ScopeShared:
		return allNodes
	}
	return nobodys
}

// ofScope reports whether a daemon that looks at the second pool may open it, and completes the
// marker then.
func (w *worker) ofScope(s *state, d *daemon) bool {
	if !s.scoping {
		return true
	}
	pool, node, mark := d.configured(sharedPool), nodeName(int(d.node)), s.mark.marker()
	completed := ownership.Completed(mark, pool, node, clusterID)
	census := ownership.Census{}
	if d.counted || completed != mark {
		census = w.census(s, d)
	}
	d.counted = census.Closes()
	open := !d.single || mark.Node == "" || finds(sharedPool, pool.Scope, d.node, mark)
	for _, f := range ownership.Findings(ownership.Facts{
		Pool: pool, Node: node, NodeKnown: true, Cluster: clusterID, MarkedCluster: mark.Cluster, MarkedNode: mark.Node, MarkedScope: mark.Scope, Census: census,
	}) {
		open = open && f.Severity != hostcheck.Close
	}
	if open {
		s.mark = whoseBy(completed)
	}
	return open
}

// census is what a daemon counts of the second pool's records.
func (w *worker) census(s *state, d *daemon) ownership.Census {
	if s.disks[sharedPool] == 0 {
		return ownership.Census{}
	}
	return ownership.CensusOf(w.image(s, sharedPool).records(), d.configured(sharedPool), nodeName(int(d.node)), nil)
}

// counts has a daemon that lists the second pool's records keep what they say of their scope.
func (w *worker) counts(s *state, node int, c call) {
	if d := &s.daemons[node]; s.scoping && c.pool == sharedPool && c.name == "List" {
		d.counted = w.census(s, d).Closes()
	}
}

// records are those of the volumes.
func (m *image) records() (all []record.Record) {
	for path, text := range m.files {
		below, is := strings.CutPrefix(path, own+"/volumes/")
		pv, whole := strings.CutSuffix(below, ".json")
		if cell := numberOf(pv); is && whole && cell >= 0 && cell < cells {
			r, err := record.Decode([]byte(text), pv)
			check(err)
			r.Place = m.cells[cell].place
			all = append(all, r)
		}
	}
	return all
}

// watches reports whether the watches of a node's daemon bring a volume object.
func (s *state) watches(node int, v object) bool {
	switch {
	case v.astray:
		return false
	case int(v.in) != sharedPool:
		return true
	case v.of == 0:
		return !s.daemons[node].single
	default:
		return int(v.of-1) == node
	}
}

// elects reports whether a node's daemon has to do with the lease.
func (s *state) elects(node int) bool {
	return s.has(node, sharedPool) && s.daemons[node].up && !s.daemons[node].single
}

// served reports whether a daemon works in the second pool for the claims, or one of several does.
func (s *state) served() bool {
	for node, d := range s.daemons {
		if d.up && d.open[sharedPool] && (!d.single || node == chosen) {
			return true
		}
	}
	return false
}

// waitsForItsNode reports whether a volume object of one node has no record any more, because etcd
// was restored after the volume was removed, and that node's daemon does not work in the pool,
// which is shared by now: no other one's watches bring it.
func (s *state) waitsForItsNode(v object, on onFile) bool {
	if !s.scoping || v.of == 0 || on.recorded {
		return false
	}
	d := &s.daemons[v.of-1]
	return !d.open[sharedPool] || !d.single && d.elector.role() != leading
}

// mixed reports whether a daemon that has the second pool alone, as it knows, has its gate open
// beside another one.
func (s *state) mixed() bool {
	return s.scoping && s.daemons[0].open[sharedPool] && s.daemons[1].open[sharedPool] && (s.daemons[0].single || s.daemons[1].single)
}

// sharedNoMore is prepare --from-shared: the daemons that share the pool were stopped, as the
// documentation has it.
func sharedNoMore(_ *worker, s *state, _ int) bool {
	alone := false
	for _, d := range s.daemons {
		if d.up && !d.single {
			return false
		}
		alone = alone || d.single
	}
	if !alone || s.mark != allNodes || !s.spend(scopings) {
		return false
	}
	s.mark = nobodys
	return true
}

// aloneNoMore is prepare --from-node where the configuration says that the pool is shared: that
// node's daemon ended.
func aloneNoMore(_ *worker, s *state, node int) bool {
	if s.mark != firstNodes+whose(node) || s.daemons[node].up || s.daemons[1-node].single || !s.spend(scopings) {
		return false
	}
	s.mark = nobodys
	return true
}

// A daemon watches the volume objects with its node's label, or with the scope of a pool that nodes
// share. People edit it, and the watch brings the object no more; and they set it right.

// anotherNode is in the label in place of the volume's node.
const anotherNode = "another-node"

// strayed edits the label of an object that is made as the product makes it.
func (v object) strayed(made *corev1.PersistentVolume) {
	switch {
	case !v.astray:
	case int(v.in) == nodePool:
		made.Labels[plan.NodeLabel] = anotherNode
	default:
		delete(made.Labels, plan.ScopeLabel)
	}
}

// aloneOf is the node whose alone a volume of the second pool is, as in object.
func aloneOf(v *corev1.PersistentVolume) uint8 {
	for node := range nodes {
		if v.Labels[plan.NodeLabel] == plan.NodeLabelValue(nodeName(node)) {
			return 1 + uint8(node)
		}
	}
	return 0
}

var labelEdited = changed(labels, func(v *object) bool {
	v.astray = !v.astray
	return v.of == 0 && int(v.in) != everyPool && !v.peer
})
