package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// stage is a real API server, a real filesystem and the daemon's binary, on which an order is played step by step.
type stage struct {
	*fixture.Environment
	plane  *cluster.Cluster
	worker *worker // the model's
	daemon *rig.Daemon
	killer *killer.Killer
	front  *front
	doors  *doors
	image  hosttest.Image
	mount  string
	node   string
	class  string
	untold *waiter // whose response the daemon has not got yet, nil for none
	idle   *call   // that it makes or has made and that changes nothing, nil for none

	mu     sync.Mutex
	volume [cells]string // real names, "" for those that were not made yet
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

// newStage makes everything up to a daemon that is about to start.
func newStage(t *testing.T, plane *cluster.Cluster, w *worker, first state) *stage {
	t.Helper()
	st := &stage{Environment: fixture.New(t, plane, "model-"), plane: plane, worker: w, doors: &doors{}, image: hosttest.Mkfs(t, "ext4", 64+mebibytes(first))}
	st.mount, st.node = hosttest.PoolMount(t, st.image), st.Namespace
	st.Must(plane.AddNode(st.Ctx, st.node, nil))
	st.class = st.Class(classNames[nodePool], storagev1.VolumeBindingWaitForFirstConsumer, fixture.Expandable)
	dir := hosttest.Dir(t)
	var err error
	st.killer, err = killer.New(filepath.Join(dir, "killer"), killer.Scope{Pool: st.mount, Exact: true})
	st.Must(err)
	t.Cleanup(func() { _ = st.killer.Close() })
	st.killer.Hold(st.hold)
	st.front = &front{doors: st.doors, named: st.named}
	st.front.breaks(false)
	st.daemon = st.Daemon(st.node, poolNames[nodePool], rig.Options{
		Binary: "/proc/self/exe", Env: st.killer.Env(rig.Binary()), Dir: dir, Config: st.config(dir, setting{}),
	})
	st.Must(os.MkdirAll(filepath.Join(st.mount, "people"), 0o700))
	st.Must(os.WriteFile(filepath.Join(st.mount, "people", "data"), []byte(byPeople), 0o600))
	address, authority := st.Proxied(func(server http.Handler) http.Handler { st.front.server = server; return st.front })
	st.kubeconfig(st.daemon.Path("kubeconfig"), address, authority)
	return st
}

func (st *stage) kubeconfig(file, address string, authority []byte) {
	const account = "hostpath-provisioner"
	st.Must(st.plane.ServiceAccountKubeconfig(st.Ctx, account, account, "", file))
	config, err := clientcmd.LoadFromFile(file)
	st.Must(err)
	for _, c := range config.Clusters {
		c.Server, c.CertificateAuthorityData = address, authority
	}
	st.Must(clientcmd.WriteToFile(*config, file))
}

// config is the daemon's configuration in dir.
func (st *stage) config(dir string, of setting) string {
	provisioner, aliases := st.Provisioner, ""
	if of.names != ownName {
		provisioner = otherName
	}
	if of.names == aliased {
		aliases = fmt.Sprintf("aliases = [%q]\n", st.Provisioner)
	}
	text := fmt.Sprintf("provisioner = %q\n%snode = %q\nkubeconfig = %q\nmetrics = \"\"\n[pool.%s]\npath = %q\n",
		provisioner, aliases, st.node, filepath.Join(dir, "kubeconfig"), poolNames[nodePool], st.mount)
	if of.pattern {
		text += fmt.Sprintf("directory = %q\n", otherPattern+"{{.PV}}")
	}
	if of.archive {
		text += "on_delete = \"archive\"\n"
	}
	if of.room > 0 {
		text += fmt.Sprintf("reserve = \"%dMi\"\n", st.reserve(of.room))
	}
	return text
}

// modelled puts the model's names of volumes in a text in place of the real ones.
func (st *stage) modelled(text string) string {
	for cell, name := range st.known() {
		if name != "" {
			text = strings.ReplaceAll(text, name, nameOf(cell))
		}
	}
	return text
}

// named is a request's name in the model, with the real name of its volume.
func (st *stage) named(r *http.Request) string {
	const volumes = "/api/v1/persistentvolumes"
	name, one := strings.CutPrefix(r.URL.Path, volumes+"/")
	claim, ofClaim := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+st.Namespace+"/persistentvolumeclaims/")
	status, ofStatus := strings.CutSuffix(claim, "/status")
	does := map[string]kind{http.MethodGet: getVolume, http.MethodPatch: releaseVolume, http.MethodDelete: deleteVolume}
	switch {
	case r.URL.Path == volumes && r.Method == http.MethodPost:
		return op{kind: createVolume}.verb() + " " + volumeIn(r)
	case r.URL.Path == volumes && !r.URL.Query().Has("labelSelector"):
		return op{kind: eachVolume}.verb()
	case ofClaim && ofStatus && r.Method == http.MethodPatch:
		return op{kind: writeStatus}.verb() + " " + st.volumeOf(status)
	case one && r.Method == http.MethodPatch && r.Header.Get("Content-Type") == string(types.MergePatchType):
		return op{kind: writeCapacity}.verb() + " " + name
	case ofClaim && r.Method == http.MethodGet:
		return op{kind: getClaim}.verb() + " " + claim
	case one && does[r.Method] != ended:
		return op{kind: does[r.Method]}.verb() + " " + name
	}
	return ""
}

// volumeIn is the name of the volume in a request's body.
func volumeIn(r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return string(killer.VolumeName.Find(body))
}

// diskCall begins the names of system calls.
const diskCall = "on the disk: "

// hold lets a system call wait that changes a volume's files.
func (st *stage) hold(point string) <-chan struct{} {
	if !killer.VolumeName.MatchString(point) || strings.HasPrefix(point, "fsync ") {
		return nil
	}
	if w := st.doors.arrive(diskCall + point); w != nil {
		return w.through
	}
	return nil
}

// differs is how the real objects and files differ from the model's, "" if they do not. What kube-controller-manager and
// pv-protection do by themselves they have done, here and there.
func (st *stage) differs(real, s state) string {
	for again := true; again; {
		again = false
		for cell := range cells {
			again = binds(nil, &s, cell) || releases(nil, &s, cell) || unprotects(nil, &s, cell) || protects(nil, &s, cell) || again
		}
	}
	if want := s.api.unversioned(); real.api != want {
		return fmt.Sprintf("the objects are %s, the model's %s", real.api.text(), want.text())
	}
	got, want := outline(st.worker.image(&real, nodePool).files), outline(st.worker.image(&s, nodePool).files)
	if !maps.Equal(got, want) {
		return fmt.Sprintf("the pool has %v, the model's %v", got, want)
	}
	return ""
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
	}
	return fmt.Sprintf("%q", all)
}

// outline is what matters of a pool's files: those of volumes, without the text of records.
func outline(all files) map[string]string {
	of := map[string]string{}
	for path, text := range all {
		if !strings.Contains(path, "pvc-") {
			continue
		}
		if strings.Contains(path, ".json") {
			text = fmt.Sprint("retained: ", strings.Contains(text, `"retained": true`), ", units: ", 1+sizeIn(text))
		}
		of[path] = text
	}
	return of
}

// seen is the real world, as a state of the model that has nothing but objects and files.
func (st *stage) seen() (s state, err error) {
	for cell, name := range st.known() {
		if name == "" {
			continue
		}
		pv, err := st.Client().CoreV1().PersistentVolumes().Get(st.Ctx, name, metav1.GetOptions{})
		if err == nil {
			s.api.volumes[cell] = volumeOf(pv)
		} else if !apierrors.IsNotFound(err) {
			return s, err
		}
		slot := cell / lives
		c, err := st.Client().CoreV1().PersistentVolumeClaims(st.Namespace).Get(st.Ctx, slotName(slot), metav1.GetOptions{})
		if err == nil && "pvc-"+string(c.UID) == name {
			s.api.claims[slot] = claim{exists: true, bound: c.Status.Phase == corev1.ClaimBound, life: uint8(cell % lives), growth: growthOf(c)}
		} else if err != nil && !apierrors.IsNotFound(err) {
			return s, err
		}
	}
	s.api = s.api.unversioned()
	all, err := st.files()
	s.disks[nodePool] = st.worker.tree.disks.image(all)
	return s, err
}

// files are the pool's, with the model's names of volumes. What is renamed while the directories are read is in none of them, or in
// two: they are read until nothing changed in between.
func (st *stage) files() (files, error) {
	before, err := st.filesOnce()
	for range 100 {
		now, again := st.filesOnce()
		if err = errors.Join(err, again); err != nil || maps.Equal(before, now) {
			return now, err
		}
		before = now
	}
	return before, errors.New("the pool changes all the time")
}

func (st *stage) filesOnce() (files, error) {
	all := files{}
	err := filepath.WalkDir(st.mount, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) || path == st.mount { // it went meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		below := st.modelled(strings.TrimPrefix(path, st.mount+"/"))
		all[below] = "/"
		if e.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		all[below] = string(text)
		if os.IsNotExist(err) {
			delete(all, below)
			return nil
		}
		return err
	})
	return all, err
}

// agree waits until the real world is as the model's.
func (st *stage) agree(s state) error {
	wrong := ""
	for ctx := st.soon(); ctx.Err() == nil; st.pause() {
		real, err := st.seen()
		if err != nil {
			return err
		}
		if wrong = st.differs(real, s); wrong == "" {
			return nil
		}
	}
	return fmt.Errorf("the real world does not become as the model's: %s; waiting: %q", wrong, st.waiting())
}

// soon is a context for one step. It ends before a request of the daemon does that waits (kube, callTimeout), so that an
// order that went another way goes on with that.
func (st *stage) soon() context.Context {
	ctx, cancel := context.WithTimeout(st.Ctx, 20*time.Second)
	st.Cleanup(cancel)
	return ctx
}

func (st *stage) waiting() []string {
	var all []string
	for _, name := range st.doors.names() {
		all = append(all, st.modelled(name))
	}
	slices.Sort(all)
	return all
}
