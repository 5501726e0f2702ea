package e2e

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// documented are the blocks of one page of the documentation, by language, in order.
func documented(t *testing.T, name string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, b := range need(pages.Open(rig.Root()).Blocks(name))(t) {
		all[b.Language] = append(all[b.Language], b.Text)
	}
	return all
}

// docs/install.md has a pool on a directory of the host's own: its configuration, class and commands.
func TestSingleNodePage(t *testing.T) {
	w := newEnvironment(t)
	page := pages.Open(rig.Root())
	text := func(language string) string {
		blocks := need(page.Take("install.md", "One node, its own disk", language, 0))(w)
		return blocks[0].Text
	}
	r := recipe{title: "single node", toml: text("toml"),
		class: strings.Replace(text("yaml"), "hostpath-provisioner", w.Provisioner, 1)}
	h := r.site(w, w.Namespace+"-a")
	w.Must(w.AddNode(w.Ctx, h.node, nil))
	var class storagev1.StorageClass
	w.Must(yaml.UnmarshalStrict([]byte(r.class), &class))
	if class.Provisioner != w.Provisioner {
		t.Fatalf("a class of %s", class.Provisioner)
	}
	recipes := w.ClassOf(class.Provisioner, "recipe", immediate)
	w.Must(os.Remove(h.mount)) // a machine of the reader's has none
	said := strings.ReplaceAll(h.follow(text("sh")), h.mount, "/data/volumes")
	said, _, _ = strings.Cut(said, "\n\nSELinux") // and Landlock
	w.Must(page.Sample(said, "install.md", "One node, its own disk", 0))
	pv := w.bound("data", recipes, "1Mi") // names no node: this is the provisioner's only one
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || pv.Spec.NodeAffinity == nil {
		t.Errorf("%+v", pv.Spec)
	}
	h.wantTree(pool.Of(pv.Name)...)
}

// docs/snapshots.md: its claim is a clone, in a pool as it is configured there.
func TestSnapshotsPage(t *testing.T) {
	w := newEnvironment(t)
	blocks := documented(t, "snapshots.md")
	_, clones, _ := strings.Cut(blocks["toml"][0], "path = \"/srv/fast\"\n")
	h := w.newHostOn(hosttest.Mkfs(w, "xfs", 320), "a", clones).run()
	class := w.Class("fast", immediate)
	h.writeAll(w.bound("data", class, "10Mi"))
	var claim corev1.PersistentVolumeClaim
	w.Must(yaml.UnmarshalStrict([]byte(strings.Replace(blocks["yaml"][0], "storageClassName: fast", "storageClassName: "+class, 1)), &claim))
	createIn(w, w.pvcs(), &claim)
	h.wantClone(w.Bound("copy"))
}

// docs/nodes.md: its claim is bound without a pod, on the node that it names.
func TestNodesPage(t *testing.T) {
	w := newEnvironment(t)
	h, other := w.newHost("a").run(), w.newHost("b").run()
	var class storagev1.StorageClass
	var claim corev1.PersistentVolumeClaim
	docs := strings.Split(documented(t, "nodes.md")["yaml"][0], "---\n")
	for i, into := range []any{&class, &claim} {
		text := strings.NewReplacer("node-a", h.node, "hostpath-provisioner", w.Provisioner, "name: waits", "name: "+w.Namespace+"-waits",
			"storageClassName: waits", "storageClassName: "+w.Namespace+"-waits").Replace(docs[i])
		w.Must(yaml.UnmarshalStrict([]byte(text), into))
	}
	createIn(w, w.classes(), &class)
	createIn(w, w.pvcs(), &claim)
	h.wantTree(pool.Of(w.Bound("disk").Name)...)
	other.wantTree()
}

// shows wants what was said of a node, which has a name on the page, to end as its sample does.
func (w *environment) shows(said, node, name, page, heading string) {
	w.Helper()
	said = strings.NewReplacer(w.Namespace+"/", "default/", node, name).Replace(said)
	w.Must(pages.Open(rig.Root()).Sample(said, page, heading, 0))
}
