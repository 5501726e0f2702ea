package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	volumeusage "github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/quota"
)

// usage is what projects take, of a pool that limits volumes by them.
func (p *program) usage(ctx context.Context, store *volume.Pool, report hostcheck.Report) (
	by map[uint32]quota.Usage) {
	all, err := store.Projects(ctx, report.Identity)
	if err != nil {
		fmt.Fprintf(p.stderr, "%s: warning: %v\n", name, err)
	}
	by = map[uint32]quota.Usage{}
	for _, u := range all {
		by[u.ID] = u
	}
	return by
}

// measured adds what a running daemon found in the directories of volumes without a quota.
func (p *program) measured(disks []disk) []disk {
	found, err := daemon.ReadUsage(p.runtimeDir)
	if err != nil {
		return disks // none runs, or it measured nothing
	}
	for i := range disks {
		disks[i].measured = found.Pools[disks[i].pool]
	}
	return disks
}

// takes fills in what the volume's project takes.
func (r *volumeRow) takes(usage map[uint32]quota.Usage, project uint32) {
	u, known := usage[project]
	if !known || project == 0 {
		return
	}
	r.Used, r.Limit = &u.Bytes, u.Limit.Bytes
	r.InodesUsed, r.InodesLimit = &u.Inodes, u.Limit.Inodes
}

// took fills in what the volume's directory took, where no project tells.
func (r *volumeRow) took(measured map[string]volumeusage.Measured) {
	if m, known := measured[r.Volume]; known && r.Used == nil {
		r.Used, r.InodesUsed, r.Measured, r.Estimate = &m.Bytes, &m.Inodes, &m.At, m.Estimate
	}
}

// used is what the table shows: "~" is an estimate, and the age that of what was measured.
func (r volumeRow) used(now func() time.Time) string {
	if r.Measured == nil {
		return known(r.Used)
	}
	return taken(r.Used, r.Estimate) + ", " + age(*r.Measured, now()) + " ago"
}
