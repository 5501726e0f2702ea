package main

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

// csiNodeCommand is hostpath-provisioner-csi.service, which systemd starts when kubelet connects.
func (p *program) csiNodeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "csi-node", Short: "Mount volumes with source csi for kubelet", Hidden: true, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			passed, err := listeners()
			if err != nil {
				return err
			}
			servers, err := csi.OnSockets(passed)
			if err != nil {
				return usageError{err}
			}
			pools := csi.NewPools(func() (config.Config, error) { return config.Load(p.config, p.stateDir, p.runtimeDir) }, p.stateDir, csi.Within)
			for _, s := range servers {
				s.Version, s.Log, s.Pools = p.version(), slog.New(systemd.NewHandler(p.stderr, slog.LevelInfo)), pools
			}
			return csi.ServeAll(c.Context(), servers)
		},
	}
}

// notServed looks for the sockets on which kubelet finds the drivers that a pool's volumes may be of.
func (p *program) notServed(pool config.Pool) (hostcheck.Finding, bool) {
	cfg, err := config.Load(p.config, p.stateDir, p.runtimeDir)
	if err != nil {
		return hostcheck.Finding{}, false
	}
	if pool.Source == config.SourceCSI {
		if socket := p.lacks(cfg, cfg.Provisioner); socket != "" {
			return unserved("source \"csi\": pods with volumes of this pool", socket)
		}
	}
	for _, driver := range cfg.CSIDrivers {
		if socket := p.lacks(cfg, driver); socket != "" {
			return unserved("csi_drivers: pods with volumes of "+driver, socket)
		}
	}
	return hostcheck.Finding{}, false
}

// lacks returns the first socket of a driver that is not there, "" if both are.
func (p *program) lacks(cfg config.Config, driver string) string {
	for _, socket := range csi.SocketPaths(cfg.KubeletRoot, driver) {
		if _, err := os.Lstat(filepath.Join(p.host, socket)); err != nil {
			return socket
		}
	}
	return ""
}

func unserved(what, socket string) (hostcheck.Finding, bool) {
	return hostcheck.Finding{Reason: plan.ReasonNotServed, Severity: hostcheck.Warn,
		Message: what + " do not start on this node: there is no socket " + socket}, true
}

// listeners are the sockets of hostpath-provisioner-csi.socket, in the order in which it lists them.
func listeners() (all []net.Listener, err error) {
	files := systemd.AllPassed(systemd.SocketCSI)
	if len(files) == 0 {
		return nil, usageError{errors.New("csi-node is started by " + systemd.CSISocket)}
	}
	for _, file := range files {
		l, err := net.FileListener(file)
		file.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}
