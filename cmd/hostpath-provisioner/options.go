package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// laxMount looks for mount options that keep what a tenant writes from counting on the host: a
// set-uid file, or a device, that a container's root made in its volume is there for every user of
// the host who gets at it. Only a pool that has a filesystem of its own can have them.
func laxMount(pool config.Pool, r hostcheck.Report) (hostcheck.Finding, bool) {
	on, found := mountOf(pool, r)
	if lacks := lacking(on.Options); found && len(lacks) > 0 {
		return hostcheck.Finding{Reason: plan.ReasonLaxMount, Severity: hostcheck.Warn,
			Message: fmt.Sprintf("%s is mounted without %s, so that set-uid files and devices in volumes count on this host", on.Point, strings.Join(lacks, ","))}, true
	}
	return hostcheck.Finding{}, false
}

// inMemory looks for a filesystem whose volumes, and the marker and the records with them, a reboot
// takes away. It may be meant.
func inMemory(pool config.Pool, r hostcheck.Report) (hostcheck.Finding, bool) {
	on, found := mountOf(pool, r)
	return hostcheck.Finding{Reason: plan.ReasonInMemory, Severity: hostcheck.Warn,
		Message: fmt.Sprintf("%s is in memory (%s): its volumes are gone after a reboot, and the pool is closed then", on.Point, on.FSType)}, found && slices.Contains([]string{"tmpfs", "ramfs"}, on.FSType)
}

// mountOf is the filesystem of a pool that has one of its own. What cannot be seen the report says.
func mountOf(pool config.Pool, r hostcheck.Report) (on mounts.Mount, found bool) {
	if !pool.RequireMount || !r.Removable() {
		return on, false
	}
	return coveringMount(pool.Path)
}

func lacking(options string) []string {
	has := strings.Split(options, ",")
	return slices.DeleteFunc([]string{"nosuid", "nodev"}, func(option string) bool { return slices.Contains(has, option) })
}
