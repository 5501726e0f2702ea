package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/systemd"
)

// idle is how long the service that looks under mount points stays without a question. A daemon
// with such a pool asks every ten seconds.
const idle = time.Minute

// mountpointCommand is hostpath-provisioner-mountpoint.service, which systemd starts for a
// question.
func (p *program) mountpointCommand() *cobra.Command {
	return &cobra.Command{
		Use: "mountpoint", Short: "Look under the mount points of pools for the daemon", Hidden: true, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			socket, err := passedSocket()
			if err != nil {
				return err
			}
			log := slog.New(systemd.NewHandler(p.stderr, slog.LevelInfo))
			confined, err := daemon.ConfineLooker(p.config, filepath.Join(p.host, kept))
			if err != nil { // the unit's sandbox is there all the same
				log.Error("not confined: " + err.Error())
			}
			again := func(err error) error {
				if err != nil && confined != nil && confined.Replaced("/etc/passwd", "/etc/group") != "" {
					return fmt.Errorf("%w: %w", mountpoint.ErrStartAgain, err)
				}
				return err
			}
			s := mountpoint.Server{Look: hostcheck.LookUnder, Idle: idle, Log: log, Points: func() ([]string, error) {
				points, err := configured(p, daemon.LookedUnder, mountPointsFile)
				return points, again(err)
			}, QuotaPools: func() ([]mountpoint.QuotaPool, error) {
				pools, err := configured(p, daemon.QuotaPools, quotaPoolsFile)
				return pools, again(err)
			}}
			return s.Serve(c.Context(), socket)
		},
	}
}

// configured returns what the service has to know of the configuration. Where that has errors, it
// returns the error and what was kept of the last valid configuration that the generator read: the
// daemon goes on with that one, and a new process of this service has no other memory of it. Root
// alone may widen that list: the daemon may have been taken over.
func configured[T any](p *program, of func(config.Config) []T, file string) ([]T, error) {
	cfg, err := config.Load(p.config, p.stateDir, p.runtimeDir)
	if err != nil {
		all, unread := keptList[T](p, file)
		return all, errors.Join(err, unread)
	}
	return of(cfg), nil
}

func passedSocket() (*net.UnixConn, error) {
	file := systemd.Passed(systemd.SocketMountpoint)
	if file == nil {
		return nil, usageError{errors.New("mountpoint is started by " + mountpoint.SocketUnit)}
	}
	defer file.Close()
	conn, err := net.FilePacketConn(file)
	if err != nil {
		return nil, err
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, usageError{errors.New(mountpoint.SocketUnit + " passed a socket of another kind")}
	}
	return socket, nil
}
