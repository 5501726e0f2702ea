package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/mountpoint"
	volumerecord "github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/volume"
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

// visible returns which volumes can be seen without a limit, or with one above what is kept for them.
func (c *limitCases) visible(p *limitedPool) (faults []fault) {
	inventory, limits := c.limitsOf(p)
	for _, v := range inventory.Volumes {
		if l := limits[v.ProjectID]; v.Place == volumerecord.InPool && (v.ProjectID == 0 || l.Bytes == 0 || l.Bytes > uint64(v.Requested)) {
			faults = append(faults, fault{loss, fmt.Sprintf("a volume of %d bytes could be seen with project %d and limit %v", v.Requested, v.ProjectID, l)})
		}
	}
	return faults
}

// compare returns what is not so: there are these volumes and no others, each has a project of its own with a limit of
// this size, and nothing else has a limit.
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

// How many volumes cost makes and removes.
const (
	costPairs   = 100
	costVolumes = 1000
	costAtOnce  = 8
)

// cost measures what a limit adds to a creation, and how long it takes to read what 1,000 volumes take.
func (c *limitCases) cost() string {
	p := c.open()
	var with, without []time.Duration
	var all []string
	for range costPairs {
		pv, limited := c.volume(), c.volume()
		without = append(without, c.timed(func() error { return made(1, false)(c.ctx, p, pv) }))
		with = append(with, c.timed(func() error { return made(1, true)(c.ctx, p, limited) }))
		c.Must(p.Undo(c.ctx, p.id, pv), "removing a volume")
		all = append(all, limited)
	}
	for len(all) < costVolumes {
		all = append(all, c.volume())
	}
	c.eachAtOnce(all[costPairs:], func(pv string) error { return made(1, true)(c.ctx, p, pv) })
	var reads []time.Duration
	for range 9 {
		reads = append(reads, c.timed(func() error { _, err := p.Usage(c.ctx, p.id); return err }))
	}
	c.eachAtOnce(all, func(pv string) error { return p.Undo(c.ctx, p.id, pv) })
	return fmt.Sprintf("a volume takes %v without a limit and %v with one; what %d volumes take is read in %v (medians)", median(without), median(with), costVolumes, median(reads))
}

func (c *limitCases) timed(do func() error) time.Duration {
	began := time.Now()
	c.Must(do(), "making or reading volumes")
	return time.Since(began)
}

func (c *limitCases) eachAtOnce(pvs []string, do func(pv string) error) {
	var wait sync.WaitGroup
	errs := make([]error, costAtOnce)
	for n := range costAtOnce {
		wait.Go(func() {
			for i := n; i < len(pvs) && errs[n] == nil; i += costAtOnce {
				errs[n] = do(pvs[i])
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		c.Must(err, "making or removing volumes")
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2].Round(10 * time.Microsecond)
}

// requestCost measures a request to the service that may set limits, as a daemon without CAP_SYS_ADMIN makes it. A creation
// makes three.
func requestCost(path string) (string, error) {
	root, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(root)
	runtime.LockOSThread()
	if err := dropSysAdmin(); err != nil {
		return "", err
	}
	var took []time.Duration
	q := mountpoint.QuotasOf(path)
	for range 300 {
		began := time.Now()
		if _, err := q.Get(root, firstProject); err != nil {
			return "", err
		}
		took = append(took, time.Since(began))
	}
	return fmt.Sprintf("%s: a request about a project takes %v (median)", path, median(took)), nil
}

// dropSysAdmin takes CAP_SYS_ADMIN from this thread, for good.
func dropSysAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	sets[0].Permitted &^= 1 << unix.CAP_SYS_ADMIN
	return unix.Capset(&header, &sets[0])
}
