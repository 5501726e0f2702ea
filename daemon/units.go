package daemon

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

// Unit is a systemd service with the settings that drop-ins give it.
type Unit struct {
	Name     string // "" is none
	Settings string
}

// OwnUnit is the unit that this process was started as. It is asked before the process confines
// itself: systemd writes the files anew at a daemon-reload, which changes nothing for a process
// that runs.
func OwnUnit(root string) Unit {
	cgroup, _ := os.ReadFile("/proc/self/cgroup")
	return UnitOf(root, systemd.OwnUnit(string(cgroup)))
}

// UnitOf is the unit of this name as the next start will have it.
func UnitOf(root, name string) Unit {
	settings, known := systemd.Settings(root, name)
	if !known || name == "" {
		return Unit{}
	}
	return Unit{name, settings}
}

// Explain adds to a pool's report what the pool needs of the unit and does not have, because
// systemd has not read the configuration since it was changed. Where the pool is closed, that comes
// first if it is this process's unit: what is seen through a sandbox that hides the pool is not the
// pool.
func (u Unit) Explain(pool config.Pool, own bool, r *hostcheck.Report) {
	if u.Name == "" {
		return
	}
	setting, why := systemd.Lacking(u.Name, u.Settings, UnitPool(pool))
	if setting == "" {
		return
	}
	f := hostcheck.Finding{Reason: plan.ReasonUnitOutdated, Severity: hostcheck.Warn,
		Message: fmt.Sprintf("%s does not have %s, which the pool needs (%s): systemd has not read the configuration since it was changed", u.Name, setting, why)}
	if own && !r.Removable() {
		f.Severity = hostcheck.Close
		r.AddFirst(f)
		return
	}
	r.Findings = append(r.Findings, f)
}

// UnitPools is what the units have to know of the pools.
func UnitPools(cfg config.Config) []systemd.Pool {
	var all []systemd.Pool
	for _, p := range cfg.Pools {
		all = append(all, UnitPool(p))
	}
	return all
}

// UnitPool is UnitPools for one.
func UnitPool(p config.Pool) systemd.Pool {
	pool := systemd.Pool{
		Path: p.Path, Network: OnNetwork(p),
		SetGroupID: setsGroupID(p), Purge: p.OnDelete == config.DeleteRemove, Quota: p.Quota == config.QuotaProject,
	}
	if p.RequireMount {
		pool.MountPoint = p.MountPoint
	}
	return pool
}

// setsGroupID reports whether files of a pool may get that bit: by the mode of its volumes, or
// because what is cloned has it, as every directory has that kubelet gave an fsGroup.
func setsGroupID(p config.Pool) bool {
	return p.Mode&fs.ModeSetgid != 0 || p.MakesCopies()
}

// LookedUnder are the mount points of the pools that are looked under.
func LookedUnder(cfg config.Config) (points []string) {
	for _, p := range cfg.Pools {
		if p.RequireMount && p.Immutable != config.ImmutableOff {
			points = append(points, p.MountPoint)
		}
	}
	return points
}

// OnNetwork reports whether the configuration says so: the scope of a network filesystem, its type,
// or a device that is none.
func OnNetwork(p config.Pool) bool {
	local := strings.HasPrefix(p.Device, "/") || strings.Contains(p.Device, "=")
	return p.Scope == config.ScopeShared || p.Device != "" && !local || slices.Contains(networkTypes, p.Filesystem) || strings.HasPrefix(p.Filesystem, "fuse.")
}

// networkTypes are those to which systemd itself applies _netdev (fstype_is_network in
// mountpoint-util.c).
var networkTypes = []string{"afs", "ceph", "cifs", "gfs", "gfs2", "glusterfs", "lustre", "ncp", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "davfs", "virtiofs", "9p", "sshfs"}
