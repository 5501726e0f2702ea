package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// beside is a host with a disk of its own at the same path as another host's: in a mount namespace
// of its own. at is a path below its pool as this process can reach it.
func (h *host) beside(name string) (other *host, at func(...string) string) {
	w := h.w
	w.Helper()
	namespace, image := hosttest.NewNamespace(w, ""), hosttest.Mkfs(w, "ext4", 96)
	script := fmt.Sprintf("umount %[1]s && mount -t %[2]s -o loop,nosuid,nodev %[3]s %[1]s && chmod 0700 %[1]s", h.mount, image.Type, image.File)
	namespace.Run("sh", "-c", script)
	other = &host{w: w, node: w.Namespace + "-" + name, mount: h.mount}
	other.joins()
	text := strings.Replace(h.config(), `node = "`+h.node+`"`, `node = "`+other.node+`"`, 1)
	other.Daemon = w.Daemon(other.node, "fast", rig.Options{Dir: hosttest.Dir(w), Config: text, Wrap: namespace.Enter()})
	return other, func(elem ...string) string {
		return namespace.Path(append([]string{h.mount}, elem...)...)
	}
}

// On two nodes at once, which both have directories of the volumes' names: each volume has one
// node, and the other one has no record of it. Neither daemon's next start takes a directory away,
// empty as they are.
func TestAdoptOnTwoNodes(t *testing.T) {
	const count = 40
	w := newEnvironment(t)
	a := w.newHost("a").aliased(allPeers()...)
	b, inB := a.beside("b")
	p := peerNamed("kubeboost") // which writes no affinity
	var names []string
	for i := range count {
		pv := p.volume(a, fmt.Sprintf("data-%d", i))
		for _, dir := range []string{cluster.PathOf(pv), inB(filepath.Base(cluster.PathOf(pv)))} {
			w.Must(os.Mkdir(dir, 0o777))
		}
		createIn(w, w.pvs(), pv)
		names = append(names, pv.Name)
	}
	for _, name := range names {
		w.Phase(name, corev1.VolumeBound)
	}
	for _, v := range adoptedByBoth(a, b, inB, names, word) {
		if v.Annotations["hostpath-provisioner/adopting"] != "" || !slices.Contains(v.Finalizers, finalizer) {
			t.Errorf("%s is half adopted: %q %q", v.Name, v.Annotations, v.Finalizers)
		}
	}
	for _, h := range []*host{a, b} {
		h.run()
		w.claim("after-"+h.node, w.Class("after-"+h.node, immediate), "1Mi", annotate(provisionOnNode, h.node))
		w.Bound("after-" + h.node) // its records were looked at before
		h.stop()
	}
	for _, dir := range []string{a.mount, inB()} {
		n := 0
		for _, e := range entries(t, dir) {
			if strings.Contains(e, "-data-") {
				n++
			}
		}
		if n != count {
			t.Errorf("%s has %d of %d directories", dir, n, count)
		}
	}
}

// adoptedByBoth has two hosts adopt at once, and wants each volume to be one's, and the other to
// have no record of it. It returns the volumes.
func adoptedByBoth(
	a, b *host, inB func(...string) string, names []string, flags ...string,
) (all []*corev1.PersistentVolume) {
	w := a.w
	w.Helper()
	var both sync.WaitGroup
	said := make([]string, 2)
	for i, h := range []*host{a, b} {
		both.Go(func() { said[i], _ = h.Call(append([]string{"adopt", "fast"}, flags...)...) })
	}
	both.Wait()
	owned := map[string][]string{}
	for _, name := range names {
		v := w.Volume(name)
		all = append(all, v)
		owned[v.Labels[nodeLabel]] = append(owned[v.Labels[nodeLabel]], name+".json")
	}
	w.Logf("%d to a, %d to b", len(owned[a.node]), len(owned[b.node]))
	for h, records := range map[*host]string{a: a.ours("volumes"), b: inB(".hostpath-provisioner", "volumes")} {
		slices.Sort(owned[h.node])
		if got := entries(w.T, records); !slices.Equal(got, owned[h.node]) {
			w.Errorf("%s has the records %q and the volumes %q", h.node, got, owned[h.node])
		}
	}
	if len(owned[a.node])+len(owned[b.node]) != len(names) {
		w.Errorf("%v of %d:\n%s\n%s", owned, len(names), said[0], said[1])
	}
	return all
}

// entries are the names in a directory, sorted.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, e := range need(os.ReadDir(dir))(t) {
		names = append(names, e.Name())
	}
	return names
}

// An affinity that does not name one node does not say which node has the data.
func TestAdoptByAffinity(t *testing.T) {
	w, h := aliasedHost(t)
	patchIn(w, w.nodes(), h.node, `{"metadata":{"labels":{"rack":"7"}}}`)
	term := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	ours := "host-of-" + h.node
	var volumes []*corev1.PersistentVolume
	for _, c := range []struct {
		name  string
		terms []corev1.NodeSelectorTerm
	}{
		{"excludes-another", []corev1.NodeSelectorTerm{term(corev1.LabelHostname, corev1.NodeSelectorOpNotIn, "host-x")}},
		{"excludes-us", []corev1.NodeSelectorTerm{term(corev1.LabelHostname, corev1.NodeSelectorOpNotIn, ours)}},
		{"exists", []corev1.NodeSelectorTerm{term("rack", corev1.NodeSelectorOpExists)}},
		{"greater", []corev1.NodeSelectorTerm{term("rack", corev1.NodeSelectorOpGt, "6")}},
		{"named", []corev1.NodeSelectorTerm{term(corev1.LabelHostname, corev1.NodeSelectorOpIn, ours)}},
		{"one-of-two-terms", []corev1.NodeSelectorTerm{term(corev1.LabelHostname, corev1.NodeSelectorOpIn, "host-x"), term(corev1.LabelHostname, corev1.NodeSelectorOpIn, ours)}},
		{"one-of-two-values", []corev1.NodeSelectorTerm{term(corev1.LabelHostname, corev1.NodeSelectorOpIn, "host-x", ours)}},
	} {
		volumes = append(volumes, peerNamed("kubevirt").made(h, c.name, func(pv *corev1.PersistentVolume) {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: c.terms}}
		}))
	}
	story := &story{h: h, volumes: volumes}
	story.adopt()
	story.adopt("--dry-run", word)
	golden(t, "adopt-affinity", story.String())
}

// What a bind mount shows elsewhere, and two volumes that are one directory by a bind mount.
func TestAdoptBindMounts(t *testing.T) {
	w, h := aliasedHost(t)
	elsewhere := hosttest.Dir(w)
	bind := func(from, to string) {
		w.Must(os.MkdirAll(to, 0o755))
		hosttest.Mount(t, "--bind", from, to)
		t.Cleanup(func() { exec.Command("umount", to).Run() })
	}
	p := peerNamed("kubevirt")
	shown := p.made(h, "shown")
	bind(cluster.PathOf(shown), elsewhere+"/export")
	kubelets := p.made(h, "kubelets")
	bind(cluster.PathOf(kubelets), elsewhere+"/kubelet/pods/u-1/volume-subpaths/data/main/0")
	inside := p.made(h, "inside")
	bind(h.mount, elsewhere+"/pool")
	outside := p.publish(h, p.volume(h, "outside", func(pv *corev1.PersistentVolume) {
		pv.Spec.HostPath.Path = elsewhere + "/pool/" + filepath.Base(cluster.PathOf(inside))
	}))
	under := p.volume(h, "under")
	theirs := p.publish(h, p.volume(h, "theirs", func(pv *corev1.PersistentVolume) { pv.Spec.HostPath.Path = elsewhere + "/theirs" }))
	w.Must(os.Mkdir(elsewhere+"/theirs", 0o755))
	bind(elsewhere+"/theirs", cluster.PathOf(under))
	p.publish(h, under)
	out := h.call("adopt", "fast").Ends(1).Out
	golden(t, "adopt-binds", strings.ReplaceAll(h.told(out, shown, kubelets, inside, outside, under, theirs), elsewhere, "ELSEWHERE"))
}
