package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// moveOperation is a call of import or forget-node, which is killed and called once more.
type moveOperation struct {
	name string
	// moves: the disk is in the next machine by then, where the command is called.
	moves    bool
	args     func(from string) []string
	snapshot bool    // there is a snapshot of the first volume
	second   outcome // of the second volume
	// before happens to the API between the death of the daemon and the call.
	before func(m *mover, all []*testCase)
	// restored: after the call, wherever it was killed, etcd is what it was before it.
	restored bool
	most     int // points that are tried, 0: all
}

var moveOperations = []moveOperation{
	{
		name: "move: import", moves: true, snapshot: true, second: gone, args: importFrom,
	},
	{
		name: "move: import, and etcd is restored", moves: true, snapshot: true, second: bound,
		restored: true, most: 12, args: importFrom, // the control plane is started three times for each
	},
	{
		name: "move: import --new-cluster", moves: true, second: bound, before: (*mover).unknown,
		args: func(from string) []string { return append(importFrom(from), "--new-cluster", "--claims") },
	},
	{
		name: "move: forget-node", snapshot: true, second: gone,
		args: func(from string) []string {
			return []string{"forget-node", from, "--claims", "--force=" + from}
		},
	},
}

func importFrom(node string) []string { return []string{"import", name, "--from-node", node} }

// proveMoves kills the commands with which a disk goes to another node, or is given up.
func proveMoves(e *prover, plane func() *harness.Plane) report {
	if !e.opt.clones() {
		return nil
	}
	m := sync.OnceValue(func() *mover { return buildMover(e, plane(), 2) })
	var all []trial
	for _, op := range moveOperations {
		most := op.most
		if e.opt.points > 0 {
			most = min(most, e.opt.points)
		}
		all = append(all, trial{op.name, "", most, in(m, op.play)})
	}
	rows := e.tryAll(all)
	if len(rows) > 0 {
		m().die()
	}
	return rows
}

// play is a case: volumes in every state come to be, the node dies, its disk is in the next one
// unless it is given up, and the command is killed at the point and called again.
func (op moveOperation) play(m *mover, point string) (hit string, points []string, faults []fault) {
	all := m.begin(op)
	from := m.machine()
	m.dies(from)
	if op.second == gone {
		all[1].dropVolume()
		all[1].dropped()
	}
	disk, on := m.disk(), m.machines[(m.at+1)%len(m.machines)]
	if op.moves {
		if m.silent(from); op.restored {
			m.copyEtcd("etcd", "earlier")
		}
		m.plug(on)
	}
	if op.before != nil {
		op.before(m, all)
	}
	if op.moves {
		m.lives(on)
	}
	died := on.commands.Arm(point, 0)
	out, err := m.call(on, op.args(from.node)...)
	points = on.commands.Disarm()
	select {
	case hit = <-died:
		faults = m.whole(all)
	default:
	}
	if op.restored {
		m.copyEtcd("earlier", "etcd")
	}
	if op.restored || hit != "" {
		out, err = m.call(on, op.args(from.node)...)
	}
	if err != nil {
		faults = append(faults, fault{loss, fmt.Sprintf("%v: %s", err, out)})
	}
	if strings.Contains(hit, aside) { // which the next write takes the place of
		m.Must(os.RemoveAll(on.daemon.Path("state", aside)), "removing half a file")
	}
	if !op.moves {
		return hit, points, append(faults, m.given(disk)...)
	}
	for _, t := range all {
		t.outcome = t.op.outcome
	}
	faults = append(faults, m.followed(all)...)
	m.leave(all, len(faults) > 0)
	return hit, points, faults
}

// aside is what a death in the middle of noting the pool's marker leaves: nothing reads it
// (daemon/host/state, replaceIn).
const aside = "pools/" + name + ".json.new"

// begin makes what there is when the node dies.
func (m *mover) begin(op moveOperation) (all []*testCase) {
	for _, outcome := range []outcome{bound, op.second} {
		t := m.newCase(operation{class: deleted, outcome: outcome})
		t.ask()
		t.outcome = bound
		all = append(all, t)
	}
	m.provisioned(all)
	for _, t := range all {
		t.write()
	}
	if op.snapshot {
		m.origin = all[0].pv()
		t := m.newCase(operation{snapshot: true, outcome: bound})
		t.snap()
		t.data = all[0].data
		all = append(all, t)
		m.provisioned(all)
	}
	return all
}

func (m *mover) provisioned(all []*testCase) {
	if faults := m.settle(calm, of(all)...); len(faults) > 0 {
		m.Fatalf("not provisioned on %s, though nothing was killed: %v; the end of the log:\n%s",
			m.machine().node, faults, harness.Tail(m.Daemon.Log(), 4000))
	}
}

func of(all []*testCase) (expectations []expectation) {
	for _, t := range all {
		expectations = append(expectations, t.expectation)
	}
	return expectations
}

// whole are the volumes of which a death has left less than there was: no command touches data.
func (m *mover) whole(all []*testCase) (faults []fault) {
	for _, t := range all {
		if d, err := readDir(filepath.Join(m.pool, t.pv())); t.op.outcome == bound && (err != nil || d.data != t.data) {
			faults = append(faults, fault{loss, fmt.Sprintf("%s has %q, %v", t.pv(), d.data, err)})
		}
	}
	return faults
}

// followed is what is not as it would be had the disk always been where it is.
func (m *mover) followed(all []*testCase) []fault {
	m.until(func() bool { // claims may have been made anew
		s := m.look()
		for _, t := range all {
			if t.claimUID = s.claims[t.claim].uid; t.claimUID == t.uid {
				t.claimUID = ""
			}
		}
		return len(compare(of(all), m.baseline, s)) == 0
	})
	return append(m.settle(calm, of(all)...), m.located()...)
}

// located tells of objects that name another machine than the one that has the disk, and of what
// is left at the mount points of the others.
func (m *mover) located() (faults []fault) {
	at := m.machine()
	volumes := harness.Need(m.Volumes().List(m.ctx, metav1.ListOptions{}))(m, "listing volumes")
	for _, v := range volumes.Items {
		o := toObject(&v)
		if o.path != filepath.Join(at.pool, v.Name) || !isOf(&v, at.node) {
			faults = append(faults, fault{loss, fmt.Sprintf("the object of %s is at %s, of %q",
				v.Name, o.path, v.Labels[plan.NodeLabel])})
		}
	}
	contents, err := m.snapshots.Of("volumesnapshotcontents").List(m.ctx, metav1.ListOptions{})
	m.Must(err, "listing contents")
	for _, c := range contents.Items {
		if on := c.GetAnnotations()[plan.NodeLabel]; on != at.node {
			faults = append(faults, fault{loss, fmt.Sprintf("content %s is of %q", c.GetName(), on)})
		}
	}
	for _, other := range m.machines {
		left := harness.Need(os.ReadDir(other.pool))(m, "looking at a mount point")
		if other != at && len(left) > 0 {
			faults = append(faults, fault{double, fmt.Sprintf("%v at %s", left, other.pool)})
		}
	}
	return faults
}

// isOf reports whether a volume is a node's, by its label and for the scheduler.
func isOf(v *corev1.PersistentVolume, node string) bool {
	terms := v.Spec.NodeAffinity.Required.NodeSelectorTerms
	return v.Labels[plan.NodeLabel] == node && len(terms) == 1 &&
		slices.Equal(terms[0].MatchExpressions[0].Values, []string{node})
}

// disk is everything that is on the disk and not the daemon's for a moment.
func (m *mover) disk() [2]any {
	s := m.look()
	return [2]any{s.dirs, s.records}
}

// given is what is not as it has to be after forget-node: nothing of the volumes in the API, all of
// them on the disk, also when the node is back.
func (m *mover) given(disk [2]any) (faults []fault) {
	empty := func() bool {
		s := m.look()
		return len(s.claims)+len(s.objects)+len(s.contents) == 0
	}
	if !m.until(empty) {
		faults = append(faults, fault{leak, fmt.Sprintf("in the API: %+v", m.look())})
	}
	_, err := m.leases().Get(m.ctx, presence.Name(m.machine().node), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		faults = append(faults, fault{leak, fmt.Sprintf("the node's lease: %v", err)})
	}
	for _, when := range []string{"forgotten", "back"} {
		if when == "back" {
			m.lives(m.machine())
			m.until(func() bool { return m.killer.Quiet(idle) })
		}
		if now := m.disk(); !empty() || !reflect.DeepEqual(now, disk) {
			faults = append(faults, fault{loss, fmt.Sprintf("%s: the disk has %+v, and had %+v",
				when, now, disk)})
		}
	}
	m.scrub()
	return faults
}

// unknown is what another cluster knows of the disk: nothing. The second claim is there again, and
// Lost; that it is the same one saves the volume from a claim that is not its own.
func (m *mover) unknown(all []*testCase) {
	m.scrubVolumes()
	all[0].drop()
	file := m.ours("pool.json")
	text := harness.Need(os.ReadFile(file))(m, "reading the marker")
	var marker map[string]any
	m.Must(json.Unmarshal(text, &marker), "reading the marker")
	marker["cluster"] = "another"
	text, err := json.Marshal(marker)
	m.Must(errors.Join(err, os.WriteFile(file, text, 0o600)), "writing the marker")
	if !m.until(func() bool {
		s := m.look()
		return len(s.objects) == 0 && len(s.claims) == 1 && s.claims[all[1].claim].phase == "Lost"
	}) {
		m.Fatalf("the cluster does not forget the volumes: %+v", m.look())
	}
}

// leave deletes what is left, through the daemon.
func (m *mover) leave(all []*testCase, broken bool) {
	if !broken {
		for _, t := range all {
			if t.outcome == bound {
				t.drop()
			}
		}
		if faults := m.settle(0); len(faults) == 0 {
			return
		}
	}
	m.scrub()
}
