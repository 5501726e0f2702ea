package daemon

import (
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
)

// ProjectQuotas is how the volumes of a pool are limited by project quotas, nil if they are not.
// begun is shared by the pools of a process.
func ProjectQuotas(p config.Pool, begun *volume.BegunProjects) *volume.ProjectQuotas {
	if p.Quota != config.QuotaProject {
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
		if p.Quota == config.QuotaProject {
			all = append(all, mountpoint.QuotaPool{Path: p.Path, First: p.QuotaFirst, Last: p.QuotaLast})
		}
	}
	return all
}
