package nodes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is a child with a log file, which dies with this process.
type process struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

// launch starts a command and appends its stderr, and its stdout unless that is taken, to the log.
func launch(cmd *exec.Cmd, log string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd.Stderr = file
	if cmd.Stdout == nil {
		cmd.Stdout = file
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &process{cmd: cmd, log: log, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The parent-death signal goes with the thread that forked, so this one waits for the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			// Not Wait, which closes the pipes whose other ends are still being read.
			cmd.Process.Wait()
			close(p.exited)
		}
	}()
	return p, <-started
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end sends a signal and waits until the process is gone.
func (p *process) end(s os.Signal, patience time.Duration) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("process %d goes on %v after %v; its log ends with\n%s", p.pid(), patience, s, p.tail(10))
	}
}

// tail is the end of the log.
func (p *process) tail(lines int) string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
