package ownership

import (
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Host is what tells a host, and a run of its kernel, from others. Each is "" where it is not
// known.
type Host struct{ MachineID, SystemUUID, BootID string }

// ReadHost reads the host's from where kubelet reads them (cadvisor, machine and utils/sysfs).
func ReadHost(root fs.FS) Host {
	return Host{
		MachineID:  first(root, "etc/machine-id", "var/lib/dbus/machine-id"),
		SystemUUID: first(root, "sys/class/dmi/id/product_uuid"),
		BootID:     first(root, "proc/sys/kernel/random/boot_id"),
	}
}

// HostOf is what a Node says of the host whose kubelet reports it. A Node without a kubelet says
// nothing.
func HostOf(node *corev1.Node) Host {
	is := node.Status.NodeInfo
	return Host{MachineID: is.MachineID, SystemUUID: is.SystemUUID, BootID: is.BootID}
}

// Differs returns what a Node says that is not this host's, "" if nothing is. One boot ID is one
// kernel, whatever a kubelet in a container has for its machine ID. Hosts of one image may have one
// machine ID, and hosts of a careless hypervisor one UUID; then the boot ID decides, which a
// kubelet reports as soon as it starts.
func (h Host) Differs(reported Host) string {
	if same(h.BootID, reported.BootID) {
		return ""
	}
	for _, id := range []struct{ name, here, there string }{
		{"machine ID", h.MachineID, reported.MachineID},
		{"system UUID", h.SystemUUID, reported.SystemUUID},
		{"boot ID", h.BootID, reported.BootID},
	} {
		if id.here != "" && id.there != "" && !same(id.here, id.there) {
			return fmt.Sprintf("%s %.40q, and this host's is %.40q", id.name, id.there, id.here)
		}
	}
	return ""
}

// same reports whether two IDs are known and one, however programs write them.
func same(a, b string) bool { return a != "" && plainID(a) == plainID(b) }

// plainID leaves what programs write differently out of an ID.
func plainID(id string) string { return strings.ToLower(strings.ReplaceAll(id, "-", "")) }

// first returns the text of the first of the files that has one.
func first(root fs.FS, files ...string) string {
	for _, file := range files {
		text, err := fs.ReadFile(root, file)
		if is := strings.TrimSpace(string(text)); err == nil && is != "" {
			return is
		}
	}
	return ""
}
