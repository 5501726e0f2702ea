package crash

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// outcome is what is to become of a claim and its volume.
type outcome int

// Outcomes.
const (
	gone     outcome = iota // nothing is left of either
	bound                   // claim, object, directory and record
	archived                // directory and record in the archive
	retained                // directory and record in the pool
)

// expectation is a claim with the outcome that it should have.
type expectation struct {
	claim, uid string
	claimUID   string // of the claim, where it is not the one that the volume was made for
	snapshot   bool   // it is a VolumeSnapshot, and no claim
	outcome    outcome
	data       string // what a pod wrote, "" if none did
	mib        int64  // that were requested last, 0 for as many as at first
	unheld     bool   // its policy keeps the data: the object has no finalizer of ours
	growing    bool   // it may have been growing when it was deleted: its record has one of the sizes
	// killed: the daemon may have died between the removal of the object and the note of it. Then
	// the volume is kept whole in the trash, with its record, in place of being gone.
	killed bool
}

// pv is the name of the volume, or the snapshot's handle.
func (w expectation) pv() string {
	if w.snapshot {
		return "snapshot-" + w.uid
	}
	return "pvc-" + w.uid
}

// owner is the UID of the claim that there is.
func (w expectation) owner() string { return cmp.Or(w.claimUID, w.uid) }

// size is in MiB.
func (w expectation) size() int64 { return cmp.Or(w.mib, firstMiB) }

// recordedAs reports whether this is the volume's record.
func (w expectation) recordedAs(r record) bool {
	want := w.record()
	if w.growing && r.Requested >= firstMiB<<20 && r.Requested < want.Requested {
		r.Requested = want.Requested
	}
	return r == want
}

// firstMiB is what a claim requests at first.
const firstMiB = 1

// record is the volume's.
func (w expectation) record() record {
	return record{
		PV: w.pv(), ClaimUID: w.uid, Directory: w.pv(), Retained: w.outcome == retained,
		Unheld: w.unheld && w.outcome == bound, Requested: w.size() << 20,
	}
}

// kept reports whether the volume is one that is gone but for what a kill left in the trash: the
// directory, whole, and its record, and nothing else.
func (w expectation) kept(s snapshot) bool {
	pv := w.pv()
	d, there := s.dirs["trash/"+pv]
	_, object := s.objects[pv]
	if w.snapshot {
		_, object = s.contents[w.content()]
	}
	return w.outcome == gone && w.killed && there && !object && d == (dir{dirMode, dirUID, dirGID, w.data}) &&
		w.recordedAs(s.records["volumes/"+pv+".json"])
}

// things that have to be there, each of them once.
func (w expectation) things() []string {
	if w.snapshot && w.outcome == bound {
		return []string{"content " + w.content(), "pool/" + w.pv(), "volumes/" + w.pv() + ".json"}
	}
	switch pv := w.pv(); w.outcome {
	case bound:
		return []string{"claim " + w.claim, "object " + pv, "pool/" + pv, "volumes/" + pv + ".json"}
	case archived:
		return []string{"archive/" + pv, "archive/" + pv + ".json"}
	case retained:
		return []string{"pool/" + pv, "volumes/" + pv + ".json"}
	default:
		return nil
	}
}

// snapshot is the whole state at one moment.
type snapshot struct {
	things  map[string]string // what there is: the UID of the claim that it is about, "" if that cannot be told
	claims  map[string]claim  // by name
	objects map[string]object // by name
	// contents of snapshots, by name
	contents map[string]content
	dirs     map[string]dir    // by name below the pool
	records  map[string]record // by name below the pool
}

type claim struct {
	uid, phase, volume string
	going              bool
	mib                int64  // that it has
	expansion          string // what its status says of one
}

type object struct {
	uid, phase, path string // UID of its claim
	finalizers       int    // ours, of which there should be one, or none where the data is kept
	going            bool
	mib              int64
}

type dir struct {
	mode, uid, gid uint32
	data           string // what is in the file that pods write
}

// record is what the daemon's record files have to say. Its fields are spelt out here, because a
// record that can be read only by the program that wrote it is none.
type record struct {
	PV        string `json:"pv"`
	ClaimUID  string `json:"claimUID"`
	Directory string `json:"directory"`
	Retained  bool   `json:"retained"`
	Unheld    bool   `json:"unheld"`
	Requested int64  `json:"requested"` // bytes
}

// kind of a fault.
type kind int

// The kinds.
const (
	leak   kind = iota // something that should not be there
	loss               // something is not there, or is not whole
	double             // something is there twice
	kinds
)

func (k kind) String() string { return [...]string{"leaked", "lost", "double"}[k] }

// fault is one difference between the state and what it should be.
type fault struct {
	kind kind
	text string
}

func (f fault) String() string { return f.kind.String() + ": " + f.text }

// compare returns every difference: what is there besides the baseline and what the expectations
// need, what is missing, and what is there and not whole.
func compare(expectations []expectation, baseline map[string]bool, s snapshot) (all []fault) {
	wanted, living := map[string]bool{}, map[string]bool{}
	maps.Copy(wanted, baseline)
	for _, w := range expectations {
		for _, thing := range w.things() {
			wanted[thing] = true
		}
		if w.kept(s) {
			wanted["trash/"+w.pv()], wanted["volumes/"+w.pv()+".json"] = true, true
		}
		living[w.uid] = w.outcome != gone
	}
	all = s.against(wanted, living)
	for _, w := range expectations {
		for _, text := range w.flaws(s) {
			all = append(all, fault{loss, fmt.Sprintf("%s of claim %s", text, w.claim)})
		}
	}
	return all
}

// against returns what is missing of what is wanted, and what is there beside it: twice, if it is
// about a claim that lives.
func (s snapshot) against(wanted, living map[string]bool) (all []fault) {
	for _, thing := range slices.Sorted(maps.Keys(wanted)) {
		if _, there := s.things[thing]; !there {
			all = append(all, fault{loss, thing + " is not there"})
		}
	}
	for _, thing := range slices.Sorted(maps.Keys(s.things)) {
		switch {
		case wanted[thing]:
		case s.things[thing] != "" && living[s.things[thing]]:
			all = append(all, fault{double, thing + " is there, too"})
		default:
			all = append(all, fault{leak, thing + " is left"})
		}
	}
	return all
}

// flaws are what is wrong with the things that are there.
func (w expectation) flaws(s snapshot) (all []string) {
	where := "pool/"
	switch w.outcome {
	case gone:
		return nil
	case archived:
		where = "archive/"
	case bound:
		all = w.objectFlaws(s)
	}
	if d, there := s.dirs[where+w.pv()]; there {
		if d.mode != dirMode || d.uid != dirUID || d.gid != dirGID {
			all = append(all, fmt.Sprintf("mode %04o and owner %d:%d of the directory", d.mode, d.uid, d.gid))
		}
		if d.data != w.data {
			all = append(all, fmt.Sprintf("data %q, which should be %q,", d.data, w.data))
		}
	}
	file := strings.Replace(where, "pool/", "volumes/", 1) + w.pv() + ".json"
	if r, there := s.records[file]; there && !w.recordedAs(r) {
		all = append(all, fmt.Sprintf("record %+v", r))
	}
	return all
}

func (w expectation) objectFlaws(s snapshot) (all []string) {
	if w.snapshot {
		if got := s.contents[w.content()]; got != (content{ready: true}) {
			all = append(all, fmt.Sprintf("content %+v", got))
		}
		return all
	}
	if c, there := s.claims[w.claim]; there && c != (claim{w.owner(), "Bound", w.pv(), false, w.size(), ""}) {
		all = append(all, fmt.Sprintf("state %+v", c))
	}
	o, there := s.objects[w.pv()]
	if !there {
		return all
	}
	path := o.path
	o.path = ""
	held := 1
	if w.unheld {
		held = 0
	}
	if o != (object{w.owner(), "Bound", "", held, false, w.size()}) || !strings.HasSuffix(path, "/pool/"+w.pv()) {
		all = append(all, fmt.Sprintf("object %+v at %s", o, path))
	}
	return all
}

// finalizer is the daemon's (CONTRACTS of external provisioners).
const finalizer = "external-provisioner.volume.kubernetes.io/finalizer"

// look reads the whole state: all claims and volume objects of the cluster, and all that is in the
// pool, in the daemon's own directories there, and in its state directory.
func (e *environment) look() snapshot {
	s := snapshot{things: map[string]string{}, claims: map[string]claim{}, objects: map[string]object{}, dirs: map[string]dir{}, records: map[string]record{}}
	claims, err := e.Client.CoreV1().PersistentVolumeClaims("").List(e.ctx, metav1.ListOptions{})
	e.Must(err, "listing claims")
	for _, c := range claims.Items {
		s.things["claim "+c.Name] = string(c.UID)
		s.claims[c.Name] = toClaim(&c)
	}
	volumes := harness.Need(e.Volumes().List(e.ctx, metav1.ListOptions{}))(e, "listing volumes")
	for _, v := range volumes.Items {
		o := toObject(&v)
		s.things["object "+v.Name], s.objects[v.Name] = o.uid, o
	}
	s.contents = e.contents()
	for name := range s.contents {
		s.things["content "+name] = strings.TrimPrefix(name, "snapcontent-")
	}
	for name, path := range e.places() {
		s.directory(e, name, path)
	}
	// It comes once the node's lease was written, whenever that is.
	delete(s.things, "state/node-lease")
	delete(s.things, "state/node-lease.new")
	return s
}

// places are the directories that are looked into, by the name that they have in reports.
func (e *environment) places() map[string]string {
	return map[string]string{
		"pool": e.pool, "ours": e.ours(), "staging": e.ours("staging"), "trash": e.ours("trash"),
		"volumes": e.ours("volumes"), "archive": e.ours("archive"),
		"state": e.Daemon.Path("state"), "remembered": e.Daemon.Path("state", "pools"),
	}
}

func (e *environment) ours(elem ...string) string {
	return filepath.Join(append([]string{e.pool, hostcheck.PrivateDir}, elem...)...)
}

func toClaim(c *corev1.PersistentVolumeClaim) claim {
	expansion := []string{string(c.Status.AllocatedResourceStatuses[corev1.ResourceStorage])}
	expansion = append(expansion, cluster.Resizing(c)...)
	return claim{
		uid: string(c.UID), phase: string(c.Status.Phase), volume: c.Spec.VolumeName, going: c.DeletionTimestamp != nil,
		mib: c.Status.Capacity.Storage().Value() >> 20, expansion: strings.Join(expansion, ""),
	}
}

func toObject(v *corev1.PersistentVolume) object {
	o := object{path: cluster.PathOf(v), phase: string(v.Status.Phase), going: v.DeletionTimestamp != nil, mib: v.Spec.Capacity.Storage().Value() >> 20}
	if v.Spec.ClaimRef != nil {
		o.uid = string(v.Spec.ClaimRef.UID)
	}
	for _, f := range v.Finalizers {
		if f == finalizer {
			o.finalizers++
		}
	}
	return o
}

// directory notes what is in one directory. What goes away meanwhile was there.
func (s *snapshot) directory(e *environment, name, path string) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	e.Must(err, "reading "+path)
	for _, e := range entries {
		thing, file := name+"/"+e.Name(), filepath.Join(path, e.Name())
		s.things[thing] = uidOf(e.Name())
		switch {
		case e.IsDir():
			if d, err := readDir(file); err == nil {
				s.dirs[thing] = d
			}
		case name == "volumes" || name == "archive":
			var r record
			text, _ := os.ReadFile(file)
			_ = json.Unmarshal(text, &r) // one that cannot be read is not what it should be, and told as such
			s.records[thing] = r
		}
	}
}

// uidOf is the UID in the name of a volume or of a snapshot, "" if it has none.
func uidOf(name string) string {
	_, uid, _ := strings.Cut(killer.VolumeName.FindString(name), "-")
	return uid
}

func readDir(path string) (d dir, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return d, err
	}
	text, err := os.ReadFile(filepath.Join(path, dataFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	return dir{mode: st.Mode &^ unix.S_IFMT, uid: st.Uid, gid: st.Gid, data: string(text)}, nil
}
