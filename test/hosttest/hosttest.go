// Package hosttest gives a test the real kernel and takes everything back afterwards.
//
// A test binary whose TestMain calls Main runs again in a mount namespace of its own, with a tmpfs
// over one directory. Everything a test makes (images, mount points, immutable flags) lives in that
// tmpfs, and loop devices are attached with autoclear, so that the kernel removes all of it when
// the process ends, however it ends.
//
// It will not fake anything, and it will not let a host test pass by skipping: without root it
// fails, unless HOSTPATH_SKIP_HOST_TESTS=1 says in so many words that nothing is to be proven.
package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

const (
	// base is where the tmpfs of a test process is mounted, in its own namespace only. It exists on
	// every distribution that follows the FHS (section 3.11), so nothing has to be made on the
	// host.
	base = "/media"

	// locks is where daemons under test lock their pools (daemon/host/state, PoolLocks). It gets a tmpfs
	// too.
	locks = "/run/hostpath-provisioner"

	insideEnv = "HOSTPATH_HOSTTEST_INSIDE"
	skipEnv   = "HOSTPATH_SKIP_HOST_TESTS"
	keepEnv   = "KEEP" // 1: the body may outlive the command that started it, see Detach
)

// Main runs a package's tests inside a private mount namespace and returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }
func Main(m *testing.M) int {
	if os.Getuid() != 0 && os.Getenv(skipEnv) == "1" {
		fmt.Fprintln(os.Stderr, "hosttest: SKIPPED by", skipEnv+"=1: nothing was proven here")
		return 0
	}
	return Isolate(m.Run)
}

// Isolate runs a program's body inside a private mount namespace and returns its exit code: the
// first call starts the program again, the second one, inside, calls body. Whatever body mounts is
// gone when the process ends. Without root it says so and returns 1.
func Isolate(body func() int) int {
	switch {
	case os.Getenv(automountEnv) != "": // inside already, in the namespace of the test
		return process.ExitCode("automounter", serveAutomount(os.Getenv(automountEnv)))
	case os.Getenv(insideEnv) != "":
		if err := enter(); err != nil {
			fmt.Fprintln(os.Stderr, "hosttest:", err)
			return 1
		}
		return body()
	case os.Getuid() != 0:
		fmt.Fprintln(os.Stderr, "hosttest: this mounts filesystems and needs root; run it as root (tests: or set", skipEnv+"=1 to prove nothing)")
		return 1
	default:
		return rerun()
	}
}

// rerun starts this binary again in a new mount namespace.
func rerun() int {
	cmd := process.Self(insideEnv + "=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	// An interrupt goes to the whole foreground group: the child ends by it, and this process
	// waits. Caught and not ignored, because what is ignored stays so in the child (execve(2)).
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	if os.Getenv(keepEnv) == "1" {
		return detachable(cmd)
	}
	child, err := process.Start(cmd)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hosttest: starting in a mount namespace:", err)
		return 1
	}
	return process.ExitCode("hosttest", child.Wait())
}

// detachable is a body that may call Detach: it goes on when this process has ended.
func detachable(cmd *exec.Cmd) int {
	detached := make(chan os.Signal, 1)
	signal.Notify(detached, syscall.SIGUSR1)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	select {
	case err := <-ended:
		return process.ExitCode("hosttest", err)
	case <-detached:
		return 0
	}
}

// Detach lets the command that started this isolated body end with exit code 0 while the body goes
// on in the background, silently and deaf to its terminal. It needs KEEP=1 in the environment.
func Detach() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT)
	for fd := range 3 {
		if err := syscall.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return syscall.Kill(os.Getppid(), syscall.SIGUSR1)
}

func enter() error {
	if err := os.Unsetenv(insideEnv); err != nil {
		return err
	}
	if err := syscall.Mount("hosttest", base, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", base, err)
	}
	// The host's locks of pools are not a test's business, and its own go with it.
	if err := os.MkdirAll(locks, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("hosttest", locks, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", locks, err)
	}
	// Shared inside the namespace, as systemd makes a host's mounts: mounts below propagate to the
	// namespaces that a test makes in its turn.
	if err := syscall.Mount("", base, "", syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing %s: %w", base, err)
	}
	return nil
}
