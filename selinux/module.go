package selinux

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// PoolLabels are one pool's directory and the type of its volumes.
type PoolLabels struct {
	Path    string // absolute and clean
	Type    string
	Network bool // it lies on a network filesystem, where everything has one type
	Clones  bool // files of volumes are made that are like others
}

// networkTypes are what files have on network filesystems, by policy: those that there is none of
// in this host's are left out when the module is loaded.
var networkTypes = []string{"nfs_t", "cifs_t", "fusefs_t", "cephfs_t"}

// PoolsModule is a policy module, in CIL, that says which paths of these pools have which label, so
// that restorecon(8) and an automatic relabelling agree with what volumes are born with. It stands
// on our own module, whose attribute makes the daemon's rules hold for every type in it;
// semodule(8) loads it without a compiler.
//
// A volume keeps its type wherever it is moved: in the pool, and in staging, trash and archive.
//
// sockets are the paths of the CSI drivers' sockets, to which systemd gives their label when it
// makes them.
func PoolsModule(pools []PoolLabels, sockets ...string) string {
	var b strings.Builder
	b.WriteString("; Written by: hostpath-provisioner relabel --module\n")
	types, clones, network := map[string]bool{}, map[string]bool{}, false
	for _, p := range pools {
		network = network || p.Network
		types[p.Type] = true
		if p.Clones {
			clones[p.Type] = true
		}
		path, private := pattern(p.Path), `/\.hostpath-provisioner`
		filecon(&b, path, "dir", PoolType)
		filecon(&b, path+"/.+", "any", p.Type)
		filecon(&b, path+private+"(/.*)?", "any", PoolType)
		filecon(&b, path+private+"/(staging|trash|archive)/.+", "any", p.Type)
		fmt.Fprintf(&b, "(filecon \"%s\" any ())\n", path+`/lost\+found(/.*)?`) // is fsck's: no label is wrong
	}
	for _, t := range slices.Sorted(maps.Keys(types)) {
		fmt.Fprintf(&b, "(typeattributeset hostpath_provisioner_volume_type (%s))\n", t)
	}
	for _, t := range slices.Sorted(maps.Keys(clones)) { // optional: our own module may be of an earlier version
		fmt.Fprintf(&b, "(optional hostpath_provisioner_clone_%s (typeattributeset hostpath_provisioner_clone_type (%s)))\n", t, t)
	}
	for i, path := range sockets { // optional for the same reason
		fmt.Fprintf(&b, "(optional hostpath_provisioner_socket_%d (filecon \"%s\" socket (%s %s %s ((%s) (%s)))))\n", i, pattern(path), user, role, SocketType, level, level)
	}
	for _, t := range networkTypes {
		if network {
			fmt.Fprintf(&b, "(optional hostpath_provisioner_%s (typeattributeset hostpath_provisioner_network_type (%s)))\n", t, t)
		}
	}
	return b.String()
}

func filecon(b *strings.Builder, path, kind, fileType string) {
	fmt.Fprintf(b, "(filecon \"%s\" %s (%s %s %s ((%s) (%s))))\n", path, kind, user, role, fileType, level, level)
}

// pattern is a regular expression, of the kind that file contexts are, for just this path. CIL's
// strings know no escapes: a quotation mark is matched by a dot.
func pattern(path string) string {
	var b strings.Builder
	for _, c := range path {
		switch {
		case c == '"':
			b.WriteByte('.')
		case strings.ContainsRune(`\.+*?()|[]{}^$`, c):
			b.WriteByte('\\')
			b.WriteRune(c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}
