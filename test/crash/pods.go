package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/process"
)

// pods is a node on which daemon and node service work together, and each of them is killed: it has
// inline volumes and snapshots for which pods are paused.
type pods struct {
	*environment
	service  *csinode.Service
	watching *killer.Killer // of the service; the environment's is the daemon's
	runtime  string         // the service's runtime directory
	cgroup   string         // of the pod that is paused
	promised float64        // bytes, when there is no inline volume
	swept    int            // inline volumes of whose end the daemon was not told
}

const (
	podsNode  = "crash-pods" // also the provisioner
	podsClass = "kill-pods"
)

// The two processes, by the names that they have before their points.
const (
	theDaemon  = "daemon"
	theService = "service"
)

// buildPods makes everything up to a daemon and a node service that run, and a volume that a pod
// has mounted.
func buildPods(of *prover, plane *harness.Plane) *pods {
	dir, own, ctx := hosttest.Dir(of), *plane, of.ctx
	own.Namespace = harness.Need(plane.Cluster.NewNamespace(ctx, podsNode))(of, "making a namespace")
	e := &environment{opt: of.opt, ctx: ctx, pool: filepath.Join(dir, "pool"), baseline: map[string]bool{}}
	p := &pods{environment: e, runtime: filepath.Join(dir, "csi-run")}
	root, pod := filepath.Join(dir, "kubelet"), fmt.Sprintf("u-%d", os.Getpid())
	var removeCgroup func() error
	var err error
	p.cgroup, removeCgroup, err = hosttest.MakeCgroup(fmt.Sprintf("hostpath-crash-%d/kubepods.slice/kubepods-pod%s.slice", os.Getpid(), strings.ReplaceAll(pod, "-", "_")))
	plane.Cleanup(removeCgroup)
	plane.Must(err, "making a cgroup")
	scope := scopeIn(dir)
	scope.Kubelet, scope.Runtime, scope.Cgroup, scope.Local = root, p.runtime, p.cgroup, true
	e.killer = of.watch(filepath.Join(dir, "killer"), scope)
	p.watching = of.watch(filepath.Join(dir, "watching"), scope)
	e.Environment = harness.StartOn(ctx, &own, harness.Options{
		Name: podsNode, Dir: dir, Binary: "/proc/self/exe", Env: e.killer.Env(e.opt.daemon),
		Metrics: true, TOML: fmt.Sprintf("kubelet_root = %q\n", root),
	})
	e.AddPool(harness.Pool{
		Name: name, Path: e.pool,
		Mount: func() { hosttest.Mkfs(e, sharing(e.opt.fs), filesystemMiB).Mount(e, e.pool) },
		TOML: fmt.Sprintf("source = \"csi\"\nsnapshots = \"paused\"\npause_limit = \"20s\"\ninline_volumes = \"%dMi\"\nmode = \"%04o\"\nowner = \"%d\"\ngroup = \"%d\"\n",
			inlineMiB, dirMode, dirUID, dirGID),
	})
	e.ApplyManifests(ctx, e.Daemon) // with the pool's driver
	e.AddClass(ctx, podsClass, e.Node)
	p.serve(root)
	e.opens()
	e.addOrigin(podsClass)
	e.addSnapshots()
	e.Must(p.again(func(*pods) error {
		return p.service.Publish(p.Soon(), pod, csinode.Of(e.origin, name, filepath.Join(e.pool, e.origin)))
	}), "mounting the origin")
	p.startWriter(p.service.Target(pod, e.origin))
	e.remember()
	p.promised = p.promise()
	return p
}

// sharing is the filesystem, or another one if that cannot share blocks between files, as paused
// snapshots need.
func sharing(fs string) string {
	if fs == "ext4" {
		return "xfs"
	}
	return fs
}

// serve starts the node service.
func (p *pods) serve(root string) {
	// A shell is between this process and that.
	self := harness.Need(os.Executable())(p, "looking for this program")
	p.Must(os.Mkdir(p.runtime, 0o700), "making the service's directory")
	p.service = p.NodeService(csinode.Options{
		Root: root, Driver: podsNode, Log: p.Daemon.Path("csi-log"), Pauses: true, Inline: true,
		Command: func(args ...string) *exec.Cmd { return p.command(self, args...) },
	})
	p.OnFatal(func() {
		log, _ := os.ReadFile(p.service.Log)
		fmt.Printf("the end of the service's log:\n%s\nthat of the daemon's:\n%s\n", harness.Tail(string(log), 2000), harness.Tail(p.Daemon.Log(), 2000))
	})
	p.Must(p.service.Start(), "starting the service")
}

// command is a call of a binary with the service's directories, as systemd makes it.
func (p *pods) command(binary string, args ...string) *exec.Cmd {
	cmd := p.Daemon.Command(args...)
	cmd.Path, cmd.Args[0] = binary, binary
	cmd.Env = append(append(cmd.Env, p.watching.Env(p.opt.daemon)...), "RUNTIME_DIRECTORY="+p.runtime)
	return cmd
}

// parties are who is watched.
func (p *pods) parties() []string { return []string{theDaemon, theService} }

func (p *pods) watcher(who string) *killer.Killer {
	if who == theService {
		return p.watching
	}
	return p.killer
}

// arm has the process die to which the point belongs. Nothing is ever sent for "".
func (p *pods) arm(point string) (died <-chan string) {
	who, at, _ := strings.Cut(point, ": ")
	for _, each := range p.parties() {
		if each == who {
			died = p.watcher(each).Arm(at, 0)
		} else {
			p.watcher(each).Arm("", 0)
		}
	}
	return died
}

// disarm returns the points that came, first the daemon's.
func (p *pods) disarm() (points []string) {
	for _, each := range p.parties() {
		for _, point := range p.watcher(each).Disarm() {
			points = append(points, each+": "+point)
		}
	}
	return points
}

func (p *pods) quiet(d time.Duration) bool { return p.killer.Quiet(d) && p.watching.Quiet(d) }

// dead waits until the process is gone to which the point belongs, and returns which it is.
func (p *pods) dead(point string) (who string) {
	if who, _, _ = strings.Cut(point, ": "); who == theService {
		<-p.service.Exited()
	} else {
		<-p.Daemon.Exited()
	}
	p.arm("")
	return who
}

// revive starts a process again.
func (p *pods) revive(who string) {
	if who == theService {
		p.Must(p.service.Start(), "starting the service")
		return
	}
	p.start()
}

// podTrials are those that the command line chooses: where it does not want all points, so many
// that are inline, and one with a pause, at one point each: every case costs the starts of two
// processes.
func podTrials(o options, p func() *pods) []trial {
	var inline, paused []trial
	for _, op := range inlineOperations {
		inline = append(inline, trial{op.name, "", min(o.points, 1), in(p, op.play)})
	}
	for _, op := range pausedOperations {
		paused = append(paused, trial{op.name, op.who, min(o.points, 1), in(p, op.play)})
	}
	return append(o.chosen(inline, o.points), o.chosen(paused, min(o.points, 1))...)
}

// chosen are n of these at most, all for n = 0.
func (o options) chosen(all []trial, n int) (chosen []trial) {
	all = slices.DeleteFunc(all, func(t trial) bool { return !o.only.MatchString(t.name) })
	for _, i := range some(len(all), n, o.seed) {
		chosen = append(chosen, all[i])
	}
	return chosen
}

// provePods kills daemon and node service in what they do together.
func provePods(e *prover, plane func() *harness.Plane) report {
	if !e.opt.clones() || e.opt.subvolumes {
		return nil
	}
	p := sync.OnceValue(func() *pods { return buildPods(e, plane()) })
	rows := e.tryAll(podTrials(e.opt, p))
	if len(rows) > 0 {
		e.Say("%d inline volumes went with a sweep, because the daemon was not told of their end", p().swept)
		p().die()
		e.Must(p().service.Kill(), "ending the service")
	}
	return rows
}

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
	left := harness.Need(os.ReadDir(p.runtime))(p, "reading the service's directory")
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
	started := harness.Need(hosttest.PutInCgroup(p.cgroup, cmd))(p, "starting the pod's process")
	defer started()
	cmd.Stderr = os.Stderr
	child := harness.Need(process.Start(cmd))(p, "starting the pod's process")
	p.Cleanup(func() error {
		return errors.Join(os.WriteFile(filepath.Join(p.cgroup, "cgroup.kill"), []byte("1"), 0), child.Kill(), harness.Eventually(p.Soon(), p.empty))
	})
}

// empty reports whether no process is in the pod's cgroup.
func (p *pods) empty() bool {
	text, err := os.ReadFile(filepath.Join(p.cgroup, "cgroup.procs"))
	return err == nil && len(text) == 0
}
