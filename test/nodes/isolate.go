package nodes

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// The test binary plays several parts, one after the other. An environment variable says which.
const (
	stageEnv = "HOSTPATH_NODES_STAGE"
	runEnv   = "HOSTPATH_NODES_RUN" // the outermost process's id: the run's name

	stageInit    = "init"    // the first process of the PID namespace
	stageTest    = "test"    // the tests
	stageMachine = "machine" // holds a node's namespaces, see machine.go
)

// isolate runs body in namespaces of its own and returns its exit code.
func isolate(body func() int) int {
	var err error
	switch stage := os.Getenv(stageEnv); stage {
	case "":
		return outside()
	case stageTest:
		return body()
	case stageInit:
		var code int
		if code, err = firstProcess(); err == nil {
			return code
		}
	case stageMachine:
		err = beMachine()
	default:
		err = fmt.Errorf("%s=%q is no stage", stageEnv, stage)
	}
	fmt.Fprintln(os.Stderr, "nodes:", err)
	return 1
}

// outside starts the first process of new namespaces and cleans up after it.
func outside() int {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "nodes: this makes namespaces and mounts and needs root")
		return 1
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := sweepCgroups(os.Getpid())
	if err == nil {
		err = runFirstProcess(interrupts)
		// Now the PID namespace is empty: its first process does not end before the others have
		// (pid_namespaces(7)).
		err = errors.Join(err, sweepCgroups(os.Getpid()))
	}
	return process.ExitCode("nodes", err)
}

// runFirstProcess returns when the process has ended. An interrupt kills the namespace; there is
// nothing in it to be saved.
func runFirstProcess(interrupts <-chan os.Signal) error {
	cmd := process.Self(stageEnv+"="+stageInit, runEnv+"="+strconv.Itoa(os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		Unshareflags: syscall.CLONE_NEWNS,
	}
	child, err := process.Start(cmd)
	if err != nil {
		return fmt.Errorf("starting in new namespaces: %w", err)
	}
	select {
	case <-child.Exited():
		return child.Wait()
	case s := <-interrupts:
		return errors.Join(fmt.Errorf("stopped by %v", s), child.Kill())
	}
}

// firstProcess runs the tests, and waits for every orphan meanwhile, as an init process must: the
// shims of the container runtime are made to be its children.
func firstProcess() (code int, err error) {
	if os.Getpid() != 1 { // started by hand, or by itself
		return 0, fmt.Errorf("process %d is not the first of its PID namespace", os.Getpid())
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return 0, fmt.Errorf("mounting /proc of the PID namespace: %w", err)
	}
	if err := hosttest.LoopbackUp(); err != nil {
		return 0, err
	}
	// Not appended to the environment: of two values a program gets the first.
	if err := os.Setenv(stageEnv, stageTest); err != nil {
		return 0, err
	}
	test, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("waiting for the tests: %w", err)
		case pid == test.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == test.Pid:
			return 0, fmt.Errorf("the tests were ended by %v", status.Signal())
		}
	}
}
