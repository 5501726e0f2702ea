package crash

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/harness"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

const (
	commandSpan = 80 // a command that is to die lives for so many points at most
	deathsMax   = 3  // of one command, before it is left alone
	looseClaims = 20
	replicas    = 3
)

// wandering is three machines with a disk each. The disks are put into other machines, and nodes
// forgotten, while the commands and the daemons that have to do with that are killed.
type wandering struct {
	*mover
	random  *rand.Rand
	r       *row
	volumes map[string]string // every volume that there ever was, by name: what is in it
}

// proveWandering interrupts moves at random until there were so many interruptions.
func proveWandering(e *prover, plane func() *harness.Plane) report {
	opt := e.opt
	if opt.moves == 0 || !opt.clones() {
		return nil
	}
	w := &wandering{mover: buildMover(e, plane(), 3), volumes: map[string]string{},
		random: rand.New(rand.NewPCG(opt.seed, 1)),
		r:      &row{name: fmt.Sprintf("%d random interruptions of moves", opt.moves)}}
	w.Say("interrupting moves at random, seed %d", opt.seed)
	w.populate()
	rounds := 0
	for ; w.r.kills < opt.moves && w.ctx.Err() == nil && w.r.broken == 0; rounds++ {
		w.round()
		if opt.printAll {
			w.Say("round %d: %d interruptions, %d volumes", rounds, w.r.kills, len(w.volumes))
		}
	}
	w.r.points = w.r.kills
	w.Say("%s; %d rounds, %d volumes", w.r, rounds, len(w.volumes))
	for _, a := range w.machines {
		w.dies(a)
	}
	return report{w.r}
}

// populate makes the claims, and the set whose pods have a claim each.
func (w *wandering) populate() {
	for n := range looseClaims {
		c := cluster.Claim(w.Namespace, fmt.Sprintf("loose-%d", n), deleted, "1Mi")
		c.Annotations = map[string]string{plan.ProvisionOnNode: w.machines[n%3].node}
		_, err := w.Claims().Create(w.ctx, c, metav1.CreateOptions{})
		w.Must(err, "creating a claim")
	}
	labels, count := map[string]string{"app": "set"}, int32(replicas)
	pod := cluster.Pod(w.Namespace, "", "data")
	pod.Labels, pod.Spec.Volumes = labels, nil // those of the claim templates
	_, err := w.Client.AppsV1().StatefulSets(w.Namespace).Create(w.ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &count, ServiceName: "set", PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{
				*cluster.Claim(w.Namespace, "data", consumer, "1Mi")},
		},
	}, metav1.CreateOptions{})
	w.Must(err, "creating a StatefulSet")
	w.check()
	if w.r.broken > 0 {
		w.Fatalf("not provisioned, though nothing was killed: %q", w.r.shown)
	}
}

// round is some of the things that happen to machines, and then the comparison.
func (w *wandering) round() {
	switch x, y := w.two(); w.random.IntN(5) {
	case 0:
		w.forgotten(x)
	default:
		w.swap(x, y)
		for w.random.IntN(3) == 0 { // the disks go on before anything is finished
			w.imports(w.from(y), y, false)
			x, y = w.two()
			w.swap(x, y)
		}
	}
	w.arrange()
	w.check()
}

func (w *wandering) two() (x, y *machine) {
	of := w.random.Perm(len(w.machines))
	return w.machines[of[0]], w.machines[of[1]]
}

// swap takes the disks of two machines that died, and puts each into the other.
func (w *wandering) swap(x, y *machine) {
	for _, a := range []*machine{x, y} {
		w.down(a)
		hosttest.Unmount(w, a.pool)
	}
	x.image, y.image = y.image, x.image
	for _, a := range []*machine{x, y} {
		a.image.Mount(w, a.pool)
		// A machine remembers which disk it has; this one is another.
		w.Must(os.RemoveAll(a.daemon.Path("state", "pools")), "forgetting a disk")
	}
}

// down has a machine die, as some minutes ago, and an administrator delete its pods.
func (w *wandering) down(a *machine) {
	w.dies(a)
	w.silent(a)
	w.evict(a)
}

func (w *wandering) evict(a *machine) {
	w.Must(w.Client.CoreV1().Pods(w.Namespace).DeleteCollection(w.ctx, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64)},
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + a.node}), "deleting pods")
}

// up starts a machine's daemon, which may die in what it does at its start.
func (w *wandering) up(a *machine) {
	w.say(a, corev1.ConditionTrue)
	for range w.random.IntN(3) {
		died := a.killer.Arm("", 1+w.random.IntN(span/2))
		w.Must(a.daemon.Start(), "starting a daemon")
		w.until(func() bool { return len(died) > 0 || a.killer.Quiet(idle) })
		a.killer.Disarm()
		if len(died) == 0 {
			return
		}
		<-a.daemon.Exited()
		w.r.kills++
	}
	w.Must(a.daemon.Start(), "starting a daemon")
}

// imports takes a disk over that was another machine's. Without whole it may be left undone.
func (w *wandering) imports(from string, on *machine, whole bool) {
	args := []string{"import", name, "--from-node", from}
	if alive := w.named(from); alive != on && alive.daemon.Running() {
		args = append(args, "--force="+from)
	}
	w.attempt(from, on, whole, args...)
}

func (w *wandering) named(node string) *machine {
	return w.machines[slices.IndexFunc(w.machines, func(a *machine) bool { return a.node == node })]
}

// attempt makes a call that is about a node. It dies at random; what does not end by itself is
// called again, up to some number of times.
func (w *wandering) attempt(from string, on *machine, whole bool, args ...string) {
	for try := 0; ; try++ {
		n := 0
		if try < deathsMax {
			n = 1 + w.random.IntN(commandSpan)
		}
		died := on.commands.Arm("", n)
		out, err := w.call(on, args...)
		on.commands.Disarm()
		switch {
		case len(died) > 0:
			if w.r.kills++; !whole {
				return
			}
		case err == nil, onlyTaken(out):
			return
		case try > 2*deathsMax:
			w.r.blame(fmt.Sprintf("%q on %s", args, on.node), []fault{{loss, out}})
			return
		case strings.Contains(out, "another disk with the same records"):
			args = append(args, "--force="+from) // the call before was left undone
		default: // a pod was scheduled there, to where its volume was
			w.cordon(w.named(from), true)
			w.evict(w.named(from))
		}
	}
}

// onlyTaken reports whether nothing but volumes was refused whose claim has another one by now.
func onlyTaken(out string) bool {
	refused := strings.Count(out, "refused: ")
	return refused > 0 && refused == strings.Count(out, "refused: a claim of the name is there")
}

// forgotten has a node forgotten whose disk comes back after all.
func (w *wandering) forgotten(x *machine) {
	w.down(x)
	on, _ := w.two()
	args := []string{"forget-node", x.node}
	if w.random.IntN(2) == 0 {
		args = append(args, "--claims")
	}
	w.attempt(x.node, on, true, args...)
	if w.random.IntN(2) == 0 {
		w.up(x)
	}
	args = []string{"import", name, "--new-cluster", "--claims"}
	w.attempt(x.node, x, true, args...)
}

// arrange calls import for whatever a disk's marker and objects still name, as an administrator
// does who reads what the call before has said, and has all machines run.
func (w *wandering) arrange() {
	for _, on := range w.machines {
		if !on.daemon.Running() && w.random.IntN(2) == 0 {
			w.up(on)
		}
		for _, from := range w.names(on) {
			w.imports(from, on, true)
		}
	}
	for _, a := range w.machines {
		if w.cordon(a, false); !a.daemon.Running() {
			w.up(a)
		}
	}
}

// cordon has no pod be scheduled on a machine, or lets them again.
func (w *wandering) cordon(a *machine, on bool) {
	_, err := w.Client.CoreV1().Nodes().Patch(w.ctx, a.node, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on), metav1.PatchOptions{})
	w.Must(err, "patching a node")
}

// from is whose a disk is by its marker.
func (w *wandering) from(on *machine) string {
	text, err := os.ReadFile(filepath.Join(on.pool, hostcheck.PrivateDir, "pool.json"))
	w.Must(err, "reading a marker")
	m := harness.Need(hostcheck.DecodeMarker(text))(w, "reading a marker")
	return m.Node
}

// names are the machines that the marker and the objects of a disk's volumes name, besides the one
// that has it: first the marker's.
func (w *wandering) names(on *machine) []string {
	var all []string
	if m := w.from(on); m != on.node {
		all = append(all, m)
	}
	volumes := harness.Need(w.Volumes().List(w.ctx, metav1.ListOptions{}))(w, "listing volumes")
	for _, v := range volumes.Items {
		of := v.Labels[plan.NodeLabel]
		_, err := os.Lstat(filepath.Join(on.pool, v.Name))
		if err == nil && of != on.node && !slices.Contains(all, of) {
			all = append(all, of)
		}
	}
	return all
}

// check waits until everything is as it has to be, and has each new volume written to.
func (w *wandering) check() {
	var faults []fault
	w.until(func() bool {
		faults = w.compare()
		return len(faults) == 0
	})
	w.r.blame(fmt.Sprintf("after %d interruptions, seed %d", w.r.kills, w.opt.seed), faults)
}

// compare returns what is not so: every claim is bound to one volume, which is on the machine that
// has its disk, and no volume is without one; of all volumes that ever were each is on one disk,
// with its data.
func (w *wandering) compare() (faults []fault) {
	add := func(k kind, format string, args ...any) {
		faults = append(faults, fault{k, fmt.Sprintf(format, args...)})
	}
	s := w.look()
	at := map[string][]*machine{}
	for _, a := range w.machines {
		if !a.daemon.Running() {
			add(loss, "the daemon of %s ended", a.node)
		}
		if owner := w.from(a); owner != a.node {
			add(double, "the disk in %s is %s's", a.node, owner)
		}
		entries := harness.Need(os.ReadDir(a.pool))(w, "reading a pool")
		for _, e := range entries {
			at[e.Name()] = append(at[e.Name()], a)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.volumes)) {
		if len(at[name]) != 1 {
			add(loss, "volume %s is on %d disks", name, len(at[name]))
			continue
		}
		d, err := readDir(filepath.Join(at[name][0].pool, name))
		if err != nil || d.data != w.volumes[name] {
			add(loss, "volume %s has %q, %v", name, d.data, err)
		}
	}
	if len(s.claims) != looseClaims+replicas || len(s.objects) != len(s.claims) {
		add(leak, "%d claims and %d objects", len(s.claims), len(s.objects))
	}
	volumes := harness.Need(w.Volumes().List(w.ctx, metav1.ListOptions{}))(w, "listing volumes")
	for _, v := range volumes.Items {
		faults = append(faults, w.flaws(&v, s, at[v.Name])...)
	}
	return faults
}

// flaws of one object, which is to be of one claim and where its directory is. What is new is
// written to.
func (w *wandering) flaws(v *corev1.PersistentVolume, s snapshot, at []*machine) []fault {
	o, ref := toObject(v), v.Spec.ClaimRef
	if ref == nil || len(at) != 1 || v.DeletionTimestamp != nil || o.finalizers != 1 {
		return []fault{{loss, fmt.Sprintf("object %s is on %d disks: %+v", v.Name, len(at), o)}}
	}
	c, there := s.claims[ref.Name]
	want := claim{o.uid, "Bound", v.Name, false, firstMiB, ""}
	if !there || c != want || o.phase != "Bound" || o.path != filepath.Join(at[0].pool, v.Name) ||
		!isOf(v, at[0].node) {
		return []fault{{loss, fmt.Sprintf("object %+v of claim %s, %+v, on %s", o, ref.Name, c,
			at[0].node)}}
	}
	if _, known := w.volumes[v.Name]; !known {
		data := fmt.Sprintf("%s %d", v.Name, w.random.Uint64())
		w.Must(os.WriteFile(filepath.Join(o.path, dataFile), []byte(data), 0o600), "writing")
		w.volumes[v.Name] = data
	}
	return nil
}
