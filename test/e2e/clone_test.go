package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// from makes a claim a clone of another one.
func from(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
}

// writeAll writes what a clone has to have, and returns the volume's directory.
func (h *host) writeAll(pv *corev1.PersistentVolume) string {
	h.w.Helper()
	dir := filepath.Join(h.mount, pv.Name)
	h.w.Must(os.MkdirAll(filepath.Join(dir, "below"), 0o755))
	h.w.Must(os.WriteFile(filepath.Join(dir, "below/file"), []byte("data"), 0o640))
	h.w.Must(os.Chown(filepath.Join(dir, "below/file"), 1234, 5678))
	h.w.Must(unix.Chmod(filepath.Join(dir, "below"), 0o2770))
	h.w.Must(os.Symlink("below/file", filepath.Join(dir, "link")))
	h.w.Must(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	h.w.Must(unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o600, 0))
	return dir
}

// wantClone checks what writeAll wrote.
func (h *host) wantClone(pv *corev1.PersistentVolume) {
	h.w.Helper()
	dir := filepath.Join(h.mount, pv.Name)
	text, err := os.ReadFile(filepath.Join(dir, "link"))
	var file, below unix.Stat_t
	h.w.Must(unix.Stat(filepath.Join(dir, "below/file"), &file))
	h.w.Must(unix.Stat(filepath.Join(dir, "below"), &below))
	if err != nil || string(text) != "data" || file.Uid != 1234 || file.Gid != 5678 || file.Mode&0o7777 != 0o640 || below.Mode&0o7777 != 0o2770 {
		h.w.Errorf("the clone has %q, %v; %d:%d %o, %o", text, err, file.Uid, file.Gid, file.Mode, below.Mode)
	}
	if _, err := os.Lstat(filepath.Join(dir, "socket")); err == nil {
		h.w.Error("a socket was copied")
	}
}

// A claim is made from another claim, with shared blocks or in full, and the two have nothing in
// common after that.
func TestClone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fs, source, clones string
		mib                int
	}{{"xfs", "hostPath", "reflink", 320}, {"btrfs", "local", "reflink", 256}, {"ext4", "local", "copy", 96}} {
		t.Run(c.fs, func(t *testing.T) {
			w := newEnvironment(t)
			h := w.newHostOn(hosttest.Mkfs(w, c.fs, c.mib), "a", fmt.Sprintf("source = %q\nclones = %q", c.source, c.clones)).run()
			class := w.Class("c", immediate)
			origin := w.bound("data", class, "10Mi")
			h.writeAll(origin)
			claim := w.claim("clone", class, "20Mi", from("data"))
			clone := w.Bound("clone")
			h.wantClone(clone)
			event := w.event(claim, "ProvisioningSucceeded")
			if !strings.Contains(event.Message, "copied from claim data one file after another") || !strings.Contains(event.Message, "not as in the source: 1 sockets") {
				t.Errorf("event %q", event.Message)
			}
			r := h.noted(clone.Name)
			if r.Origin.Name != origin.Name || r.Origin.UID != string(origin.Spec.ClaimRef.UID) || r.Unpublished {
				t.Errorf("the record says %+v", r)
			}
			w.Must(os.WriteFile(filepath.Join(h.mount, origin.Name, "below/file"), []byte("other"), 0o640))
			h.wantClone(clone)
			w.DeleteClaim("data")
			h.wantTree(pool.Of(clone.Name)...)
			h.wantClone(clone)
			w.DeleteClaim("clone")
			h.wantTree()
		})
	}
}

// A clone is on the node that has its source, without a pod, and also where the scheduler chose
// another node first.
func TestCloneGoesToItsSource(t *testing.T) {
	w := newEnvironment(t)
	w.newHost("a", `clones = "copy"`).run()
	h := w.newHost("b", `clones = "copy"`).run()
	waits, atOnce := w.Class("waits", wait), w.Class("at-once", immediate)
	w.wanted("data", waits, "10Mi", h.node)
	h.writeAll(w.Bound("data"))
	for name, class := range map[string]string{"by-itself": waits, "at-once": atOnce} {
		h.wantClone(w.bound(name, class, "10Mi", from("data")))
	}
	first := annotate(selectedNode, w.Namespace+"-a")
	h.wantClone(w.bound("chosen", waits, "10Mi", from("data"), first))
	h.wantClone(w.bound("named", waits, "10Mi", from("data"), annotate(provisionOnNode, h.node)))
	claim := w.claim("named-wrongly", waits, "10Mi", from("data"), annotate("kubevirt.io/provisionOnNode", w.Namespace+"-a"))
	w.refused(claim, "DataSourceUnusable", "its volume is on node "+h.node)
}

// Each source that cannot be cloned is told on the claim, and one that comes later is cloned then.
func TestCloneRefusals(t *testing.T) {
	w, second := newEnvironment(t), hosttestDir(t, "second")
	h := w.newHost("a", "clones = \"copy\"\ndefault = true", fmt.Sprintf("[pool.second]\npath = %q\nrequire_mount = false\nclones = \"copy\"\n", second))
	h.call("prepare", "second").Ends(0)
	h.run()
	class, other := w.Class("c", immediate, fixture.Parameters("pool", "fast")), w.Class("other", immediate, fixture.Parameters("pool", "second"))
	h.writeAll(w.bound("data", class, "10Mi"))
	w.claim("foreign", "", "1Mi") // without a class: never bound
	for _, c := range []struct{ name, class, source, size, message string }{
		{"too-small", class, "data", "5Mi", "its volume has 10Mi, and the clone requests 5Mi"},
		{"other-pool", other, "data", "10Mi", "its volume is in pool fast, and the clone's class leads to pool second"},
		{"unbound", class, "foreign", "10Mi", "it has no volume yet"},
		{"missing", class, "later", "10Mi", "the namespace has no claim of this name"},
	} {
		claim := w.claim(c.name, c.class, c.size, from(c.source))
		w.refused(claim, "DataSourceUnusable", c.message)
	}
	w.bound("later", class, "1Mi")
	w.Bound("missing")
}

// many makes a tree that takes a while to copy.
func (h *host) many(pv *corev1.PersistentVolume) {
	h.w.Helper()
	dir := h.writeAll(pv)
	for i := range 20 {
		below := filepath.Join(dir, fmt.Sprint("many-", i))
		h.w.Must(os.Mkdir(below, 0o755))
		for j := range 200 {
			h.w.Must(os.WriteFile(filepath.Join(below, fmt.Sprint(j)), []byte("data"), 0o644))
		}
	}
}

// hostOfMany is a host that makes clones, and a bound claim with a tree that takes a while to copy.
func hostOfMany(
	t *testing.T, change ...func(*storagev1.StorageClass),
) (w *environment, h *host, class string, origin *corev1.PersistentVolume) {
	t.Helper()
	w = newEnvironment(t)
	h = w.newHostOn(hosttest.Mkfs(w, "ext4", 96, "-N", "30000"), "a", `clones = "copy"`).run()
	class = w.Class("c", immediate, change...)
	origin = w.bound("data", class, "10Mi")
	h.many(origin)
	return w, h, class, origin
}

// copying waits until a clone or a snapshot has some files in staging.
func (h *host) copying(copied string) {
	h.w.Helper()
	h.w.Eventually("the copy is under way", func() bool {
		_, err := os.Lstat(filepath.Join(h.ours("staging"), copied, "many-3"))
		_, done := os.Lstat(filepath.Join(h.mount, copied))
		return err == nil || done == nil
	})
}

// A daemon that is killed while it copies leaves nothing that is taken for a volume; the next one
// makes the clone anew.
func TestCloneKilled(t *testing.T) {
	w, h, class, origin := hostOfMany(t)
	for i := range 3 {
		name := fmt.Sprint("clone-", i)
		h.copying("pvc-" + string(w.claim(name, class, "20Mi", from("data")).UID))
		h.again()
		clone := w.Bound(name)
		h.wantClone(clone)
		h.hasMany(clone.Name)
		w.DeleteClaim(name)
		h.wantTree(pool.Of(origin.Name)...)
	}
}

// hasMany wants a copy of what many makes.
func (h *host) hasMany(name string) {
	h.w.Helper()
	all, err := filepath.Glob(filepath.Join(h.mount, name, "many-*", "*"))
	if err != nil || len(all) != 4000 {
		h.w.Errorf("%d files, %v", len(all), err)
	}
}

// A clone whose claim goes while it is copied leaves nothing, and other claims are served
// meanwhile.
func TestCloneGoesWhileItIsCopied(t *testing.T) {
	w, h, class, origin := hostOfMany(t)
	claim := w.claim("clone", class, "10Mi", from("data"))
	h.copying("pvc-" + string(claim.UID))
	w.claim("other", class, "1Mi")
	w.DeleteClaim("clone")
	h.wantTree(pool.Of(origin.Name, w.Bound("other").Name)...)
}

// A copy that is whole when its source's name becomes another claim's is not taken for a copy of
// that one.
func TestCloneOfAnotherSource(t *testing.T) {
	w, h, class, origin := hostOfMany(t, fixture.Policy(corev1.PersistentVolumeReclaimRetain))
	claim := w.claim("clone", class, "20Mi", from("data"))
	h.copying("pvc-" + string(claim.UID))
	w.DeleteClaim("data") // its volume is kept, and may be given to another namespace
	w.refused(claim, "DataSourceUnusable")
	second := w.bound("data", class, "10Mi")
	w.Must(os.WriteFile(filepath.Join(h.mount, second.Name, "second"), nil, 0o644))
	clone := w.Bound("clone")
	entries, err := os.ReadDir(filepath.Join(h.mount, clone.Name))
	if err != nil || len(entries) != 1 || entries[0].Name() != "second" {
		t.Errorf("the clone has %v, %v", entries, err)
	}
	h.wantTree(pool.Of(origin.Name, second.Name, clone.Name)...)
}
