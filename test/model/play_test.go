package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	daemonstatus "github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// happenings are the events that can be played for real, by their names. before is the model's state.
var happenings = map[string]func(st *stage, before state, i int) error{
	"claim %s is made":                                       (*stage).claimMade,
	"claim %s is deleted":                                    (*stage).claimDeleted,
	"kube-controller-manager binds %s":                       byItself,
	"kube-controller-manager releases %s":                    byItself,
	"pv-protection lets %s go":                               byItself,
	"pv-protection keeps %s":                                 byItself,
	"a pod writes to %s":                                     (*stage).podWrites,
	"people delete volume object %s":                         (*stage).objectDeleted,
	"people change the policy of %s":                         (*stage).policyChanged,
	"people take the finalizers off %s":                      patched(`{"metadata":{"finalizers":null}}`),
	"people take the claim out of %s":                        patched(`{"spec":{"claimRef":null}}`),
	"etcd is saved":                                          (*stage).etcdSaved,
	"etcd is restored":                                       (*stage).etcdRestored,
	"the watches%s break":                                    func(st *stage, _ state, _ int) error { st.front.breaks(true); return nil },
	"the watches%s are whole again":                          func(st *stage, _ state, _ int) error { st.front.breaks(false); return nil },
	"%s is unmounted":                                        (*stage).unmounted,
	"%s is mounted":                                          (*stage).mounted,
	"the daemon looks at %s":                                 (*stage).looked,
	"%s starts":                                              (*stage).started,
	"the configuration%s changes on_delete":                  (*stage).reconfigured,
	"the configuration%s changes the pattern of directories": (*stage).patternChanged,
	"the configuration%s names another provisioner":          (*stage).renamed,
	"%s starts with the alias":                               (*stage).aliasSet,
	"people request more of %s":                              (*stage).moreRequested,
	"people request less of %s":                              (*stage).lessRequested,
	"five seconds pass%s":                                    func(*stage, state, int) error { <-time.After(5 * time.Second); return nil },
}

// atOnce: TestKeptBinds (test/e2e) has an order of it.
const atOnce = "kube-controller-manager binds or asks by itself, at once"

// noSnapshots: TestSnapshots (test/e2e) has the orders of snapshots.
const noSnapshots = "the stage's API server has no such objects"

// ghosts are the events that cannot be played for real, and why.
var ghosts = map[string]string{
	"the API server writes more than before it was restored":                   "only the lease of a shared pool tells it",
	"a pod on the other node writes to %s":                                     "one node is played",
	"a snapshot is taken of %s":                                                noSnapshots,
	"the snapshot is deleted":                                                  noSnapshots,
	"people delete the snapshot's content":                                     noSnapshots,
	"people change the policy of the snapshot's content":                       noSnapshots,
	"people take the finalizer off the snapshot's content":                     noSnapshots,
	"the snapshot-controller deletes what is withdrawn":                        noSnapshots,
	"the tombstone of %s is collected":                                         "one node is played",
	"people keep a volume for each claim %s":                                   atOnce,
	"a volume is kept for claim %s by its UID":                                 atOnce,
	"people delete the volume that is kept for %s":                             atOnce,
	"kube-controller-manager binds claim %s to the volume that is kept for it": atOnce,
	"kube-controller-manager asks a provisioner for claim %s":                  atOnce,
	"node %s goes":                               "one daemon is played, and its node stays",
	"node %s is back":                            "one daemon is played, and its node stays",
	"the API server is another cluster's":        "a second API server would be needed",
	"the API server is the pools' own again":     "a second API server would be needed",
	"the pool's disk is copied":                  "one filesystem is played",
	"another filesystem is mounted as the pool":  "one filesystem is played",
	"the pool's own filesystem is mounted again": "one filesystem is played",
	"the other provisioner makes %s":             "no adoption is played on a real daemon",
	"the other provisioner removes %s":           "no adoption is played on a real daemon",
}

// byItself is what the real kube-controller-manager has done already, or does.
func byItself(*stage, state, int) error { return nil }

func (st *stage) claimMade(before state, slot int) error {
	if before.in[slot] != nodePool {
		return errors.New("no claim of this pool is played on a real daemon")
	}
	if before.clones && slot == 1 {
		return errors.New("no clone is played on a real daemon")
	}
	c := cluster.Claim(st.Namespace, slotName(slot), st.class, claimSize(before))
	c.Annotations = map[string]string{plan.SelectedNode: st.node, plan.StorageProvisioner: st.Provisioner} // as kube-controller-manager asks soon
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
	name := st.real(cell)
	if before.api.volumes[cell].pattern {
		name = otherPattern + name
	}
	return os.WriteFile(filepath.Join(st.mount, name, "data"), []byte(uidOf(cell)), 0o600)
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
		_, err := st.Client().CoreV1().PersistentVolumes().Patch(st.Ctx, st.real(cell), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
}

// etcdSaved copies etcd's files. kill(2) loses nothing of them.
func (st *stage) etcdSaved(before state, _ int) error {
	return st.restart(before, func(etcd string) error {
		return errors.Join(os.RemoveAll(etcd+"-saved"), os.CopyFS(etcd+"-saved", os.DirFS(etcd)))
	})
}

func (st *stage) etcdRestored(before state, _ int) error {
	return st.restart(before, func(etcd string) error {
		return errors.Join(os.RemoveAll(etcd), os.Rename(etcd+"-saved", etcd))
	})
}

// restart has the control plane end, and come back.
func (st *stage) restart(before state, meanwhile func(etcd string) error) error {
	if err := st.plane.Kill(); err != nil {
		return err
	}
	err := meanwhile(filepath.Join(st.plane.Dir(), "etcd"))
	err = errors.Join(err, st.plane.Restart(st.Soon()))
	st.front.breaks(before.daemons[0].cache != 0)
	return err
}

var errAtWork = errors.New("this cannot be played while the daemon is at work: what it has open of the pool stays open")

func (st *stage) unmounted(before state, _ int) error {
	if before.daemons[0].task != 0 {
		return errAtWork
	}
	hosttest.Unmount(st, st.mount)
	return nil
}

func (st *stage) mounted(before state, _ int) error {
	if before.daemons[0].task != 0 {
		return errAtWork
	}
	st.image.Mount(st, st.mount)
	return nil
}

func (st *stage) looked(before state, _ int) error {
	st.Eventually("the daemon looks at the pool", func() bool {
		s, err := daemonstatus.ReadStatus(st.daemon.Path("run"))
		return err == nil && len(s.Pools) == 1 && s.Pools[0].Open == before.mounted[0][nodePool]
	})
	return nil
}

func (st *stage) started(state, int) error {
	if err := st.daemon.Start(); err != nil {
		return err
	}
	return st.daemon.WaitReady(st.Soon(), 1)
}

func (st *stage) reconfigured(before state, _ int) error {
	return st.configure(before, func(d *setting) { d.archive = !d.archive })
}

func (st *stage) patternChanged(before state, _ int) error {
	return st.configure(before, func(d *setting) { d.pattern = !d.pattern })
}

func (st *stage) renamed(before state, _ int) error {
	return st.configure(before, func(d *setting) { d.names++ })
}

func (st *stage) aliasSet(before state, _ int) error {
	st.daemon.Kill()
	if err := st.configure(before, func(d *setting) { d.names = aliased }); err != nil {
		return err
	}
	return st.started(before, 0)
}

// configure changes the configuration.
func (st *stage) configure(before state, change func(*setting)) error {
	d := before.daemons[0].setting
	change(&d)
	return st.daemon.Configure(st.config(st.daemon.Path(), d))
}

// play does for real what happened in the model. then is the line that follows.
func (st *stage) play(before state, m move, after state, then string) error {
	for _, other := range []string{nodeName(1), poolName(sharedPool)} {
		if strings.Contains(m.String(), other) {
			return fmt.Errorf("nothing of %s is played on a real daemon", other)
		}
	}
	if m.event >= 0 {
		happens := happenings[events[m.event].name]
		if happens == nil {
			return fmt.Errorf("this event cannot be played on a real daemon: %s", ghosts[events[m.event].name])
		}
		if slow[then] {
			st.front.breaks(true) // as they do then
		}
		if err := happens(st, before, m.i); err != nil {
			return err
		}
		return st.agree(after)
	}
	if err := st.step(before, m, after); err != nil {
		return err
	}
	if err := st.agree(after); err != nil || after.daemons[0].task == 0 || slow[then] {
		return err
	}
	st.tell()
	return st.comesTo(st.worker.asked(&after, 0), after)
}

// slow are events before which the daemon does not get the response to its last request, nor is it told of the event before.
// It would begin with a call to the disk and be held there, and a disk that does not respond for some seconds closes the pool.
var slow = map[string]bool{"etcd is saved": true, "etcd is restored": true}

// step lets the daemon do what it did in the model, or kills it there.
func (st *stage) step(before state, m move, after state) error {
	st.doors.disallow()
	st.tell()
	st.idle = nil
	asks := st.worker.asked(&before, 0)
	switch dies := before.daemons[0].up && !after.daemons[0].up; {
	case dies && m.op.kind == ended: // before it began with this
		err := st.comesTo(asks, before)
		st.daemon.Kill()
		return err
	case m.op.kind == onDisk:
		if before.disks == after.disks {
			st.idle = &m.op.disk
		}
		err := st.onDisk(m.op.disk, after)
		if dies {
			st.daemon.Kill()
		}
		return err
	case m.op.kind != ended:
		return st.request(m, after)
	}
	return nil // it takes up work: its first step tells
}

// comesTo waits until the daemon is about to do this, as far as it can be held there.
func (st *stage) comesTo(o op, before state) error {
	if o.kind == ended || o.kind == onDisk && st.worker.tree.disks.do(before.disks[nodePool], o.disk, st.worker.workshop).image == before.disks[nodePool] {
		return nil
	}
	_, err := st.await(func(name string) bool { return name == o.String() || o.kind == onDisk && concerns(name, o.disk) })
	return err
}

// concerns reports whether a system call may be part of a call of daemon/volume.
func concerns(name string, c call) bool {
	return strings.HasPrefix(name, diskCall) && (c.cell < 0 || strings.Contains(name, nameOf(c.cell)))
}

// onDisk lets system calls through, one by one, until the files are as the model's.
func (st *stage) onDisk(c call, after state) error {
	for ctx := st.soon(); ctx.Err() == nil; st.pause() {
		if real, err := st.seen(); err != nil || st.differs(real, after) == "" {
			return err
		}
		st.passes(c)
	}
	return nil // agree tells what differs
}

// tell lets the daemon have the response to its last request.
func (st *stage) tell() {
	if st.untold != nil {
		close(st.untold.told)
		st.untold = nil
	}
}

// request lets a request through, and waits until it was served. The daemon has the response when its work is to go on.
func (st *stage) request(m move, after state) error {
	how := passage{}
	for _, f := range faults(m.op) {
		if f.what == m.what {
			how = passage{f.fault, f.done}
		}
	}
	w, err := st.await(func(waits string) bool { return waits == m.op.String() })
	if err != nil {
		return err
	}
	st.doors.let(w, how)
	<-w.served
	st.untold = w
	if after.daemons[0].task == 0 {
		st.tell()
	}
	return nil
}

// await waits until one with such a name waits.
func (st *stage) await(is func(name string) bool) (w *waiter, err error) {
	for ctx := st.soon(); w == nil; st.pause() {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the daemon does not come to this; waiting: %q", st.waiting())
		}
		if w = st.find(is); w == nil && st.idle != nil {
			st.passes(*st.idle)
		}
	}
	return w, nil
}

// passes lets a system call through that changes nothing.
func (st *stage) passes(c call) {
	if w := st.find(func(name string) bool { return concerns(name, c) }); w != nil {
		st.doors.let(w, passage{})
	}
}

// find returns the first that waits with such a name of the model, nil if none does.
func (st *stage) find(is func(name string) bool) *waiter {
	return st.doors.find(func(name string) bool { return is(st.modelled(name)) })
}

// pause is between two looks at what no event tells of.
func (st *stage) pause() { <-time.After(5 * time.Millisecond) }

// settle lets everything happen that happens by itself, and returns which invariant does not hold on the way or then. The
// error is how the end differs from the model's.
func (st *stage) settle(s state) (wrong string, err error) {
	last := s
	st.worker.settle(s, func(on *state) bool { last = *on; return false })
	st.doors.open()
	st.tell()
	st.front.breaks(false)
	if !s.mounted[0][nodePool] {
		st.image.Mount(st, st.mount)
	}
	if !s.daemons[0].up {
		st.Must(st.started(s, 0))
	}
	real := last
	for ctx := st.Soon(); ; st.pause() {
		seen, err := st.seen()
		st.Must(err)
		real.api, real.disks = seen.api, seen.disks
		if wrong := st.worker.broken(&real); wrong != "" {
			return wrong, nil
		}
		differs := st.differs(seen, last)
		if differs == "" {
			return st.worker.unsettled(&real), nil
		}
		if ctx.Err() != nil {
			return st.worker.unsettled(&real), errors.New(differs)
		}
	}
}

// begin starts the daemon in the first state of a world.
func (st *stage) begin(first state) {
	st.Must(st.daemon.Configure(st.config(st.daemon.Path(), first.daemons[0].setting)))
	st.Must(st.started(first, 0))
	st.Cleanup(st.daemon.Kill)
}
