package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/inline"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/pause"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

// generatorCommand is what systemd runs at boot and at each daemon-reload, before it starts
// anything (systemd.generator(7)). It reads files in /etc and writes into the first directory;
// whatever is wrong with the configuration is said, and the units are then as they were.
func (p *program) generatorCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "generator DIRECTORY [DIRECTORY DIRECTORY]",
		Short:  "Write what the pools add to the systemd units",
		Hidden: true,
		Args:   args(1, 3),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := os.Stat(p.config); os.IsNotExist(err) {
				return nil // not configured yet
			}
			cfg, err := config.Load(p.config, p.stateDir, p.runtimeDir)
			if err != nil {
				if wrong, is := errors.AsType[config.Errors](err); is && wrong.NoPool() {
					err = nil // not configured yet
				}
				return errors.Join(err, p.keptDropIns(args[0]))
			}
			return errors.Join(p.writeDropIns(args[0], cfg),
				keepList(p, mountPointsFile, daemon.LookedUnder(cfg)), keepList(p, quotaPoolsFile, daemon.QuotaPools(cfg)))
		},
	}
}

// kept is where the last drop-ins of a valid configuration are, its mount points and its pools with
// quotas. systemd empties a generator's directory before it runs it, also when it runs for another
// unit's sake: without them a mistake in the configuration would take a service that is started
// again its rights. Root alone may write there, as into the drop-ins themselves; systemd leaves
// /run writable to generators, and little else (manager_run_generators in systemd's manager.c).
const kept = "run/hostpath-provisioner-generator"

// writeDropIns writes what can be written: one unit's trouble, or that of what is kept, is no
// other's.
func (p *program) writeDropIns(dir string, cfg config.Config) (err error) {
	for _, unit := range generatedUnits() {
		text := systemd.ListenDropIn(csiSockets(cfg), daemonSockets(cfg))
		if unit != systemd.CSISocket {
			text = systemd.GeneratedDropIn(unit, daemon.UnitPools(cfg))
		} else if !plan.DriverNamePossible(cfg.Provisioner) {
			continue // no pool has source csi
		}
		for _, dir := range []string{dir, filepath.Join(p.host, kept)} {
			err = errors.Join(err, writeFile(systemd.DropInFile(dir, unit), []byte(text)))
		}
	}
	return err
}

// csiSockets are those of all drivers that the node service is, its own first.
func csiSockets(cfg config.Config) []string {
	all := csi.SocketPaths(cfg.KubeletRoot, cfg.Provisioner)
	for _, driver := range cfg.CSIDrivers {
		all = append(all, csi.SocketPaths(cfg.KubeletRoot, driver)...)
	}
	return all
}

// daemonSockets are those on which the node service hears the daemon: one for pauses and one for
// inline volumes, where pools have them.
func daemonSockets(cfg config.Config) (all []string) {
	if slices.ContainsFunc(cfg.Pools, config.Pool.Pauses) {
		all = append(all, pause.SocketPath(cfg.KubeletRoot, cfg.Provisioner))
	}
	if slices.ContainsFunc(cfg.Pools, config.Pool.MakesInline) {
		all = append(all, inline.SocketPath(cfg.KubeletRoot, cfg.Provisioner))
	}
	return all
}

// generatedUnits are the units that get a drop-in. That of the CSI driver is last: an earlier
// version kept none of it.
func generatedUnits() []string { return append(slices.Clone(systemd.GeneratedFor), systemd.CSISocket) }

func writeFile(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// keptDropIns writes what the last valid configuration needed, if there was one since boot.
func (p *program) keptDropIns(dir string) error {
	for _, unit := range generatedUnits() {
		text, err := os.ReadFile(systemd.DropInFile(filepath.Join(p.host, kept), unit))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = writeFile(systemd.DropInFile(dir, unit), append([]byte("# Of an earlier configuration: the present one has errors.\n"), text...))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Files in kept, with what the service that looks under mount points and limits projects accepts
// while the configuration has errors.
const (
	mountPointsFile = "mount-points.json"
	quotaPoolsFile  = "quota-pools.json"
)

// keepList writes one of these files. One that was written in part is no JSON, and has nothing.
func keepList[T any](p *program, file string, list []T) error {
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(p.host, kept, file), text)
}

// keptList returns what keepList wrote, nothing if it did not since boot.
func keptList[T any](p *program, file string) (list []T, err error) {
	text, err := os.ReadFile(filepath.Join(p.host, kept, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	return list, err
}
