package daemon

import (
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Used is what a pool's volumes take, in bytes: by their quotas, or else what is in use on the
// filesystem of a pool that has one for itself, which are some blocks more. nil: that is not known,
// and finding it out would be a walk through all files.
func Used(takes usage.Pool, r hostcheck.Report, alone bool) *uint64 {
	switch free := r.Available + r.RootOnly; {
	case takes.Range > 0:
		return &takes.Used
	case alone && r.Size > 0:
		inUse := r.Size - min(r.Size, free)
		return &inUse
	}
	return nil
}

// Alone reports whether a pool has the filesystem of this device for itself, as far as is known:
// it is the filesystem's root, and none of the others is there.
func Alone(p config.Pool, device string, others []hostcheck.Report) bool {
	if !p.RequireMount || p.Path != p.MountPoint || device == "" {
		return false
	}
	for _, other := range others {
		if other.Pool != p.Name && other.Device == device {
			return false
		}
	}
	return true
}

func (g *generation) used(p config.Pool, r hostcheck.Report) *uint64 {
	var others []hostcheck.Report
	for _, state := range g.gate.All() {
		others = append(others, state.Report)
	}
	return Used(g.controller.Takes(p.Name), r, Alone(p, r.Device, others))
}
