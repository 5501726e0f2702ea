package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	daemonstatus "github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// happenings are the events that can be played for real, by their names. before is the model's
// state.
var happenings = map[string]func(st *stage, before state, i int) error{
	"claim %s is made":                                                         (*stage).claimMade,
	"claim %s is deleted":                                                      (*stage).claimDeleted,
	"kube-controller-manager binds %s":                                         (*stage).binds,
	"kube-controller-manager releases %s":                                      (*stage).releases,
	"pv-protection lets %s go":                                                 byItself,
	"pv-protection keeps %s":                                                   byItself,
	"a pod writes to %s":                                                       (*stage).podWrites,
	"people delete volume object %s":                                           (*stage).objectDeleted,
	"people change the policy of %s":                                           (*stage).policyChanged,
	"people edit the label of %s":                                              (*stage).labelEdited,
	"people take the finalizers off %s":                                        patched(`{"metadata":{"finalizers":null}}`),
	"people take the claim out of %s":                                          patched(`{"spec":{"claimRef":null}}`),
	"etcd is saved":                                                            atEtcd(savesEtcd),
	"etcd is restored":                                                         atEtcd(restoresEtcd),
	"the watches%s break":                                                      func(st *stage, _ state, i int) error { st.machines[i].front.breaks(true); return nil },
	"the watches%s are whole again":                                            func(st *stage, _ state, i int) error { st.machines[i].front.breaks(false); return nil },
	"%s is unmounted":                                                          atMount((*machine).unmounts),
	"%s is mounted":                                                            atMount((*machine).mounts),
	"the daemon looks at %s":                                                   (*stage).looked,
	"%s starts":                                                                (*stage).started,
	"the configuration%s changes on_delete":                                    reconfigures(otherDeletion),
	"the configuration%s changes the pattern of directories":                   reconfigures(patternOfPaths),
	"the configuration%s names another provisioner":                            reconfigures(lessNamed),
	"the configuration%s changes the scope of pool q":                          reconfigures(otherScope),
	"the pool's disk is copied":                                                (*stage).diskCopied,
	"another filesystem is mounted as the pool":                                (*stage).diskSwapped,
	"the pool's own filesystem is mounted again":                               (*stage).diskBack,
	"people say that nodes do not share pool q any more":                       (*stage).sharedNoMore,
	"people say that pool q is not %s's alone any more":                        (*stage).aloneNoMore,
	"%s starts with the alias":                                                 (*stage).aliasSet,
	"people request more of %s":                                                (*stage).moreRequested,
	"people request less of %s":                                                (*stage).lessRequested,
	"a snapshot is taken of %s":                                                (*stage).snapshotTaken,
	"the snapshot is deleted":                                                  (*stage).snapshotDeleted,
	"people delete the snapshot's content":                                     (*stage).contentDeleted,
	"people change the policy of the snapshot's content":                       (*stage).contentPolicyChanged,
	"people take the finalizer off the snapshot's content":                     (*stage).contentForced,
	"the snapshot-controller deletes what is withdrawn":                        (*stage).contentFollows,
	"people keep a volume for each claim %s":                                   keepsVolume(byName),
	"a volume is kept for claim %s by its UID":                                 keepsVolume(byUID),
	"people delete the volume that is kept for %s":                             (*stage).keptDeleted,
	"kube-controller-manager binds claim %s to the volume that is kept for it": (*stage).bindsKept,
	"kube-controller-manager asks a provisioner for claim %s":                  (*stage).asks,
	"the API server serves a request that was given up":                        (*stage).servedLate,
	"five seconds pass%s":                                                      (*stage).timePasses,
	"a pod on the other node writes to %s":                                     (*stage).otherPodWrites,
	"node %s goes":                                                             (*stage).nodeGoes,
	"node %s is back":                                                          (*stage).nodeBack,
	"the other provisioner makes %s":                                           (*stage).peerMakes,
	"the other provisioner removes %s":                                         (*stage).peerRemoves,
}

// ghosts are the events that cannot be played for real, and why.
var ghosts = map[string]string{
	"the API server writes more than before it was restored": "TestServerRestoredAndOvertaken (daemon/kube) does it",
	"the tombstone of %s is collected":                       "its node would have to be away for a day",
	"the API server is another cluster's":                    "a second API server would be needed",
	"the API server is the pools' own again":                 "a second API server would be needed",
	"the scheduler chooses the node for claim %s":            "TestClaimsOfAPod (test/e2e) does it",
	"pod %s is deleted":                                      "no order with pods is played",
}

// apart is why no order of a world can be played for real, "" if they can.
func (w world) apart() string {
	switch {
	case w.pods:
		return "the claims have their nodes when they are made"
	case w.people:
		return "a directory under a volume's name cannot be made before the claim has its UID"
	case w.names > 1 && (w.shared > 0 && w.shared < w.names || w.every > 0 && w.every < w.names):
		return "one pool is played"
	}
	return ""
}

// byItself is what the real kube-controller-manager has done already, or does.
func byItself(*stage, state, int) error { return nil }

func (st *stage) claimMade(before state, slot int) error {
	c := cluster.Claim(st.Namespace, slotName(slot), st.class, claimSize(before))
	c.Annotations = map[string]string{plan.SelectedNode: st.machines[chosen].name, plan.StorageProvisioner: st.Provisioner} // as kube-controller-manager asks soon
	if before.unasked {
		delete(c.Annotations, plan.StorageProvisioner)
	}
	if before.daemons[0].peer {
		c.Annotations = nil // no daemon is asked
	}
	if before.clones && slot == 1 {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: slotName(0)}
	}
	if before.snapshots && slot == 1 {
		c.Spec.DataSource = dataSource()
	}
	made, err := st.Client().CoreV1().PersistentVolumeClaims(st.Namespace).Create(st.Ctx, c, metav1.CreateOptions{})
	if err == nil {
		st.know(slot*lives+int(before.used[slot]), "pvc-"+string(made.UID))
	}
	return err
}

func (st *stage) claimDeleted(_ state, slot int) error {
	return st.Client().CoreV1().PersistentVolumeClaims(st.Namespace).Delete(st.Ctx, slotName(slot), metav1.DeleteOptions{})
}

func (st *stage) podWrites(before state, cell int) error {
	return st.machines[0].podWrites(before, cell)
}

func (st *stage) otherPodWrites(before state, cell int) error {
	return st.machines[1].podWrites(before, cell)
}

func (on *machine) podWrites(before state, cell int) error {
	name := on.real(cell)
	if before.api.volumes[cell].pattern {
		name = otherPattern + name
	}
	return os.WriteFile(filepath.Join(on.root(), name, "data"), []byte(uidOf(cell)), 0o600)
}

func (st *stage) objectDeleted(_ state, cell int) error {
	return st.Client().CoreV1().PersistentVolumes().Delete(st.Ctx, st.real(cell), metav1.DeleteOptions{})
}

func (st *stage) policyChanged(before state, cell int) error {
	policy := corev1.PersistentVolumeReclaimRetain
	if before.api.volumes[cell].retain {
		policy = corev1.PersistentVolumeReclaimDelete
	}
	return patched(fmt.Sprintf(`{"spec":{"persistentVolumeReclaimPolicy":%q}}`, policy))(st, before, cell)
}

func patched(patch string) func(*stage, state, int) error {
	return func(st *stage, _ state, cell int) error {
		return st.volumeIs(st.real(cell), patch)
	}
}

// savesEtcd copies etcd's files. kill(2) loses nothing of them.
func savesEtcd(etcd string) error {
	return errors.Join(os.RemoveAll(etcd+"-saved"), os.CopyFS(etcd+"-saved", os.DirFS(etcd)))
}

func restoresEtcd(etcd string) error {
	return errors.Join(os.RemoveAll(etcd), os.Rename(etcd+"-saved", etcd))
}

// atEtcd has the control plane end, and come back.
func atEtcd(meanwhile func(etcd string) error) func(*stage, state, int) error {
	return func(st *stage, before state, _ int) error {
		err := restarted(st.Soon(), st.plane, meanwhile)
		for _, on := range st.machines {
			on.front.breaks(before.daemons[on.number].cache != 0)
		}
		return err
	}
}

// restarted does something with etcd's files, while the control plane is down.
func restarted(ctx context.Context, plane *cluster.Cluster, meanwhile func(etcd string) error) error {
	if err := plane.Kill(); err != nil {
		return err
	}
	return errors.Join(meanwhile(filepath.Join(plane.Dir(), "etcd")), plane.Restart(ctx))
}

var errAtWork = errors.New("this cannot be played while the daemon is at work: what it has open of the pool stays open")

// mountPoint is the machine of a mount point, on which the daemon is idle.
func (st *stage) mountPoint(before state, i int) (*machine, error) {
	switch {
	case i%pools != st.pool:
		return nil, fmt.Errorf("nothing of %s is played on a real daemon", poolName(i%pools))
	case before.daemons[i/pools].task != 0:
		return nil, errAtWork
	}
	return st.machines[i/pools], nil
}

func atMount(do func(*machine)) func(*stage, state, int) error {
	return func(st *stage, before state, i int) error {
		on, err := st.mountPoint(before, i)
		if err == nil {
			do(on)
		}
		return err
	}
}

func (st *stage) looked(before state, i int) error {
	if before.watched() {
		return st.looks(before, i)
	}
	on, err := st.mountPoint(before, i)
	if err != nil {
		return err
	}
	st.Eventually("the daemon looks at the pool", func() bool {
		s, err := daemonstatus.ReadStatus(on.daemon.Path("run"))
		return err == nil && len(s.Pools) == 1 && s.Pools[0].Open == before.mounted[on.number][st.pool]
	})
	return nil
}

func (st *stage) started(_ state, node int) error { return st.machines[node].start() }

// nodeGoes ends the node's daemon: nothing else of a node is there.
func (st *stage) nodeGoes(_ state, node int) error {
	st.machines[node].daemon.Kill()
	return nil
}

// nodeBack: a node that started again is another holder of leases, and this machine did not.
func (st *stage) nodeBack(state, int) error {
	if st.pool == sharedPool {
		return errors.New("a host that was started again is not played on a real daemon")
	}
	return nil
}

// timePasses: what a daemon made just now it made long ago then, and what another node began it
// helps with.
func (st *stage) timePasses(state, int) error {
	long := 5 * time.Second
	if st.pool == everyPool {
		long = plan.HelpAfter
	}
	<-time.After(long)
	return nil
}

// servedLate serves what the daemon gave up.
func (st *stage) servedLate(before state, _ int) error {
	st.machines[before.late.node].front.late()
	return nil
}

// play does for real what happened in the model. then is the line that follows.
func (st *stage) play(before state, m move, after state, then string) error {
	switch {
	case m.event >= 0:
		return st.happen(before, m, after, then)
	case m.adopt:
		return st.adopter.play(before, m, after, then)
	}
	on := st.machines[m.node]
	if aboutLease(m) {
		return errors.Join(on.elects(before, after), st.agree(after))
	}
	if err := on.step(before, m, after); err != nil {
		return err
	}
	if err := st.agree(after); err != nil || after.daemons[m.node].task == 0 || after.daemons[m.node].run != 0 || slow[then] || exchanging[then] {
		return err
	}
	on.tell()
	return on.comesTo(st.worker.asked(&after, m.node), after)
}

// happen plays what happens beside the daemons.
func (st *stage) happen(before state, m move, after state, then string) error {
	happens := happenings[events[m.event].name]
	if happens == nil {
		return fmt.Errorf("this event cannot be played on a real daemon: %s", ghosts[events[m.event].name])
	}
	if slow[then] {
		for _, on := range st.machines {
			on.front.breaks(true) // as they do then
		}
	}
	if err := happens(st, before, m.i); err != nil {
		return err
	}
	return st.agree(after)
}

// slow are events before which the daemon does not get the response to its last request, nor is it
// told of the event before. It would begin with a call to the disk and be held there, and a disk
// that does not respond for some seconds closes the pool.
var slow = map[string]bool{"etcd is saved": true, "etcd is restored": true}

// step lets the daemon do what it did in the model, or kills it there.
func (on *machine) step(before state, m move, after state) error {
	if strings.Contains(m.what, "people make") || strings.Contains(m.what, "beside that") {
		return errors.New("this is not played on a real daemon")
	}
	dies := before.daemons[on.number].up && !after.daemons[on.number].up
	err := on.does(m, on.worker.asked(&before, on.number), dies, before, after)
	switch {
	case dies:
		on.daemon.Kill()
	case after.daemons[on.number].task == 0:
		on.tell()
	}
	return err
}

// does lets a process do a step, or come to the place where it dies, before what it asks for or in
// it.
func (on *machine) does(m move, asks op, dies bool, before, after state) error {
	on.doors.disallow()
	on.tell()
	on.idle = nil
	switch {
	case dies && m.op.kind == ended: // before it began with this
		return on.comesTo(asks, before)
	case m.op.kind == onDisk:
		if before.disks == after.disks {
			on.idle = &m.op.disk
		}
		err := on.onDisk(m.op.disk, after)
		if !dies && after.daemons[on.number].run == 0 {
			on.idle = &m.op.disk
		}
		return err
	case m.op.kind != ended:
		return on.request(m)
	}
	return nil // it takes up work: its first step tells
}

// request lets a request through, and waits until it was served. The process has the response when
// its work is to go on.
func (on *machine) request(m move) error {
	how := passage{}
	if m.what == unwaited {
		how = passage{fault: lost, late: true}
	}
	for _, f := range faults(m.op) {
		if f.what == m.what {
			how = passage{fault: f.fault, done: f.done}
		}
	}
	w, err := on.await(func(waits string) bool { return waits == waitsAs(m.op) })
	if err != nil {
		return err
	}
	on.doors.let(w, how)
	fixture.Receive(on.Environment, w.served, m.String())
	on.untold = w
	return nil
}

// pause is between two looks at what no event tells of.
func (st *stage) pause() { <-time.After(5 * time.Millisecond) }

// settle lets everything happen that happens by itself, and returns which invariant does not hold
// on the way or then. The error is how the end differs from the model's.
func (st *stage) settle(s state) (wrong string, err error) {
	st.worker.ends(&s)
	last := s
	st.worker.settle(s, func(on *state) bool { last = *on; return false })
	for _, on := range st.machines {
		on.goesOn(s)
	}
	st.adopter.settles()
	st.ownAgain()
	st.stirs()
	real := last
	for ctx := st.Soon(); ; st.pause() {
		st.choosesAgain(last)
		seen := hosttest.Need(st.seen(last))(st)
		st.snapshotSettles(s, seen, &real)
		st.binderSettles(seen)
		real.api, real.disks = seen.api, seen.disks
		st.ownersSeen(&real)
		if wrong := st.worker.violated(&real); wrong != "" && st.still(last, seen) {
			return wrong, nil
		}
		differs := cmp.Or(st.differs(seen, last), st.gatesDiffer(last))
		if differs == "" {
			return cmp.Or(st.otherDisk(), st.adopter.unadopted(real), st.worker.unsettled(&real)), nil
		}
		if ctx.Err() != nil {
			return st.worker.unsettled(&real), errors.New(differs)
		}
	}
}

// goesOn lets a daemon do what it does by itself. A node that is gone stays so.
func (on *machine) goesOn(s state) {
	on.Helper()
	on.doors.open()
	on.tell()
	on.front.breaks(false)
	if !s.mounted[on.number][on.pool] {
		on.mounts()
	}
	if d := s.daemons[on.number]; !d.up && !d.off {
		on.Must(on.start())
	}
}

// begin starts the daemons in the first state of a world.
func (st *stage) begin() {
	for _, on := range st.machines {
		st.Must(on.daemon.Configure(on.config(on.daemon.Path(), st.first.daemons[on.number].setting)))
		st.Must(on.start())
		st.Cleanup(on.daemon.Kill)
		st.Must(st.gateOpens(on))
	}
}

// end lets all go that is held.
func (st *stage) end() {
	for _, on := range st.machines {
		on.tell()
		on.doors.open()
	}
	st.adopter.dies()
}
