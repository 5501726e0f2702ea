package csinode

import (
	"context"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// MakePool makes a pool with one volume at a mount point, as the daemon does, for programs that
// have none.
func MakePool(ctx context.Context, name, path, pv string, mode fs.FileMode) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	id, err := mounts.IdentityOf(fd)
	if err != nil {
		return err
	}
	p := volume.New(volume.Options{Name: name, Path: path})
	marker, err := hostcheck.EncodeMarker(hostcheck.NewMarker(name, time.Now()))
	if err != nil {
		return err
	}
	if err := p.InitMarker(ctx, id, marker); err != nil {
		return err
	}
	_, err = p.Create(ctx, id, volume.Spec{Mode: mode, Record: record.Record{
		PV: pv, Directory: pv, ClaimUID: pv, Namespace: name, Claim: pv, Source: plan.SourceCSI, Requested: 1 << 20,
	}})
	return err
}
