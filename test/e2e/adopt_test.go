package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/goldenfile"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

const word, outside = "--yes-this-node-has-the-data", "--yes-nothing-runs-outside"

// golden compares with testdata/<name>.txt.
func golden(t *testing.T, name, got string) {
	t.Helper()
	goldenfile.Compare(t, filepath.Join("testdata", name+".txt"), got)
}

// story is what calls of adopt say about volumes, one after the other.
type story struct {
	strings.Builder
	h       *host
	volumes []*corev1.PersistentVolume
}

// adopt calls it, and wants the exit code to be that of what it says.
func (s *story) adopt(args ...string) {
	s.h.w.Helper()
	said := s.h.call(append([]string{"adopt", "fast"}, args...)...)
	words := strings.ReplaceAll(strings.Join(args, " "), s.h.w.Kubeconfig(), "ADMIN")
	s.WriteString("$ adopt fast " + s.h.told(words) + "\n" + s.h.told(said.Out, s.volumes...))
	if refused := strings.Contains(said.Out, "refused: "); (said.Code != 0) != refused {
		s.h.w.Errorf("adopt %q: exit code %d\n%s", args, said.Code, said.Out)
	}
}

// object is a volume as it is in the API, without what changes with every write.
func (w *environment) object(name string) string {
	w.Helper()
	pv := w.Volume(name)
	pv.ResourceVersion, pv.ManagedFields = "", nil
	return string(need(yaml.Marshal(pv))(w))
}

// everything made in one pool by every system, with a file in each.
func (h *host) everySystem() []*corev1.PersistentVolume {
	h.w.Helper()
	var all []*corev1.PersistentVolume
	for _, p := range peers {
		all = append(all, p.made(h, strings.ToLower(p.system)))
	}
	return all
}

// The whole way, for every system: nothing without the operator's word, then adopted beside a
// running daemon, the data untouched, then deleted with the claim as the daemon's own.
func TestAdopt(t *testing.T) {
	w := newEnvironment(t)
	h := w.newHost("a").aliased(allPeers()...).run()
	volumes, before := h.everySystem(), h.tree()
	story := &story{h: h, volumes: volumes}
	story.adopt("--dry-run")
	if got := h.tree(); !slices.Equal(got, before) {
		t.Errorf("a dry run changed the pool: %q", got)
	}
	story.adopt()
	story.adopt(word)
	story.adopt(word, outside)
	story.adopt(word)
	golden(t, "adopt", story.String())
	for _, pv := range volumes {
		before = append(before, "ours/volumes/"+pv.Name+".json")
	}
	h.wantTree(before...)
	for _, pv := range volumes {
		name := pv.Spec.ClaimRef.Name
		h.wantData(cluster.PathOf(pv), name)
		w.Removes(name, pv.Name)
	}
	h.wantTree()
}

// Adopted, given up, and everything is as it was: each object to the letter, each directory.
func TestAdoptUndo(t *testing.T) {
	w, h := aliasedHost(t)
	volumes := h.everySystem()
	// One has the usual finalizer already: it keeps it.
	w.PatchVolume(volumes[0].Name, types.MergePatchType,
		`{"metadata":{"finalizers":["kubernetes.io/pv-protection","`+finalizer+`"]}}`)
	tree, objects := h.tree(), map[string]string{}
	for _, pv := range volumes {
		objects[pv.Name] = w.object(pv.Name)
	}
	h.adopts(word, outside)
	for _, pv := range volumes {
		if w.object(pv.Name) == objects[pv.Name] {
			t.Errorf("%s was not changed by adopting it", pv.Spec.ClaimRef.Name)
		}
	}
	h.run() // it sees them as its own, and loses them again
	story := &story{h: h, volumes: volumes}
	for _, flags := range [][]string{{"--undo", "--dry-run"}, {"--undo"}, {"--undo"}} {
		story.adopt(flags...)
	}
	golden(t, "adopt-undo", story.String())
	h.wantTree(tree...)
	for _, pv := range volumes {
		if got := w.object(pv.Name); got != objects[pv.Name] {
			t.Errorf("got\n%s\nwant\n%s", got, objects[pv.Name])
		}
	}
	// What is given up has no owner: a claim that goes takes nothing along.
	w.Releases("rancher", volumes[5].Name)
	h.made("later", w.Class("c", immediate)) // the daemon has seen what came before it
	need(os.Stat(filepath.Join(cluster.PathOf(volumes[5]), "data")))(w)
}

// adopts runs adopt and wants it to go well.
func (h *host) adopts(args ...string) {
	h.w.Helper()
	h.call(append([]string{"adopt", "fast"}, args...)...).Ends(0)
}

// An adopted volume is kept and archived as one of our own, also by a daemon that starts later.
func TestAdoptRetainAndArchive(t *testing.T) {
	w, h := aliasedHost(t, `on_delete = "archive"`)
	archived := peerNamed("rancher").made(h, "archived")
	kept := peerNamed("kubevirt").made(h, "kept", keepPolicy)
	h.adopts()
	h.run()
	for _, pv := range []*corev1.PersistentVolume{archived, kept} {
		w.DeleteClaim(pv.Spec.ClaimRef.Name)
	}
	w.Must(w.WaitVolumeGone(w.Soon(), archived.Name))
	w.Phase(kept.Name, corev1.VolumeReleased)
	w.RemovesVolume(kept.Name)
	name := archived.Name
	h.wantTree(append(pool.Of(kept.Name), "ours/archive/"+name, "ours/archive/"+name+".json")...)
	h.awaitRetained(kept.Name)
}

// Only through its record: an adopted volume whose record is taken away is foreign again.
func TestAdoptedWithoutItsRecord(t *testing.T) {
	w, h := aliasedHost(t)
	pv := peerNamed("microk8s").made(h, "data")
	h.adopts()
	w.Must(os.Remove(filepath.Join(h.ours("volumes"), pv.Name+".json")))
	h.run()
	w.DeleteClaim("data")
	w.event(pv, "NotRecorded")
	h.wantTree(filepath.Base(cluster.PathOf(pv)))
}

// An API server that was restored to a day before what adopt and the daemon did since: the marks
// that come back go with the next undo, and a directory that was on its way out is put back for an
// object that has no marks any more.
func TestAdoptedAndRestored(t *testing.T) {
	w, h := aliasedHost(t)
	pv := peerNamed("microk8s").made(h, "data")
	theirs, tree := w.object(pv.Name), h.tree()
	h.adopts()
	adopted := w.Volume(pv.Name)
	h.adopts("--undo")
	w.remark(pv.Name, adopted)
	h.adopts("--undo")
	if got := w.object(pv.Name); got != theirs {
		t.Errorf("got\n%s\nwant\n%s", got, theirs)
	}
	h.wantTree(tree...)

	bare := w.Volume(pv.Name)
	h.adopts()
	w.Must(os.Rename(cluster.PathOf(pv), filepath.Join(h.ours("trash"), pv.Name)))
	w.remark(pv.Name, bare)
	h.run()
	w.Eventually("the directory is put back", func() bool {
		data, err := os.ReadFile(filepath.Join(cluster.PathOf(pv), "data"))
		return err == nil && string(data) == "data"
	})
	h.adopts("--undo")
	h.wantTree(tree...)
}

// remark gives a volume object the labels, annotations and finalizers that it had before.
func (w *environment) remark(name string, was *corev1.PersistentVolume) {
	w.Helper()
	pv := w.Volume(name)
	pv.Labels, pv.Annotations, pv.Finalizers = was.Labels, was.Annotations, was.Finalizers
	updateIn(w, w.pvs(), pv)
}

// Whatever volumes can look like that must not be adopted, or not yet. Nothing is changed by any.
func TestAdoptTraps(t *testing.T) {
	w := newEnvironment(t)
	h, other := w.newHost("a").aliased(allPeers()...), w.newHost("b")
	kubevirt, mazder := peerNamed("kubevirt"), peerNamed("MaZderMind")
	at := func(path string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) { pv.Spec.HostPath.Path = h.mount + path }
	}
	annotated := func(key, value string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) { pv.Annotations[key] = value }
	}
	for _, dir := range []string{"deep/er", "twins", "slash", "pvc-1", "csi-1"} {
		w.Must(os.MkdirAll(filepath.Join(h.mount, dir), 0o755))
	}
	w.Must(os.Symlink("/etc", filepath.Join(h.mount, "link")))
	w.Must(os.WriteFile(filepath.Join(h.mount, "file"), nil, 0o600))

	var volumes []*corev1.PersistentVolume
	add := func(p peer, name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := p.volume(h, name, change...)
		volumes = append(volumes, pv)
		return p.publish(h, pv)
	}
	add(kubevirt, "slash", at("/slash/"))
	add(kubevirt, "beside-slash", at("/slash"))
	add(kubevirt, "slashes", at("//twice"))
	add(kubevirt, "the-pool", at(""))
	add(kubevirt, "nested", at("/deep/er"))
	add(kubevirt, "above-nested", at("/deep"))
	add(kubevirt, "meta", at("/.hostpath-provisioner"))
	add(kubevirt, "link", at("/link"))
	add(kubevirt, "file", at("/file"))
	add(kubevirt, "missing")
	add(kubevirt, "twin-one", at("/twins"))
	add(kubevirt, "twin-two", at("/twins"))
	add(kubevirt, "wrong-identity", annotated("hostPathProvisionerIdentity", h.node))
	add(mazder, "other-identity", annotated("hostPathProvisionerIdentity", other.node))
	add(kubevirt, "no-alias", annotated("pv.kubernetes.io/provisioned-by", "nobody.example/knows"))
	add(kubevirt, "nobodys", func(pv *corev1.PersistentVolume) {
		delete(pv.Annotations, "pv.kubernetes.io/provisioned-by")
		keepPolicy(pv)
	})
	csi := func(handle string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "kubevirt.io.hostpath-provisioner"}
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "kubevirt.io.hostpath-provisioner", VolumeHandle: handle}}
			pv.Spec.NodeAffinity = cluster.Affinity("topology.hostpath.csi/node", h.node)
		}
	}
	add(kubevirt, "csi-of-another-pool", csi("pvc-2"))
	add(kubevirt, "csi", csi("pvc-1"))
	add(kubevirt, "csi-inline", csi("csi-1"))
	add(kubevirt, "elsewhere", func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = cluster.Affinity(corev1.LabelHostname, other.node)
	})
	released := kubevirt.made(h, "released")
	w.Releases("released", released.Name)
	volumes = append(volumes, released)

	tree := h.tree()
	out, code := h.Call("adopt", "fast", word)
	golden(t, "adopt-traps", h.told(strings.ReplaceAll(out, other.node, "OTHER"), volumes...))
	if got := h.tree(); code != 1 || !slices.Equal(got, tree) {
		t.Errorf("exit code %d, the pool has %q", code, got)
	}
	for _, pv := range volumes {
		if now := w.Volume(pv.Name); len(now.Labels) != 0 || slices.Contains(now.Finalizers, finalizer) {
			t.Errorf("%s was marked: %q %q", pv.Spec.ClaimRef.Name, now.Labels, now.Finalizers)
		}
	}
	// Told to, the released one is taken over, and removed at once.
	h.run()
	h.Call("adopt", "fast", "--released")
	w.Must(w.WaitVolumeGone(w.Soon(), released.Name))
}

// The other program's pod is there: nothing is adopted until it is gone, or the administrator says
// so.
func TestAdoptWhileTheOtherRuns(t *testing.T) {
	w := newEnvironment(t)
	name := w.Namespace + ".example/hostpath" // no other test's
	p := peerNamed("kubevirt")
	p.provisioner, p.shape = name, func(h *host, pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = cluster.Affinity(corev1.LabelHostname, h.node)
	}
	h := w.newHost("a").aliased(name)
	pv := p.made(h, "data")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "program"},
		Spec: corev1.PodSpec{NodeName: h.node, TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{
			Name: "program", Image: "registry.example/any:v1", Args: []string{"-name=" + name},
		}}},
	}
	createIn(w, w.pods(), pod)
	story := &story{h: h, volumes: []*corev1.PersistentVolume{pv}}
	story.adopt()
	story.adopt("--dry-run", "--stopped", name)
	w.endPod("program")
	// Its pod is gone, and another process holds its lock: a program outside of the cluster.
	stop := w.leads("elsewhere", strings.ReplaceAll(name, "/", "-"))
	story.adopt("--kubeconfig", w.Kubeconfig())
	stop()
	story.adopt()
	story.adopt(outside)
	golden(t, "adopt-running", story.String())
}

// leads has the holder renew the leader's lock of that name every second, as one that runs does,
// until stop is called.
func (w *environment) leads(holder, lock string) (stop func()) {
	w.T.Helper()
	api, renewed := w.Client().CoordinationV1().Leases(w.Namespace), metav1.NowMicro()
	lease := createIn(w, api, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: lock},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed},
	})
	ctx, cancel := context.WithCancel(w.Ctx)
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-time.After(time.Second):
			}
			*lease.Spec.RenewTime = metav1.NowMicro()
			lease, err = api.Update(w.Ctx, lease, metav1.UpdateOptions{})
		}
		ended <- err
	}()
	return func() {
		w.T.Helper()
		cancel()
		w.Must(<-ended)
	}
}
