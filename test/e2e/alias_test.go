package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
)

// Classes of other provisioners go on working: claims get volumes that are named and marked as
// those programs do it, which are removed with their claims, or given up for the old program to
// take.
func TestAliasClasses(t *testing.T) {
	w := newEnvironment(t)
	const csi = "kubevirt.io.hostpath-provisioner"
	h := w.newHost("a").aliased(append(allPeers(), csi)...).run()
	pool := fixture.Parameters("pool", "fast")
	for _, c := range []struct {
		system, provisioner string
		params              func(*storagev1.StorageClass)
		directory           func(pv, namespace, claim string) string
		annotations         map[string]string
	}{
		{"torchbox", "torchbox.com/hostpath", fixture.Parameters("PVDir", h.mount+"/"), byVolume, map[string]string{"torchbox.com/hostpath-provisioner-id": "torchbox.com/hostpath"}},
		{"mazdermind", "hostpath", pool, byClaim, map[string]string{"hostPathProvisionerIdentity": h.node}},
		{"kubevirt", "kubevirt.io/hostpath-provisioner", pool, byVolume, map[string]string{"hostPathProvisionerIdentity": "kubevirt.io/hostpath-provisioner", "kubevirt.io/provisionOnNode": h.node}},
		{"kubevirt-csi", csi, fixture.Parameters("storagePool", "fast"), byVolume, nil},
		{"kubeboost", "kubeboost.github.com/hostpath-multihost-provisioner", pool, byClaim, map[string]string{"kubeboost.github.com/hostpath-multihost-provisioner-identity": "kubeboost.github.com/hostpath-multihost-provisioner"}},
		{"microk8s", "microk8s.io/hostpath", fixture.Parameters("pvDir", h.mount), byClaim, map[string]string{"hostPathProvisionerIdentity": h.node}},
		{"rancher", "rancher.io/local-path", fixture.Parameters("nodePath", h.mount), peerNamed("rancher").directory, map[string]string{"local.path.provisioner/selected-node": h.node}},
	} {
		t.Run(c.system, func(t *testing.T) {
			class := w.ClassOf(c.provisioner, c.system, wait, c.params)
			w.claim(c.system, class, "1Mi", annotate(provisionOnNode, h.node))
			w.claim(c.system+"-back", class, "1Mi", annotate(provisionOnNode, h.node))
			pv, back := w.Bound(c.system), w.Bound(c.system+"-back")
			if want := filepath.Join(h.mount, c.directory(pv.Name, w.Namespace, c.system)); cluster.PathOf(pv) != want {
				t.Errorf("path %s, want %s", cluster.PathOf(pv), want)
			}
			hostPath := pv.Spec.HostPath
			if is := hostPath != nil && *hostPath.Type == corev1.HostPathDirectory; is != (c.provisioner != csi) {
				t.Errorf("source %+v", pv.Spec.PersistentVolumeSource)
			}
			want := map[string]string{"pv.kubernetes.io/provisioned-by": c.provisioner}
			maps.Copy(want, c.annotations)
			if !maps.Equal(pv.Annotations, want) {
				t.Errorf("annotations %q, want %q", pv.Annotations, want)
			}
			w.Removes(c.system, pv.Name)
			directory := filepath.Base(cluster.PathOf(back))
			h.wantTree(directory, "ours/volumes/"+back.Name+".json")
			h.adopts("--undo")
			h.wantTree(directory)
			now := w.Volume(back.Name)
			if strings.Join(now.Finalizers, " ") != "kubernetes.io/pv-protection" || len(now.Labels) != 0 || !maps.Equal(now.Annotations, want) {
				t.Errorf("given up as %+v", now.ObjectMeta)
			}
			// The old program does its part: the directory goes, then the object.
			w.Releases(c.system+"-back", back.Name)
			w.Must(os.Remove(cluster.PathOf(back)))
			w.RemovesVolume(back.Name)
			h.wantTree()
		})
	}
}

// What a class of another system asks for and is not there is told with the reason.
func TestAliasRefusals(t *testing.T) {
	w := newEnvironment(t)
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
		class := w.ClassOf(c.provisioner, name, wait, fixture.Parameters(c.params...))
		claim := w.claim(name, class, "1Mi", annotate(provisionOnNode, h.node))
		w.refused(claim, c.reason, c.says)
	}
	h.wantTree()
}

// MaZderMind's place, on one node: a plain directory of the host, claims that bind at once without
// a pod, and the pool's reclaim policy in place of the class's. The reserve keeps the filesystem
// from being filled.
func TestSingleNode(t *testing.T) {
	w, dir := newEnvironment(t), hosttestDir(t, "volumes")
	h := w.newHost("a", "[pool.plain]\npath = \""+dir+"\"\nrequire_mount = false\nreserve = \"1Ti\"\nreclaim_policy = \"Retain\"").aliased("hostpath")
	h.call("prepare", "plain").Ends(0)
	h.run()
	class := w.ClassOf("hostpath", "plain", immediate, fixture.Parameters("pool", "plain"))
	claim := w.claim("data", class, "1Mi", annotate(provisionOnNode, h.node))
	w.refused(claim, "PoolClosed", "reserve")
	h.edit(`reserve = "1Ti"`, `reserve = "1Mi"`)
	h.again()
	pv := w.Bound("data")
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("policy %s", pv.Spec.PersistentVolumeReclaimPolicy)
	}
	if want := filepath.Join(dir, w.Namespace+"-data-"+pv.Name); cluster.PathOf(pv) != want {
		t.Errorf("path %s, want %s", cluster.PathOf(pv), want)
	}
	w.Releases("data", pv.Name)
	need(os.Stat(cluster.PathOf(pv)))(w)
}
