package daemon

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
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

// Work is a purge or a copy under way, of which each pool has at most one.
type Work struct {
	Kind   string `json:"kind"` // of volume.WorkKinds
	Pool   string `json:"pool"`
	Volume string `json:"volume"` // or the snapshot
	// Seconds is how long it has taken.
	Seconds float64 `json:"seconds"`
	// Files are entries of any kind. Bytes are those of their data that were written: none by a purge
	// and by a copy that shares its data.
	Files uint64 `json:"files"`
	Bytes uint64 `json:"bytes"`
	// TotalFiles and TotalBytes are what there is to do, Percent what is done of it, SecondsLeft an
	// estimate; each is absent where it is not known.
	TotalFiles  uint64   `json:"totalFiles,omitempty"`
	TotalBytes  uint64   `json:"totalBytes,omitempty"`
	Percent     *float64 `json:"percent,omitempty"`
	SecondsLeft *float64 `json:"secondsLeft,omitempty"`
	Sentence    string   `json:"sentence"` // the same in words
}

func workOf(pool string, of volume.Work) Work {
	now := of.State
	w := Work{
		Kind: of.Kind, Pool: pool, Volume: of.PV, Seconds: now.Took.Round(time.Millisecond).Seconds(),
		Files: now.Files, Bytes: now.Bytes, TotalFiles: now.Total.Files, TotalBytes: now.Total.Bytes,
		Sentence: now.String(),
	}
	if part, known := now.Part(); known {
		percent := 100 * part
		w.Percent = &percent
	}
	if left, known := now.Left(); known {
		seconds := left.Seconds()
		w.SecondsLeft = &seconds
	}
	return w
}

// working is what is under way in the configured pools, by their names.
func (d *daemon) working() map[string][]volume.Work {
	if g := d.now.Load(); g != nil {
		return g.working()
	}
	return nil
}

// work is the same, in the order of the configuration.
func (g *generation) work() (all []Work) {
	working := g.working()
	for _, p := range g.cfg.Pools {
		for _, one := range working[p.Name] {
			all = append(all, workOf(p.Name, one))
		}
	}
	return all
}

// stores are those of the configured pools, by their names.
func (d *daemon) stores(cfg config.Config) map[string]*volume.Pool {
	all := map[string]*volume.Pool{}
	for _, p := range cfg.Pools {
		all[p.Name] = d.storeOf(p, cfg.Node)
	}
	return all
}

func (g *generation) working() map[string][]volume.Work {
	all := map[string][]volume.Work{}
	for pool, store := range g.stores {
		all[pool] = store.Working()
	}
	return all
}
