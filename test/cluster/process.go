package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// plane is the process of the control plane, which prints "ready" and ends with this one.
type plane struct {
	*process.Child
	stderr  bytes.Buffer // to be read when the process has ended
	stopped bool         // by this process
}

// startPlane returns when the process has printed a line "ready".
func startPlane(ctx context.Context, o Options, args []string) (*plane, error) {
	ready := &readyLine{next: o.Stdout, seen: make(chan struct{})}
	p := &plane{}
	cmd := exec.Command(o.Binary, args...)
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Stdout, cmd.Stderr = ready, &p.stderr
	var err error
	if p.Child, err = process.Start(cmd); err != nil {
		return nil, err
	}
	select {
	case <-ready.seen:
		return p, nil
	case <-p.Exited():
		return nil, p.exitError()
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.kill())
	}
}

// stop sends SIGTERM and, after stopTimeout, SIGKILL.
func (p *plane) stop() error {
	if !p.Running() {
		if p.stopped {
			return nil
		}
		return p.exitError()
	}
	p.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := p.End(ctx, syscall.SIGTERM); err != nil {
		return fmt.Errorf("the control plane: %w", err)
	}
	if p.Wait() != nil {
		return p.exitError()
	}
	return nil
}

// kill sends SIGKILL and waits.
func (p *plane) kill() error {
	p.stopped = true
	return p.Kill()
}

func (p *plane) exitError() error {
	return fmt.Errorf("the control plane ended by itself (%v): %s", p.State(), strings.TrimSpace(p.stderr.String()))
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
