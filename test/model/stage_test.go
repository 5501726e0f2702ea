package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// stage is a real API server, real filesystems and the daemon's binary on one node or two, on which
// an order is played step by step.
type stage struct {
	*fixture.Environment
	plane    *cluster.Cluster
	worker   *worker // the model's
	first    state
	pool     int // the one that there is
	machines []*machine
	adopter  *adopter         // nil in a world without calls of adopt
	images   []hosttest.Image // the pool's, or its on each node
	other    hosttest.Image   // that can be mounted in place of the pool's
	placed   string           // the file of the one that is mounted as the pool everywhere, "" while none is
	mount    string           // where the pool is on each node
	class    string

	mu     sync.Mutex
	volume [cells]string // real names, "" for those that were not made yet
	shot   shot
}

// know notes the real name of a volume.
func (st *stage) know(cell int, name string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.volume[cell] = name
}

// real is the real name of a volume.
func (st *stage) real(cell int) string { return st.known()[cell] }

func (st *stage) known() [cells]string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.volume
}

// newStage makes everything up to daemons that are about to start.
func newStage(t *testing.T, plane *cluster.Cluster, w *worker, first state) *stage {
	t.Helper()
	st := &stage{Environment: fixture.New(t, plane, "model-"), plane: plane, worker: w, first: first, pool: int(first.in[0])}
	st.storage()
	st.class = st.Class(classNames[st.pool], storagev1.VolumeBindingWaitForFirstConsumer, fixture.Expandable, fixture.Parameters("pool", poolNames[st.pool]), st.madeBy)
	st.shot = newShot(st)
	for node := range nodes {
		if first.daemons[node].exists {
			st.machines = append(st.machines, newMachine(st, node))
		}
	}
	if first.daemons[0].peer {
		st.adopter = newAdopter(st.machines[0])
	}
	return st
}

// storage makes the pool's filesystems. Those of scope every-node are mounted on their nodes alone.
func (st *stage) storage() {
	st.Helper()
	size := 64 + mebibytes(st.first)
	if st.pool != everyPool {
		st.images = []hosttest.Image{hosttest.Mkfs(st, "ext4", size)}
		st.mount = hosttest.PoolMount(st, st.images[0])
		st.makesOther()
		return
	}
	st.mount = filepath.Join(hosttest.Dir(st), "pool")
	st.Must(os.Mkdir(st.mount, 0o700))
	hosttest.SetImmutable(st, st.mount, true)
	for range nodes {
		st.images = append(st.images, hosttest.Mkfs(st, "ext4", size))
	}
}

// proxiedKubeconfig writes one with the daemons' account for what stands between them and the API
// server.
func proxiedKubeconfig(e *fixture.Environment, file, address string, authority []byte) {
	e.Helper()
	const account = ownNamespace
	e.Must(e.ServiceAccountKubeconfig(e.Ctx, account, account, "", file))
	e.Must(cluster.Redirect(file, file, address, authority))
}

// modelled puts the model's names of volumes in a text in place of the real ones.
func (st *stage) modelled(text string) string {
	for cell, name := range st.known() {
		if name != "" {
			text = strings.ReplaceAll(text, name, nameOf(cell))
			text = strings.ReplaceAll(text, strings.TrimPrefix(name, "pvc-"), uidOf(cell))
		}
	}
	text = st.taken().modelled(text)
	for _, on := range st.machines {
		text = strings.ReplaceAll(text, on.hostID(), call{pool: sharedPool, host: uint8(on.number)}.hostID())
	}
	return text
}

// differs is how the real objects and files differ from the model's, "" if they do not. What
// kube-controller-manager and pv-protection do by themselves they have done, here and there.
func (st *stage) differs(real, s state) string {
	s.byThemselves()
	real.api.snapshot, s.api.snapshot = real.api.snapshot.compared(), s.api.snapshot.compared()
	if want := s.api.unversioned(); real.api != want {
		return fmt.Sprintf("the objects are %s, the model's %s", real.api.text(), want.text())
	}
	for _, on := range st.machines {
		store := storeOf(st.pool, on.number)
		got, want := outline(st.worker.image(&real, store).files), outline(st.worker.image(&s, store).files)
		if on.visible(s) && !maps.Equal(got, want) {
			return fmt.Sprintf("the pool of %s has %v, the model's %v", on.name, got, want)
		}
	}
	return ""
}

// byThemselves lets pv-protection and kube-controller-manager, unless the stage plays that, do all
// that they do.
func (s *state) byThemselves() {
	for again := true; again; {
		again = false
		for cell := range cells {
			binder := !s.unasked && (binds(nil, s, cell) || releases(nil, s, cell))
			again = binder || unprotects(nil, s, cell) || protects(nil, s, cell) || again
		}
	}
}

// visible reports whether this process can look into a node's pool. A shared one it has mounted,
// too.
func (on *machine) visible(s state) bool {
	return on.pool == sharedPool || s.twice || s.mounted[on.number][on.pool]
}

// text is what there is of objects.
func (e etcd) text() string {
	var all []string
	for cell, v := range e.volumes {
		if c, is := e.claimOf(cell); is {
			all = append(all, fmt.Sprintf("claim of %s %+v", nameOf(cell), c))
		}
		if v.exists {
			all = append(all, fmt.Sprintf("%s %s %+v", nameOf(cell), phases[v.phase], v))
		}
		if t := e.tombs[cell]; t.exists {
			all = append(all, fmt.Sprintf("tombstone of %s %+v", nameOf(cell), t))
		}
	}
	if c := e.snapshot.compared(); c != (content{}) {
		all = append(all, fmt.Sprintf("snapshot %+v", c))
	}
	return fmt.Sprintf("%q", all)
}

// outline is what matters of a pool's files: those of volumes, without the text of records.
func outline(all files) map[string]string {
	of := map[string]string{}
	for path, text := range all {
		if !strings.Contains(path, "pvc-") && !strings.Contains(path, snapshotHandle) {
			continue
		}
		if strings.Contains(path, ".json") {
			text = outlineOfRecord(path, text)
		}
		of[path] = text
	}
	return of
}

// seen is the real world, as a state of the model that has nothing but objects and files. in is the
// model's, which has what is mounted.
func (st *stage) seen(in state) (s state, err error) {
	for cell, name := range st.known() {
		if name == "" {
			continue
		}
		if err := st.seenCell(&s, cell, name); err != nil {
			return s, err
		}
	}
	if err := errors.Join(st.seenSnapshot(&s, in.api.snapshot), st.seenKept(&s)); err != nil {
		return s, err
	}
	s.api = s.api.unversioned()
	for _, on := range st.machines {
		if !on.visible(in) {
			continue
		}
		all, err := on.files()
		if err != nil {
			return s, err
		}
		s.disks[storeOf(st.pool, on.number)] = st.worker.tree.disks.image(all)
	}
	return s, nil
}

// seenCell notes the objects of one claim.
func (st *stage) seenCell(s *state, cell int, name string) error {
	pv, err := st.Client().CoreV1().PersistentVolumes().Get(st.Ctx, name, metav1.GetOptions{})
	if err == nil {
		st.nodesModelled(pv)
		s.api.volumes[cell] = volumeOf(pv)
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	slot := cell / lives
	c, err := st.claimOf(slot)
	if err == nil && "pvc-"+string(c.UID) == name {
		s.api.claims[slot] = claim{
			exists: true, bound: c.Status.Phase == corev1.ClaimBound, life: uint8(cell % lives), growth: growthOf(c),
			in: st.first.in[slot], clone: st.first.clones && slot == 1,
			restore: st.first.snapshots && slot == 1,
		}
		if st.first.unasked {
			st.keptClaim(&s.api.claims[slot], slot, c)
		}
	} else if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if st.pool != everyPool {
		return nil
	}
	l, err := st.Client().CoordinationV1().Leases(ownNamespace).Get(st.Ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.api.tombs[cell] = tomb{exists: err == nil, retain: l.Labels["hostpath-provisioner/tombstone"] == string(plan.Retain)}
	return err
}

// files are the pool's, with the model's names of volumes. What is renamed while the directories
// are read is in none of them, or in two: they are read until nothing changed in between.
func (on *machine) files() (files, error) {
	before, err := filesIn(on.root(), on.modelled)
	for range 100 {
		now, again := filesIn(on.root(), on.modelled)
		if err = errors.Join(err, again); err != nil || maps.Equal(before, now) {
			return now, err
		}
		before = now
	}
	return before, errors.New("the pool changes all the time")
}

// agree waits until the real world is as the model's.
func (st *stage) agree(s state) error {
	wrong := ""
	for ctx := st.soon(); ctx.Err() == nil; st.pause() {
		real, err := st.seen(s)
		if err != nil {
			return err
		}
		if wrong = cmp.Or(st.differs(real, s), st.gatesDiffer(s)); wrong == "" {
			return nil
		}
	}
	return fmt.Errorf("the real world does not become as the model's: %s; waiting: %q", wrong, st.waiting())
}

// soon is a context for one step. It ends before a request of the daemon does that waits (kube,
// callTimeout), so that an order that went another way goes on with that.
func (st *stage) soon() context.Context { return st.within(20 * time.Second) }

// soonTaken is the same for a lease that a daemon takes when it has heard nothing of it for long.
func (st *stage) soonTaken() context.Context { return st.within(3 * leadership.Duration) }

func (st *stage) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(st.Ctx, d)
	st.Cleanup(cancel)
	return ctx
}

// waiting is all that waits.
func (st *stage) waiting() []string {
	var all []string
	for _, on := range st.machines {
		for _, name := range on.doors.names() {
			all = append(all, nodeName(on.number)+": "+st.modelled(name))
		}
	}
	slices.Sort(all)
	return all
}
