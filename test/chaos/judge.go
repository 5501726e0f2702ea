package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/scene"
)

// judge watches the volumes of the cluster, at the API server itself, writes into them as pods would,
// and compares the API with the disk, or with the disk of each node in scope every-node.
type judge struct {
	scene    *scene.Scene
	churn    *churn
	storages []scene.Storage

	mu      sync.Mutex
	made    map[string]map[string]bool // by claim UID: the UIDs of the volume objects made for it
	written map[place]string           // to claim UID: volumes that have data
	wrong   []string                   // volumes that were published without a directory

	forgotten map[string]bool // volumes that a restored server does not know
	lenient   bool
}

// place is a volume's directory in one of the storages.
type place struct {
	storage int
	pv      string
}

func newJudge(s *scene.Scene, c *churn) *judge {
	return &judge{
		scene: s, churn: c, storages: s.Storages(), made: map[string]map[string]bool{}, written: map[place]string{}, forgotten: map[string]bool{},
	}
}

// run watches until the context ends. A server that is away is asked again.
func (j *judge) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := j.follow(ctx); err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func (j *judge) follow(ctx context.Context) error {
	volumes := j.scene.Client.CoreV1().PersistentVolumes()
	all, err := volumes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		j.appeared(&all.Items[i])
	}
	w, err := volumes.Watch(ctx, metav1.ListOptions{ResourceVersion: all.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		pv, is := event.Object.(*corev1.PersistentVolume)
		switch {
		case is && event.Type == watch.Added:
			j.appeared(pv)
		case is && event.Type == watch.Modified && pv.Spec.ClaimRef != nil && len(j.storages) > 1:
			j.write(pv.Name, string(pv.Spec.ClaimRef.UID)) // the other nodes have made theirs meanwhile
		}
	}
	return nil
}

// appeared is told of each volume object, sometimes again. Whoever answers a claim with a volume says
// that its directory is there. Two of three volumes get data.
func (j *judge) appeared(pv *corev1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return
	}
	uid := string(ref.UID)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.made[uid][string(pv.UID)] {
		return
	}
	if j.made[uid] == nil {
		j.made[uid] = map[string]bool{}
	}
	j.made[uid][string(pv.UID)] = true
	if err := j.writeLocked(pv.Name, uid); err != nil && !j.churn.isDoomed(uid) { // asked after the look at the disk
		j.wrong = append(j.wrong, fmt.Sprintf("%s: %v", pv.Name, err))
	}
}

func (j *judge) write(pv, uid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.writeLocked(pv, uid)
}

// writeLocked writes into each directory that a volume has and that has no data yet. No directory at all is an error.
func (j *judge) writeLocked(pv, uid string) (err error) {
	found := 0
	for i, s := range j.storages {
		at := place{i, pv}
		if j.written[at] != "" {
			found++
			continue
		}
		_, failed := os.Lstat(s.Path(pv))
		if failed == nil && uid[0]%3 != 0 {
			if failed = os.WriteFile(j.file(at), []byte(pv), 0o600); failed == nil {
				j.written[at] = uid
			}
		}
		if err = failed; err == nil {
			found++
		}
	}
	if found > 0 {
		return nil
	}
	return err
}

func (j *judge) file(at place) string { return j.storages[at.storage].Path(at.pv, "data") }

// newEpoch forgets who made what: a server whose data was restored makes known volumes anew. Volumes of
// claims that it has forgotten are expected to be kept from now on, if they have data.
func (j *judge) newEpoch(claims []corev1.PersistentVolumeClaim) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for uid := range j.made {
		j.forgotten["pvc-"+uid] = true
	}
	if j.scene.Scope == plan.ScopeEveryNode { // kept though empty, and the object of the last ones may not have been seen here
		for _, uid := range j.churn.all() {
			j.forgotten["pvc-"+uid] = true
		}
	}
	for _, c := range claims {
		delete(j.forgotten, "pvc-"+string(c.UID))
	}
	j.made = map[string]map[string]bool{}
}

// beLenient lets empty volumes of forgotten claims lie around: the daemon goes through its records
// when it starts, when a pool opens, and every ten minutes.
func (j *judge) beLenient(lenient bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lenient = lenient
}

// doubles counts the claims that more than one volume object was made for: those that were to stay,
// and those that were being deleted meanwhile.
func (j *judge) doubles() (twice []string, late int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for uid, volumes := range j.made {
		switch {
		case len(volumes) < 2:
		case j.churn.isDoomed(uid):
			late++
		default:
			twice = append(twice, "claim "+uid)
		}
	}
	return twice, late
}

// lost tells what was wrong with volumes when they appeared, once.
func (j *judge) lost() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	was := j.wrong
	j.wrong = nil
	return was
}

// settle waits until nothing is unsettled, and answers what is at the end of its patience.
func (j *judge) settle(ctx context.Context, patience time.Duration) (losses, time.Duration) {
	begin := time.Now()
	for {
		l := j.unsettled(ctx)
		took := time.Since(begin)
		if l.sum() == 0 || took > patience || ctx.Err() != nil {
			return l, took
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// unsettled is what keeps the world from being as it should: each claim is bound to its volume, which
// has one directory and one record, with its data; volumes that lost their claim and their object with
// the server's memory keep their data; nothing else is anywhere.
func (j *judge) unsettled(ctx context.Context) (l losses) {
	claims, want := j.claims(ctx, &l)
	missing := map[string]bool{}
	for pv := range want {
		missing[pv] = true
	}
	volumes, err := j.scene.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		l.add(unsettled, "%v", err)
		return l
	}
	for _, pv := range volumes.Items {
		if !want[pv.Name] {
			l.add(volumesLeft, "volume %s is %s", pv.Name, pv.Status.Phase)
		}
		delete(missing, pv.Name)
	}
	for pv := range missing {
		l.add(unsettled, "volume %s does not exist", pv)
	}
	// A claim that was deleted and came back with a restored server may have lost its directory before, or
	// some of its files. One that is whole in the trash is to be put back.
	back := map[string]bool{}
	for _, c := range claims {
		back["pvc-"+string(c.UID)] = j.churn.isDoomed(string(c.UID))
	}
	j.data(want, back, &l)
	for i := range j.storages {
		j.compare(i, want, back, &l)
	}
	return l
}

// claims lists those that there are, and the volumes that they should have.
func (j *judge) claims(ctx context.Context, l *losses) ([]corev1.PersistentVolumeClaim, map[string]bool) {
	all, err := j.scene.Client.CoreV1().PersistentVolumeClaims(j.scene.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		l.add(unsettled, "%v", err)
		return nil, nil
	}
	want := map[string]bool{}
	for _, c := range all.Items {
		switch {
		case c.DeletionTimestamp != nil:
			l.add(unsettled, "claim %s is deleted and does not go", c.Name)
		case c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != "pvc-"+string(c.UID):
			l.add(unsettled, "claim %s is %s, its provisioner is %q", c.Name, c.Status.Phase, c.Annotations[plan.StorageProvisioner])
		}
		want["pvc-"+string(c.UID)] = true
	}
	return all.Items, want
}

// data looks for what was written.
func (j *judge) data(want, back map[string]bool, l *losses) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for at, uid := range j.written {
		if want[at.pv] && back[at.pv] || !want[at.pv] && j.churn.isDoomed(uid) {
			continue
		}
		if data, err := os.ReadFile(j.file(at)); err != nil || string(data) != at.pv {
			l.add(filesLost, "of volume %s: %q, %v", at.pv, data, err)
		}
	}
}

// compare is a disk's part of unsettled.
func (j *judge) compare(storage int, want, back map[string]bool, l *losses) {
	directories, records, leftovers, err := j.storages[storage].Disk()
	if err != nil {
		l.add(leaked, "%v", err)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, name := range leftovers {
		pv, trash := strings.CutPrefix(name, "trash/")
		pv, emptied := strings.CutSuffix(pv, "~")
		if !trash || emptied && !back[pv] || !emptied && !j.undecided(pv) {
			l.add(leaked, "%s", name)
		}
	}
	for what, names := range map[string][]string{"directory": directories, "record": records} {
		there := map[string]bool{}
		for _, name := range names {
			there[name] = true
			if !want[name] && !j.limbo(place{storage, name}) {
				l.add(leaked, "%s %s", what, name)
			}
		}
		for pv := range want {
			if !there[pv] && !back[pv] {
				l.add(lostEntries, "%s of %s", what, pv)
			}
		}
	}
}

// limbo is a volume whose claim and object a restored server has forgotten. Its data is kept, and in scope every-node
// its directory, also an empty one: no tombstone says that the claim is gone.
func (j *judge) limbo(at place) bool {
	if !j.forgotten[at.pv] {
		return false
	}
	if j.lenient || j.scene.Scope == plan.ScopeEveryNode {
		return true
	}
	_, err := os.Lstat(j.file(at))
	_, whole := os.Lstat(j.storages[at.storage].Trash(at.pv))
	return err == nil || whole == nil && j.undecided(at.pv)
}

// undecided is a volume that a restored server has forgotten and whose claim was being deleted before. The daemon did
// not remove its object, so that it is kept where it is: whole in the trash, if it was moved there before.
func (j *judge) undecided(pv string) bool {
	return j.forgotten[pv] && j.churn.isDoomed(strings.TrimPrefix(pv, "pvc-"))
}

// fresh counts the volumes with data whose claims are to stay and are not among these, in the storage that has fewest.
// A node that made its directory after the last event of the object, which a busy one does with each, has no data yet.
func (j *judge) fresh(earlier map[string]bool) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	for uid := range j.made {
		if !earlier[uid] && !j.churn.isDoomed(uid) {
			_ = j.writeLocked("pvc-"+uid, uid)
		}
	}
	n := make([]int, len(j.storages))
	for at, uid := range j.written {
		if !earlier[uid] && !j.churn.isDoomed(uid) {
			n[at.storage]++
		}
	}
	return slices.Min(n)
}

// went counts the claims among these that were deleted and have no directory any more, in any storage.
func (j *judge) went(earlier map[string]bool) (n int) {
	for uid := range earlier {
		if j.churn.isDoomed(uid) && !slices.ContainsFunc(j.storages, func(s scene.Storage) bool { return there(s.Path("pvc-" + uid)) }) {
			n++
		}
	}
	return n
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// orphans are the directories with data of volumes that no claim has.
func (j *judge) orphans(ctx context.Context) (kept []place) {
	_, want := j.claims(ctx, &losses{})
	j.mu.Lock()
	defer j.mu.Unlock()
	for at := range j.written {
		if there(j.file(at)) && !want[at.pv] {
			kept = append(kept, at)
		}
	}
	return kept
}

// kinds of losses.
const (
	unsettled     = "claims not settled"
	madeTwice     = "volumes made twice"
	noDirectory   = "volumes published without a directory"
	volumesLeft   = "volume objects that nobody wants"
	leaked        = "directories, records, staging or trash left"
	lostEntries   = "directories or records missing"
	filesLost     = "files of volumes lost"
	tooEager      = "more requests than the bound"
	daemonEnded   = "daemons that ended"
	nothingProven = "phases too mild to prove anything"
)

var kinds = []string{unsettled, madeTwice, noDirectory, volumesLeft, leaked, lostEntries, filesLost, tooEager, daemonEnded, nothingProven}

// losses are what was lost, by kind.
type losses map[string][]string

func (l *losses) add(kind, format string, args ...any) {
	if *l == nil {
		*l = losses{}
	}
	(*l)[kind] = append((*l)[kind], fmt.Sprintf(format, args...))
}

func (l losses) sum() (n int) {
	for _, all := range l {
		n += len(all)
	}
	return n
}
