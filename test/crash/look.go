package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
)

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
	volumes, err := e.Client.CoreV1().PersistentVolumes().List(e.ctx, metav1.ListOptions{})
	e.Must(err, "listing volumes")
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
	for _, condition := range c.Status.Conditions {
		expansion = append(expansion, string(condition.Type))
	}
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
