package crash

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	volumerecord "github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// limitsOf are the records of a pool, and what its filesystem says of their projects.
func (c *limitCases) limitsOf(p *limitedPool) (volume.Inventory, map[uint32]quota.Limit) {
	inventory, err := p.List(c.ctx, p.id)
	c.Must(err, "reading the records")
	projects, err := p.Projects(c.ctx, p.id)
	c.Must(err, "reading the limits")
	limits := map[uint32]quota.Limit{}
	for _, u := range projects {
		if u.Limit != (quota.Limit{}) {
			limits[u.ID] = u.Limit
		}
	}
	return inventory, limits
}

// visible returns which volumes can be seen without a limit, or with one above what is kept for
// them.
func (c *limitCases) visible(p *limitedPool) (faults []fault) {
	inventory, limits := c.limitsOf(p)
	for _, v := range inventory.Volumes {
		if l := limits[v.ProjectID]; v.Place == volumerecord.InPool && (v.ProjectID == 0 || l.Bytes == 0 || l.Bytes > uint64(v.Requested)) {
			faults = append(faults, fault{loss, fmt.Sprintf("a volume of %d bytes could be seen with project %d and limit %v", v.Requested, v.ProjectID, l)})
		}
	}
	return faults
}

// compare returns what is not so: there are these volumes and no others, each has a project of its
// own with a limit of this size, and nothing else has a limit.
func (c *limitCases) compare(p *limitedPool, want map[string]int64) (faults []fault) {
	add := func(k kind, format string, args ...any) {
		faults = append(faults, fault{k, fmt.Sprintf(format, args...)})
	}
	inventory, limits := c.limitsOf(p)
	owners := map[uint32]string{}
	for _, v := range inventory.Volumes {
		bytes, wanted := want[v.PV]
		switch l, dir := limits[v.ProjectID], c.projectAt(filepath.Join(p.path, v.Directory)); {
		case !wanted:
			add(leak, "a record of %s, with project %d", v.PV, v.ProjectID)
		case owners[v.ProjectID] != "":
			add(double, "project %d of %s and %s", v.ProjectID, owners[v.ProjectID], v.PV)
		case v.ProjectID == 0 || l.Bytes != uint64(bytes) || l.Inodes == 0 || v.Requested != bytes:
			add(loss, "%s of %d bytes has project %d and limit %v, in place of %d", v.PV, v.Requested, v.ProjectID, l, bytes)
		case dir != quota.Project{ID: v.ProjectID, Inherits: true}:
			add(loss, "the directory of %s has %+v, and its record %d", v.PV, dir, v.ProjectID)
		}
		owners[v.ProjectID] = v.PV
	}
	if len(inventory.Volumes) < len(want) {
		add(loss, "%d of %d volumes", len(inventory.Volumes), len(want))
	}
	for id, l := range limits {
		if owners[id] == "" {
			add(leak, "limit %v of project %d", l, id)
		}
	}
	for _, left := range inventory.Leftovers {
		add(leak, "%s in %s", left.Name, left.Place)
	}
	return faults
}

func (c *limitCases) projectAt(path string) quota.Project {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return quota.Project{}
	}
	defer unix.Close(fd)
	return quota.ProjectOf(fd)
}
