package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/host/state"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// environment is one node with one daemon and one pool, and the cluster.
type environment struct {
	*harness.Environment
	opt      options
	ctx      context.Context
	pool     string         // mount point and path
	image    hosttest.Image // what is mounted there
	on       string         // the node that claims name
	killer   *killer.Killer
	serial   int             // of claims
	baseline map[string]bool // what is there when there is no claim
	// snapshots plays the snapshot-controller, nil where the pool makes no snapshots; origin is the
	// origin's volume.
	snapshots *cluster.Snapshots
	origin    string
	stayed    int // volumes that kills left whole in the trash
}

// name is that of the program, the pool, the provisioner and the node.
const name = "crash"

// Classes by what they ask for.
const (
	deleted   = "kill-delete"
	consumer  = "kill-consumer" // WaitForFirstConsumer: the daemon has to take the claim first
	archiving = "kill-archive"
	retaining = "kill-retain"
)

// Of each volume's directory: nothing that it would have by itself.
const (
	dirMode = 0o751
	dirUID  = 4321
	dirGID  = 1234
)

// build makes everything up to a running daemon with an open pool.
func build(p *prover, plane *harness.Plane) *environment {
	dir := hosttest.Dir(p)
	e := &environment{opt: p.opt, ctx: p.ctx, pool: filepath.Join(dir, "pool"), baseline: map[string]bool{}}
	e.killer = p.watch(filepath.Join(dir, "killer"), scopeIn(dir))
	e.Environment = harness.StartOn(e.ctx, plane, harness.Options{
		Dir: dir, Binary: "/proc/self/exe", Env: e.killer.Env(e.opt.daemon),
	})
	e.on = e.Node
	e.addPool()
	e.addClasses()
	e.Say("starting the daemon")
	e.opens()
	if e.opt.clones() {
		e.addOrigin(deleted)
		e.addSnapshots()
	}
	e.remember()
	return e
}

// scopeIn are the calls of a daemon that count, with all that it has in a directory.
func scopeIn(dir string) killer.Scope {
	return killer.Scope{
		Pool: filepath.Join(dir, "pool"), State: filepath.Join(dir, "state"), Locks: state.PoolLocks,
	}
}

// opens starts the daemon for the first time, and waits until its pool is open.
func (e *environment) opens() {
	e.start()
	e.Cleanup(func() error { e.die(); return nil })
	e.Must(e.Daemon.WaitStatus(e.Soon(), "1 of 1 pool open"), "opening the pool")
	e.killer.Arm("", 0)
}

// remember has what is there at rest be what is there when there is no claim.
func (e *environment) remember() {
	e.until(func() bool { return e.killer.Quiet(calm) })
	for thing := range e.look().things {
		e.baseline[thing] = true
	}
}

// origin is the claim that clones are made from.
const (
	origin      = "origin"
	originLabel = "crash-origin"
	originData  = "data of the origin"
)

// addOrigin makes it, with one of everything that a copy makes with a call of its own.
func (e *environment) addOrigin(class string) {
	c := cluster.Claim(e.Namespace, origin, class, fmt.Sprintf("%dMi", firstMiB))
	c.Labels = map[string]string{originLabel: ""}
	made, err := e.Claims().Create(e.ctx, c, metav1.CreateOptions{})
	e.Must(err, "creating the origin")
	e.Must(harness.Eventually(e.Soon(), func() bool {
		now, err := e.Claims().Get(e.ctx, origin, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.ClaimBound
	}), "waiting until the origin is bound")
	e.origin = "pvc-" + string(made.UID)
	dir := filepath.Join(e.pool, e.origin)
	in := func(name string) string { return filepath.Join(dir, name) }
	e.Must(errors.Join(os.WriteFile(in(dataFile), []byte(originData), 0o640), os.Mkdir(in("more"), 0o750), os.Link(in(dataFile), in("more/link")),
		os.Symlink("data", in("symlink")), unix.Mkfifo(in("fifo"), 0o600), unix.Setxattr(in("more"), "user.of", []byte("more"), 0)), "writing to the origin")
}

// filesystemMiB is the size of each filesystem: mkfs.xfs makes none below 300.
const filesystemMiB = 320

func (e *environment) addPool() {
	clones := ""
	switch {
	case !e.opt.clones():
	case e.opt.subvolumes:
		clones = "clones = \"reflink\"\nsnapshots = \"snapshot\"\n"
	case e.opt.fs == "ext4":
		clones = "clones = \"copy\"\nsnapshots = \"copy\"\n"
	default:
		clones = "clones = \"reflink\"\nsnapshots = \"live\"\n"
	}
	e.AddPool(harness.Pool{
		Name: name, Path: e.pool,
		Mount: func() { e.image = hosttest.Mkfs(e, e.opt.fs, filesystemMiB); e.image.Mount(e, e.pool) },
		TOML:  fmt.Sprintf("scope = %q\nmode = \"%04o\"\nowner = \"%d\"\ngroup = \"%d\"\n%s", e.opt.scope, dirMode, dirUID, dirGID, clones),
	})
}

func (e *environment) addClasses() {
	for class, change := range map[string]func(*storagev1.StorageClass){
		deleted:   func(*storagev1.StorageClass) {},
		consumer:  func(c *storagev1.StorageClass) { *c.VolumeBindingMode = storagev1.VolumeBindingWaitForFirstConsumer },
		archiving: func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"onDelete": "archive"} },
		retaining: func(c *storagev1.StorageClass) { *c.ReclaimPolicy = corev1.PersistentVolumeReclaimRetain },
	} {
		expandable := func(c *storagev1.StorageClass) { allow := true; c.AllowVolumeExpansion = &allow }
		e.AddClass(e.ctx, class, e.Node, change, expandable)
	}
}

// start starts the daemon and waits until it is ready.
func (e *environment) start() { e.Must(e.Run(e.Soon()), "starting the daemon") }

// die kills the daemon if it runs.
func (e *environment) die() {
	if e.Running() {
		e.Daemon.Kill()
	}
}

// until asks again and again, and reports whether it came true in time.
func (e *environment) until(is func() bool) bool { return harness.Eventually(e.Soon(), is) == nil }

const (
	span       = 250 // a daemon lives for so many points at most; its start has about a quarter of them
	checkEvery = 50  // kills, and then the state is compared
	liveMax    = 20  // claims at once
	volumesMax = 60  // objects at once: a daemon that dies all the time falls behind
	mibMax     = 3   // that a claim requests: all of them fit in the pool
)

// load is claims that come and go while the daemon is killed again and again, so that several
// operations are cut at once, and recoveries in their turn. One thread does all of it.
type load struct {
	*environment
	r      *row
	random *rand.Rand
	live   []*testCase // claims that exist
	kept   []*testCase // those that are, or will be, archived
	gone   []*testCase // those that are deleted, which a kill may have left whole in the trash
	died   <-chan string
	points map[string]bool // at which the daemon died
}

// killAtRandom kills the daemon under the load.
func (e *environment) killAtRandom() *row {
	e.Say("killing at random, seed %d", e.opt.seed)
	before := e.serial
	l := &load{environment: e, points: map[string]bool{}, random: rand.New(rand.NewPCG(e.opt.seed, 0)), r: &row{name: fmt.Sprintf("%d random kills under load", e.opt.kills)}}
	for l.r.kills < e.opt.kills && e.ctx.Err() == nil && l.r.broken < faultsMax {
		l.round(min(checkEvery, e.opt.kills-l.r.kills))
	}
	l.r.points = len(l.points)
	e.Say("%s; %d claims came and went", l.r, e.serial-before)
	return l.r
}

// round is some kills, and then the comparison.
func (l *load) round(kills int) {
	l.aim()
	last := time.Now()
	for left := kills; left > 0 && l.ctx.Err() == nil; {
		l.step()
		select {
		case point := <-l.died:
			l.points[point] = true
			<-l.Daemon.Exited()
			left, last = left-1, time.Now()
			l.r.kills++
			l.aim()
			l.Must(l.Daemon.Start(), "starting the daemon")
		default:
			if time.Since(last) > harness.Timeout {
				l.Fatalf("the daemon does nothing any more, while claims come and go; its log:\n%s", l.Daemon.Log())
			}
		}
	}
	l.killer.Arm("", 0)
	l.Must(l.Daemon.WaitReady(l.Soon(), 1), "starting the daemon")
	l.check()
}

// aim makes the daemon die soon.
func (l *load) aim() { l.died = l.killer.Arm("", 1+l.random.IntN(span)) }

// step lets every claim's pod write, and makes or deletes one claim.
func (l *load) step() {
	s := l.look()
	for _, t := range l.live {
		if s.claims[t.claim].phase == "Bound" && t.data == "" {
			l.write(t)
		}
	}
	if len(l.live) < 5 || len(l.live) < liveMax && len(s.objects) < volumesMax && l.random.IntN(5) < 3 {
		class := []string{deleted, consumer, archiving}[l.random.IntN(3)]
		t := l.newCase(operation{class: class, outcome: bound})
		t.ask()
		l.live = append(l.live, t)
		return
	}
	i := l.random.IntN(len(l.live))
	t := l.live[i]
	if s.claims[t.claim].phase == "Bound" && t.size() < mibMax && l.random.IntN(2) == 0 {
		t.grow()
		return
	}
	if t.op.class == archiving && t.data == "" {
		return // what becomes of it depends on who is first
	}
	l.live = slices.Delete(l.live, i, i+1)
	l.end(t)
}

// end deletes a claim.
func (l *load) end(t *testCase) {
	t.drop()
	t.outcome, t.growing = gone, true
	if t.op.class == archiving {
		t.outcome = archived
		l.kept = append(l.kept, t)
		return
	}
	t.killed = true
	l.gone = append(l.gone, t)
}

func (l *load) write(t *testCase) {
	if _, err := os.Lstat(t.volume); err != nil {
		l.blame([]fault{{loss, fmt.Sprintf("claim %s is bound and its directory is not there: %v", t.claim, err)}})
		t.data = "lost"
		return
	}
	t.write()
}

// check compares the state twice: with the claims that are left, and without.
func (l *load) check() {
	if l.settled() {
		for _, t := range l.live {
			l.end(t)
		}
		l.live = nil
		if l.settled() && l.dropped() {
			for _, t := range l.kept {
				t.rid("archive")
			}
			l.kept = nil
			return
		}
	}
	l.live, l.kept, l.gone = nil, nil, nil
	l.scrub()
}

// dropped removes what kills left in the trash; then nothing is left of what was deleted.
func (l *load) dropped() bool {
	var expectations []expectation
	for _, t := range l.gone {
		expectations = append(expectations, t.expectation)
	}
	l.dropKept(expectations...)
	l.gone = nil
	return l.settled()
}

func (l *load) settled() bool {
	var expectations []expectation
	for _, t := range slices.Concat(l.live, l.kept, l.gone) {
		expectations = append(expectations, t.expectation)
	}
	faults := l.settle(calm, expectations...)
	l.blame(faults)
	return len(faults) == 0
}

func (l *load) blame(faults []fault) {
	l.r.blame(fmt.Sprintf("after %d random kills, seed %d", l.r.kills, l.opt.seed), faults)
}
