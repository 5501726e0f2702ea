package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
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
	started, err := process.StartLogged(exec.Command(binary, args...), log)
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
		return startChild(log, "/proc/self/exe", append([]string{floorCommand}, common...)...)
	case nameShipped:
		return startChild(log, b.peer, common...)
	case nameTuned:
		return startChild(log, b.peer, append(common, tuned...)...)
	default:
		return service{f.daemon}, f.daemon.Start()
	}
}

// writerCommand makes this program one that writes to a volume as a pod does, and says on request
// how long it had to wait.
const writerCommand = "writer"

// writtenFiles are so many: the first one of each of the first directories.
const writtenFiles = 10

// writerPace is from one write to the next one.
const writerPace = time.Millisecond

// writer is a process in a pod's cgroup.
type writer struct {
	child *process.Child
	ask   io.WriteCloser
	said  *bufio.Reader
}

// startWriter starts it for a volume that the pod has mounted.
func startWriter(target, cgroup string) *writer {
	cmd := exec.Command("/proc/self/exe", writerCommand, target)
	defer harness.Got(hosttest.PutInCgroup(cgroup, cmd))()
	cmd.Stderr = os.Stderr
	ask, said := harness.Got(cmd.StdinPipe()), harness.Got(cmd.StdoutPipe())
	return &writer{harness.Got(process.Start(cmd)), ask, bufio.NewReader(said)}
}

// longest is the longest time between the ends of two writes since the last call.
func (w *writer) longest() (time.Duration, error) {
	harness.Got(fmt.Fprintln(w.ask))
	line, err := w.said.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the writer ended: %w", err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return time.Duration(ns), err
}

// stop ends it as the end of its input does.
func (w *writer) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	w.ask.Close()
	return w.child.End(ctx, syscall.SIGKILL)
}

// writerMain writes until its input ends, and prints after each line of it the longest time between
// two writes, in ns.
func writerMain(args []string) int {
	if len(args) != 1 {
		return 2
	}
	var files []*os.File
	for i := range writtenFiles {
		f, err := os.OpenFile(filepath.Join(args[0], strconv.Itoa(i), strconv.Itoa(perDirectory*i)), os.O_WRONLY, 0)
		if err != nil {
			fmt.Fprintln(os.Stderr, "writer:", err)
			return 1
		}
		files = append(files, f)
	}
	var longest atomic.Int64
	go writeOn(files, &longest)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(longest.Swap(0))
	}
	return 0
}

// writeOn writes for ever.
func writeOn(files []*os.File, longest *atomic.Int64) {
	data, last := make([]byte, 4096), time.Now()
	for i := 0; ; i++ {
		if _, err := files[i%len(files)].WriteAt(data, 0); err != nil {
			fmt.Fprintln(os.Stderr, "writer:", err)
			os.Exit(1)
		}
		now := time.Now()
		longest.Store(max(longest.Load(), int64(now.Sub(last))))
		last = now
		time.Sleep(writerPace) // a pace, not a wait
	}
}
