package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// The service that mounts volumes for kubelet is killed without a daemon and a cluster: it needs
// neither.

// published is a pool with one volume, the service, and kubelet's part.
type published struct {
	*prover
	disk    string // where the pool's filesystem is mounted, whatever is at the pool's path
	pool    string
	killer  *killer.Killer
	service *csinode.Service
	volume  csinode.Volume
}

// publishAct is something that happens to the volume. The error is the service's.
type publishAct func(*published) error

// again does it as kubelet does, until the service responds: a connection may be one to the process
// that died.
func (c *published) again(do publishAct) (err error) {
	late := harness.Eventually(c.Soon(), func() bool { err = do(c); return status.Code(err) != codes.Unavailable })
	return firstOf(err, late)
}

func mountFor(pod string, readOnly bool) publishAct {
	return func(c *published) error {
		v := c.volume
		v.ReadOnly = readOnly
		return c.service.Publish(c.Soon(), pod, v)
	}
}

func unmountFor(pod string) publishAct {
	return func(c *published) error { return c.service.Unpublish(c.Soon(), pod, c.volume.PV) }
}

const (
	firstPod  = "pod-1"
	secondPod = "pod-2"
)

// publishOperation is something that kubelet asks for. The service dies, and kubelet asks again, or
// for something else.
type publishOperation struct {
	name                string
	before, dies, after publishAct
	away                bool            // the pool is unmounted between the two
	mounted             map[string]bool // for which pods the volume is mounted then, and whether read-only
	meanwhile           map[string]bool // for which it may be at the death, too
}

var publishOperations = []publishOperation{
	{name: "csi: publish", dies: mountFor(firstPod, false), after: mountFor(firstPod, false), mounted: map[string]bool{firstPod: false}},
	{name: "csi: publish read-only", dies: mountFor(firstPod, true), after: mountFor(firstPod, true), mounted: map[string]bool{firstPod: true}},
	{name: "csi: publish, given up", dies: mountFor(firstPod, false), after: unmountFor(firstPod), meanwhile: map[string]bool{firstPod: false}},
	{
		name: "csi: publish for a second pod", before: mountFor(firstPod, false), dies: mountFor(secondPod, true), after: mountFor(secondPod, true),
		mounted: map[string]bool{firstPod: false, secondPod: true},
	},
	{name: "csi: unpublish", before: mountFor(firstPod, false), dies: unmountFor(firstPod), after: unmountFor(firstPod), meanwhile: map[string]bool{firstPod: false}},
	{
		name: "csi: unpublish one of two", before: func(c *published) error { return firstOf(mountFor(firstPod, false)(c), mountFor(secondPod, true)(c)) },
		dies: unmountFor(secondPod), after: unmountFor(secondPod), mounted: map[string]bool{firstPod: false}, meanwhile: map[string]bool{secondPod: true},
	},
	{
		name: "csi: unpublish without the pool", before: mountFor(firstPod, false), away: true, dies: unmountFor(firstPod), after: unmountFor(firstPod),
		meanwhile: map[string]bool{firstPod: false},
	},
}

func firstOf(errs ...error) error {
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}

// provePublishing kills the service at each of its system calls that change something.
func provePublishing(e *prover) report {
	c := sync.OnceValue(func() *published { return buildPublished(e) })
	var all []trial
	for _, op := range publishOperations {
		all = append(all, trial{op.name, "", e.opt.points, in(c, op.play)})
	}
	return e.tryAll(all)
}

func buildPublished(p *prover) *published {
	dir := hosttest.Dir(p)
	c := &published{prover: p, disk: filepath.Join(dir, "disk"), pool: filepath.Join(dir, "pool")}
	root := filepath.Join(dir, "kubelet")
	c.killer = p.watch(filepath.Join(dir, "killer"), killer.Scope{
		Pool: c.pool, State: filepath.Join(dir, "state"), Kubelet: root,
	})
	// A shell is between this process and that.
	self := harness.Need(os.Executable())(p, "looking for this program")
	d, err := rig.New(rig.Options{
		Binary: self, Dir: dir, Env: c.killer.Env(p.opt.daemon),
		Config: fmt.Sprintf("node = %q\nkubelet_root = %q\n[pool.%s]\npath = %q\nimmutable = \"off\"\nsource = \"csi\"\n", name, root, name, c.pool),
	})
	p.Must(err, "configuring the service")
	p.Must(firstOf(os.Mkdir(c.disk, 0o700), os.Mkdir(c.pool, 0o700)), "making mount points")
	hosttest.Mkfs(p, p.opt.fs, filesystemMiB).Mount(p, c.disk)
	c.Must(c.mount(), "mounting the pool")
	c.makeVolume()
	c.service = p.NodeService(csinode.Options{Root: root, Driver: plan.DefaultProvisioner, Command: d.Command, Log: filepath.Join(dir, "log")})
	p.OnFatal(func() {
		log, _ := os.ReadFile(c.service.Log)
		fmt.Printf("the end of the service's log:\n%s\n", harness.Tail(string(log), 2000))
	})
	return c
}

func (c *published) mount() error   { return unix.Mount(c.disk, c.pool, "", unix.MS_BIND, "") }
func (c *published) unmount() error { return unix.Unmount(c.pool, unix.MNT_DETACH) }

// makeVolume makes the pool's marker and the volume, as the daemon does.
func (c *published) makeVolume() {
	pv := "pvc-00000000-0000-4000-8000-000000000001"
	c.volume = csinode.Of(pv, name, filepath.Join(c.pool, pv))
	c.Must(csinode.MakePool(c.ctx, name, c.pool, pv, dirMode), "making a volume")
	c.Must(os.WriteFile(filepath.Join(c.pool, pv, dataFile), []byte(pv), 0o600), "writing to the volume")
}

// play is a case: the service dies at the point, another one is started, and kubelet asks again. In
// the end nothing is mounted.
func (op publishOperation) play(c *published, point string) (hit string, points []string, faults []fault) {
	c.start()
	if op.before != nil {
		c.Must(c.again(op.before), op.name+": before")
	}
	if op.away {
		c.Must(c.unmount(), "unmounting the pool")
	}
	died := c.killer.Arm(point, 0)
	err := c.again(func(c *published) error {
		if err := op.dies(c); len(died) == 0 { // the point is told before the service dies
			return err
		}
		return nil
	})
	points = c.killer.Disarm()
	select {
	case hit = <-died:
		<-c.service.Exited()
	default:
		c.Must(err, op.name+", which nothing killed")
		c.Must(c.service.Kill(), "killing the service")
	}
	faults = c.compare(op.mounted, op.meanwhile, false)
	c.start()
	if err := c.again(op.after); err != nil {
		faults = append(faults, fault{loss, "after the death: " + err.Error()})
	}
	faults = append(faults, c.compare(op.mounted, nil, true)...)
	for _, pod := range []string{firstPod, secondPod} {
		if err := c.again(unmountFor(pod)); err != nil {
			faults = append(faults, fault{loss, "unpublishing: " + err.Error()})
		}
	}
	faults = append(faults, c.compare(nil, nil, true)...)
	c.Must(c.service.Kill(), "killing the service")
	if op.away {
		c.Must(c.mount(), "mounting the pool")
	}
	return hit, points, faults
}

func (c *published) start() {
	c.killer.Disarm()
	c.Must(c.service.Start(), "starting the service")
}

// compare returns what is not so: for these pods and no others the volume is mounted once, in the
// way that they have it, with its data. At rest each of them has it, and no other target is there;
// before, others may have it, too.
func (c *published) compare(want, may map[string]bool, rest bool) (faults []fault) {
	add := func(k kind, format string, args ...any) {
		faults = append(faults, fault{k, fmt.Sprintf(format, args...)})
	}
	all := harness.Need(c.service.Mounted())(c, "reading the mount table")
	times := map[string]int{}
	for _, m := range all {
		pod, _, _ := strings.Cut(strings.TrimPrefix(m.Point, c.service.Root+"/pods/"), "/")
		readOnly, wanted := want[pod]
		if !wanted {
			readOnly, wanted = may[pod]
		}
		if times[pod]++; !wanted || times[pod] > 1 {
			add(double, "%s is mounted on %s", m.Root, m.Point)
			continue
		}
		if m.SuperOptions = ""; m.ReadOnly() != readOnly {
			add(loss, "the volume of %s is read-only: %t", pod, m.ReadOnly())
		}
		if data, err := os.ReadFile(filepath.Join(m.Point, dataFile)); err != nil || string(data) != c.volume.PV {
			add(loss, "the volume of %s has %q, %v", pod, data, err)
		}
	}
	if !rest {
		return faults
	}
	for pod := range want {
		if times[pod] == 0 {
			add(loss, "the volume is not mounted for %s", pod)
		}
	}
	left := harness.Need(c.service.Left())(c, "looking for targets")
	if len(left) != len(want) {
		add(leak, "targets %q", left)
	}
	return faults
}
