package crash

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/csinode"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
)

// inlineMiB is the size of the one inline volume that there is, and all that the pool has for them:
// one that is left leaves no room for the next.
const inlineMiB = 16

// inlineState is what is to be there of the volume.
type inlineState int

const (
	noInline      inlineState = iota
	inlineKept                // its directory, mounted nowhere
	inlineMounted             // the same, mounted for its pod
)

// podStep is something that kubelet or a person does. It may be done again.
type podStep func(*pods) error

// inlineOperation is something that kubelet asks for, or a start of the daemon.
type inlineOperation struct {
	name                string
	before, dies, after []podStep
	between, outcome    inlineState // of the volume after what dies, if nothing did, and in the end
	data                bool        // what its pod wrote may not go
}

var inlineOperations = []inlineOperation{
	{name: "inline: publish", dies: mountInline, between: inlineMounted, after: mountInline, outcome: inlineMounted},
	{name: "inline: publish, given up", dies: mountInline, between: inlineMounted, after: []podStep{(*pods).unpublishInline, (*pods).removePod}},
	{
		name: "inline: publish after the node was off", before: []podStep{(*pods).publishInline, (*pods).writeInline, (*pods).off, (*pods).on},
		dies: mountInline, between: inlineMounted, after: mountInline, outcome: inlineMounted, data: true,
	},
	{name: "inline: unpublish", before: usedInline, dies: []podStep{(*pods).unpublishInline}, after: []podStep{(*pods).unpublishInline, (*pods).removePod}},
	{
		name: "inline: unpublish, and publish again", before: usedInline, dies: againInline, between: inlineMounted, after: againInline, outcome: inlineMounted,
	},
	{
		name: "inline: unpublish without the daemon", before: append(usedInline[:2:2], (*pods).dieAlone), dies: []podStep{(*pods).unpublishInline},
		between: inlineKept, after: []podStep{(*pods).unpublishInline, (*pods).removePod, (*pods).startAlone},
	},
	{name: "inline: start, the pod is gone", before: append(usedInline[:2:2], (*pods).off, (*pods).removePod, (*pods).serviceOn), dies: []podStep{(*pods).startDaemon}},
	{
		name: "inline: start, the pod is there", before: append(usedInline[:2:2], (*pods).off, (*pods).serviceOn),
		dies: []podStep{(*pods).startDaemon}, between: inlineKept, after: mountInline, outcome: inlineMounted, data: true,
	},
}

var (
	mountInline = []podStep{(*pods).publishInline}
	usedInline  = []podStep{(*pods).publishInline, (*pods).writeInline}
	againInline = []podStep{(*pods).unpublishInline, (*pods).publishWithRoom}
)

// theInline is the volume, whose name is the same in each case: only one pod has it.
var theInline = csinode.Inline(firstPod, "scratch", map[string]string{"size": fmt.Sprintf("%dMi", inlineMiB)})

const inlineData = "data of a pod"

func (p *pods) publishInline() error { return p.service.Publish(p.Soon(), firstPod, theInline) }

// publishWithRoom asks again as kubelet does while the pool has no room: the volume that there was
// before is promised until its files are gone, and no call waits for that.
func (p *pods) publishWithRoom() (err error) {
	p.until(func() bool {
		err = p.publishInline()
		return status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "are promised")
	})
	return err
}

func (p *pods) unpublishInline() error {
	return p.service.UnpublishInline(p.Soon(), firstPod, theInline)
}

func (p *pods) inlineTarget() string { return p.service.Target(firstPod, theInline.Name) }

func (p *pods) writeInline() error {
	return os.WriteFile(filepath.Join(p.inlineTarget(), dataFile), []byte(inlineData), 0o600)
}

// removePod is the end of the pod's directory, which kubelet removes when nothing is mounted there.
func (p *pods) removePod() error {
	if all, err := p.inlineMounts(); err != nil || len(all) > 0 {
		return fmt.Errorf("the pod has %q mounted, %w", all, err)
	}
	return os.RemoveAll(filepath.Join(p.service.Root, "pods", firstPod))
}

// off is the end of the node: no process is left, and no mount.
func (p *pods) off() error {
	p.die()
	return firstOf(p.service.Kill(), unix.Unmount(p.inlineTarget(), unix.MNT_DETACH))
}

func (p *pods) on() error { return firstOf(p.serviceOn(), p.startAlone()) }

func (p *pods) serviceOn() error { return p.service.Start() }

// dieAlone is the end of the daemon, which is not restarted.
func (p *pods) dieAlone() error { p.die(); return nil }

// startAlone starts it, unless it runs.
func (p *pods) startAlone() error {
	if p.Running() {
		return nil
	}
	return p.Run(p.Soon())
}

// startDaemon starts it while the killer listens.
func (p *pods) startDaemon() error {
	return firstOf(p.Daemon.Start(), p.Daemon.WaitReady(p.Soon(), 1))
}

// again does it as kubelet does, until the service responds: a connection may be one to the process
// that died.
func (p *pods) again(do podStep) (err error) {
	p.until(func() bool { err = do(p); return status.Code(err) != codes.Unavailable })
	return err
}

func (p *pods) all(steps []podStep) error {
	for _, do := range steps {
		if err := p.again(do); err != nil {
			return err
		}
	}
	return nil
}

// play is a case. In the end nothing is left of it.
func (op inlineOperation) play(p *pods, point string) (hit string, points []string, faults []fault) {
	p.arm("")
	p.Must(p.all(op.before), op.name+": before")
	p.until(func() bool { return p.quiet(calm) })
	died, asked := p.arm(point), make(chan error, 1)
	go func() { asked <- p.onceUntilDead(op.dies) }()
	if hit = p.await(op, died, asked); hit != "" {
		faults = p.afterDeath(op, point, asked)
	}
	points = p.disarm()
	if err := p.all(op.after); err != nil {
		faults = append(faults, fault{loss, "after the death: " + err.Error()})
	}
	if op.outcome != noInline {
		faults = append(faults, p.settleInline(op.outcome, op.data)...)
	}
	return hit, points, append(faults, p.clearInline()...)
}

// afterDeath looks at the state, and starts again what died.
func (p *pods) afterDeath(op inlineOperation, point string, asked <-chan error) []fault {
	who := p.dead(point)
	faults := p.inspectInline(op)
	p.revive(who)
	if err := <-asked; status.Code(err) == codes.FailedPrecondition { // the service waits for the daemon, which refuses nothing
		faults = append(faults, fault{loss, "the call that was under way: " + err.Error()})
	}
	return faults
}

// onceUntilDead is all, without a second try where a process may have died.
func (p *pods) onceUntilDead(steps []podStep) error {
	for _, do := range steps {
		if err := do(p); err != nil {
			return err
		}
	}
	return nil
}

// await waits until a process died, or all is done: then it returns "".
func (p *pods) await(op inlineOperation, died <-chan string, asked chan error) (hit string) {
	var err error
	returned := false
	p.until(func() bool {
		select {
		case hit = <-died:
			return true
		case err = <-asked:
			asked <- err
			returned = true
		default:
		}
		return returned && p.quiet(idle) && (err != nil || len(p.inlineFaults(op.between, op.data)) == 0)
	})
	select {
	case at := <-died:
		hit = at
	default:
	}
	if hit == "" {
		p.Must(err, op.name+", which nothing killed")
	}
	return hit
}

// inspectInline looks while a process is dead: what is mounted is whole.
func (p *pods) inspectInline(op inlineOperation) (faults []fault) {
	all := harness.Need(p.inlineMounts())(p, "reading the mount table")
	for i, root := range all {
		if root != "/"+theInline.PV || i > 0 {
			faults = append(faults, fault{double, root + " is mounted"})
		}
	}
	if len(all) > 0 {
		faults = append(faults, p.inlineFlaws(p.inlineTarget(), op.data)...)
	}
	if op.data {
		faults = append(faults, p.inlineFlaws(filepath.Join(p.pool, theInline.PV), true)...)
	}
	return faults
}

// inlineMounts are what the pod has mounted.
func (p *pods) inlineMounts() (roots []string, err error) {
	all, err := p.service.Mounted()
	for _, m := range all {
		if strings.HasPrefix(m.Point, filepath.Join(p.service.Root, "pods", firstPod)+"/") {
			roots = append(roots, m.Root)
		}
	}
	return roots, err
}

// inlineFlaws are what a directory of the volume lacks.
func (p *pods) inlineFlaws(at string, data bool) []fault {
	d, err := readDir(at)
	want := dir{dirMode, dirUID, dirGID, d.data}
	if data {
		want.data = inlineData
	}
	if err != nil || d != want {
		return []fault{{loss, fmt.Sprintf("the volume has %+v, %v", d, err)}}
	}
	return nil
}

// inlineFaults are what is not so, at rest.
func (p *pods) inlineFaults(state inlineState, data bool) (faults []fault) {
	wanted := maps.Clone(p.baseline)
	if state != noInline {
		wanted["pool/"+theInline.PV], wanted["volumes/"+theInline.PV+".json"] = true, true
		faults = p.inlineFlaws(filepath.Join(p.pool, theInline.PV), data)
	}
	faults = append(faults, p.look().against(wanted, nil)...)
	all := harness.Need(p.inlineMounts())(p, "reading the mount table")
	if mounted := state == inlineMounted; len(all) > 1 || (len(all) == 1) != mounted {
		faults = append(faults, fault{double, fmt.Sprintf("mounted: %q", all)})
	} else if mounted {
		faults = append(faults, p.inlineFlaws(p.inlineTarget(), data)...)
	}
	return faults
}

// settleInline waits until the state is so, and what the pool has promised.
func (p *pods) settleInline(state inlineState, data bool) (faults []fault) {
	p.until(func() bool {
		if faults = p.inlineFaults(state, data); len(faults) == 0 && p.quiet(calm) {
			faults = p.promiseFaults(state)
			return len(faults) == 0
		}
		return false
	})
	return faults
}

func (p *pods) promiseFaults(state inlineState) []fault {
	want := p.promised
	if state != noInline {
		want += inlineMiB << 20
	}
	if got := p.promise(); got != want {
		return []fault{{leak, fmt.Sprintf("the pool has promised %.0f bytes, not %.0f", got, want)}}
	}
	return nil
}

// clearInline ends the pod. The daemon may not have been told: it is not waited for until it looks
// by itself, which is every five minutes, but started again.
func (p *pods) clearInline() []fault {
	if err := p.all([]podStep{(*pods).startAlone, (*pods).unpublishInline, (*pods).removePod}); err != nil {
		return []fault{{loss, "the end of the pod: " + err.Error()}}
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(calm / 10) {
		if len(p.inlineFaults(noInline, false)) == 0 {
			return p.settleInline(noInline, false)
		}
	}
	p.swept++
	p.die()
	p.start()
	return p.settleInline(noInline, false)
}

// promise is what the pool has promised, in bytes, and -1 if that cannot be read.
func (p *pods) promise() float64 {
	bytes, err := p.Metric(fmt.Sprintf("hostpath_provisioner_pool_promised_bytes{pool=%q}", name))
	if err != nil {
		return -1
	}
	return bytes
}
