package daemon

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
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
	return each(cfg.Pools, UnitPool)
}

// UnitPool is UnitPools for one.
func UnitPool(p config.Pool) systemd.Pool {
	pool := systemd.Pool{
		Path: p.Path, Network: OnNetwork(p),
		SetGroupID: setsGroupID(p), Purge: p.OnDelete == plan.OnDeleteDelete, Quota: p.Quota == plan.QuotaProject,
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
	return p.Scope == plan.ScopeShared || p.Device != "" && !local || slices.Contains(networkTypes, p.Filesystem) || strings.HasPrefix(p.Filesystem, "fuse.")
}

// networkTypes are those to which systemd itself applies _netdev (fstype_is_network in
// mountpoint-util.c).
var networkTypes = []string{"afs", "ceph", "cifs", "gfs", "gfs2", "glusterfs", "lustre", "ncp", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "davfs", "virtiofs", "9p", "sshfs"}

// ProjectQuotas is how the volumes of a pool are limited by project quotas, nil if they are not.
// begun is shared by the pools of a process.
func ProjectQuotas(p config.Pool, begun *volume.BegunProjects) *volume.ProjectQuotas {
	if p.Quota != plan.QuotaProject {
		return nil
	}
	return &volume.ProjectQuotas{
		Kernel: mountpoint.QuotasOf(p.Path), First: p.QuotaFirst, Last: p.QuotaLast, InodesPerGiB: p.InodesPerGiB, Begun: begun,
		Named: func() map[uint32]bool { return namedProjects(os.DirFS("/")) },
	}
}

// projectFiles are where administrators name projects, and in which element of a line the number is
// (projects(5), projid(5)).
var projectFiles = map[string]int{"etc/projects": 0, "etc/projid": 1}

// namedProjects are the projects in these files. One that cannot be read names none.
func namedProjects(root fs.FS) map[uint32]bool {
	all := map[uint32]bool{}
	for file, element := range projectFiles {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 2)
			if element >= len(parts) {
				continue
			}
			if id, err := strconv.ParseUint(strings.TrimSpace(parts[element]), 10, 32); err == nil {
				all[uint32(id)] = true
			}
		}
	}
	return all
}

// QuotaPools are the pools whose projects the service with CAP_SYS_ADMIN may be asked to limit.
func QuotaPools(cfg config.Config) (all []mountpoint.QuotaPool) {
	for _, p := range cfg.Pools {
		if p.Quota == plan.QuotaProject {
			all = append(all, mountpoint.QuotaPool{Path: p.Path, First: p.QuotaFirst, Last: p.QuotaLast})
		}
	}
	return all
}
