package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// power: the machine is killed in the middle of a churn and booted again, as often as -cuts says. The
// control plane lives on this host and remembers what it was told.
func (p *play) power() {
	p.need("a machine with pools on ext4 and xfs, and a daemon", func() (string, error) {
		if _, err := p.fresh(baseConfig); err != nil {
			return "", err
		}
		if _, err := p.poolsAndStart(); err != nil {
			return "", err
		}
		return p.do("sync") // fstab and the program are not what the cut is about
	})
	random := rand.New(rand.NewPCG(p.opt.seed, 1))
	before := len(p.verdicts)
	for round := 1; round <= p.opt.cuts; round++ {
		if !p.step(fmt.Sprintf("power cut %d of %d", round, p.opt.cuts), func() (string, error) { return p.cut(random) }) {
			break // the world is not what the next round would start from
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

// cut is one round.
func (p *play) cut(random *rand.Rand) (string, error) {
	c := &churn{p: p, random: rand.New(rand.NewPCG(random.Uint64(), 2)), seen: map[string]bool{}}
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
	told, err := c.told()
	if err != nil {
		return "", err
	}
	if err := p.bootAgain(); err != nil {
		return "", err
	}
	// The daemon is not enabled: this is the disk as the cut left it.
	if _, err := p.machine.until(p.ctx, limit, "mountpoint -q /srv/fast && mountpoint -q /srv/big"); err != nil {
		return "", err
	}
	if err := p.compare(told); err != nil {
		return "", fmt.Errorf("after the cut: %w", err)
	}
	if _, err := p.start(); err != nil {
		return "", err
	}
	settled, err := p.settle()
	if err == nil && len(told.exist) == 0 {
		err = fmt.Errorf("the cut found no volume")
	}
	return fmt.Sprintf("%d existed, %d were gone, %d under way; %s", len(told.exist), len(told.gone), told.underWay, settled), err
}

// churn makes and deletes claims, and remembers which volumes there ever were. Most of the claims are
// left alone, so that every cut finds volumes that exist, some that come and some that go.
type churn struct {
	p      *play
	random *rand.Rand
	seen   map[string]bool // volumes that the API had at some time
}

// few is how many claims wait for a volume at a time, and how many volumes for their removal.
const few = 3

func (c *churn) run(ctx context.Context) error {
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

// look answers the claims that have a volume, and how many claims and volumes are under way.
func (c *churn) look() (bound []string, pending, going int, err error) {
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

// told is what the API was told by the moment of the cut.
type told struct {
	exist    []string // volumes of claims that nobody asked to delete
	gone     []string // volumes that the API had, and has no more
	underWay int      // volumes that are to go
}

func (c *churn) told() (told, error) {
	var t told
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
func (p *play) compare(t told) error {
	out, err := p.do("ls -A /srv/fast /srv/big; ls -A /srv/fast/.hostpath-provisioner/volumes /srv/big/.hostpath-provisioner/volumes")
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

// settle waits until the daemon has finished or undone everything, and compares the whole world: the
// directories, the records and the objects are the same, and nothing else is left.
func (p *play) settle() (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, 2*limit)
	defer cancel()
	last := ""
	for {
		n, err := p.settled(ctx)
		if err == nil {
			return fmt.Sprintf("%d volumes, nothing left over", n), nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("not settled: %s", last)
		}
		last = err.Error()
	}
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
			return 0, fmt.Errorf("%s is left", line)
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
