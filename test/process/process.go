// Package process starts helper processes that end with this one, and reads what proc(5) has of a
// process.
//
// It knows no daemon, no cluster and no filesystem. It does not restart a process, and it does not
// follow the children of one.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Child is a process that was started and that ends with this one.
type Child struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of Wait; to be read when exited is closed
}

// Start starts a command, with SIGKILL as its parent-death signal unless the command has one, and
// waits for it in the background.
//
// The kernel sends the parent-death signal when the thread that forked ends (prctl(2),
// PR_SET_PDEATHSIG), and Go ends a thread whose locked goroutine returns. So the thread that forked
// waits for the child. As long as it does, the command's pipes are reachable: no garbage collection
// closes them (TestPipesLive).
func Start(cmd *exec.Cmd) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if cmd.SysProcAttr.Pdeathsig == 0 {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	c := &Child{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// StartLogged is Start of a command whose standard error is appended to a file, and its standard
// output unless that is taken.
func StartLogged(cmd *exec.Cmd, log string) (*Child, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd.Stderr = file
	if cmd.Stdout == nil {
		cmd.Stdout = file
	}
	return Start(cmd)
}

// PID is the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Exited is closed when the process has ended and all its output was read.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Running reports whether the process has not ended.
func (c *Child) Running() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// Wait waits until the process has ended, and returns what (*exec.Cmd).Wait does.
func (c *Child) Wait() error {
	<-c.exited
	return c.err
}

// State is how the process ended, nil while it runs.
func (c *Child) State() *os.ProcessState {
	if c.Running() {
		return nil
	}
	return c.cmd.ProcessState
}

// Signal sends a signal. The error is os.ErrProcessDone for a process that has ended.
func (c *Child) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Kill ends the process and waits until it has ended.
func (c *Child) Kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-c.exited
	return nil
}

// End sends a signal and waits until the process has ended. It kills a process that has not when
// the context ends, and returns an error then. A process that had ended before is no error.
func (c *Child) End(ctx context.Context, s os.Signal) error {
	if err := c.Signal(s); errors.Is(err, os.ErrProcessDone) {
		return nil
	} else if err != nil {
		return err
	}
	select {
	case <-c.exited:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("process %d does not end by %v: %w", c.PID(), s, ctx.Err()), c.Kill())
	}
}

// Self is a command that runs this program again, with its arguments and standard streams, and more
// in its environment ("KEY=value").
func Self(env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// ExitCode is the exit code for a program whose work was done by another process: 0 for no error,
// the other's code where it has one, else 1. An error that is no exit of a process is printed,
// after the program's name.
func ExitCode(name string, err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1) // -1 after a signal
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
}
