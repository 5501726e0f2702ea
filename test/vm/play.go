package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pages"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/rig"
)

// node is the machine's name in the cluster.
const (
	node  = "machine"
	limit = 60 * time.Second // for one wait: guest code runs 12 to 17 times slower than this host's
)

// play is one run: the control plane on this host, and one machine at a time.
type play struct {
	ctx       context.Context
	opt       options
	dir       string
	image     image
	begin     time.Time
	say       func(string, ...any)
	cluster   *cluster.Cluster
	namespace string
	claims    int // made so far in the chapter: what is recorded of alerts has the names
	services  int // started for one command
	machine   *machine
	name      string // of the chapter
	installed string // the directory of the machine with the package; "" before there is one
	verdicts  []verdict
}

type verdict struct {
	chapter, step, detail string
	err                   error
	took                  time.Duration
}

// stop ends a chapter: what follows would make no sense.
type stop struct{ error }

func newPlay(ctx context.Context, o options) (*play, error) {
	begin := time.Now()
	p := &play{ctx: ctx, opt: o, begin: begin, say: saying(begin)}
	var err error
	if p.image, err = findImage(ctx, o.cache, p.say); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "vm-"); err != nil {
		return nil, err
	}
	if err := p.startCluster(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

func (p *play) startCluster() error {
	p.say("starting the control plane; seed %d", p.opt.seed)
	c, err := cluster.Start(p.ctx, cluster.Options{Dir: filepath.Join(p.dir, "cluster")})
	if err != nil {
		return err
	}
	p.cluster = c
	if err := c.AddNode(p.ctx, node, nil); err != nil {
		return err
	}
	manifests, err := output(product(), "manifests")
	if err != nil {
		return err
	}
	return c.Apply(p.ctx, manifests)
}

// newNamespace gives the chapter objects of its own: its namespace is its provisioner's name, too,
// so that its daemon has nothing to do with what machines of other chapters made.
func (p *play) newNamespace() (err error) {
	p.namespace, p.claims = must(p.cluster.NewNamespace(p.ctx, "vm-"+p.name+"-")), 0
	for _, pool := range []string{"fast", "big", "net", "dm"} {
		class := cluster.StorageClass(p.class(pool), p.namespace, storagev1.VolumeBindingImmediate)
		class.Parameters = map[string]string{"pool": pool}
		must(p.cluster.Client().StorageV1().StorageClasses().Create(p.ctx, class, metav1.CreateOptions{}))
	}
	return nil
}

// class is the chapter's class for the pool of that name.
func (p *play) class(pool string) string { return p.namespace + "-" + pool }

func (p *play) end() {
	if p.machine != nil {
		p.machine.kill()
	}
	p.cluster.Stop()
	os.RemoveAll(p.dir)
}

// chapter plays one chapter with a directory of its own.
func (p *play) chapter(c chapter) {
	p.name = c.name
	p.say("chapter %s", c.name)
	if !p.step("a namespace of its own", func() (string, error) { return "", p.newNamespace() }) {
		return
	}
	defer func() {
		if p.opt.shell && p.machine != nil {
			p.converse()
		}
		if p.machine != nil {
			p.machine.kill()
			p.machine = nil
		}
	}()
	defer func() {
		switch failed := recover().(type) {
		case nil, stop:
		default:
			panic(failed)
		}
	}()
	c.play(p)
}

// converse runs lines from standard input in the machine, until there are no more.
func (p *play) converse() {
	p.say("waiting for commands on standard input")
	// Reading cannot be interrupted, closing can.
	defer context.AfterFunc(p.ctx, func() { os.Stdin.Close() })()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan() && p.ctx.Err() == nil; {
		out, code, err := p.machine.ask(p.ctx, lines.Text())
		fmt.Printf("%s[exit code %d, %v]\n", out, code, err)
	}
}

// check ends the step if something failed; must and must2 are check for what returns something.
func check(err error)                                  { harness.Check(err) }
func must[T any](value T, err error) T                 { return harness.Got(value, err) }
func must2[T, U any](one T, other U, err error) (T, U) { return harness.Got2(one, other, err) }

// step does one thing and prints its verdict. What it returns is printed beside it.
func (p *play) step(name string, do func() (string, error)) bool {
	begin := time.Now()
	var detail string
	err := harness.Outcome(func() (err error) { detail, err = do(); return err })
	v := verdict{p.name, name, detail, err, time.Since(begin)}
	p.verdicts = append(p.verdicts, v)
	if err != nil {
		p.say("FAIL %s (%.1fs): %v", name, v.took.Seconds(), err)
		p.evidence()
		return false
	}
	if detail != "" {
		detail = ": " + detail
	}
	p.say("ok   %s%s (%.1fs)", name, detail, v.took.Seconds())
	return true
}

// need is step for what the rest of the chapter stands on.
func (p *play) need(name string, do func() (string, error)) {
	if !p.step(name, do) {
		panic(stop{})
	}
}

// evidence prints what the machine knows after a failure.
func (p *play) evidence() {
	if p.machine == nil {
		return
	}
	out, _, _ := p.machine.ask(p.ctx, "journalctl -u hostpath-provisioner -u hostpath-provisioner-csi -n 8 --no-pager -o cat; journalctl -k --no-pager -o cat -g 'avc:.*(hostpath|container)' | tail -n 6")
	if out == "" {
		out = p.machine.console()
	}
	fmt.Println("       | " + strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n       | "))
}

func (p *play) report() int {
	failed := 0
	for _, v := range p.verdicts {
		if v.err != nil {
			failed++
		}
	}
	fmt.Printf("\n%d steps, %d failed, %.0f s\n", len(p.verdicts), failed, time.Since(p.begin).Seconds())
	for _, v := range p.verdicts {
		if v.err != nil {
			fmt.Printf("FAIL %s: %s\n", v.chapter, v.step)
		}
	}
	if failed > 0 {
		return 1
	}
	return 0
}

// do is the machine's, for steps.
func (p *play) do(command string) (string, error) { return p.machine.do(p.ctx, command) }

// doAll runs commands one after the other and returns the last one's output.
func (p *play) doAll(commands ...string) (out string, err error) {
	for _, command := range commands {
		if out, err = p.do(command); err != nil {
			return out, err
		}
	}
	return out, nil
}

// soon is a context for one wait.
func (p *play) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, limit)
}

// claim makes a claim in the pool of that name and returns its name.
func (p *play) claim(pool string, edits ...func(*corev1.PersistentVolumeClaim)) (string, error) {
	p.claims++
	claim := cluster.Claim(p.namespace, fmt.Sprintf("claim-%d", p.claims), p.class(pool), "1Mi")
	claim.Annotations = map[string]string{"kubevirt.io/provisionOnNode": node}
	for _, edit := range edits {
		edit(claim)
	}
	_, err := p.cluster.Client().CoreV1().PersistentVolumeClaims(p.namespace).Create(p.ctx, claim, metav1.CreateOptions{})
	return claim.Name, err
}

// bound makes a claim and waits for its volume, whose directory it returns.
func (p *play) bound(pool string) (claim, dir string, err error) {
	if claim, err = p.claim(pool); err != nil {
		return "", "", err
	}
	dir, err = p.waitBound(claim)
	return claim, dir, err
}

func (p *play) waitBound(claim string) (dir string, err error) {
	ctx, cancel := p.soon()
	defer cancel()
	c, err := p.cluster.WaitClaimBound(ctx, p.namespace, claim)
	if err != nil {
		return "", err
	}
	volume, err := p.cluster.Client().CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return cluster.PathOf(volume), nil
}

// drop deletes a claim and waits until its volume is gone from the API.
func (p *play) drop(claim string) error {
	ctx, cancel := p.soon()
	defer cancel()
	claims := p.cluster.Client().CoreV1().PersistentVolumeClaims(p.namespace)
	c := must(claims.Get(ctx, claim, metav1.GetOptions{}))
	check(claims.Delete(ctx, claim, metav1.DeleteOptions{}))
	if c.Spec.VolumeName == "" {
		return p.cluster.WaitClaimGone(ctx, p.namespace, claim)
	}
	return p.cluster.WaitVolumeGone(ctx, c.Spec.VolumeName)
}

// refused waits for the event that says why a claim gets no volume.
func (p *play) refused(claim, reason string) (string, error) {
	ctx, cancel := p.soon()
	defer cancel()
	c := must(p.cluster.Client().CoreV1().PersistentVolumeClaims(p.namespace).Get(ctx, claim, metav1.GetOptions{}))
	event := must(p.cluster.WaitEvent(ctx, c, reason))
	return event.Message, nil
}

// volumes are the chapter's volumes in the API.
func (p *play) volumes() ([]corev1.PersistentVolume, error) {
	list, err := p.cluster.Client().CoreV1().PersistentVolumes().List(p.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(v corev1.PersistentVolume) bool {
		return v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Namespace != p.namespace
	}), nil
}

// selinuxPage are the blocks of commands of docs/selinux.md that run here, and what they have to
// say. The one that makes container_file_t is left to image/build.sh, which does the same when the
// machine is made: it wants packages from the network.
var selinuxPage = []struct {
	heading string
	number  int
	want    []string
}{
	{"Labels", 0, []string{" entries looked at, 0 to relabel", "pool fast: 1 volume, 1 entries looked at, 0 relabelled"}},
	{"The policy module", 0, []string{"selinux-module: loaded", ":hostpath_provisioner_t:s0"}},
	{"The policy module", 1, []string{"selinux-module: loaded", "relabelled"}},
	{"The policy module", 2, []string{"(filecon", "/srv/fast\tsystem_u:object_r:hostpath_provisioner_pool_t:s0", "/srv/fast/pvc-1\tsystem_u:object_r:container_file_t:s0"}},
	{"When something is refused", 0, []string{"hostpath_provisioner_t"}},
}

// page runs them as they stand there, with the name of a volume in place of the page's, and without
// ausearch, whose daemon is not in the machine. It fails when the page gets a command that is not
// listed above.
func (p *play) page() {
	p.step("the commands of docs/selinux.md", func() (string, error) {
		_, dir := must2(p.bound("fast"))
		here := strings.NewReplacer("pvc-868797d1-8b46-48eb-8be3-96ec25281b88", dir[strings.LastIndexByte(dir, '/')+1:],
			"ausearch -m avc -c hostpath-provisi\n", "")
		doc := pages.Open(rig.Root())
		for _, b := range selinuxPage {
			blocks := must(doc.Take("selinux.md", b.heading, "sh", b.number))
			said, err := p.policy("set -e\n" + here.Replace(blocks[0].Text)) // some compile it
			if err != nil {
				return "", fmt.Errorf("%s: %w", blocks[0], err)
			}
			for _, want := range b.want {
				if !strings.Contains(said, want) {
					return "", fmt.Errorf("%s: no %q in\n%s", blocks[0], want, said)
				}
			}
		}
		left := must(doc.Left("selinux.md"))
		if len(left) != 1 || left[0].Heading != "Debian and Ubuntu" {
			return "", fmt.Errorf("no chapter runs %q", left)
		}
		return fmt.Sprintf("%d blocks", len(selinuxPage)), nil
	})
}
