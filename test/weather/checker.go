// Package weather has a daemon work under a load of claims that come and go while something else
// goes wrong, and compares the API with the disk afterwards: mounts that change (Storm), an API that
// refuses, loses and doubles (Chaos), nothing at all but 100,000 claims (Soak).
//
// It does not kill the daemon at its system calls (test/crash), nor hang a filesystem (test/hang).
package weather

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// checker watches the volumes of the cluster, at the API server itself, writes into them as pods
// would, and compares the API with the disk, or with the disk of each node in scope every-node.
type checker struct {
	*harness.Environment
	scope    string // of the pool
	pool     string // its path
	load     *harness.Load
	storages []harness.Storage
	exact    bool                           // there are the claims of the load, and no others; else all count that there are
	onMade   func(*corev1.PersistentVolume) // is called when a volume object was made, if it is not nil

	mu          sync.Mutex
	seen        int // volume objects that appeared
	undecidable int // of them: the claim was deleted already, so that the directory may be gone
	gone        int // volume objects that went
	alive       map[types.UID]*corev1.PersistentVolume
	made        map[string]map[string]bool // by claim UID: the UIDs of the volume objects made for it
	written     map[place]string           // to claim UID: volumes that have data
	wrong       []string                   // volumes that were published without a directory

	forgotten map[string]bool // volumes that a restored server does not know
	lenient   bool
}

// place is a volume's directory in one of the storages.
type place struct {
	storage int
	pv      string
}

func newChecker(e *harness.Environment, scope, pool string, storages []harness.Storage, load *harness.Load) *checker {
	return &checker{
		Environment: e, scope: scope, pool: pool, load: load, storages: storages,
		made: map[string]map[string]bool{}, alive: map[types.UID]*corev1.PersistentVolume{}, written: map[place]string{}, forgotten: map[string]bool{},
	}
}

// run watches until the context ends. A server that is away is asked again.
func (c *checker) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.follow(ctx); err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func (c *checker) follow(ctx context.Context) error {
	volumes := c.Volumes()
	all, err := volumes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pv := range c.missed(all.Items) {
		c.went(pv)
	}
	for i := range all.Items {
		c.appeared(&all.Items[i])
	}
	w, err := volumes.Watch(ctx, metav1.ListOptions{ResourceVersion: all.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		pv, is := event.Object.(*corev1.PersistentVolume)
		switch {
		case !is:
		case event.Type == watch.Added:
			c.appeared(pv)
		case event.Type == watch.Deleted:
			c.went(pv)
		case pv.Spec.ClaimRef != nil && len(c.storages) > 1:
			c.mu.Lock()
			_ = c.write(pv.Name, string(pv.Spec.ClaimRef.UID)) // the other nodes have made theirs meanwhile
			c.mu.Unlock()
		}
	}
	return nil
}

// missed are the volume objects that went while there was no watch: the API server ends that of a
// slow reader.
func (c *checker) missed(now []corev1.PersistentVolume) (gone []*corev1.PersistentVolume) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, pv := range c.alive {
		if !slices.ContainsFunc(now, func(v corev1.PersistentVolume) bool { return v.UID == uid }) {
			gone = append(gone, pv)
		}
	}
	return gone
}

// appeared is told of each volume object, sometimes again. With the object the directory has to be
// there, on the pool's own filesystem. Two of three volumes get data.
func (c *checker) appeared(pv *corev1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if ref == nil || !c.notes(pv, string(ref.UID)) {
		return
	}
	if c.onMade != nil {
		c.onMade(pv)
	}
}

// notes reports whether the object is a new one.
func (c *checker) notes(pv *corev1.PersistentVolume, uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made[uid][string(pv.UID)] {
		return false
	}
	if c.made[uid] == nil {
		c.made[uid] = map[string]bool{}
	}
	c.made[uid][string(pv.UID)], c.alive[pv.UID] = true, pv
	c.seen++
	err := c.write(pv.Name, uid)
	switch {
	case filepath.Dir(cluster.PathOf(pv)) != c.pool:
		c.wrong = append(c.wrong, fmt.Sprintf("%s points to %v", pv.Name, pv.Spec.PersistentVolumeSource))
	case err != nil && c.load.Doomed(uid): // asked after the look at the disk
		c.undecidable++
	case err != nil:
		c.wrong = append(c.wrong, fmt.Sprintf("%s: %v", pv.Name, err))
	}
	return true
}

func (c *checker) went(pv *corev1.PersistentVolume) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alive[pv.UID] != nil {
		delete(c.alive, pv.UID)
		c.gone++
	}
}

// counts are the volume objects that appeared, those of them that could not be judged, and those
// that went.
func (c *checker) counts() (seen, undecidable, gone int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen, c.undecidable, c.gone
}

// write writes into each directory that a volume has and that has no data yet. No directory at all
// is an error. The caller holds the lock.
func (c *checker) write(pv, uid string) (err error) {
	found := 0
	for i, s := range c.storages {
		at := place{i, pv}
		if c.written[at] != "" {
			found++
			continue
		}
		_, failed := os.Lstat(s.Path(pv))
		if failed == nil && uid[0]%3 != 0 {
			switch failed = os.WriteFile(c.file(at), []byte(pv), 0o600); {
			case failed == nil:
				c.written[at] = uid
			case errors.Is(failed, unix.EROFS): // for the moment; the directory is there
				failed = nil
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

func (c *checker) file(at place) string { return c.storages[at.storage].Path(at.pv, "data") }

// newEpoch forgets who made what: a server whose data was restored makes known volumes anew.
// Volumes of claims that it has forgotten are expected to be kept from now on, if they have data.
func (c *checker) newEpoch(claims []corev1.PersistentVolumeClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.made {
		c.forgotten["pvc-"+uid] = true
	}
	if c.scope == plan.ScopeEveryNode { // kept though empty, and the object of the last ones may not have been seen here
		for _, uid := range c.load.UIDs() {
			c.forgotten["pvc-"+uid] = true
		}
	}
	for _, claim := range claims {
		delete(c.forgotten, "pvc-"+string(claim.UID))
	}
	c.made = map[string]map[string]bool{}
}

// beLenient lets empty volumes of forgotten claims lie around: the daemon goes through its records
// when it starts, when a pool opens, and every ten minutes.
func (c *checker) beLenient(lenient bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lenient = lenient
}

// doubles counts the claims that more than one volume object was made for: those that were to stay,
// and those that were being deleted meanwhile.
func (c *checker) doubles() (twice []string, late int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, volumes := range c.made {
		switch {
		case len(volumes) < 2:
		case c.load.Doomed(uid):
			late++
		default:
			twice = append(twice, "claim "+uid)
		}
	}
	return twice, late
}

// lost tells what was wrong with volumes when they appeared, once.
func (c *checker) lost() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.wrong
	c.wrong = nil
	return was
}

// settle waits until nothing is unsettled, and returns what is when nothing was settled for so
// long.
func (c *checker) settle(ctx context.Context, timeout time.Duration) (*harness.Findings, time.Duration) {
	begin := time.Now()
	least, since := math.MaxInt, begin
	for {
		found := c.unsettled(ctx)
		if n := found.Count(); n < least {
			least, since = n, time.Now()
		}
		if least == 0 || time.Since(since) > timeout || ctx.Err() != nil {
			return found, time.Since(begin)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// unsettled is what keeps API and disk from being as they should: each claim is bound to its
// volume, which has one directory and one record, with its data; volumes that lost their claim and
// their object with the server's memory keep their data; nothing else is anywhere.
func (c *checker) unsettled(ctx context.Context) *harness.Findings {
	f := &harness.Findings{}
	claims, err := c.claims(ctx)
	if f.Blame(harness.Unsettled, err) {
		return f
	}
	volumes, err := c.Volumes().List(ctx, metav1.ListOptions{})
	if f.Blame(harness.Unsettled, err) {
		return f
	}
	var expected map[string]string
	if c.exact {
		expected = c.load.Live()
	}
	want := f.CompareObjects(claims, volumes.Items, expected)
	// A claim that was deleted and came back with a restored server may have lost its directory
	// before, or some of its files. One that is whole in the trash is to be put back.
	back := map[string]bool{}
	for _, claim := range claims {
		back["pvc-"+string(claim.UID)] = c.load.Doomed(string(claim.UID))
	}
	c.data(want, back, f)
	for i := range c.storages {
		c.compare(i, want, back, f)
	}
	return f
}

// claims are all that there are.
func (c *checker) claims(ctx context.Context) ([]corev1.PersistentVolumeClaim, error) {
	all, err := c.Claims().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

func (c *checker) mustClaims(ctx context.Context) []corev1.PersistentVolumeClaim {
	return harness.Need(c.claims(ctx))(c, "listing claims")
}

// data looks for what was written.
func (c *checker) data(want, back map[string]bool, f *harness.Findings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, uid := range c.written {
		if want[at.pv] && back[at.pv] || !want[at.pv] && c.load.Doomed(uid) {
			continue
		}
		if data, err := os.ReadFile(c.file(at)); err != nil || string(data) != at.pv {
			f.Fault(harness.FilesLost, "of volume %s: %q, %v", at.pv, data, err)
		}
	}
}

// compare is a disk's part of unsettled.
func (c *checker) compare(storage int, want, back map[string]bool, f *harness.Findings) {
	tree, err := c.storages[storage].Tree()
	if f.Blame(harness.EntriesLeft, err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.CompareDisk(tree, want, harness.Exceptions{
		Extra: func(directory, volume string) bool {
			switch pv, emptied := strings.CutSuffix(volume, "~"); directory {
			case "trash":
				return emptied && back[pv] || !emptied && c.undecided(pv)
			case "", "volumes":
				return c.limbo(place{storage, volume})
			default:
				return false
			}
		},
		Missing: func(volume string) bool { return back[volume] },
	})
}

// limbo is a volume whose claim and object a restored server has forgotten. Its data is kept, and
// in scope every-node its directory, also an empty one: no tombstone says that the claim is gone.
func (c *checker) limbo(at place) bool {
	if !c.forgotten[at.pv] {
		return false
	}
	if c.lenient || c.scope == plan.ScopeEveryNode {
		return true
	}
	_, err := os.Lstat(c.file(at))
	_, whole := os.Lstat(c.storages[at.storage].Trash(at.pv))
	return err == nil || whole == nil && c.undecided(at.pv)
}

// undecided is a volume that a restored server has forgotten and whose claim was being deleted
// before. The daemon did not remove its object, so that it is kept where it is: whole in the trash,
// if it was moved there before.
func (c *checker) undecided(pv string) bool {
	return c.forgotten[pv] && c.load.Doomed(strings.TrimPrefix(pv, "pvc-"))
}

// fresh counts the volumes with data whose claims are to stay and are not among these, in the
// storage that has fewest. A node that made its directory after the last event of the object, which
// a busy one does with each, has no data yet.
func (c *checker) fresh(earlier map[string]bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.made {
		if !earlier[uid] && !c.load.Doomed(uid) {
			_ = c.write("pvc-"+uid, uid)
		}
	}
	n := make([]int, len(c.storages))
	for at, uid := range c.written {
		if !earlier[uid] && !c.load.Doomed(uid) {
			n[at.storage]++
		}
	}
	return slices.Min(n)
}

// withoutDirectory counts the claims among these that were deleted and have no directory any more, in any
// storage.
func (c *checker) withoutDirectory(earlier map[string]bool) (n int) {
	for uid := range earlier {
		if c.load.Doomed(uid) && !slices.ContainsFunc(c.storages, func(s harness.Storage) bool { return there(s.Path("pvc-" + uid)) }) {
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
func (c *checker) orphans(ctx context.Context) (kept []place) {
	want := map[string]bool{}
	for _, claim := range c.mustClaims(ctx) {
		want["pvc-"+string(claim.UID)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := range c.written {
		if there(c.file(at)) && !want[at.pv] {
			kept = append(kept, at)
		}
	}
	return kept
}

// Kinds of findings, besides the harness's.
const (
	madeTwice   = "volumes made twice"
	noDirectory = "volumes published without a directory in their place"
	tooEager    = "more requests than the bound"
	wrongPlace  = "entries made in a wrong place"
	wrongMount  = "volumes of pods that were wrong, refused for no reason or left"
	gateLate    = "gates that closed too late"
	leaked      = "measurements that grew"
)

var kinds = []string{
	gateLate, wrongPlace, wrongMount, harness.Unsettled, madeTwice, noDirectory, harness.VolumesLeft, harness.EntriesLeft,
	harness.EntriesMissing, harness.FilesLost, tooEager, harness.DaemonEnded, harness.NothingProven,
}
