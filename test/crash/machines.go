package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// movesNode is the name of the first machine, and of the provisioner.
const movesNode = "crash-moves"

// machine is a node that a disk can be put into. Its daemon and the commands that are called on it
// are watched by themselves.
type machine struct {
	node             string
	pool             string // mount point
	daemon           *rig.Daemon
	killer, commands *killer.Killer
	image            hosttest.Image // of its own disk, where each machine has one
}

// mover is machines with one disk, which is in one of them: the environment is that one's.
type mover struct {
	*environment
	machines []*machine
	at       int
}

// buildMover makes everything up to a daemon that runs where the disk is.
func buildMover(p *prover, plane *harness.Plane, machines int) *mover {
	own := *plane
	own.Namespace = harness.Need(plane.Cluster.NewNamespace(p.ctx, movesNode))(p, "making a namespace")
	e := &environment{opt: p.opt, ctx: p.ctx, baseline: map[string]bool{}}
	e.opt.fs, e.opt.subvolumes = "ext4", false // to the commands all filesystems are the same
	m := &mover{environment: e}
	for n := range machines {
		m.addMachine(p, &own, n)
	}
	if machines > 2 {
		m.addDisks()
		return m
	}
	m.turn(m.machines[0])
	p.Cleanup(func() error { e.die(); return nil })
	e.Say("starting the daemon of %s", e.on)
	m.lives(m.machine())
	e.Must(e.Daemon.WaitStatus(e.Soon(), "1 of 1 pool open"), "opening the pool")
	e.knowSnapshots()
	e.remember()
	return m
}

// addMachine makes the first machine with the disk, and the others like it, without one.
func (m *mover) addMachine(p *prover, plane *harness.Plane, n int) {
	dir := hosttest.Dir(p)
	a := &machine{node: movesNode, pool: filepath.Join(dir, "pool")}
	a.killer = p.watch(filepath.Join(dir, "killer"), scopeIn(dir))
	a.commands = p.watch(filepath.Join(dir, "commands"), scopeIn(dir))
	env := a.killer.Env(m.opt.daemon)
	if n == 0 {
		m.Environment = harness.StartOn(m.ctx, plane, harness.Options{Name: movesNode, Dir: dir,
			Binary: "/proc/self/exe", Env: env, TOML: "publish_capacity = false\n"})
		m.pool = a.pool
		m.addPool()
		a.daemon = m.Daemon
		m.addClasses()
	} else {
		first := m.machines[0]
		a.node = fmt.Sprintf("%s-%d", movesNode, n+1)
		m.Must(m.Cluster.AddHost(m.ctx, a.node, nil), "adding a node")
		read := harness.Need(os.ReadFile(first.daemon.Path("etc", "config.toml")))
		text := read(m, "reading the configuration")
		config := strings.NewReplacer(fmt.Sprintf("\nnode = %q", first.node),
			fmt.Sprintf("\nnode = %q", a.node), first.pool, a.pool).Replace(string(text))
		o := rig.Options{Binary: "/proc/self/exe", Dir: dir, Env: env, Config: config}
		a.daemon = harness.Need(rig.New(o))(m, "configuring a daemon")
		m.turn(a)
		m.Prepare(name) // the mount point
	}
	m.machines = append(m.machines, a)
}

// addDisks gives each machine but the first a disk, and starts all of them.
func (m *mover) addDisks() {
	m.machines[0].image = m.image
	for n, a := range m.machines {
		if n > 0 {
			m.turn(a)
			a.image = hosttest.Mkfs(m, "ext4", filesystemMiB)
			a.image.Mount(m, a.pool)
			m.Prepare(name)
		}
		m.Cleanup(func() error {
			if a.daemon.Running() {
				a.daemon.Kill()
			}
			return nil
		})
		m.lives(a)
	}
	m.turn(m.machines[0])
}

func (m *mover) machine() *machine { return m.machines[m.at] }

// turn has the environment be a machine's.
func (m *mover) turn(a *machine) {
	m.Daemon, m.killer, m.pool, m.on = a.daemon, a.killer, a.pool, a.node
	for n, each := range m.machines {
		if each == a {
			m.at = n
		}
	}
}

// copyEtcd has the control plane die, and copies etcd's data meanwhile, within its directory.
func (m *mover) copyEtcd(from, to string) {
	m.Must(m.Cluster.Kill(), "killing the control plane")
	to = filepath.Join(m.Cluster.Dir(), to)
	m.Must(os.RemoveAll(to), "removing etcd's data")
	hosttest.Run(m, "cp", "-a", filepath.Join(m.Cluster.Dir(), from), to)
	m.Must(m.Cluster.Restart(m.ctx), "starting the control plane again")
}

// plug puts the disk into another machine, as if that had never seen it: each case has the same
// points then.
func (m *mover) plug(to *machine) {
	hosttest.Unmount(m, m.pool)
	m.turn(to)
	m.Must(os.RemoveAll(to.daemon.Path("state", "pools")), "forgetting the disk")
	m.image.Mount(m, m.pool)
}

func (m *mover) leases() coordinationv1.LeaseInterface {
	return m.Client.CoordinationV1().Leases("hostpath-provisioner")
}

// dies kills a machine's daemon, and its kubelet is silent.
func (m *mover) dies(a *machine) {
	if a.daemon.Running() {
		a.daemon.Kill()
	}
	m.say(a, corev1.ConditionUnknown)
}

// silent has that be some minutes ago: the daemon's last write is no sign of life any more.
func (m *mover) silent(a *machine) {
	err := m.leases().Delete(m.ctx, presence.Name(a.node), metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		m.Must(err, "deleting the node's lease")
	}
}

// lives has a machine run.
func (m *mover) lives(a *machine) {
	m.say(a, corev1.ConditionTrue)
	a.killer.Arm("", 0)
	m.Must(a.daemon.Run(m.Soon()), "starting the daemon of "+a.node)
	m.Must(harness.Eventually(m.Soon(), a.told), "waiting for the lease of "+a.node)
}

// told reports whether the daemon has noted that it wrote its node's lease.
func (a *machine) told() bool {
	_, err := os.Lstat(a.daemon.Path("state", "node-lease"))
	return err == nil
}

// say has a Node say what its kubelet would, or what is said of a silent one.
func (m *mover) say(a *machine, ready corev1.ConditionStatus) {
	patch := fmt.Appendf(nil,
		`{"status":{"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`,
		ready, time.Now().Add(-10*time.Minute).UTC().Format(time.RFC3339))
	_, err := m.Client.CoreV1().Nodes().Patch(m.ctx, a.node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	m.Must(err, "patching a node")
}

// commandMax is how long one may take.
const commandMax = 2 * time.Minute

// call calls the program on a machine with an administrator's rights. An exit code other than 0 is
// an error.
func (m *mover) call(a *machine, args ...string) (out string, err error) {
	cmd := a.daemon.Command(append(args, "--kubeconfig", m.Cluster.Kubeconfig())...)
	cmd.Env = append(cmd.Env, a.commands.Env(m.opt.daemon)...)
	timer := time.AfterFunc(commandMax, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	text, err := cmd.CombinedOutput()
	return string(text), err
}
