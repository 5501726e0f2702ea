package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
// and compares the API with the disk.
type judge struct {
	scene *scene.Scene
	churn *churn

	mu      sync.Mutex
	made    map[string]map[string]bool // by claim UID: the UIDs of the volume objects made for it
	written map[string]string          // volume name to claim UID: volumes that have data
	wrong   []string                   // volumes that were published without a directory

	forgotten map[string]bool // volumes that a restored server does not know
	lenient   bool
}

func newJudge(s *scene.Scene, c *churn) *judge {
	return &judge{scene: s, churn: c, made: map[string]map[string]bool{}, written: map[string]string{}, forgotten: map[string]bool{}}
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
		if pv, is := event.Object.(*corev1.PersistentVolume); is && event.Type == watch.Added {
			j.appeared(pv)
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
	if j.written[pv.Name] != "" {
		return
	}
	_, err := os.Lstat(j.scene.Path(pv.Name))
	if err == nil && uid[0]%3 != 0 {
		if err = os.WriteFile(j.file(pv.Name), []byte(pv.Name), 0o600); err == nil {
			j.written[pv.Name] = uid
		}
	}
	if err != nil && !j.churn.isDoomed(uid) { // asked after the look at the disk
		j.wrong = append(j.wrong, fmt.Sprintf("%s: %v", pv.Name, err))
	}
}

func (j *judge) file(pv string) string { return j.scene.Path(pv, "data") }

// newEpoch forgets who made what: a server whose data was restored makes known volumes anew. Volumes of
// claims that it has forgotten are expected to be kept from now on, if they have data.
func (j *judge) newEpoch(claims []corev1.PersistentVolumeClaim) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for uid := range j.made {
		j.forgotten["pvc-"+uid] = true
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
	j.compare(claims, want, &l)
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

// compare is the disk's part of unsettled.
func (j *judge) compare(claims []corev1.PersistentVolumeClaim, want map[string]bool, l *losses) {
	directories, records, leftovers, err := j.scene.Disk()
	if err != nil {
		l.add(leaked, "%v", err)
		return
	}
	// A claim that was deleted and came back with a restored server may have lost its directory before, or
	// some of its files. One that is whole in the trash is to be put back.
	back := map[string]bool{}
	for _, c := range claims {
		back["pvc-"+string(c.UID)] = j.churn.isDoomed(string(c.UID))
	}
	for _, name := range leftovers {
		if pv, emptied := strings.CutSuffix(name, "~"); !emptied || !back[pv] {
			l.add(leaked, "%s in staging, trash or archive", name)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for pv, uid := range j.written {
		if want[pv] && back[pv] || !want[pv] && j.churn.isDoomed(uid) {
			continue
		}
		if data, err := os.ReadFile(j.file(pv)); err != nil || string(data) != pv {
			l.add(filesLost, "of volume %s: %q, %v", pv, data, err)
		}
	}
	for what, names := range map[string][]string{"directory": directories, "record": records} {
		there := map[string]bool{}
		for _, name := range names {
			there[name] = true
			if !want[name] && !j.limbo(name) {
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

// limbo is a volume whose claim and object a restored server has forgotten. Its data is kept.
func (j *judge) limbo(pv string) bool {
	if !j.forgotten[pv] {
		return false
	}
	_, err := os.Lstat(j.file(pv))
	return err == nil || j.lenient
}

// fresh counts the volumes with data whose claims are to stay and are not among these.
func (j *judge) fresh(earlier map[string]bool) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, uid := range j.written {
		if !earlier[uid] && !j.churn.isDoomed(uid) {
			n++
		}
	}
	return n
}

// went counts the claims among these that were deleted and have no directory any more.
func (j *judge) went(earlier map[string]bool) (n int) {
	for uid := range earlier {
		if !j.churn.isDoomed(uid) {
			continue
		}
		if _, err := os.Lstat(j.scene.Path("pvc-" + uid)); errors.Is(err, fs.ErrNotExist) {
			n++
		}
	}
	return n
}

// orphans are the volumes with data that no claim has.
func (j *judge) orphans(ctx context.Context) (kept int) {
	_, want := j.claims(ctx, &losses{})
	j.mu.Lock()
	defer j.mu.Unlock()
	for pv := range j.written {
		if _, err := os.Lstat(j.file(pv)); err == nil && !want[pv] {
			kept++
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
