package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
	pool     string // mount point and path
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
func build(ctx context.Context, p *harness.Plane, opt options) *environment {
	dir := hosttest.Dir(p)
	e := &environment{opt: opt, ctx: ctx, pool: filepath.Join(dir, "pool"), baseline: map[string]bool{}}
	var err error
	e.killer, err = killer.New(filepath.Join(dir, "killer"), killer.Scope{Pool: e.pool, State: filepath.Join(dir, "state"), Locks: state.PoolLocks})
	p.Must(err, "listening for daemons")
	e.Environment = harness.StartOn(ctx, p, harness.Options{
		Dir: dir, Binary: "/proc/self/exe", Env: e.killer.Env(opt.daemon),
	})
	e.addPool()
	e.addClasses()
	e.Say("starting the daemon")
	e.start()
	p.Cleanup(func() error { e.die(); return nil })
	e.Must(e.Daemon.WaitStatus(e.Soon(), "1 of 1 pool open"), "opening the pool")
	e.killer.Arm("", 0)
	if opt.clones() {
		e.addOrigin(deleted)
		e.addSnapshots()
	}
	e.remember()
	return e
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
	made, err := e.Client.CoreV1().PersistentVolumeClaims(e.Namespace).Create(e.ctx, c, metav1.CreateOptions{})
	e.Must(err, "creating the origin")
	if !e.until(func() bool {
		now, err := e.Client.CoreV1().PersistentVolumeClaims(e.Namespace).Get(e.ctx, origin, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.ClaimBound
	}) {
		e.Fatalf("the origin is not bound")
	}
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
		Name: name, Path: e.pool, Mount: func() { hosttest.Mkfs(e, e.opt.fs, filesystemMiB).Mount(e, e.pool) },
		TOML: fmt.Sprintf("scope = %q\nmode = \"%04o\"\nowner = \"%d\"\ngroup = \"%d\"\n%s", e.opt.scope, dirMode, dirUID, dirGID, clones),
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
