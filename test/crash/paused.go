package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// pausedOperation is a snapshot of a volume whose pod writes.
type pausedOperation struct {
	name string
	// stopPost: when the service has died, what its unit has for that case is run, as systemd does;
	// else the next start has to do.
	stopPost bool
	who      string // whose points are tried; "": those of both
}

var pausedOperations = []pausedOperation{
	{name: "paused: snapshot", stopPost: true},
	{name: "paused: snapshot, without ExecStopPost=", who: theService},
}

// play is a case. The daemon is started again after a death of the service: it would make no other
// try for five minutes.
func (op pausedOperation) play(p *pods, point string) (hit string, points []string, faults []fault) {
	p.until(p.old)
	t := p.newCase(operation{name: op.name, snapshot: true, outcome: bound})
	died := p.arm(point)
	t.snap()
	p.until(func() bool {
		select {
		case hit = <-died:
			return true
		default:
		}
		return p.quiet(idle) && len(compare([]expectation{t.expectation}, p.baseline, p.look())) == 0
	})
	points = p.disarm()
	if hit != "" {
		who := p.dead(point)
		faults = append(t.inspect(), p.goesOn(who, op.stopPost)...)
		p.die()
		p.start()
	}
	faults = append(faults, t.settle(calm, t.expectation)...)
	faults = append(faults, p.oneMoment(t.volume)...)
	faults = append(faults, p.notPaused()...)
	t.clear(len(faults) > 0)
	return hit, points, faults
}

// old reports whether nothing in the origin but what the pod writes is so young that each pass
// copies it again (treecopy, margin): then how often it comes would differ from case to case.
func (p *pods) old() bool {
	var st unix.Stat_t
	p.Must(unix.Lstat(filepath.Join(p.pool, p.origin), &st), "looking at the origin")
	return time.Since(time.Unix(st.Ctim.Unix())) > 2*time.Second
}

// goesOn has the pod go on after a death, and starts the service.
func (p *pods) goesOn(dead string, stopPost bool) (faults []fault) {
	if dead == theService && stopPost {
		out, err := p.command(p.opt.daemon, "csi-node", "--thaw").CombinedOutput()
		if err != nil {
			faults = append(faults, fault{loss, fmt.Sprintf("csi-node --thaw: %v\n%s", err, out)})
		}
		if p.frozen() {
			faults = append(faults, fault{loss, "the pod stands still after csi-node --thaw"})
		}
	}
	if dead == theService {
		p.revive(theService)
	}
	if !p.until(func() bool { return !p.frozen() }) {
		faults = append(faults, fault{loss, "the pod stands still after the death of the " + dead})
	}
	return faults
}

// frozen reports whether the pod is to stand still.
func (p *pods) frozen() bool {
	text, err := os.ReadFile(filepath.Join(p.cgroup, "cgroup.freeze"))
	p.Must(err, "reading the cgroup's state")
	return strings.TrimSpace(string(text)) != "0"
}

// notPaused are what is left of a pause.
func (p *pods) notPaused() (faults []fault) {
	left, err := os.ReadDir(p.runtime)
	p.Must(err, "reading the service's directory")
	if len(left) > 0 || p.frozen() {
		faults = append(faults, fault{leak, fmt.Sprintf("a pause: %v", left)})
	}
	source := filepath.Join(p.pool, p.origin)
	before := p.written(source, 0)
	if !p.until(func() bool { return p.written(source, 0) > before }) {
		faults = append(faults, fault{loss, "the pod does not go on"})
	}
	return faults
}

// writes are the files of the pod's process, which writes a number to the one and then to the
// other.
var writes = [...]string{"first", "second"}

// written is the number in a file, -1 for none.
func (p *pods) written(dir string, file int) int {
	text, _ := os.ReadFile(filepath.Join(dir, writes[file]))
	n, err := strconv.Atoi(strings.TrimLeft(string(text), "0"))
	if err != nil {
		return -1
	}
	return n
}

// oneMoment tells of files of different moments.
func (p *pods) oneMoment(dir string) []fault {
	first, second := p.written(dir, 0), p.written(dir, 1)
	if first < 0 || first != second && first != second+1 {
		return []fault{{loss, fmt.Sprintf("the snapshot is not of one moment: %d was written first, and then %d", first, second)}}
	}
	return nil
}

// startWriter starts the pod's process.
func (p *pods) startWriter(target string) {
	// <> opens a file without making it empty: each write takes the place of the one before.
	script := fmt.Sprintf(`cd "$0"; while i=$((i+1)); do printf %%08d $i 1<>%s; printf %%08d $i 1<>%s; sleep 0.01; done`, writes[0], writes[1])
	cmd := exec.Command("sh", "-c", script, target)
	started, err := hosttest.PutInCgroup(p.cgroup, cmd)
	p.Must(err, "starting the pod's process")
	defer started()
	cmd.Stderr = os.Stderr
	child, err := process.Start(cmd)
	p.Must(err, "starting the pod's process")
	p.Cleanup(func() error {
		return errors.Join(os.WriteFile(filepath.Join(p.cgroup, "cgroup.kill"), []byte("1"), 0), child.Kill(), harness.Eventually(p.Soon(), p.empty))
	})
}

// empty reports whether no process is in the pod's cgroup.
func (p *pods) empty() bool {
	text, err := os.ReadFile(filepath.Join(p.cgroup, "cgroup.procs"))
	return err == nil && len(text) == 0
}
