package hostcheck

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// A pool is asked for its label where the mount table says that it has one. (Whether the policy
// knows a type is asked of the kernel; the virtual machine's tests prove that part.)
func TestLabel(t *testing.T) {
	dir := hosttest.Dir(t)
	must(t, unix.Setxattr(dir, "security.selinux", []byte("system_u:object_r:default_t:s0\x00"), 0))
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	for name, c := range map[string]struct {
		on   mounts.Mount
		want LabelFact
	}{
		"ext4":         {mounts.Mount{Options: "rw,relatime", SuperOptions: "rw,seclabel"}, LabelFact{Looked: true, Type: "default_t"}},
		"no SELinux":   {mounts.Mount{Options: "rw,relatime", SuperOptions: "rw"}, LabelFact{}},
		"another word": {mounts.Mount{SuperOptions: "rw,noseclabel,context=seclabel"}, LabelFact{}},
	} {
		if got := label(c.on, "", fd); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// SELinux is worth a word only if it is on and our module is not loaded.
func TestCheckSELinux(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   string
		loaded bool
		want   int
	}{
		{"disabled", "disabled", false, 0},
		{"enforcing with the module", "enforcing", true, 0},
		{"permissive with the module", "permissive", true, 0},
		{"enforcing without the module", "enforcing", false, 1},
		{"permissive without the module", "permissive", false, 1},
	} {
		found := CheckSELinux(c.mode, c.loaded)
		if len(found) != c.want || c.want == 1 && (found[0].Reason != ReasonUnconfined || found[0].Severity != Warn) {
			t.Errorf("%s: %+v", c.name, found)
		}
	}
}
