package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/config"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/mountpoint"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/kube"
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
	if pool.Source == plan.SourceCSI {
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

const lookName = "look"

// lookCommand is what the daemon runs to learn whether a filesystem responds, before it confines
// itself: a thread of its own that waits in the kernel would keep it from doing that. A line says
// that it begins.
func (p *program) lookCommand() *cobra.Command {
	return &cobra.Command{
		Use: lookName + " PATH", Short: "End when the filesystem of a path has responded", Hidden: true, Args: args(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			fmt.Fprintln(p.stdout)
			os.Stat(args[0]) // an error is a response
			return nil
		},
	}
}

// How long a child may take to begin, which is up to how busy the host is, and then a filesystem to
// respond.
const (
	beginDeadline   = 30 * time.Second
	respondDeadline = 2 * time.Second
)

// responds reports whether a filesystem does in time. A child that waits in the kernel ends some
// day, and is waited for until then, by a thread that signals reach.
func responds(path string) bool {
	c := exec.Command("/proc/self/exe", lookName, path)
	line, err := c.StdoutPipe()
	if err != nil || c.Start() != nil {
		return true
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		line.Read(make([]byte, 1))
		close(begun)
		c.Wait()
		close(ended)
	}()
	late := time.NewTimer(beginDeadline)
	defer late.Stop()
	for {
		select {
		case <-ended:
			return true
		case <-begun:
			begun = nil
			late.Reset(respondDeadline)
		case <-late.C:
			c.Process.Kill()
			return false
		}
	}
}

// withdrawCommand is called when the package is removed: what the scheduler was told of this node
// is taken back. The last node has it compare nothing any more. Where no pool was ever configured
// there is nothing to take back.
func (p *program) withdrawCommand() *cobra.Command {
	return &cobra.Command{
		Use: "withdraw-capacity", Short: "Take back what the scheduler was told of this node's capacity", Hidden: true, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if wrong, is := errors.AsType[config.Errors](err); is && wrong.NoPool() {
				return nil
			}
			if err != nil {
				return err
			}
			return p.withdraw(c.Context(), cfg)
		},
	}
}

func (p *program) withdraw(ctx context.Context, cfg config.Config) error {
	client, err := p.asNode(cfg)
	if err != nil {
		return leftError{cfg.Node, err}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, apiDeadline, noResponse)
	defer cancel()
	err = p.published(client, daemon.Self(cfg).Drivers(), cfg.Node).Withdraw(ctx, false)
	if err != nil {
		err = leftError{cfg.Node, err}
	}
	return errors.Join(err, client.DeleteNodeLease(ctx, cfg.Node, leadership.Identity(cfg.Node)))
}

// leftError says why a node that goes could not take its capacity back, and how that is done without
// it: nobody else deletes the objects before the node is forgotten.
type leftError struct {
	node string
	err  error
}

func (e leftError) Unwrap() error { return e.err }

func (e leftError) Error() string {
	return fmt.Sprintf("the CSIStorageCapacity objects of node %s may be left, "+
		"and the scheduler would go on choosing it by them: %v; "+
		"delete them where kubectl works: kubectl delete csistoragecapacities -A -l %s=%s",
		e.node, e.err, plan.NodeLabel, plan.NodeLabelValue(e.node))
}

// published is what the scheduler was told of a node for these drivers.
func (p *program) published(client *kube.Client, drivers []string, node string) (all storagecapacity.Group) {
	for _, driver := range drivers {
		all = append(all, storagecapacity.New(storagecapacity.Options{
			Provisioner: driver, Node: plan.NodeLabelValue(node), API: client.Publishing(driver),
			Log: slog.New(systemd.NewHandler(p.stderr, slog.LevelWarn)),
		}))
	}
	return all
}
