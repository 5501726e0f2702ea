package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Classes of other provisioners go on working: claims get volumes that are named and marked as those
// programs do it, which are removed with their claims, or given up for the old program to take.
func TestAliasClasses(t *testing.T) {
	w := newWorld(t)
	const csi = "kubevirt.io.hostpath-provisioner"
	h := w.newHost("a").aliased(append(allPeers(), csi)...).run()
	pool := params("pool", "fast")
	for _, c := range []struct {
		system, provisioner string
		params              func(*storagev1.StorageClass)
		directory           func(pv, namespace, claim string) string
		annotations         map[string]string
	}{
		{"torchbox", "torchbox.com/hostpath", params("PVDir", h.mount+"/"), byVolume, map[string]string{"torchbox.com/hostpath-provisioner-id": "torchbox.com/hostpath"}},
		{"mazdermind", "hostpath", pool, byClaim, map[string]string{"hostPathProvisionerIdentity": h.node}},
		{"kubevirt", "kubevirt.io/hostpath-provisioner", pool, byVolume, map[string]string{"hostPathProvisionerIdentity": "kubevirt.io/hostpath-provisioner", "kubevirt.io/provisionOnNode": h.node}},
		{"kubevirt-csi", csi, params("storagePool", "fast"), byVolume, nil},
		{"kubeboost", "kubeboost.github.com/hostpath-multihost-provisioner", pool, byClaim, map[string]string{"kubeboost.github.com/hostpath-multihost-provisioner-identity": "kubeboost.github.com/hostpath-multihost-provisioner"}},
		{"microk8s", "microk8s.io/hostpath", params("pvDir", h.mount), byClaim, map[string]string{"hostPathProvisionerIdentity": h.node}},
		{"rancher", "rancher.io/local-path", params("nodePath", h.mount), peerNamed("rancher").directory, map[string]string{"local.path.provisioner/selected-node": h.node}},
	} {
		t.Run(c.system, func(t *testing.T) {
			class := w.classOf(w.namespace+"-"+c.system, c.provisioner, wait, c.params)
			w.claim(c.system, class, "1Mi", annotate(provisionOnNode, h.node))
			w.claim(c.system+"-back", class, "1Mi", annotate(provisionOnNode, h.node))
			pv, back := w.bound(c.system), w.bound(c.system+"-back")
			if want := filepath.Join(h.mount, c.directory(pv.Name, w.namespace, c.system)); pv.Spec.HostPath.Path != want {
				t.Errorf("path %s, want %s", pv.Spec.HostPath.Path, want)
			}
			want := map[string]string{"pv.kubernetes.io/provisioned-by": c.provisioner}
			maps.Copy(want, c.annotations)
			if !maps.Equal(pv.Annotations, want) {
				t.Errorf("annotations %q, want %q", pv.Annotations, want)
			}
			w.deleteClaim(c.system)
			w.must(w.WaitVolumeGone(w.soon(), pv.Name))
			directory := filepath.Base(back.Spec.HostPath.Path)
			h.wantTree(directory, "ours/volumes/"+back.Name+".json")
			h.adopts("--undo")
			h.wantTree(directory)
			now := w.volume(back.Name)
			if strings.Join(now.Finalizers, " ") != "kubernetes.io/pv-protection" || len(now.Labels) != 0 || !maps.Equal(now.Annotations, want) {
				t.Errorf("given up as %+v", now.ObjectMeta)
			}
			// The old program does its part: the directory goes, then the object.
			w.deleteClaim(c.system + "-back")
			_, err := w.WaitVolumePhase(w.soon(), back.Name, corev1.VolumeReleased)
			w.must(err)
			w.must(os.Remove(back.Spec.HostPath.Path))
			w.must(w.Client().CoreV1().PersistentVolumes().Delete(w.ctx, back.Name, metav1.DeleteOptions{}))
			w.must(w.WaitVolumeGone(w.soon(), back.Name))
			h.wantTree()
		})
	}
}

// What a class of another system asks for and is not there is told with the reason.
func TestAliasRefusals(t *testing.T) {
	w := newWorld(t)
	h := w.newHost("a").aliased(allPeers()...).run()
	for name, c := range map[string]struct {
		provisioner string
		params      []string
		reason      string
		says        string
	}{
		"pvdir":   {"torchbox.com/hostpath", []string{"pvDir", "/elsewhere"}, "UnknownPool", `no pool at "/elsewhere"; it has fast (` + h.mount + ")"},
		"pattern": {"rancher.io/local-path", []string{"pathPattern", "{{ .PVC.Name }}"}, "BadParameter", `parameter "pathPattern" of rancher`},
		"unknown": {"hostpath", []string{"pvdir", h.mount}, "UnknownParameter", `unknown parameter "pvdir"`},
	} {
		claim := w.claim(name, w.classOf(w.namespace+"-"+name, c.provisioner, wait, params(c.params...)), "1Mi", annotate(provisionOnNode, h.node))
		if got := w.refused(claim, c.reason); !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want it to say %q", name, got, c.says)
		}
	}
	h.wantTree()
}

// MaZderMind's place, on one node: a plain directory of the host, claims that bind at once without a
// pod, and the pool's reclaim policy in place of the class's. The reserve keeps the filesystem from
// being filled.
func TestSingleNode(t *testing.T) {
	w := newWorld(t)
	dir := hosttestDir(t, "volumes")
	h := w.newHost("a", "[pool.plain]\npath = \""+dir+"\"\nrequire_mount = false\nreserve = \"1Ti\"\nreclaim_policy = \"Retain\"").aliased("hostpath")
	if out, code := h.Call("prepare", "plain"); code != 0 {
		t.Fatal(out)
	}
	h.run()
	class := w.classOf(w.namespace+"-plain", "hostpath", immediate, params("pool", "plain"))
	claim := w.claim("data", class, "1Mi", annotate(provisionOnNode, h.node))
	if got := w.refused(claim, "PoolClosed"); !strings.Contains(got, "reserve") {
		t.Errorf("below the reserve: %q", got)
	}
	config, err := os.ReadFile(h.Path("etc", "config.toml"))
	w.must(err)
	w.must(h.Configure(strings.Replace(string(config), `reserve = "1Ti"`, `reserve = "1Mi"`, 1)))
	h.Kill()
	h.run()
	pv := w.bound("data")
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("policy %s", pv.Spec.PersistentVolumeReclaimPolicy)
	}
	if want := filepath.Join(dir, w.namespace+"-data-"+pv.Name); pv.Spec.HostPath.Path != want {
		t.Errorf("path %s, want %s", pv.Spec.HostPath.Path, want)
	}
	w.deleteClaim("data")
	_, err = w.WaitVolumePhase(w.soon(), pv.Name, corev1.VolumeReleased)
	w.must(err)
	if _, err := os.Stat(pv.Spec.HostPath.Path); err != nil {
		t.Error(err)
	}
}
