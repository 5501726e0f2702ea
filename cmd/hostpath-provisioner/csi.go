package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/csi/freeze"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/node/inline"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

// csiNodeCommand is hostpath-provisioner-csi.service, which systemd starts when kubelet connects.
func (p *program) csiNodeCommand() *cobra.Command {
	thaw := false
	c := &cobra.Command{
		Use: "csi-node", Short: "Mount volumes with source csi for kubelet", Hidden: true, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if thaw {
				return p.thaw()
			}
			passed, err := passedSockets()
			if err != nil {
				return err
			}
			servers, err := csi.OnSockets(passed.listeners)
			if err != nil {
				return usageError{err}
			}
			pools := csi.NewPools(func() (config.Config, error) { return config.Load(p.config, p.stateDir, p.runtimeDir) }, p.stateDir, csi.Within)
			for _, s := range servers {
				s.Version, s.Log, s.Pools = p.version(), slog.New(systemd.NewHandler(p.stderr, slog.LevelInfo)), pools
			}
			var others []func(context.Context) error
			if passed.inline != nil {
				made := &inline.Service{}
				for _, s := range servers {
					s.Inline = made
				}
				others = append(others, func(ctx context.Context) error { return made.Serve(ctx, passed.inline) })
			}
			pauser := csi.Pauser{Servers: servers, Pools: pools, Cgroups: p.cgroups(), Log: servers[0].Log}
			others = append(others, func(ctx context.Context) error { return pauser.Serve(ctx, passed.pause) })
			return csi.ServeAll(c.Context(), servers, others...)
		},
	}
	c.Flags().BoolVar(&thaw, "thaw", false, "have pods go on that a process paused which was killed, and exit")
	return c
}

// thaw is what systemd runs when the service has ended (ExecStopPost=).
func (p *program) thaw() error {
	thawed, err := p.cgroups().Recover()
	if len(thawed) > 0 {
		fmt.Fprintf(p.stderr, "%d pods go on that were paused\n", len(thawed))
	}
	return err
}

// cgroups are where pods are paused. The list of them is in a directory of root's: the daemon's is
// the daemon's own.
func (p *program) cgroups() freeze.Cgroups {
	dir := cmp.Or(os.Getenv("RUNTIME_DIRECTORY"), p.runtimeDir)
	return freeze.Cgroups{Root: freeze.Hierarchy, List: filepath.Join(dir, "paused.json")}
}

// notServed looks for the sockets on which kubelet finds the drivers that a pool's volumes may be
// of.
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

// passedToCSI are the sockets of hostpath-provisioner-csi.socket: those of drivers in the order in
// which it lists them, and that for pauses and that for inline volumes, nil if no pool has them.
type passedToCSI struct {
	listeners     []net.Listener
	pause, inline *net.UnixConn
}

func passedSockets() (all passedToCSI, err error) {
	files := systemd.AllPassed(systemd.SocketCSI)
	if len(files) == 0 {
		return all, usageError{errors.New("csi-node is started by " + systemd.CSISocket)}
	}
	for _, file := range files {
		if err := all.add(file); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (all *passedToCSI) add(file *os.File) error {
	defer file.Close()
	kind, err := unix.GetsockoptInt(int(file.Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return err
	}
	if kind == unix.SOCK_DGRAM {
		conn, err := net.FilePacketConn(file)
		if err != nil {
			return err
		}
		if of, _ := conn.(*net.UnixConn); of != nil && filepath.Base(of.LocalAddr().String()) == inline.SocketName {
			all.inline = of
		} else {
			all.pause = of
		}
		return nil
	}
	l, err := net.FileListener(file)
	if err == nil {
		all.listeners = append(all.listeners, l)
	}
	return err
}
