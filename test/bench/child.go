package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// process is a contender that runs.
type process interface {
	PID() int
	Exited() <-chan struct{}
	Stop(ctx context.Context) error
	Log() string
}

// stopTimeout is how long a contender may take to end; then it is killed, and has failed.
const stopTimeout = 20 * time.Second

// child is a contender that is a plain program.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{}
	log    string
}

func startChild(log, binary string, args ...string) (*child, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	c := &child{cmd: exec.Command(binary, args...), exited: make(chan struct{}), log: log}
	c.cmd.Stdout, c.cmd.Stderr = file, file
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// Pdeathsig goes with the thread that forked (prctl(2)), so this one waits for the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.cmd.Wait()
			close(c.exited)
		}
	}()
	return c, <-started
}

func (c *child) PID() int                { return c.cmd.Process.Pid }
func (c *child) Exited() <-chan struct{} { return c.exited }
func (c *child) Log() string             { return readLog(c.log) }

func (c *child) Stop(ctx context.Context) error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.exited:
		return nil
	case <-ctx.Done():
		c.cmd.Process.Kill()
		<-c.exited
		return fmt.Errorf("it does not end: %w", ctx.Err())
	}
}

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
}

// tuned is the library with what its users are told to raise. One replica needs no election.
var tuned = []string{"-threads=100", "-qps=1000", "-burst=2000", "-leader-election=false"}

// poolName is the daemon's pool.
const poolName = "fast"

// start runs a contender on its stage.
func (b *bench) start(st *stage) (process, error) {
	common := []string{"-kubeconfig=" + st.kubeconfig, "-provisioner=" + st.name, "-node=" + nodeOf(st.contender), "-pool=" + st.pool}
	log := filepath.Join(st.dir, "log")
	switch st.contender {
	case nameFloor:
		args := append([]string{floorCommand, fmt.Sprintf("-workers=%d", b.floorWork)}, common...)
		return startChild(log, "/proc/self/exe", args...)
	case nameShipped:
		return startChild(log, b.peer, append(common, b.peerFlags...)...)
	case nameTuned:
		return startChild(log, b.peer, append(append(common, tuned...), b.peerFlags...)...)
	default:
		return service{st.daemon}, st.daemon.Start()
	}
}
