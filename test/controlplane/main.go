// Command controlplane is a real Kubernetes control plane in one process, to
// test against: etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler, as released, unpatched, over loopback.
//
// It is a Go module of its own, so that the dependencies of Kubernetes itself
// never become those of the daemon. It does not run kubelets, and it is not a
// way to run a cluster that is needed tomorrow: nothing is fsynced, and
// there is one of everything.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/controlplane/internal/state"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	s, err := parseSettings(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "controlplane: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, s, stdout, stderr); err != nil {
		return 1
	}
	return 0
}

// serve prepares the process for the components and runs them. It has told
// stderr about an error that it returns.
func serve(ctx context.Context, s settings, stdout, stderr io.Writer) error {
	dir, err := prepare(s.dir)
	if err != nil {
		fmt.Fprintf(stderr, "controlplane: %v\n", err)
		return err
	}
	defer dir.Close()
	log := dir.Path("controlplane.log")
	terminal, err := redirectStderr(log)
	if err != nil {
		fmt.Fprintf(stderr, "controlplane: %v\n", err)
		return err
	}
	defer terminal.Close()
	if err := runPlane(ctx, dir, s, stdout); err != nil {
		fmt.Fprintf(terminal, "controlplane: %v\nthe log is %s\n", err, log)
		return err
	}
	return nil
}

func prepare(path string) (*state.Dir, error) {
	dir, err := state.Open(path)
	if err != nil {
		return nil, err
	}
	// For the sockets' short names; see etcd.go.
	if err := os.Chdir(dir.Path()); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// redirectStderr makes descriptor 2 the log file, and returns what it was.
// The components log through three libraries, and a panic through none: only
// the descriptor catches them all.
func redirectStderr(path string) (*os.File, error) {
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	terminal, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicate stderr: %w", err)
	}
	if err := unix.Dup3(int(log.Fd()), 2, 0); err != nil {
		return nil, fmt.Errorf("redirect stderr: %w", err)
	}
	return os.NewFile(uintptr(terminal), "stderr"), nil
}
