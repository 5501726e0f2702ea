package nodes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// logged is a child with a log file.
type logged struct {
	*process.Child
	log string
}

// launch starts a command and appends its stderr, and its stdout unless that is taken, to the log.
func launch(cmd *exec.Cmd, log string) (*logged, error) {
	child, err := process.StartLogged(cmd, log)
	return &logged{child, log}, err
}

// end sends a signal and waits until the process is gone.
func (p *logged) end(s os.Signal, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := p.End(ctx, s); err != nil {
		return fmt.Errorf("%w; its log ends with\n%s", err, p.tail(10))
	}
	return nil
}

// tail is the end of the log.
func (p *logged) tail(lines int) string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
