package systemd

import (
	"fmt"
	"strings"
)

// Pool is what the units have to know of a pool.
type Pool struct {
	MountPoint string // absolute and clean; "" if nothing has to be mounted
	Path       string // absolute and clean
	Network    bool   // it lies on a network filesystem
	LookUnder  bool   // the directory under its mount point has to be, or should be, immutable
	SetGroupID bool   // the mode of its volumes has that bit
	Purge      bool   // volumes that are deleted are removed
}

// GeneratedFor are the units that get GeneratedDropIn.
var GeneratedFor = []string{"hostpath-provisioner.service", "hostpath-provisioner-check.service"}

// GeneratedDropIn is what a configuration adds to a unit: the text of a drop-in that the generator
// (systemd.generator(7)) writes at boot and at each daemon-reload.
//
// Pools only order the unit, they do not pull it in or down with them. With RequiresMountsFor= one
// missing pool would keep the daemon from serving the others, unmounting one would stop the daemon, and
// a restart would mount again what an administrator has just unmounted; Wants= would do the last as
// well. So: the daemon starts when the mounts have been tried, and stops before they are unmounted.
func GeneratedDropIn(unit string, pools []Pool) string {
	var b strings.Builder
	b.WriteString("# Of the pools in the configuration; made by hostpath-provisioner-generator.\n[Unit]\n")
	for _, p := range pools {
		if p.MountPoint != "" {
			fmt.Fprintf(&b, "After=%s.mount\n", EscapePath(p.MountPoint))
		}
	}
	b.WriteString("\n[Service]\n")
	for _, need := range needs {
		if p, yes := first(pools, need.of); yes && (unit == service || !need.work) {
			fmt.Fprintf(&b, "# pool at %s: %s\n%s\n", p.Path, need.why, need.setting)
		}
	}
	if hidden := inaccessible(pools); unit == service && len(hidden) > 0 {
		fmt.Fprintf(&b, "# sockets of those who run programs as root\nInaccessiblePaths=%s\n", strings.Join(hidden, " "))
	}
	return b.String()
}

const service = "hostpath-provisioner.service"

// needs are the exceptions that some pools make to the sandbox, those of work for the daemon alone.
var needs = []struct {
	of           func(Pool) bool
	setting, why string
	work         bool
}{
	{func(p Pool) bool { return p.Network }, "User=root", "a server on the network knows users by number, and capabilities not at all", false},
	{below("/home", "/root", "/run/user"), "ProtectHome=no", "it is in a home directory", false},
	{below("/tmp", "/var/tmp"), "PrivateTmp=no", "it is in the host's temporary directory", false},
	{func(p Pool) bool { return p.LookUnder }, capability("CAP_SYS_ADMIN") + "\nSystemCallFilter=open_tree", "open_tree(2) looks under its mount point", false},
	{func(p Pool) bool { return p.SetGroupID }, capability("CAP_FSETID"), "fchmod(2) sets the set-group-ID bit for a group that is not ours", true},
	{func(p Pool) bool { return p.Purge }, capability("CAP_LINUX_IMMUTABLE"), "FS_IOC_SETFLAGS lets immutable files be removed with their volume", true},
}

// capability adds one to those of the unit: these settings are merged (systemd.exec(5)).
func capability(name string) string {
	return "CapabilityBoundingSet=" + name + "\nAmbientCapabilities=" + name
}

// rulers are directories and sockets of what runs programs as root for whoever may connect. DAC_OVERRIDE
// may. A path that is missing when the service starts is not hidden when it comes ("-"); the daemon's own
// filter of system calls refuses connections to any.
var rulers = []string{
	"/run/containerd", "/run/crio", "/run/cri-dockerd.sock", "/run/dbus", "/run/docker", "/run/docker.sock", "/run/k3s/containerd", "/run/podman", "/run/systemd/private",
}

func inaccessible(pools []Pool) []string {
	var all []string
	for _, path := range rulers {
		if _, within := first(pools, below(path)); within {
			continue
		}
		if _, around := first(pools, func(p Pool) bool { return strings.HasPrefix(path+"/", p.Path+"/") }); !around {
			all = append(all, "-"+path)
		}
	}
	return all
}

func below(dirs ...string) func(Pool) bool {
	return func(p Pool) bool {
		for _, dir := range dirs {
			if strings.HasPrefix(p.Path+"/", dir+"/") {
				return true
			}
		}
		return false
	}
}

func first(pools []Pool, is func(Pool) bool) (Pool, bool) {
	for _, p := range pools {
		if is(p) {
			return p, true
		}
	}
	return Pool{}, false
}

// EscapePath is a clean absolute path as a unit's name has it, without the suffix (systemd.unit(5),
// "String Escaping for Inclusion in Unit Names"; systemd-escape --path).
func EscapePath(path string) string {
	path = strings.Trim(path, "/")
	if path == "" {
		return "-"
	}
	var b strings.Builder
	for i := range len(path) {
		c := path[i]
		switch {
		case c == '/':
			b.WriteByte('-')
		case c == '.' && i == 0, !plain(c):
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte(":_.", c) >= 0
}
