package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// coldEvery is how many cuts there are to each that is followed by a boot from all disks as they
// were cut.
const coldEvery = 10

// power: the machine is killed in the middle of a load of claims and started again, as often as -cuts says. The
// control plane lives on this host and remembers what it has acknowledged.
//
// All that the daemon writes is on three disks: two pools and the one of its state directory. A
// start after a cut is a machine from before the first daemon, restored, which mounts them as they
// were cut. The kernel reads nothing of them from the memory that was restored: they were not
// mounted when it was saved. What is spared is the boot of a kernel and of Debian's services, and
// that the root disk is cut too; that, once in coldEvery cuts, is not spared.
func (p *play) power() {
	p.need("a machine with pools on ext4 and xfs, and the daemon's state on a third disk", p.threeDisks)
	p.need("the daemon writes on these disks alone", p.nothingOnRoot)
	random := rand.New(rand.NewPCG(p.opt.seed, 1))
	before := len(p.verdicts)
	for round := 1; round <= p.opt.cuts; round++ {
		cold := round%coldEvery == 0 || round == p.opt.cuts && p.opt.cuts < coldEvery
		if !p.step(fmt.Sprintf("power cut %d of %d", round, p.opt.cuts), func() (string, error) { return p.cut(random, cold) }) {
			break // the state is not what the next round would start from
		}
	}
	survived := 0
	for _, v := range p.verdicts[before:] {
		if v.err == nil {
			survived++
		}
	}
	p.say("%d of %d power cuts survived", survived, p.opt.cuts)
}

const (
	stateDir = "/var/lib/hostpath-provisioner"
	mountAll = "mount " + stateDir + " && mount /srv/fast && mount /srv/big"
)

// threeDisks saves the machine as the rounds restore it: nothing mounted, no daemon since it was
// booted.
func (p *play) threeDisks() (string, error) {
	must(p.fresh(baseConfig))
	must(p.doAll(
		"mkfs.ext4 -q /dev/vde && echo '/dev/vde "+stateDir+" ext4 defaults,nofail 0 0' >> /etc/fstab",
		"mount /dev/vde "+stateDir+" && restorecon "+stateDir,
	))
	must(p.pools())
	must(p.do("umount /srv/fast /srv/big " + stateDir))
	check(p.freeze(p.saved("state")))
	check(os.Rename(p.machine.opt.Root, p.saved("qcow2")))
	return "", p.again(false)
}

// saved is a file of the machine that the rounds start from.
func (p *play) saved(what string) string { return filepath.Join(p.dir, p.name, "saved."+what) }

// again starts the machine on its disks as they are: restored on a fresh root disk, or booted from
// the one it had.
func (p *play) again(cold bool) error {
	o := p.machine.opt
	if cold {
		o.State = ""
		check(p.boot(o))
		_, err := p.machine.until(p.ctx, limit, "mountpoint -q "+stateDir+" && mountpoint -q /srv/fast && mountpoint -q /srv/big")
		return err
	}
	o.State, o.Backing = p.saved("state"), p.saved("qcow2")
	check(os.RemoveAll(o.Root))
	check(p.boot(o))
	_, err := p.do(mountAll)
	return err
}

// nothingOnRoot starts the daemon, lets it work, and looks for what changed on the root disk.
func (p *play) nothingOnRoot() (string, error) {
	must(p.do("sync; sleep 0.1; touch /run/before"))
	must(p.start())
	for _, pool := range []string{"fast", "big"} {
		claim, _ := must2(p.bound(pool))
		check(p.drop(claim))
	}
	// The root disk alone, as it is under what is mounted. Two private temporary directories are
	// the service manager's.
	return p.expect("mkdir /run/root && mount --bind / /run/root && find /run/root -cnewer /run/before ! -path '*/tmp' ! -path '*/tmp/systemd-private-*'; umount /run/root; echo looked", "looked", "!/run")
}

// cut is one round.
func (p *play) cut(random *rand.Rand, cold bool) (string, error) {
	c := &load{p: p, random: rand.New(rand.NewPCG(random.Uint64(), 2)), seen: map[string]bool{}}
	ctx, end := context.WithCancel(p.ctx)
	var work sync.WaitGroup
	var failed error
	work.Go(func() { failed = c.run(ctx) })
	select {
	case <-time.After(2*time.Second + time.Duration(random.Int64N(int64(4*time.Second)))): // any moment
	case <-ctx.Done():
	}
	p.machine.kill()
	end()
	work.Wait()
	if failed != nil {
		return "", failed
	}
	acked := must(c.acknowledged())
	check(p.again(cold))
	// The daemon is not enabled: these are the disks as the cut left them.
	if err := p.compare(acked); err != nil {
		return "", fmt.Errorf("after the cut: %w", err)
	}
	must(p.start())
	settled, err := p.settle(acked.gone)
	if err == nil && len(acked.exist) == 0 {
		err = fmt.Errorf("the cut found no volume")
	}
	how := map[bool]string{true: "booted: ", false: ""}[cold]
	return fmt.Sprintf("%s%d existed, %d were gone, %d under way; %s", how, len(acked.exist), len(acked.gone), acked.underWay, settled), err
}

// load makes and deletes claims, and remembers which volumes there ever were. Most of the claims
// are left alone, so that every cut finds volumes that exist, some that come and some that go.
type load struct {
	p      *play
	random *rand.Rand
	seen   map[string]bool // volumes that the API had at some time
}

// few is how many claims wait for a volume at a time, and how many volumes for their removal.
const few = 3

func (c *load) run(ctx context.Context) error {
	claims := c.p.cluster.Client().CoreV1().PersistentVolumeClaims(c.p.namespace)
	for ctx.Err() == nil {
		bound, pending, going, err := c.look()
		if err != nil {
			return err
		}
		switch {
		case len(bound)+pending < c.p.opt.claims && pending < few:
			pool := []string{"fast", "big"}[c.random.IntN(2)]
			if _, err := c.p.claim(pool); err != nil {
				return err
			}
		case len(bound) > c.p.opt.claims/2 && going < few:
			name := bound[c.random.IntN(len(bound))]
			if err := claims.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		default:
			time.Sleep(20 * time.Millisecond) // between two questions
		}
	}
	return nil
}

// look returns the claims that have a volume, and how many claims and volumes are under way.
func (c *load) look() (bound []string, pending, going int, err error) {
	list, err := c.p.cluster.Client().CoreV1().PersistentVolumeClaims(c.p.namespace).List(c.p.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, 0, 0, err
	}
	for _, claim := range list.Items {
		switch {
		case claim.DeletionTimestamp != nil:
		case claim.Status.Phase == corev1.ClaimBound:
			bound = append(bound, claim.Name)
			c.seen[claim.Spec.VolumeName] = true
		default:
			pending++
		}
	}
	volumes, err := c.p.volumes()
	for _, v := range volumes {
		if v.Status.Phase == corev1.VolumeReleased || v.DeletionTimestamp != nil {
			going++
		}
	}
	return bound, pending, going, err
}

// acknowledged is what the API server had of the volumes at the moment of the cut.
type acknowledged struct {
	exist    []string // volumes of claims that were not deleted
	gone     []string // volumes that the API had, and has no more
	underWay int      // volumes that are to go
}

func (c *load) acknowledged() (acknowledged, error) {
	var t acknowledged
	volumes, err := c.p.volumes()
	if err != nil {
		return t, err
	}
	claims, err := c.p.cluster.Client().CoreV1().PersistentVolumeClaims(c.p.namespace).List(c.p.ctx, metav1.ListOptions{})
	if err != nil {
		return t, err
	}
	alive := map[string]bool{}
	for _, claim := range claims.Items {
		alive["pvc-"+string(claim.UID)] = claim.DeletionTimestamp == nil
	}
	there := map[string]bool{}
	for _, v := range volumes {
		there[v.Name] = true
		if alive[v.Name] && v.DeletionTimestamp == nil {
			t.exist = append(t.exist, v.Name)
		} else {
			t.underWay++
		}
	}
	for name := range c.seen {
		if !there[name] {
			t.gone = append(t.gone, name)
		}
	}
	return t, nil
}

// compare looks at the disk before the daemon does.
func (p *play) compare(t acknowledged) error {
	out, err := p.do("ls -A /srv/fast /srv/big; ls -A /srv/fast/.hostpath-provisioner/volumes /srv/big/.hostpath-provisioner/volumes; " +
		"for p in fast big; do cmp " + stateDir + "/state/pools/$p.json /srv/$p/.hostpath-provisioner/pool.json || exit 1; done")
	if err != nil {
		return err
	}
	lines := strings.Fields(out)
	for _, name := range t.exist {
		if !slices.Contains(lines, name) {
			return fmt.Errorf("volume %s is lost", name)
		}
		if !slices.Contains(lines, name+".json") && !slices.Contains(lines, name+".json.new") {
			return fmt.Errorf("volume %s has lost its record", name)
		}
	}
	for _, name := range t.gone {
		if slices.Contains(lines, name) {
			return fmt.Errorf("volume %s came back", name)
		}
	}
	return nil
}

// settle waits until the daemon has finished or undone everything, and compares the whole state:
// the directories, the records and the objects are the same, and nothing else is left. But a volume
// whose object went just before the cut may be whole in the trash (docs/dev/proofs.md): few at
// most, each reported.
func (p *play) settle(gone []string) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, 2*limit)
	defer cancel()
	last := ""
	for dropped := 0; ; {
		n, err := p.settled(ctx)
		if err == nil {
			return fmt.Sprintf("%d volumes, %d kept in the trash, nothing left over", n, dropped), nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("not settled: %s", last)
		}
		last = err.Error()
		if left, is := errors.AsType[leftError](err); is && dropped < few && left.pool != "" && slices.Contains(gone, left.volume) {
			if err := p.dropKept(ctx, left); err == nil {
				dropped++
			}
		}
	}
}

// leftError is a file that no claim explains. One in the trash is of a volume, in a pool.
type leftError struct{ path, pool, volume string }

func (e leftError) Error() string { return e.path + " is left" }

func newLeftError(path string) leftError {
	pool, volume, trash := strings.Cut(path, "/.hostpath-provisioner/trash/")
	if !trash || strings.HasSuffix(volume, "~") {
		return leftError{path: path}
	}
	return leftError{path, pool, volume}
}

// dropKept removes a volume that is kept in the trash, if the daemon reported it, as the documents
// say: its directory by hand, and the daemon forgets the record with its next start.
func (p *play) dropKept(ctx context.Context, left leftError) error {
	_, err := p.machine.do(ctx, fmt.Sprintf("journalctl -u hostpath-provisioner -b -o cat --no-pager | grep 'reason=Orphaned volume=%s ' && test -e /srv/%s/.hostpath-provisioner/volumes/%s.json && "+
		"rm -r /srv/%s/.hostpath-provisioner/trash/%s && systemctl restart hostpath-provisioner", left.volume, left.pool, left.volume, left.pool, left.volume))
	return err
}

func (p *play) settled(ctx context.Context) (int, error) {
	claims, err := p.cluster.Client().CoreV1().PersistentVolumeClaims(p.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	var want []string
	for _, claim := range claims.Items {
		if claim.Status.Phase != corev1.ClaimBound {
			return 0, fmt.Errorf("claim %s is %s", claim.Name, claim.Status.Phase)
		}
		want = append(want, claim.Spec.VolumeName)
	}
	volumes, err := p.volumes()
	if err != nil {
		return 0, err
	}
	var objects []string
	for _, v := range volumes {
		objects = append(objects, v.Name)
	}
	const list = "cd /srv; for d in fast big; do for n in $d/* $d/.hostpath-provisioner/volumes/* $d/.hostpath-provisioner/staging/* $d/.hostpath-provisioner/trash/*; do " +
		"test -e $n && case $n in */lost+found) ;; *) echo $n;; esac; done; done; true"
	out, err := p.machine.do(ctx, list)
	if err != nil {
		return 0, err
	}
	var dirs, records []string
	for _, line := range strings.Fields(out) {
		name := line[strings.LastIndexByte(line, '/')+1:]
		record, isRecord := strings.CutSuffix(name, ".json")
		switch {
		case strings.Contains(line, "/volumes/") && isRecord:
			records = append(records, record)
		case strings.Contains(line, "/.hostpath-provisioner/"):
			return 0, newLeftError(line)
		default:
			dirs = append(dirs, name)
		}
	}
	for what, got := range map[string][]string{"objects": objects, "directories": dirs, "records": records} {
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			return 0, fmt.Errorf("%s are %q, claims want %q", what, got, want)
		}
	}
	return len(want), nil
}
