package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hungfs"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// onFUSE is an immutable mount point with a filesystem on it that can do no more than one on the
// network: no flags of rename, no hard links, no extended attributes unless quotas says so.
func onFUSE(t *testing.T, quotas bool) (mount string, fs *hungfs.FS) {
	t.Helper()
	mount = hosttestDir(t, "net")
	hosttest.SetImmutable(t, mount, true)
	fs = hungfs.Mount(t, mount)
	fs.Fail(unix.ENOSYS, hungfs.Rename2, hungfs.Link)
	if quotas {
		fs.TakeQuotas()
	}
	return mount, fs
}

// Volumes are made, handed over and removed where the filesystem can do little, and what it refuses is
// said on the claim in words that name the cause.
func TestSharedOnNetworkFilesystem(t *testing.T) {
	w := newWorld(t)
	mount, fs := onFUSE(t, false)
	nodes := w.newNodes(mount, []string{"a", "b"})
	for _, n := range nodes {
		n.run()
	}
	class := w.class("c", immediate)
	w.claim("one", class, "1Mi", mode(corev1.ReadWriteMany))
	one := w.bound("one")
	first := w.holder(nodes, anyNode)
	first.unmount()
	w.claim("two", class, "1Mi")
	two := w.bound("two")
	second := w.holder(nodes, but(first))
	w.deleteClaim("one")
	w.must(w.WaitVolumeGone(w.soon(), one.Name))
	second.wantTree(whole(two.Name)...)

	limited := w.claim("limited", w.class("q", immediate, params("cephFSQuota", "true")), "1Mi")
	if got := w.refused(limited, "QuotaUnsupported"); !strings.Contains(got, "ceph.quota.max_bytes") {
		t.Errorf("message %q", got)
	}
	w.deleteClaim("limited")
	second.wantTree(whole(two.Name)...)

	fs.Fail(unix.EACCES, hungfs.Mkdir)
	squashed := w.claim("squashed", class, "1Mi")
	if got := w.refused(squashed, "CreateFailed"); !strings.Contains(got, "root_squash") {
		t.Errorf("message %q", got)
	}
	fs.Fail(0, hungfs.Mkdir)
	three := w.bound("squashed")

	all := []hungfs.Op{hungfs.Lookup, hungfs.Getattr, hungfs.Open, hungfs.Opendir, hungfs.Mkdir, hungfs.Create, hungfs.Statfs}
	fs.Fail(unix.ESTALE, all...)
	stale := w.claim("stale", class, "1Mi")
	w.refused(stale, "PoolClosed")
	fs.Fail(0, all...)
	four := w.bound("stale")
	second.wantTree(whole(two.Name, three.Name, four.Name)...)
}

// The quota is on the directory when the claim is bound, by the pool's setting and by the class's.
func TestSharedQuota(t *testing.T) {
	w := newWorld(t)
	mount, _ := onFUSE(t, true)
	w.newNodes(mount, []string{"a"}, "cephfs_quota = true")[0].run()
	w.claim("limited", w.class("c", immediate), "5Mi")
	w.claim("free", w.class("f", immediate, params("cephFSQuota", "false")), "5Mi")
	for name, want := range map[string]string{"limited": "5242880", "free": ""} {
		buffer := make([]byte, 64)
		n, _ := unix.Getxattr(w.bound(name).Spec.HostPath.Path, "ceph.quota.max_bytes", buffer)
		if got := string(buffer[:max(n, 0)]); got != want {
			t.Errorf("%s has quota %q, want %q", name, got, want)
		}
	}
}

// The directory under the mount is not immutable on one node: that node does not work, another does.
func TestSharedNotImmutable(t *testing.T) {
	w := newWorld(t)
	mount := hosttestDir(t, "net")
	hosttest.SetImmutable(t, mount, true)
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
	w.must(nodes[0].WaitStatus(w.soon(), "immutable"))
	w.claim("data", w.class("c", immediate), "1Mi")
	w.bound("data")
	w.holder(nodes, func(n *node) bool { return n == nodes[1] })
}

// What docs/shared.md shows is what a reader gets.
func TestSharedExample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(rig.Root(), "docs", "shared.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(string(text))
		if m == nil {
			t.Fatalf("no %s in docs/shared.md", language)
		}
		return m[1]
	}
	w := newWorld(t)
	mount := hosttest.PoolMount(t, hosttest.Mkfs(t, "ext4", 96))
	nodes := w.newNodes(mount, []string{"a", "b", "c"})
	_, pool, _ := strings.Cut(block("toml"), "[pool.shared]")
	for _, n := range nodes {
		config, err := os.ReadFile(n.Path("etc", "config.toml"))
		w.must(err)
		head, _, _ := strings.Cut(string(config), "[pool.fast]")
		w.must(n.Configure(head + "[pool.shared]" + strings.NewReplacer(`"/srv/shared"`, `"`+mount+`"`, `"nfs4"`, `"ext4"`, "device = ", "#device = ").Replace(pool)))
		n.do("rm", "-rf", filepath.Join(mount, ".hostpath-provisioner"))
	}
	for _, n := range nodes {
		w.must(os.RemoveAll(n.Path("state")))
		w.must(os.Mkdir(n.Path("state"), 0o700))
		if out, code := n.Call("prepare", "shared"); code != 0 {
			t.Fatal(out)
		}
		n.run()
	}
	objects := strings.NewReplacer("provisioner: hostpath-provisioner", "provisioner: "+w.provisioner, "\nmetadata:\n", "\nmetadata:\n  namespace: "+w.namespace+"\n",
		"name: shared", "name: "+w.namespace, "storageClassName: shared", "storageClassName: "+w.namespace, "pool: shared", "pool: shared").Replace(block("yaml"))
	objects = strings.Replace(objects, "  namespace: "+w.namespace+"\n  name: "+w.namespace+"\nprovisioner", "  name: "+w.namespace+"\nprovisioner", 1)
	w.must(w.Apply(w.ctx, []byte(objects)))
	pv := w.bound("site")
	if pv.Spec.NodeAffinity != nil || pv.Spec.AccessModes[0] != corev1.ReadWriteMany || !strings.HasPrefix(pv.Spec.HostPath.Path, mount+"/") {
		t.Errorf("the volume: %+v", pv.Spec)
	}
	for _, pod := range []string{"writer", "reader"} {
		if _, err := w.WaitPodScheduled(w.soon(), w.namespace, pod); err != nil {
			t.Error(err)
		}
	}
}
