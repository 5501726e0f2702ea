package daemon

import (
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
)

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
	if g := d.now.get(); g != nil {
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
