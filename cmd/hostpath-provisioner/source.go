package main

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// sourceNote is what check says of a pool whose default source was hostPath before it was local,
// "" once the configuration says the source or the volumes of that time are gone. Those of aliases
// have the source of their own programs.
func (p *program) sourceNote(pool config.Pool, inventory *volume.Inventory) string {
	if pool.SourceSet || pool.Source != config.SourceLocal || inventory == nil {
		return ""
	}
	before := 0
	for _, r := range inventory.Volumes {
		own := r.Kind == record.Volume && r.Provisioner == p.loaded.Provisioner
		if own && r.Source == config.SourceHost {
			before++
		}
	}
	if before == 0 {
		return ""
	}
	return fmt.Sprintf("new volumes have source %q; %s of source %q, the default before, "+
		"stay as they are. Write source = %q, or %q for new ones as before, to end this note",
		config.SourceLocal, words.Count(before, "volume"), config.SourceHost,
		config.SourceLocal, config.SourceHost)
}
