package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

// generatorCommand is what systemd runs at boot and at each daemon-reload, before it starts anything
// (systemd.generator(7)). It reads files in /etc and writes into the first directory; whatever is wrong
// with the configuration is said, and the units are then as they were installed.
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
				return err
			}
			return writeDropIns(args[0], unitPools(cfg))
		},
	}
}

func writeDropIns(dir string, pools []systemd.Pool) error {
	for _, unit := range systemd.GeneratedFor {
		file := filepath.Join(dir, unit+".d", "50-pools.conf")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(systemd.GeneratedDropIn(unit, pools)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func unitPools(cfg config.Config) []systemd.Pool {
	var all []systemd.Pool
	for _, p := range cfg.Pools {
		pool := systemd.Pool{
			Path: p.Path, Network: onNetwork(p), LookUnder: p.RequireMount && p.Immutable != config.ImmutableOff,
			SetGroupID: p.Mode&fs.ModeSetgid != 0, Purge: p.OnDelete == config.DeleteRemove,
		}
		if p.RequireMount {
			pool.MountPoint = p.MountPoint
		}
		all = append(all, pool)
	}
	return all
}

// onNetwork says whether the configuration says so: the scope of a network filesystem, its type, or a
// device that is none.
func onNetwork(p config.Pool) bool {
	local := strings.HasPrefix(p.Device, "/") || strings.Contains(p.Device, "=")
	return p.Scope == scopeShared || p.Device != "" && !local || slices.Contains(networkTypes, p.Filesystem) || strings.HasPrefix(p.Filesystem, "fuse.")
}

// scopeShared is that of pools which several nodes have mounted. A configuration that does not know it
// refuses it.
const scopeShared = "shared"

// networkTypes are those to which systemd itself applies _netdev (fstype_is_network in mountpoint-util.c).
var networkTypes = []string{"afs", "ceph", "cifs", "gfs", "gfs2", "glusterfs", "lustre", "ncp", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "davfs", "virtiofs", "9p", "sshfs"}
