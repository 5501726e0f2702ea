package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child that says "ready", and that dies with this process.
type process struct {
	cmd     *exec.Cmd
	stderr  bytes.Buffer  // to be read when done is closed
	done    chan struct{} // closed when it has been waited for
	err     error         // of Wait; to be read when done is closed
	stopped bool          // by us
}

// startProcess returns when the child has printed a line "ready".
func startProcess(ctx context.Context, o Options, args []string) (*process, error) {
	ready := &readyLine{next: o.Stdout, seen: make(chan struct{})}
	p := &process{cmd: exec.Command(o.Binary, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), o.Env...)
	p.cmd.Stdout = ready
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.launch(); err != nil {
		return nil, err
	}
	select {
	case <-ready.seen:
		return p, nil
	case <-p.done:
		return nil, p.exitError()
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.kill())
	}
}

// launch starts the child from a thread that stays until the child has ended.
// The kernel sends the parent-death signal when the *thread* that forked goes
// away, and Go ends a thread whose locked goroutine returns: without this, a
// test elsewhere in the process could take the control plane with it.
func (p *process) launch() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	return <-started
}

// stop sends SIGTERM and, after stopTimeout, SIGKILL.
func (p *process) stop() error {
	select {
	case <-p.done:
		if p.stopped {
			return nil
		}
		return p.exitError()
	default:
	}
	p.stopped = true
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		if p.err != nil {
			return p.exitError()
		}
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("the control plane ignored SIGTERM for %v", stopTimeout), p.kill())
	}
}

// kill sends SIGKILL and waits.
func (p *process) kill() error {
	p.stopped = true
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

func (p *process) exitError() error {
	return fmt.Errorf("the control plane ended by itself (%v): %s", p.cmd.ProcessState, strings.TrimSpace(p.stderr.String()))
}

// readyLine passes on what is written to it and notices the line "ready".
type readyLine struct {
	next io.Writer // may be nil
	seen chan struct{}
	once sync.Once
	line []byte // the last line as far as it has come
}

func (r *readyLine) Write(data []byte) (int, error) {
	r.line = append(r.line, data...)
	for {
		line, rest, found := bytes.Cut(r.line, []byte("\n"))
		if !found {
			break
		}
		if string(line) == "ready" {
			r.once.Do(func() { close(r.seen) })
		}
		r.line = rest
	}
	if r.next == nil {
		return len(data), nil
	}
	return r.next.Write(data)
}
