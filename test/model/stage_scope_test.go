package model

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	daemonstatus "github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// What the stage has for daemons whose configurations differ in the scope of a pool: whose the pool
// is its marker says, and a gate is open as that has it.

// nodesModelled puts the model's name of its node into an object that is one node's.
func (st *stage) nodesModelled(pv *corev1.PersistentVolume) {
	for _, on := range st.machines {
		if pv.Labels[plan.NodeLabel] == plan.NodeLabelValue(on.name) {
			pv.Labels[plan.NodeLabel] = plan.NodeLabelValue(nodeName(on.number))
		}
	}
}

// watched reports whether gates are compared: where something else than whether the pool is mounted
// opens them.
func (s *state) watched() bool { return s.scoping || s.exchanges() || s.twice }

// ownersSeen notes whose the pool is by its marker, and which gates are open.
func (st *stage) ownersSeen(s *state) {
	if !st.first.watched() {
		return
	}
	if st.first.scoping {
		s.mark = st.marked()
	}
	for _, on := range st.machines {
		s.daemons[on.number].open[st.pool] = on.opened()
	}
}

// opened reports whether the gate of a daemon that runs is open, as its status says.
func (on *machine) opened() bool {
	s, err := daemonstatus.ReadStatus(on.daemon.Path("run"))
	return err == nil && on.daemon.Running() && s.PID == on.daemon.PID() && len(s.Pools) == 1 && s.Pools[0].Open
}

// marked is whose the pool is.
func (st *stage) marked() whose {
	text, err := os.ReadFile(filepath.Join(st.machines[0].root(), hostcheck.MarkerPath))
	st.Must(err)
	m := hosttest.Need(hostcheck.DecodeMarker(text))(st)
	for _, on := range st.machines {
		if m.Node == on.name {
			m.Node = nodeName(on.number)
		}
	}
	return whoseBy(m)
}

// gatesDiffer is how marker and gates differ from the model's, "" if they do not, or if a daemon of
// the model is yet to look.
func (st *stage) gatesDiffer(s state) string {
	if st.worker.unlooked(&s) {
		return ""
	}
	real := s
	st.ownersSeen(&real)
	if real.mark != s.mark {
		return fmt.Sprintf("the marker says %d, the model's %d", real.mark, s.mark)
	}
	if wrong := real.openElsewhere(); wrong != "" {
		return wrong
	}
	for _, on := range st.machines {
		is, want := real.daemons[on.number].open[st.pool], s.daemons[on.number].open[st.pool]
		if is != want && (is || !on.heldAtDisk()) {
			return fmt.Sprintf("the gate on %s is open: %t, the model's: %t", nodeName(on.number), is, want)
		}
	}
	return ""
}

// heldAtDisk reports whether a call to the disk is held, for which a daemon closes the pool after
// some seconds.
func (on *machine) heldAtDisk() bool {
	return on.find(func(name string) bool { return strings.HasPrefix(name, diskCall) }) != nil
}

// gateOpens waits until a daemon that was started first has its gate as the model's has it then,
// before the next one is.
func (st *stage) gateOpens(on *machine) error {
	if !st.first.watched() {
		return nil
	}
	want := st.first.daemons[on.number].open[st.pool]
	for ctx := st.Soon(); ctx.Err() == nil; st.pause() {
		if on.opened() == want {
			return nil
		}
	}
	return fmt.Errorf("the gate on %s does not become open: %t", on.name, want)
}

// looks has a daemon look at its pool, as it does by itself some seconds later: something is
// mounted on its host. What it comes to is waited for as all is that follows an event.
func (st *stage) looks(_ state, i int) error {
	return st.machines[i/pools].stirs()
}

// stirs has all daemons look, where gates are compared.
func (st *stage) stirs() {
	for _, on := range st.machines {
		if st.first.watched() {
			st.Must(on.stirs())
		}
	}
}

// stirs changes the mount table of a machine.
func (on *machine) stirs() error {
	dir := filepath.Join(on.daemon.Path(), "stirs")
	on.Must(os.MkdirAll(dir, 0o700))
	return errors.Join(on.runs("mount", "-t", "tmpfs", "stirs", dir), on.runs("umount", dir))
}

// runs runs a command on a machine.
func (on *machine) runs(words ...string) error {
	if on.namespace != nil {
		words = append(on.namespace.Enter(), words...)
	}
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, out)
	}
	return nil
}

// sharedNoMore is what people do on the node that is to have the pool alone.
func (st *stage) sharedNoMore(before state, _ int) error {
	for _, on := range st.machines {
		if before.daemons[on.number].single {
			return on.prepares("--from-shared")
		}
	}
	return fmt.Errorf("no node is to have the pool alone")
}

// aloneNoMore is what they do on the other node than the one that had it alone.
func (st *stage) aloneNoMore(_ state, node int) error {
	return st.machines[1-node].prepares("--from-node", st.machines[node].name)
}

// prepares says something of the pool's owner.
func (on *machine) prepares(words ...string) error {
	if out, code := on.daemon.Call(append([]string{"prepare", poolNames[on.pool]}, words...)...); code != 0 {
		return fmt.Errorf("prepare %q: exit code %d\n%s", words, code, out)
	}
	return nil
}

// unlooked reports whether a daemon is yet to look at a pool that it finds otherwise than before,
// where a real one looks by itself or is told by the mount table.
func (w *worker) unlooked(s *state) bool {
	for i := range mountPoints {
		if after := *s; s.watched() && looked(w, &after, i) {
			return true
		}
	}
	return false
}

// What the stage has for configurations that change, and for what the scheduler does.

// choosesAgain is what the scheduler does for a pod whose claim was given back because the pool was
// closed, as it is where a call to the disk is held for long.
func (st *stage) choosesAgain(s state) {
	for slot, c := range s.api.claims {
		if !c.exists || s.daemons[0].peer {
			continue
		}
		real, err := st.claimOf(slot)
		if err != nil || real.Spec.VolumeName != "" || real.Annotations[plan.SelectedNode] != "" {
			continue
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, plan.SelectedNode, st.machines[chosen].name)
		_ = st.claimIs(slot, patch) // it looks again soon
	}
}

// reconfigures changes the configuration of a node's daemon.
func reconfigures(change func(*setting) bool) func(*stage, state, int) error {
	return func(st *stage, before state, node int) error {
		on, d := st.machines[node], before.daemons[node].setting
		change(&d)
		return on.daemon.Configure(on.config(on.daemon.Path(), d))
	}
}

func (st *stage) aliasSet(before state, node int) error {
	on := st.machines[node]
	on.daemon.Kill()
	alias := func(d *setting) bool { d.names = aliased; return true }
	if err := reconfigures(alias)(st, before, node); err != nil {
		return err
	}
	return on.start()
}

// What the stage has for claims that grow.

// mebibytes is how large a filesystem has to be for what a world's pool can promise.
func mebibytes(first state) int {
	if first.daemons[0].room == 0 {
		return 0
	}
	return 1024 * (2 + int(first.daemons[0].room))
}

// reserve is what the pool is to keep free, in MiB, so that so many units are left and half of one.
func (st *stage) reserve(room uint8) uint64 {
	var fs unix.Statfs_t
	st.Must(unix.Statfs(st.mount, &fs))
	return (fs.Bavail*uint64(fs.Bsize) - uint64(room)*unit - unit/2) >> 20
}

// volumeOf is the real name of the volume that a claim has now.
func (st *stage) volumeOf(claim string) (pv string) {
	for cell, name := range st.known() {
		if name != "" && slotName(cell/lives) == claim {
			pv = name
		}
	}
	return pv
}

func (st *stage) moreRequested(before state, slot int) error {
	return st.asksFor(slot, before.api.claims[slot].asks+1)
}

func (st *stage) lessRequested(before state, slot int) error {
	return st.asksFor(slot, before.api.claims[slot].asks-1)
}

func (st *stage) asksFor(slot int, to more) error {
	size := to.quantity()
	return st.Request(slotName(slot), size.String())
}

// claimSize is what a claim that is made requests: a unit, where the pool has room for so many of
// them.
func claimSize(s state) string {
	if s.daemons[0].room == 0 {
		return "1Mi"
	}
	return fmt.Sprint(unit)
}

// labelEdited edits a label as the model does, or sets it right.
func (st *stage) labelEdited(before state, cell int) error {
	v := before.api.volumes[cell]
	key, value := plan.NodeLabel, anotherNode
	switch {
	case int(v.in) == sharedPool && v.astray:
		key, value = plan.ScopeLabel, plan.ScopeShared
	case int(v.in) == sharedPool:
		return patched(fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, plan.ScopeLabel))(st, before, cell)
	case v.astray:
		value = plan.NodeLabelValue(st.machines[0].name)
	}
	return patched(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value))(st, before, cell)
}
