package daemon

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// Takes is what a pool's volumes take.
type Takes struct {
	// Used is in bytes: by their quotas, or else what is in use on the filesystem of a pool that
	// has one for itself, which are some blocks more, or else by their directories. nil: not known.
	Used *uint64
	// Of the last kind: whether it is an estimate, and when the oldest of the figures was read.
	Estimate bool
	Measured *time.Time
}

// Used is what a pool's volumes take, by what is known of it.
func Used(takes usage.Pool, r hostcheck.Report, alone bool) Takes {
	switch free := r.Available + r.RootOnly; {
	case takes.Range > 0:
		return Takes{Used: &takes.Used}
	case alone && r.Size > 0:
		inUse := r.Size - min(r.Size, free)
		return Takes{Used: &inUse}
	case !takes.Oldest.IsZero():
		return Takes{&takes.Used, takes.Estimate, &takes.Oldest}
	}
	return Takes{}
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

func (p *PoolStatus) take(t Takes, states map[string]int) {
	p.Used, p.UsedMeasured, p.UsedEstimate, p.States = t.Used, t.Measured, t.Estimate, states
}

func (g *generation) used(p config.Pool, r hostcheck.Report) Takes {
	var others []hostcheck.Report
	for _, state := range g.gate.All() {
		others = append(others, state.Report)
	}
	return Used(g.controller.Takes(p.Name), r, Alone(p, r.Device, others))
}

// UsageFile is the name, in the runtime directory, of the file in which a running daemon keeps what
// volumes without quotas take, for the volumes command. Nobody else has to know their names.
const UsageFile = "usage.json"

// UsageText is what is in it.
type UsageText struct {
	Schema int                                  `json:"schema"` // SchemaVersion
	Pools  map[string]map[string]usage.Measured `json:"pools"`  // by volume
}

// ReadUsage reads what a daemon left in its runtime directory. The error is fs.ErrNotExist where
// none runs.
func ReadUsage(runtimeDir string) (u UsageText, err error) {
	data, err := state.ReadFile(runtimeDir, UsageFile)
	if err == nil {
		err = json.Unmarshal(data, &u)
	}
	return u, err
}

// keepUsage writes the file if something in it is new.
func (d *daemon) keepUsage(g *generation) error {
	now := map[string]map[string]usage.Measured{}
	for _, p := range g.cfg.Pools {
		if of := g.controller.Takes(p.Name).Measured; len(of) > 0 {
			now[p.Name] = of
		}
	}
	if maps.EqualFunc(now, d.usage, maps.Equal) {
		return nil
	}
	data, err := json.Marshal(UsageText{SchemaVersion, now})
	if err == nil {
		err = state.WriteFile(d.RuntimeDir, UsageFile, data, 0o600)
	}
	if err == nil {
		d.usage = now
	}
	return err
}
