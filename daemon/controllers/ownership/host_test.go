package ownership

import (
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
)

// What is not known is no objection; one boot ID is one host.
func TestDiffers(t *testing.T) {
	here := Host{MachineID: "m1", SystemUUID: "AB-1", BootID: "b1"}
	for name, c := range map[string]struct {
		reported Host
		want     string
	}{
		"the same":                             {Host{"m1", "ab1", "b1"}, ""},
		"a Node without a kubelet":             {Host{}, ""},
		"a kubelet in a container":             {Host{"m2", "ab1", "b1"}, ""},
		"another machine":                      {Host{"m2", "cd2", "b2"}, `machine ID "m2", and this host's is "m1"`},
		"one image":                            {Host{"m1", "cd2", "b2"}, `system UUID "cd2", and this host's is "AB-1"`},
		"one image, and the UUID is not known": {Host{"m1", "", "b2"}, `boot ID "b2", and this host's is "b1"`},
		"another boot of this host":            {Host{"m1", "ab1", "b0"}, `boot ID "b0", and this host's is "b1"`},
		"a machine ID alone":                   {Host{MachineID: "m1"}, ""},
		"another machine ID alone":             {Host{MachineID: "m2"}, `machine ID "m2", and this host's is "m1"`},
	} {
		if got := here.Differs(c.reported); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := (Host{}).Differs(here); got != "" {
		t.Errorf("a host that says nothing: %q", got)
	}
}

func TestReadHost(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got := ReadHost(fstest.MapFS{
		"etc/machine-id": file("\n"), "var/lib/dbus/machine-id": file("m1\n"),
		"sys/class/dmi/id/product_uuid": file("u1\n"), "proc/sys/kernel/random/boot_id": file("b1\n"),
	})
	if want := (Host{"m1", "u1", "b1"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	node := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: "m1", SystemUUID: "u1", BootID: "b1"}}}
	if HostOf(node) != got || ReadHost(fstest.MapFS{}) != (Host{}) {
		t.Errorf("of a Node %+v, of nothing %+v", HostOf(node), ReadHost(fstest.MapFS{}))
	}
}
