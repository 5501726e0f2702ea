package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

const (
	dataFile = "data" // in a volume
	// calm is how long nothing must have happened for the state to be at rest.
	calm = 100 * time.Millisecond
	// idle is the same for an operation in which the daemon was not killed: what it says last may
	// come late.
	idle = 300 * time.Millisecond
)

// testCase is one claim that goes through an operation once.
type testCase struct {
	*environment
	op operation
	expectation
	volume  string // the path of its directory while it is in the pool
	trashed bool   // it was moved from there to the trash, as if it had come back
}

func (e *environment) newCase(op operation) *testCase {
	e.serial++
	return &testCase{environment: e, op: op, expectation: expectation{
		claim: fmt.Sprintf("claim-%d", e.serial), snapshot: op.snapshot, unheld: op.class == retaining,
	}}
}

// Steps of operations. None of them waits for the daemon, which may be dead.

// ask creates the claim, which names its node.
func (t *testCase) ask() { t.create(plan.ProvisionOnNode) }

// askChosen creates a claim whose node the scheduler chose.
func (t *testCase) askChosen() { t.create(plan.SelectedNode) }

// clone creates a claim that is made from the origin. It names no node.
func (t *testCase) clone() {
	t.data = originData
	t.make(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: origin}
	})
}

func (t *testCase) create(node string) {
	t.make(func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{node: t.on} })
}

func (t *testCase) make(change func(*corev1.PersistentVolumeClaim)) {
	c := cluster.Claim(t.Namespace, t.claim, t.op.class, fmt.Sprintf("%dMi", firstMiB))
	change(c)
	made := harness.Need(t.Claims().Create(t.ctx, c, metav1.CreateOptions{}))(t, "creating a claim")
	t.asked(string(made.UID))
}

// asked notes what was asked for, by its UID.
func (t *testCase) asked(uid string) {
	t.uid, t.outcome = uid, t.op.outcome
	t.volume = filepath.Join(t.pool, t.pv())
}

// drop deletes the claim, or the snapshot.
func (t *testCase) drop() {
	if t.snapshot {
		t.Must(t.snapshots.Remove(t.ctx, t.claim, t.content()), "deleting a snapshot")
		return
	}
	t.Must(t.Claims().Delete(t.ctx, t.claim, metav1.DeleteOptions{}), "deleting a claim")
}

// dropped is drop, and the wait until the claim is gone and its object, if any, released.
func (t *testCase) dropped() {
	t.drop()
	t.Must(harness.Eventually(t.Soon(), func() bool {
		_, err := t.Claims().Get(t.ctx, t.claim, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return false
		}
		v := t.object()
		return v == nil || v.Status.Phase == corev1.VolumeReleased
	}), "waiting for the end of claim "+t.claim)
}

// dropVolume deletes the object, as an administrator does.
func (t *testCase) dropVolume() {
	t.Must(t.Volumes().Delete(t.ctx, t.pv(), metav1.DeleteOptions{}), "deleting a volume object")
}

// turn has the volume's data deleted with its claim, as an administrator does.
func (t *testCase) turn() {
	_, err := t.Volumes().Patch(t.ctx, t.pv(), types.MergePatchType,
		[]byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), metav1.PatchOptions{})
	t.Must(err, "changing a volume's policy")
	t.unheld = false
}

// forgetState is the loss of the state directory, while no daemon runs.
func (t *testCase) forgetState() {
	t.Must(os.RemoveAll(t.Daemon.Path("state", "pools")), "removing the state directory")
}

// trashAgain is what a restored API server finds, whose claims are bound as on an earlier day: the
// directory was on its way out.
func (t *testCase) trashAgain() {
	t.Must(os.Rename(t.volume, t.ours("trash", t.pv())), "moving the volume to the trash")
	t.trashed = true
}

// grow raises what the claim requests.
func (t *testCase) grow() { t.request(t.size() + 1) }

// growTooMuch requests more than the pool has, and then, as a user does who reads why not, less.
func (t *testCase) growTooMuch() {
	t.request(1 << 30)
	t.request(firstMiB + 1)
}

// lower requests less than before, and more than the claim has.
func (t *testCase) lower() { t.request(t.size() - 1) }

func (t *testCase) request(mib int64) {
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":"%dMi"}}}}`, mib)
	_, err := t.Claims().Patch(t.ctx, t.claim, types.MergePatchType, patch, metav1.PatchOptions{})
	t.Must(err, "requesting another size")
	t.mib = mib
}

// object is the volume object, nil if there is none.
func (t *testCase) object() *corev1.PersistentVolume {
	v, err := t.Volumes().Get(t.ctx, t.pv(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	t.Must(err, "reading a volume object")
	return v
}

// write is what a pod does as soon as the volume is its own.
func (t *testCase) write() {
	t.Must(os.Mkdir(filepath.Join(t.volume, "more"), 0o700), "writing to a volume")
	t.Must(os.WriteFile(filepath.Join(t.volume, "more", "file"), []byte(t.uid), 0o600), "writing to a volume")
	t.data = t.uid
	t.Must(os.WriteFile(filepath.Join(t.volume, dataFile), []byte(t.data), 0o600), "writing to a volume")
}

// settle waits until the state is as the expectations say, and at rest; it returns what is wrong in
// the end.
func (e *environment) settle(rest time.Duration, expectations ...expectation) (faults []fault) {
	e.until(func() bool {
		began := time.Now()
		if rest > 0 && !e.killer.Quiet(rest) {
			return false
		}
		faults = compare(expectations, e.baseline, e.look())
		return len(faults) == 0 && (rest == 0 || e.killer.Quiet(time.Since(began)+rest))
	})
	return faults
}

// begin brings the claim to where the operation begins.
func (t *testCase) begin() {
	t.killer.Arm("", 0)
	if !t.op.fromBound {
		return
	}
	if t.snapshot {
		t.snap()
	} else {
		t.ask()
	}
	t.outcome = bound
	if faults := t.settle(t.rest(), t.expectation); len(faults) > 0 {
		log := strings.Split(t.Daemon.Log(), "\n")
		t.Fatalf("a claim was not provisioned, though no daemon was killed: %v; its annotations: %v; the end of the daemon's log:\n%s",
			faults, t.annotations(), strings.Join(log[max(0, len(log)-40):], "\n"))
	}
	if !t.snapshot {
		t.write()
	}
	t.outcome = t.op.outcome
}

// annotations of the claim tell who did not do their part: the daemon writes selected-node, and
// then kube-controller-manager storage-provisioner. A snapshot has none.
func (t *testCase) annotations() map[string]string {
	if t.snapshot {
		return nil
	}
	c := harness.Need(t.Claims().Get(t.ctx, t.claim, metav1.GetOptions{}))(t, "reading a claim")
	return c.Annotations
}

// rest is how long the daemon has to be at rest before the operation begins, so that no point of
// what was before is taken for one of its own. One that is dead by then rests well.
func (t *testCase) rest() time.Duration {
	if t.op.boot {
		return 0
	}
	return calm
}

// play is the whole case: the daemon dies at the point, or never if that is "" or does not come. It
// returns where it died, the points that came, and what is wrong in the end.
func (t *testCase) play(point string) (hit string, points []string, faults []fault) {
	t.begin()
	var died <-chan string
	if t.op.boot {
		t.fell()
		t.run(t.op.down)
		died = t.killer.Arm(point, 0)
		t.Must(t.Daemon.Start(), "starting the daemon")
	} else {
		died = t.killer.Arm(point, 0)
		t.run(t.op.steps)
	}
	if hit = t.await(died); hit != "" {
		<-t.Daemon.Exited()
		t.killed = true
		faults = t.inspect()
		t.killer.Arm("", 0)
		t.start()
	}
	faults = append(faults, t.settle(calm, t.expectation)...)
	if hit != "" && t.kept(t.look()) && !mayStay(hit) {
		faults = append(faults, fault{leak, fmt.Sprintf("the volume of claim %s stays in the trash", t.claim)})
	}
	points = t.killer.Disarm()
	t.killer.Arm("", 0)
	t.clear(len(faults) > 0)
	return hit, points, faults
}

func (t *testCase) run(steps []step) {
	for _, s := range steps {
		s(t)
	}
}

// fell is the first death, which leaves what the start has to recover.
func (t *testCase) fell() {
	if t.op.dies == "" {
		t.Daemon.Kill()
		return
	}
	died := t.killer.Arm(t.opt.first(t.op.dies), 0)
	t.run(t.op.steps)
	if t.await(died) == "" {
		t.Fatalf("operation %q: the daemon never came to %q, but to %q", t.op.name, t.op.dies, t.killer.Disarm())
	}
	<-t.Daemon.Exited()
}

// await waits until the daemon died, or has done all there is to do: then it returns "".
func (t *testCase) await(died <-chan string) (hit string) {
	ready := make(chan error, 1)
	go func() { ready <- t.Daemon.WaitReady(t.Soon(), 1) }()
	t.until(func() bool {
		select {
		case hit = <-died:
			return true
		case err := <-ready:
			ready = nil
			if err == nil {
				break
			}
			select {
			case hit = <-died:
			default:
				t.Fatalf("the daemon did not become ready, and was not killed: %v", err)
			}
			return true
		default:
		}
		return ready == nil && t.killer.Quiet(idle) && len(compare([]expectation{t.expectation}, t.baseline, t.look())) == 0
	})
	return hit
}

// inspect looks at the state while the daemon is dead. What the API was told is there must be
// there, and a pod may write to it already; what it was told is gone must be gone.
func (t *testCase) inspect() []fault {
	if t.uid == "" {
		return nil
	}
	if t.snapshot {
		return t.inspectSnapshot()
	}
	v := t.object()
	_, err := os.Lstat(t.volume)
	if err != nil && t.trashed { // not yet put back
		_, err = os.Lstat(t.ours("trash", t.pv()))
	}
	switch {
	case t.outcome == bound && v != nil && err != nil:
		return []fault{{loss, fmt.Sprintf("the object of claim %s was there before its directory: %v", t.claim, err)}}
	case t.outcome == bound && v != nil && t.data == "":
		t.write()
	case t.outcome == gone && t.op.fromBound && v == nil && err == nil:
		return []fault{{leak, fmt.Sprintf("the object of claim %s was gone before its directory", t.claim)}}
	}
	return nil
}

// clear leaves nothing for the next case.
func (t *testCase) clear(broken bool) {
	if !broken {
		t.dropKept(t.expectation)
		t.killed = false
		switch t.outcome {
		case bound:
			if t.unheld {
				t.turn()
			}
			t.drop()
		case archived:
			t.rid("archive")
		case retained:
			t.rid("volumes")
		}
		rest := t.rest()
		if t.op.fromBound { // the next case comes to rest itself
			rest = 0
		}
		if faults := t.settle(rest); len(faults) == 0 {
			return
		}
	}
	t.scrub()
}

// mayStay reports whether a daemon that dies at this point may have let an object go and not noted
// it: it talks to the API, or is about to note it.
func mayStay(point string) bool {
	return strings.HasPrefix(point, killer.Request) || strings.HasPrefix(point, killer.Response) || strings.HasPrefix(point, "rename trash/PV to trash/PV~")
}

// dropKept removes what kills left whole in the trash, as the documents say: the directory by hand,
// and the daemon forgets the record, with its next start here.
func (e *environment) dropKept(expectations ...expectation) {
	dropped, s := false, e.look()
	for _, each := range expectations {
		if each.kept(s) {
			e.Must(os.RemoveAll(e.ours("trash", each.pv())), "removing what was kept in the trash")
			e.stayed, dropped = e.stayed+1, true
		}
	}
	if dropped {
		e.killer.Arm("", 0)
		e.die()
		e.start()
	}
}

// rid removes what the daemon keeps for people: they would do the same.
func (t *testCase) rid(where string) {
	for _, path := range []string{t.volume, t.ours(where, t.pv()), t.ours(where, t.pv()+".json")} {
		t.Must(os.RemoveAll(path), "removing what was kept")
	}
}

// scrub removes everything by force, so that one fault is not found again and again.
func (e *environment) scrub() {
	e.die()
	all := metav1.ListOptions{LabelSelector: "!" + originLabel}
	core := e.Client.CoreV1()
	e.scrubContents()
	e.Must(core.PersistentVolumeClaims(e.Namespace).DeleteCollection(e.ctx, metav1.DeleteOptions{}, all), "deleting claims")
	e.scrubVolumes()
	for thing := range e.look().things {
		where, entry, _ := strings.Cut(thing, "/")
		if path := e.places()[where]; path != "" && !e.baseline[thing] {
			e.Must(os.RemoveAll(filepath.Join(path, entry)), "scrubbing")
		}
	}
	e.killer.Arm("", 0)
	e.start()
	if faults := e.settle(calm); len(faults) > 0 {
		e.Fatalf("not everything goes, even by force: %v", faults)
	}
}

// scrubVolumes removes objects of volumes by force. Kubernetes may put its finalizer on once more.
func (e *environment) scrubVolumes() {
	all := e.Volumes()
	e.Must(harness.Eventually(e.Soon(), func() bool {
		volumes := harness.Need(all.List(e.ctx, metav1.ListOptions{}))(e, "listing volumes")
		left := 0
		for _, v := range volumes.Items {
			if e.baseline["object "+v.Name] {
				continue
			}
			left++
			v.Finalizers = nil
			_, _ = all.Update(e.ctx, &v, metav1.UpdateOptions{})
			_ = all.Delete(e.ctx, v.Name, metav1.DeleteOptions{})
		}
		return left == 0
	}), "removing objects of volumes by force")
}
