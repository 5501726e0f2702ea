package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// contender is one that runs.
type contender interface {
	PID() int
	Exited() <-chan struct{}
	Stop(ctx context.Context) error
	Log() string
}

// stopTimeout is how long a contender may take to end; then it is killed, and has failed.
const stopTimeout = 20 * time.Second

// child is a contender that is a plain program.
type child struct {
	*process.Child
	log string
}

func startChild(log, binary string, args ...string) (*child, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = file, file
	started, err := process.Start(cmd)
	return &child{started, log}, err
}

func (c *child) Log() string                    { return readLog(c.log) }
func (c *child) Stop(ctx context.Context) error { return c.End(ctx, syscall.SIGTERM) }

func readLog(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// service is the daemon, which the rig runs as systemd would.
type service struct{ *rig.Daemon }

func (s service) Stop(ctx context.Context) error {
	_, code, err := s.Daemon.Stop(ctx)
	switch {
	case errors.Is(err, os.ErrProcessDone):
		return nil
	case err != nil:
		s.Kill()
		return err
	case code != 0:
		return fmt.Errorf("it ended with exit code %d", code)
	}
	return nil
}

// The contenders' names.
const (
	nameFloor   = "floor"
	nameShipped = "lib-shipped"
	nameTuned   = "lib-tuned"
	nameDaemon  = "daemon"
	nameAgainst = "against" // another build of the daemon
)

var allContenders = []string{nameFloor, nameShipped, nameTuned, nameDaemon}

// isDaemon: this build of it or another.
func isDaemon(contender string) bool { return contender == nameDaemon || contender == nameAgainst }

// titles are what the tables call them.
var titles = map[string]string{
	nameFloor:   "bare client (the floor)",
	nameShipped: "library as shipped",
	nameTuned:   "library tuned",
	nameDaemon:  "hostpath-provisioner",
	nameAgainst: "another build of it",
	nameBound:   "claims bound already",
}

// tuned is the library with the limits raised that its documents name. One replica needs no
// election.
var tuned = []string{"-threads=100", "-qps=1000", "-burst=2000", "-leader-election=false"}

// poolName is the daemon's pool.
const poolName = "fast"

// start runs a contender on its fixture.
func (b *bench) start(f *fixture) (contender, error) {
	common := []string{"-kubeconfig=" + f.kubeconfig, "-provisioner=" + f.name, "-node=" + nodeOf(f.contender), "-pool=" + f.pool}
	log := filepath.Join(f.dir, "log")
	switch f.contender {
	case nameFloor:
		args := append([]string{floorCommand, fmt.Sprintf("-workers=%d", b.floorWork)}, common...)
		return startChild(log, "/proc/self/exe", args...)
	case nameShipped:
		return startChild(log, b.peer, append(common, b.peerFlags...)...)
	case nameTuned:
		return startChild(log, b.peer, append(append(common, tuned...), b.peerFlags...)...)
	default:
		return service{f.daemon}, f.daemon.Start()
	}
}
