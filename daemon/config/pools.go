package config

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

// finishPool fills in what follows from other keys and checks the pool as a whole.
func (l *loader) finishPool(d *draft) {
	_, hasPath := l.set[l.where(d, "path").key()]
	switch {
	case d.Path == "" && !hasPath && !l.partial:
		l.refuse(l.where(d, "path"), "is missing")
	case d.broken["path"] || d.broken["mount_point"]:
	case d.MountPoint == "":
		d.MountPoint = d.Path
	case d.Path != "" && !under(d.Path, d.MountPoint):
		l.refuse(l.where(d, "path"), "%q is not at or below mount_point %q", d.Path, d.MountPoint)
	}
	if d.Scope != plan.ScopeNode && !d.SourceSet {
		d.Source = plan.SourceHostPath
	}
	if d.Scope != plan.ScopeNode && d.Source == plan.SourceLocal {
		l.refuse(l.where(d, "source"), "%q volumes are one node's, and the pool's scope is %q", d.Source, d.Scope)
	}
	l.checkSet(d)
	l.checkCSI(d)
	l.finishQuota(d)
	if d.Scope != plan.ScopeNode && d.MakesClones() {
		l.refuse(l.where(d, "clones"), "%q is for volumes of one node, and the pool's scope is %q", d.Clones, d.Scope)
	}
	if d.Scope != plan.ScopeNode && d.TakesSnapshots() {
		l.refuse(l.where(d, "snapshots"), "%q is for volumes of one node, and the pool's scope is %q", d.Snapshots, d.Scope)
	}
	l.checkPaused(d)
	l.checkInline(d)
	l.warnMode(d)
	l.warnReserve(d)
	if d.Scope != plan.ScopeNode && d.Exclusive {
		l.warn(l.where(d, "exclusive"), "means nothing while the pool's scope is %q", d.Scope)
	}
	if !d.RequireMount && !d.Accepts(plainDirectory) {
		l.warn(l.where(d, "require_mount"), "false: %s may be a plain directory on the host's own filesystem, which volumes can fill", d.Path)
	}
	if !d.RequireMount {
		if _, said := l.set[l.where(d, "mount_point").key()]; said {
			l.warn(l.where(d, "mount_point"), "means nothing while require_mount is false")
		}
	}
}

// checkOverlaps refuses two pools that share a directory, or of which one lies in the other: each
// would take the other's volumes for foreign directories, and purge could meet them.
func (l *loader) checkOverlaps() {
	for i, a := range l.config.Pools {
		for _, b := range l.config.Pools[i+1:] {
			da, db := l.pools[a.Name], l.pools[b.Name]
			if a.Path == "" || b.Path == "" || da.broken["path"] || db.broken["path"] {
				continue
			}
			switch {
			case a.Path == b.Path:
				l.refuse(l.where(db, "path"), "%q is the path of pool %q too", b.Path, a.Name)
			case under(b.Path, a.Path):
				l.refuse(l.where(db, "path"), "%q is inside pool %q (%s)", b.Path, a.Name, a.Path)
			case under(a.Path, b.Path):
				l.refuse(l.where(da, "path"), "%q is inside pool %q (%s)", a.Path, b.Name, b.Path)
			}
		}
	}
}

// checkDefaults allows one default, and makes an only table the default unless the file says no.
func (l *loader) checkDefaults() {
	pools := l.config.Pools
	first := slices.IndexFunc(pools, func(p Pool) bool { return p.Default })
	if first < 0 {
		others := func(p Pool) bool { return p.Table() != pools[0].Table() }
		if len(pools) > 0 && !slices.ContainsFunc(pools, others) {
			_, said := l.set[l.where(l.pools[pools[0].Name], "default").key()]
			for i := range pools {
				pools[i].Default = !said
			}
		}
		return
	}
	for _, p := range pools[first+1:] {
		if p.Default && p.Table() != pools[first].Table() {
			l.refuse(l.where(l.pools[p.Name], "default"), "pool %q is the default already", pools[first].Table())
		}
	}
}

// A table [pool.NAME] may have several paths, one on each disk of a server: each becomes a pool of
// its own, with the table's settings, and a class that names the table has its volumes in any of
// them.

// Table is the name of the table that a pool is of: its own, or that of one with several paths.
func (p Pool) Table() string { return cmp.Or(p.Set, p.Name) }

// Named are the pools of this name: one, or those of a table with several paths.
func (c Config) Named(name string) (all []Pool) {
	for _, p := range c.Pools {
		if p.Name == name || p.Set == name {
			all = append(all, p)
		}
	}
	return all
}

// setPaths checks the paths, which expand takes.
func setPaths(_ *Pool, v any) error {
	paths, err := texts(v)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, p := range paths {
		if err := checkPoolPath(p); err != nil {
			return err
		}
		name := path.Base(p)
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("%q: its pool is named after the last element, and that is not of "+
				"lower-case letters, digits and - between them; give it a table of its own", p)
		}
		if seen[name] {
			return fmt.Errorf("%q ends as another one does, and their pools are named after that", p)
		}
		seen[name] = true
	}
	if len(paths) == 0 {
		return errors.New("names no path")
	}
	return nil
}

// expand makes a pool of each of a table's paths. The table's own path, if it has one, keeps the
// table's name.
func (l *loader) expand() {
	for _, name := range names(l.pools) {
		of := l.pools[name]
		said, has := l.set[l.where(of, "paths").key()]
		if !has {
			continue
		}
		if _, own := l.set[l.where(of, "path").key()]; own {
			of.Set = name
		} else {
			l.refuseAlone(of, "mount_point", "device")
			delete(l.pools, name)
		}
		if l.noTable = l.noTable || of.broken["paths"]; !of.broken["paths"] {
			paths, _ := texts(said.value)
			l.members(*of, said, paths)
		}
	}
}

// members adds a table's further pools.
func (l *loader) members(of draft, said setting, paths []string) {
	for _, p := range paths {
		one := of
		one.Set, one.Name = of.Name, of.Name+"-"+path.Base(p)
		one.Path, one.MountPoint, one.Device = p, "", ""
		if err := checkPoolName(one.Name); err != nil {
			l.refuse(said, "%v", err)
		}
		if l.pools[one.Name] != nil {
			l.refuse(said, "the pool of %q is %q, which is a table or a pool already", p, one.Name)
			continue
		}
		l.pools[one.Name] = &one
	}
}

// refuseAlone refuses keys that are about the path of a table that has none.
func (l *loader) refuseAlone(d *draft, keys ...string) {
	for _, key := range keys {
		if s, said := l.set[l.where(d, key).key()]; said {
			l.refuse(s, "is for path, and the table has paths alone")
		}
	}
}

// checkSet refuses several paths where another node's claims are served, too.
func (l *loader) checkSet(d *draft) {
	if d.Set != "" && d.Scope != plan.ScopeNode && !d.broken["scope"] {
		s, _ := l.set[setting{path: []string{"pool", d.Set, "paths"}}.key()]
		l.refuse(s, "are for a pool of one node, and the pool's scope is %q", d.Scope)
	}
}

// packageDirectories are those that the units of the packages have systemd make. Its directory in
// /etc is refused with all of /etc.
var packageDirectories = []string{"/var/lib/hostpath-provisioner", "/run/hostpath-provisioner"}

// ownDirectories are the clean absolute paths of the daemon's directories, as they are written and
// as they are without symbolic links.
func ownDirectories(more []string) []string {
	var all []string
	for _, dir := range append(append([]string(nil), packageDirectories...), more...) {
		dir, err := filepath.Abs(dir)
		if err != nil {
			continue
		}
		all = append(all, dir)
		if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
			all = append(all, real)
		}
	}
	return all
}

// checkOwn refuses pools in or around the daemon's own directories. systemd gives everything below
// a StateDirectory= or RuntimeDirectory= to User=, across mounts and with set-uid bits kept, when
// the directory has another owner (core/exec-invoke.c, path_chown_recursive): volumes would change
// hands.
func (l *loader) checkOwn() {
	for _, p := range l.config.Pools {
		d := l.pools[p.Name]
		if p.Path == "" || d.broken["path"] {
			continue
		}
		for _, dir := range l.own {
			if l.shares(d, dir) {
				break
			}
		}
	}
}

func (l *loader) shares(d *draft, dir string) bool {
	at := l.where(d, "path")
	switch {
	case under(d.Path, dir):
		l.refuse(at, "%q is in %s, a directory of the daemon: systemd may change the owner of everything in it", d.Path, dir)
	case under(dir, d.Path):
		l.refuse(at, "%q holds %s, a directory of the daemon", d.Path, dir)
	default:
		return false
	}
	l.errors[len(l.errors)-1].Own = true
	return true
}

// tree is a directory of the host that is no place for volumes.
type tree struct {
	deep bool   // nor is anything below it
	why  string // ends the sentence "/x ..."
}

const theSystems = "belongs to the operating system"

// trees are compared with what is configured. Links to them (/var/run) are listed as well, because
// here nothing of the host is looked at.
var trees = map[string]tree{
	"/proc": {true, theSystems}, "/sys": {true, theSystems}, "/dev": {true, theSystems}, "/etc": {true, theSystems},
	"/boot": {true, theSystems}, "/efi": {true, theSystems}, "/usr": {true, theSystems}, "/sysroot": {true, theSystems}, "/ostree": {true, theSystems},
	"/bin": {true, theSystems}, "/sbin": {true, theSystems}, "/lib": {true, theSystems}, "/lib64": {true, theSystems},
	"/": {false, theSystems}, "/root": {false, theSystems}, "/var": {false, theSystems}, "/var/lib": {false, theSystems},
	"/var/log": {false, theSystems}, "/var/cache": {false, theSystems}, "/var/spool": {false, theSystems}, "/home": {false, theSystems},

	"/run": {true, "is emptied by a reboot"}, "/var/run": {true, "is emptied by a reboot"}, "/var/lock": {true, "is emptied by a reboot"},
	"/tmp":     {true, "is emptied by systemd-tmpfiles, and every user can write to it"},
	"/var/tmp": {true, "is emptied by systemd-tmpfiles, and every user can write to it"},

	"/var/lib/kubelet": {true, "belongs to kubelet"}, "/var/lib/k0s/kubelet": {true, "belongs to kubelet"},
	"/var/log/pods": {true, "belongs to kubelet"}, "/var/log/containers": {true, "belongs to kubelet"},
	"/var/lib/rancher/k3s/agent": {true, "belongs to k3s"}, "/var/lib/rancher/k3s/server": {true, "belongs to k3s"}, // its storage is beside them
	"/var/lib/rancher/rke2/agent": {true, "belongs to RKE2"}, "/var/lib/rancher/rke2/server": {true, "belongs to RKE2"},
	"/var/snap/microk8s/common/var": {true, "belongs to MicroK8s"}, "/var/snap/microk8s/common/run": {true, "belongs to MicroK8s"},
	"/var/lib/k0s/containerd": {true, "belongs to k0s"}, "/var/lib/k0s/etcd": {true, "belongs to k0s"},
	"/var/lib/etcd":       {true, "belongs to etcd"},
	"/var/lib/containerd": {true, "belongs to containerd"}, "/var/lib/docker": {true, "belongs to Docker"},
	"/var/lib/containers": {true, "belongs to CRI-O and Podman"},
}

func checkPoolPath(s string) error {
	if err := checkPath(s); err != nil {
		return err
	}
	if t, exact := trees[s]; exact {
		return fmt.Errorf("%q %s", s, t.why)
	}
	for dir, t := range trees {
		if t.deep && under(s, dir) {
			return fmt.Errorf("%q is in %s, which %s", s, dir, t.why)
		}
	}
	return nil
}

// warnMode says what a mode of volumes makes impossible, though it may be meant.
func (l *loader) warnMode(d *draft) {
	mode := d.Mode.Perm()
	switch {
	case d.broken["mode"]:
	case mode&0o111 == 0:
		l.warn(l.where(d, "mode"), "%04o lets no user but root into a volume", mode)
	case mode&0o222 == 0:
		l.warn(l.where(d, "mode"), "%04o lets no user but root write to a volume", mode)
	}
}

// reserveMeant is an amount below which a reserve keeps nothing: a percentage was meant, or a unit
// forgotten.
const reserveMeant = 1 << 20

func (l *loader) warnReserve(d *draft) {
	if d.broken["reserve"] || d.ReserveBytes == 0 || d.ReserveBytes >= reserveMeant {
		return
	}
	at := l.where(d, "reserve")
	written, _ := at.value.(string)
	l.warn(at, "%q is %d bytes; a percentage is written as \"5%%\", an amount as \"10Gi\"", strings.TrimSpace(written), d.ReserveBytes)
}

// Acceptable are the reasons of warnings that an operator may have accepted: of what the pool is
// meant to be.
var Acceptable = []string{"ImmutableUnknown", "LaxMount", "LookFailed", "LookNotPermitted", "NotImmutable", "ModeTooOpen", "PlainDirectory", "WrongLabel"}

// plainDirectory is the warning that require_mount = false brings.
const plainDirectory = "PlainDirectory"

// setAccept takes an array of reasons. An empty one is none.
func setAccept(p *Pool, v any) error {
	all, err := texts(v)
	if err != nil {
		return err
	}
	for _, reason := range all {
		if err := oneOf(reason, Acceptable...); err != nil {
			return err
		}
	}
	slices.Sort(all)
	p.Accept = strings.Join(slices.Compact(all), ",")
	return nil
}

// Accepts reports whether the operator knows of a warning with this reason and does not want to be
// told again.
func (p Pool) Accepts(reason string) bool {
	return reason != "" && slices.Contains(strings.Split(p.Accept, ","), reason)
}
