package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/fixture"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

// onFUSE is an immutable mount point with a filesystem on it that can do no more than one on the
// network: no flags of rename, no hard links, no extended attributes unless quotas says so.
func onFUSE(t *testing.T, quotas bool) (mount string, fs *hungfs.FS) {
	t.Helper()
	mount = hosttest.MountPoint(t)
	fs = hungfs.Mount(t, mount)
	fs.Fail(unix.ENOSYS, hungfs.Rename2, hungfs.Link)
	if quotas {
		fs.TakeQuotas()
	}
	return mount, fs
}

// Volumes are made, handed over and removed where the filesystem can do little, and what it refuses
// is said on the claim in words that name the cause.
func TestSharedOnNetworkFilesystem(t *testing.T) {
	w := newEnvironment(t)
	mount, fs := onFUSE(t, false)
	nodes := w.newNodes(mount, []string{"a", "b"})
	runAll(nodes)
	class := w.Class("c", immediate)
	one := w.bound("one", class, "1Mi", mode(corev1.ReadWriteMany))
	first := w.holder(nodes, anyNode)
	first.unmount()
	two := w.bound("two", class, "1Mi")
	second := w.holder(nodes, but(first))
	w.Removes("one", one.Name)
	second.wantTree(pool.Of(two.Name)...)

	limited := w.claim("limited", w.Class("q", immediate, fixture.Parameters("cephFSQuota", "true")), "1Mi")
	w.refused(limited, "QuotaUnsupported", "ceph.quota.max_bytes")
	w.DeleteClaim("limited")
	second.wantTree(pool.Of(two.Name)...)

	fs.Fail(unix.EACCES, hungfs.Mkdir)
	squashed := w.claim("squashed", class, "1Mi")
	w.refused(squashed, "ProvisioningFailed", "root_squash")
	fs.Fail(0, hungfs.Mkdir)
	three := w.Bound("squashed")

	all := []hungfs.Op{hungfs.Lookup, hungfs.Getattr, hungfs.Open, hungfs.Opendir, hungfs.Mkdir, hungfs.Create, hungfs.Statfs}
	fs.Fail(unix.ESTALE, all...)
	stale := w.claim("stale", class, "1Mi")
	w.refused(stale, "PoolClosed")
	fs.Fail(0, all...)
	four := w.Bound("stale")
	second.wantTree(pool.Of(two.Name, three.Name, four.Name)...)
}

// The quota is on the directory when the claim is bound, by the pool's setting and by the class's.
func TestSharedQuota(t *testing.T) {
	w := newEnvironment(t)
	mount, _ := onFUSE(t, true)
	w.newNodes(mount, []string{"a"}, `quota = "ceph"`)[0].run()
	w.claim("limited", w.Class("c", immediate, fixture.Expandable), "5Mi")
	w.claim("free", w.Class("f", immediate, fixture.Expandable, fixture.Parameters("cephFSQuota", "false")), "5Mi")
	quotas := func(of map[string]string) {
		for name, want := range of {
			buffer := make([]byte, 64)
			n, _ := unix.Getxattr(cluster.PathOf(w.Bound(name)), "ceph.quota.max_bytes", buffer)
			if got := string(buffer[:max(n, 0)]); got != want {
				t.Errorf("%s has quota %q, want %q", name, got, want)
			}
		}
	}
	quotas(map[string]string{"limited": "5242880", "free": ""})
	for _, name := range []string{"limited", "free"} {
		w.Must(w.Request(name, "7Mi"))
		w.Sized(name, "7Mi")
	}
	quotas(map[string]string{"limited": "7340032", "free": ""})
}

// The directory under the mount is not immutable on one node: that node does not work, another
// does.
func TestSharedNotImmutable(t *testing.T) {
	w := newEnvironment(t)
	mount := hosttest.MountPoint(t)
	image := hosttest.Mkfs(t, "ext4", 96)
	image.Mount(t, mount)
	nodes := w.newNodes(mount, []string{"a", "b"})
	for _, n := range nodes {
		// Under the storage there is a disk of the node's own.
		n.unmount()
		n.do("mount", "-t", "tmpfs", "disk", filepath.Dir(mount))
		n.do("mkdir", "--mode=0700", mount)
		if n == nodes[1] {
			n.do("chattr", "+i", mount)
		}
		n.remount()
		n.run()
	}
	w.Must(nodes[0].WaitStatus(w.Soon(), "immutable"))
	w.bound("data", w.Class("c", immediate), "1Mi")
	w.holder(nodes, func(n *node) bool { return n == nodes[1] })
}

// What docs/shared.md shows is what a reader gets.
func TestSharedExample(t *testing.T) {
	blocks := documented(t, "shared.md")
	w := newEnvironment(t)
	mount := hosttest.PoolMount(t, hosttest.Mkfs(t, "ext4", 96))
	nodes := w.newNodes(mount, []string{"a", "b", "c"})
	_, pool, _ := strings.Cut(blocks["toml"][0], "[pool.shared]")
	for _, n := range nodes {
		head, _, _ := strings.Cut(n.config(), "[pool.fast]")
		w.Must(n.Configure(head + "[pool.shared]" + strings.NewReplacer(`"/srv/shared"`, `"`+mount+`"`, `"nfs4"`, `"ext4"`, "device = ", "#device = ").Replace(pool)))
		n.do("rm", "-rf", filepath.Join(mount, ".hostpath-provisioner"))
	}
	for _, n := range nodes {
		w.Must(os.RemoveAll(n.Path("state")))
		w.Must(os.Mkdir(n.Path("state"), 0o700))
		n.call("prepare", "shared").Ends(0)
		n.run()
	}
	objects := strings.NewReplacer("provisioner: hostpath-provisioner", "provisioner: "+w.Provisioner, "\nmetadata:\n", "\nmetadata:\n  namespace: "+w.Namespace+"\n",
		"name: shared", "name: "+w.Namespace, "storageClassName: shared", "storageClassName: "+w.Namespace, "pool: shared", "pool: shared").Replace(blocks["yaml"][0])
	objects = strings.Replace(objects, "  namespace: "+w.Namespace+"\n  name: "+w.Namespace+"\nprovisioner", "  name: "+w.Namespace+"\nprovisioner", 1)
	w.Must(w.Apply(w.Ctx, []byte(objects)))
	pv := w.Bound("site")
	if pv.Spec.NodeAffinity != nil || pv.Spec.AccessModes[0] != corev1.ReadWriteMany || !strings.HasPrefix(cluster.PathOf(pv), mount+"/") {
		t.Errorf("the volume: %+v", pv.Spec)
	}
	for _, pod := range []string{"writer", "reader"} {
		if _, err := w.WaitPodScheduled(w.Soon(), w.Namespace, pod); err != nil {
			t.Error(err)
		}
	}
}
