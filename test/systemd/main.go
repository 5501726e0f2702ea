// Command systemd installs the built packages on a booted Debian, in a container of systemd-nspawn,
// and tells step by step what an operator does there, by the commands of the documents: configure,
// prepare, start, provision against a real control plane with a real kubectl, reload, unmount,
// reboot, upgrade, remove, purge. It exits 0 only if every step held.
//
// The container is a systemd of its own on a throwaway overlay over a cached tree of Debian
// packages, in a network namespace where there is only the loopback and the control plane. Nothing
// of the machine is changed but that cache. It will not show SELinux, udev or a real disk that
// vanishes: test/vm does.
//
// With the argument kubeadm it tells another story: kubeadm makes the cluster in there, and a pod
// runs. With repository it is that of apt and dnf.
//
// What it was seen to catch, each by breaking the product once, is listed at the steps
// (steps_*.go).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

const insideEnv = "HOSTPATH_SYSTEMD_INSIDE"

// limit is for everything but the building of the tree.
const limit = 20 * time.Minute

func main() {
	if os.Getenv(insideEnv) == "" {
		os.Exit(isolate())
	}
	os.Exit(run())
}

// isolate starts this program again in namespaces for mounts and network. Its standard streams are
// pipes or files at most times, so nothing is done for a terminal.
func isolate() int {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "systemd: this boots a container and needs root")
		return 1
	}
	tree, err := findTree(os.Stdout, chosen().tree)
	if err != nil {
		fmt.Fprintln(os.Stderr, "systemd:", err)
		return 1
	}
	cmd := process.Self(insideEnv + "=" + tree)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM) // the child ends by it, and this waits
	child, err := process.Start(cmd)
	if err == nil {
		err = child.Wait()
	}
	return process.ExitCode("systemd", err)
}

func run() int {
	ctx, stop := harness.Interruptible()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return harness.Run(ctx, "systemd", play)
}

// play is the whole program.
func play(ctx context.Context, p *harness.Program) {
	e := &environment{Program: p, ctx: ctx, tree: os.Getenv(insideEnv), pages: pages.Open(rig.Root())}
	p.Cleanup(e.close)
	p.OnFatal(e.post)
	s := chosen()
	s.prepare(e)
	for _, one := range s.steps {
		e.step(one)
	}
	fmt.Printf("%d steps held, in %s\n", len(s.steps), p.Elapsed().Round(time.Second))
}

// tale is a story, on what it is told and how it begins.
type tale struct {
	tree    inputs
	prepare func(e *environment)
	steps   []step
}

// chosen is the one that the command line asks for.
func chosen() tale {
	switch strings.Join(os.Args[1:], " ") {
	case "kubeadm":
		return tale{forPods(), (*environment).prepareZero, zero}
	case "repository":
		return tale{forRepositories(), (*environment).prepareRepositories, repositories}
	}
	return tale{base, (*environment).prepare, story}
}
