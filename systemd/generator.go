package systemd

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Pool is what the units have to know of a pool.
type Pool struct {
	MountPoint string // absolute and clean; "" if nothing has to be mounted
	Path       string // absolute and clean
	Network    bool   // it lies on a network filesystem
	SetGroupID bool   // the mode of its volumes has that bit
	Purge      bool   // volumes that are deleted are removed
	Quota      bool   // volumes are limited by project quotas
}

// GeneratedFor are the units that get GeneratedDropIn.
var GeneratedFor = []string{service, check, looker}

// GeneratedDropIn is what a configuration adds to a unit: the text of a drop-in that the generator
// (systemd.generator(7)) writes at boot and at each daemon-reload.
//
// Pools only order the unit, they do not pull it in or down with them. With RequiresMountsFor= one
// missing pool would keep the daemon from serving the others, unmounting one would stop the daemon,
// and a restart would mount again what an administrator has just unmounted; Wants= would do the
// last as well. So: the daemon starts when the mounts have been tried, and stops before they are
// unmounted. What looks under mount points is started by a question, in no order.
func GeneratedDropIn(unit string, pools []Pool) string {
	var b strings.Builder
	b.WriteString("# Of the pools in the configuration; made by hostpath-provisioner-generator.\n[Unit]\n")
	for _, p := range pools {
		if p.MountPoint != "" && unit != looker {
			fmt.Fprintf(&b, "After=%s.mount\n", EscapePath(p.MountPoint))
		}
	}
	b.WriteString("\n[Service]\n")
	for _, need := range needs {
		if i := slices.IndexFunc(pools, need.of); i >= 0 && need.by(unit) {
			fmt.Fprintf(&b, "# pool at %s: %s\n%s\n", pools[i].Path, need.why, need.setting)
		}
	}
	if hidden := inaccessible(pools); unit == service && len(hidden) > 0 {
		fmt.Fprintf(&b, "# sockets of those who run programs as root\nInaccessiblePaths=%s\n", strings.Join(hidden, " "))
	}
	return b.String()
}

// CSISocket is the unit of the sockets on which kubelet finds the CSI driver.
const CSISocket = "hostpath-provisioner-csi.socket"

// ListenDropIn is the drop-in that has a socket unit listen on these paths, for connections and for
// datagrams, and on no other.
func ListenDropIn(streams, datagrams []string) string {
	var b strings.Builder
	b.WriteString("# Of the configuration; made by hostpath-provisioner-generator.\n[Socket]\nListenStream=\n")
	for _, path := range streams {
		fmt.Fprintf(&b, "ListenStream=%s\n", strings.ReplaceAll(path, "%", "%%"))
	}
	for _, path := range datagrams {
		fmt.Fprintf(&b, "ListenDatagram=%s\n", strings.ReplaceAll(path, "%", "%%"))
	}
	return b.String()
}

const (
	service = "hostpath-provisioner.service"
	check   = "hostpath-provisioner-check.service"
	looker  = "hostpath-provisioner-mountpoint.service"
	dropIn  = "50-pools.conf"
)

// generatorPath is where the packages have the generator, and where systemd wants what it writes.
const (
	generatorPath   = "usr/lib/systemd/system-generators/hostpath-provisioner-generator"
	generatorOutput = "run/systemd/generator"
)

// DropInFile is the file of GeneratedDropIn below the directory that a generator gets.
func DropInFile(dir, unit string) string { return filepath.Join(dir, unit+".d", dropIn) }

// Settings are what drop-ins give a unit, as far as they are the generator's or the
// administrator's. known is false where systemd does not run, or the generator is not installed.
func Settings(root, unit string) (text string, known bool) {
	for _, needed := range []string{"run/systemd/system", generatorPath} {
		if _, err := os.Lstat(filepath.Join(root, needed)); err != nil {
			return "", false
		}
	}
	for _, dir := range []string{generatorOutput, "run/systemd/system", "etc/systemd/system"} {
		files, _ := filepath.Glob(filepath.Join(root, dir, unit+".d", "*.conf")) // the pattern is good
		for _, file := range files {
			one, _ := os.ReadFile(file) // one that cannot be read sets nothing that is known
			text += "\n" + string(one) + "\n"
		}
	}
	return text, true
}

// Lacking is the first setting that a pool needs of a unit and its drop-ins do not give, with the
// reason; both are "" if there is none. Order is not looked at: it matters at boot, before which
// the generator runs.
func Lacking(unit, settings string, p Pool) (setting, why string) {
	for _, need := range needs {
		if !need.of(p) || !need.by(unit) {
			continue
		}
		for line := range strings.SplitSeq(need.setting, "\n") {
			if !strings.Contains("\n"+settings, "\n"+line+"\n") {
				return line, need.why
			}
		}
	}
	return "", ""
}

// OwnUnit is the service that this process is of, "" if it is of none that is known: the last
// element of its control group (/proc/self/cgroup).
func OwnUnit(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		if unit := path.Base(strings.TrimSpace(line)); slices.Contains(GeneratedFor, unit) {
			return unit
		}
	}
	return ""
}

// need is an exception that some pools make to the sandbox.
type need struct {
	of           func(Pool) bool
	setting, why string
	units        []string
}

func (n need) by(unit string) bool { return slices.Contains(n.units, unit) }

var needs = []need{
	{func(p Pool) bool { return p.Network }, "User=root", "a server on the network knows users by number, and capabilities not at all", []string{service, check}},
	{below("/home", "/root", "/run/user"), "ProtectHome=no", "it is in a home directory", GeneratedFor},
	{below("/tmp", "/var/tmp"), "PrivateTmp=no", "it is in the host's temporary directory", GeneratedFor},
	{func(p Pool) bool { return p.SetGroupID }, capability("CAP_FSETID"), "fchmod(2) sets the set-group-ID bit for a group that is not ours", []string{service}},
	{func(p Pool) bool { return p.Quota }, "SystemCallFilter=quotactl_fd", "quotactl_fd(2) reports whether quotas are enforced and, with CAP_SYS_ADMIN, sets limits", GeneratedFor},
	{func(p Pool) bool { return p.Purge }, capability("CAP_LINUX_IMMUTABLE"), "FS_IOC_SETFLAGS lets immutable files be removed with their volume", []string{service}},
}

// capability adds one to those of the unit: these settings are merged (systemd.exec(5)).
func capability(name string) string {
	return "CapabilityBoundingSet=" + name + "\nAmbientCapabilities=" + name
}

// rulers are directories and sockets of what runs programs as root for each user who may connect.
// DAC_OVERRIDE may. A path that is missing when the service starts is not hidden when it comes
// ("-"); the daemon's own filter of system calls refuses connections to any.
var rulers = []string{
	"/run/containerd", "/run/crio", "/run/cri-dockerd.sock", "/run/dbus", "/run/docker", "/run/docker.sock", "/run/k3s/containerd", "/run/podman", "/run/systemd/private",
}

func inaccessible(pools []Pool) []string {
	var all []string
	for _, path := range rulers {
		around := func(p Pool) bool { return strings.HasPrefix(path+"/", p.Path+"/") }
		if !slices.ContainsFunc(pools, below(path)) && !slices.ContainsFunc(pools, around) {
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
