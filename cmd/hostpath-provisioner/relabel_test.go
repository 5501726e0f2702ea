package main

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/selinux"
)

// Labels can be written where SELinux is off, so the whole command is seen here; that a kernel with
// a policy agrees is for the virtual machine's tests.
func TestRelabelCommand(t *testing.T) {
	if selinux.Enabled() {
		t.Fatal("this test's words are those of a host without SELinux")
	}
	h := newHost(t, minimal+"require_mount = false\n[pool.gone]\npath = 'BASE/gone'\n[pool.policy]\npath = 'BASE/policy'\nselinux_type = ''\nrequire_mount = false\n")
	s := &story{h: h}
	h.call("prepare", "fast")
	fill(t, h)
	h.write("pool/pvc-pool/file", "")
	h.must(unix.Lsetxattr(h.path("pool/pvc-pool/file"), "security.selinux", []byte(selinux.Label("container_file_t")), 0))
	s.call("relabel", "fast", "--dry-run")
	s.call("relabel", "pvc-pool", "--dry-run")
	s.call("relabel", "pvc-pool")
	s.call("relabel", "fast")
	s.call("relabel", "fast")
	s.call("relabel", "lost+found")
	s.call("relabel", "gone")
	s.call("relabel", "policy")
	s.call("relabel", "--module")
	s.call("relabel", "fast", "--module")
	golden(t, "relabel", s.b.String())
	for _, name := range []string{"pool/lost+found", "pool"} {
		if n, err := unix.Lgetxattr(h.path(name), "security.selinux", nil); err != unix.ENODATA {
			t.Errorf("%s was given a label of %d bytes, %v", name, n, err)
		}
	}
}

// Without the pool that is closed, a name that is in no other is a mistake.
func TestRelabelUnknown(t *testing.T) {
	h := newHost(t, minimal+"require_mount = false\n")
	h.must(os.Mkdir(h.path("pool"), 0o700))
	h.call("prepare", "fast")
	if got := h.call("relabel", "pvc-nobody"); !strings.Contains(got, `no pool and no volume is named "pvc-nobody"`) || !strings.HasSuffix(got, "exit 2\n") {
		t.Error(got)
	}
}

// What check says of volumes with other labels.
func TestWrongLabel(t *testing.T) {
	pool := config.DefaultPool("fast")
	for _, c := range []struct {
		wrong []volume.Mislabelled
		want  string
	}{
		{[]volume.Mislabelled{{PV: "pvc-a", Label: "system_u:object_r:default_t:s0"}, {PV: "pvc-b"}},
			"volumes without the label system_u:object_r:container_file_t:s0: 2 of 3; pvc-a has label system_u:object_r:default_t:s0"},
		{[]volume.Mislabelled{{PV: "pvc-b"}}, "volumes without the label system_u:object_r:container_file_t:s0: 1 of 3; pvc-b has no label"},
	} {
		if got := wrongLabel(3, c.wrong, pool); got != c.want {
			t.Errorf("%q", got)
		}
	}
	if _, found := wrongLabels(t.Context(), pool, hostcheck.Report{}); found {
		t.Error("a filesystem without labels has wrong ones")
	}
}

// The sockets on which the node service hears the daemon are made when the configuration has
// changed. The policy knows their paths by then: an administrator who gives a pool inline volumes,
// or pauses, writes it at no other time than before.
func TestSocketsLabelledBefore(t *testing.T) {
	h := newHost(t, "")
	h.write("config.toml", "[pool.fast]\npath = \"/srv/fast\"\n")
	got := h.call("relabel", "--module")
	for _, name := range []string{`csi\.sock`, `pause\.sock`, `inline\.sock`} {
		if !strings.Contains(got, `(filecon "/var/lib/kubelet/plugins/hostpath-provisioner/`+name+`" socket (`) {
			t.Errorf("no %s in\n%s", name, got)
		}
	}
}
