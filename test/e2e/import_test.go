package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// unplugs ends a daemon and takes its disk out.
func (h *host) unplugs() {
	h.w.Helper()
	h.Kill()
	hosttest.Unmount(h.w, h.mount)
}

// plugs puts another host's disk into this one, which has never seen it, and starts the daemon.
func (h *host) plugs(image hosttest.Image) *host {
	h.w.Helper()
	h.w.Must(os.RemoveAll(h.Path("state", "pools")))
	image.Mount(h.w, h.mount)
	return h.run()
}

// follows wants a volume to be the host's, bound, and to have its data, and returns it.
func (h *host) follows(claim string) *corev1.PersistentVolume {
	h.w.Helper()
	h.w.Eventually("claim "+claim+" is bound", func() bool {
		return h.w.claimNamed(claim).Status.Phase == corev1.ClaimBound
	})
	pv := h.w.Bound(claim)
	at := filepath.Join(h.mount, pv.Name)
	source := pv.Spec.PersistentVolumeSource
	said := ""
	switch {
	case source.HostPath != nil:
		said = source.HostPath.Path
	case source.Local != nil:
		said = source.Local.Path
	default:
		said = source.CSI.VolumeAttributes["path"]
	}
	term := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	if said != at || pv.Labels[nodeLabel] != h.node || term.Values[0] != "host-of-"+h.node {
		h.w.Errorf("volume of claim %s: %s, %v, %v", claim, said, pv.Labels, term)
	}
	h.wantData(at, claim)
	return pv
}

// writes makes a claim of a class on the host, and puts a file into its volume.
func (h *host) writes(name, class string) *corev1.PersistentVolume {
	h.w.Helper()
	h.w.claim(name, class, "1Mi", annotate(provisionOnNode, h.node))
	pv := h.w.Bound(name)
	file := filepath.Join(h.mount, pv.Name, "data")
	h.w.Must(os.WriteFile(file, []byte(name), 0o600))
	return pv
}

// A disk moves to another host, where the pool has another path: every volume follows, whatever its
// source, and the snapshot, too, however often the call is killed. What was released stays so, and
// what was being removed is removed there. A StatefulSet goes on with its data. Refused are a
// node that is Ready, and a volume that a pod there uses. Volumes of other nodes stay as they are.
// The disk moves back in the same way.
func TestImport(t *testing.T) {
	w := newEnvironment(t)
	w.driver()
	s := w.snapshots()
	a := w.newHost("a", `snapshots = "copy"`).quiet().run()
	local := w.Class("local", immediate, fixture.Parameters("source", "local"))
	csi := w.Class("csi", immediate, fixture.Parameters("source", "csi"))
	host := w.Class("host", immediate)
	w.stateful(w.Class("w", wait))
	set := w.Bound("data-set-0")
	w.Must(os.WriteFile(filepath.Join(a.mount, set.Name, "data"), []byte("data-set-0"), 0o600))
	data := a.writes("data", host)
	a.writes("local", local)
	a.writes("csi", csi)
	kept, going := a.writes("kept", host), a.writes("going", host)
	content := s.ask("snap", data, w.Provisioner, "Delete")
	s.ready("snap", content)
	b, c := w.newHost("b", `snapshots = "copy"`).quiet(), w.newHost("c").quiet().run()
	other := c.made("other", host)
	a.unplugs()
	w.retain(kept.Name)
	for _, name := range []string{"kept", "going"} {
		w.DeleteClaim(name)
	}
	w.deleteVolume(going.Name)
	hosttest.Unmount(t, b.mount)
	b.plugs(a.image)
	k, args := w.killer(), []string{"import", "fast", "--from-node", a.node}
	admin := append(slices.Clone(args), "--kubeconfig", k.kubeconfig())
	if out, code := b.Call(admin...); code != 1 || !strings.Contains(out, "is there and Ready") {
		t.Errorf("a Ready node: exit code %d\n%s", code, out)
	}
	w.Must(w.notReady(a.node))
	out, code := b.Call(append(admin, "--dry-run")...)
	golden(t, "import-dry-run", strings.NewReplacer(content, "CONTENT", set.Name, "PV-of-set").
		Replace(b.told(strings.ReplaceAll(out, a.node, "FORMER"), data, kept, going)))
	if code != 1 {
		t.Errorf("--dry-run: exit code %d", code)
	}
	w.deletePod("set-0")
	w.Eventually("the pod is not on the node", func() bool { return w.nodeOf("set-0") != a.node })
	k.toTheEnd(b, args...)
	if len(k.at) < 2*5*3 {
		t.Errorf("killed after %q", k.at)
	}
	for _, name := range []string{"data-set-0", "data", "local", "csi"} {
		b.follows(name)
		if _, err := w.WaitEvent(w.Soon(), w.claimNamed(name), "VolumeMoved"); err != nil {
			t.Error(err)
		}
	}
	w.Eventually("the pod runs where its data is", func() bool {
		return w.nodeOf("set-0") == b.node
	})
	w.Must(w.WaitVolumeGone(w.Soon(), going.Name))
	released := w.Volume(kept.Name)
	if released.Status.Phase != corev1.VolumeReleased || released.Labels[nodeLabel] != b.node {
		t.Errorf("the released volume is %s on %v", released.Status.Phase, released.Labels)
	}
	if v := w.Volume(other.Name); v.UID != other.UID {
		t.Error("another node's volume was touched")
	}
	b.wantData(filepath.Join(b.mount, kept.Name), "kept")
	s.remove("snap", content)
	w.DeleteClaim("local")
	w.Eventually("what is deleted goes", func() bool {
		_, err := os.Stat(filepath.Join(b.mount, going.Name))
		return os.IsNotExist(err) && len(b.tree()) == len(pool.Of("", "", "", ""))
	})

	b.unplugs()
	w.Must(w.Client().CoreV1().Nodes().Delete(w.Ctx, b.node, metav1.DeleteOptions{}))
	w.deletePod("set-0")
	a.plugs(a.image)
	admin[3] = b.node
	if out, code := a.Call(admin...); code != 0 {
		t.Errorf("back: exit code %d\n%s", code, out)
	}
	for _, name := range []string{"data-set-0", "data", "csi"} {
		a.follows(name)
	}
}
