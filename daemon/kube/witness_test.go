package kube

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// A watch that broke goes on where it was, without a new list, whatever became of the claim that was written last.
func TestSieveKeepsItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, ns string)
		want      []string
		asked     int32
	}{
		"nothing happens":      {func(*testing.T, string) {}, nil, 1},
		"the claim changes":    {func(t *testing.T, ns string) { setMark(t, ns, "a", "2") }, []string{"~a 2"}, 2},
		"the claim goes":       {func(t *testing.T, ns string) { deleteClaim(t, plane, ns, "a") }, []string{"-a 1"}, 2},
		"another claim goes":   {func(t *testing.T, ns string) { deleteClaim(t, plane, ns, "early") }, []string{"-early 1"}, 1},
		"the claim comes back": {func(t *testing.T, ns string) { deleteClaim(t, plane, ns, "a"); newClaim(t, plane, ns, "a", "3") }, []string{"-a 1", "+a 3"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			ns, d := namespace(t), &diary{}
			newClaim(t, plane, ns, "early", "1")
			client, _ := newClient(t, Options{})
			from := client.source(client.core, "persistentvolumeclaims", newClaimList)
			from.namespace = ns // no other test's claims
			broken := &decorated{source: from, mode: brief, before: func() { c.meanwhile(t, ns) }}
			running(t, NewSieve(broken, in(ns), d.told))
			newClaim(t, plane, ns, "a", "1")
			eventually(t, "the watch after the break", func() bool { return broken.watches.Load() == 2 })
			newClaim(t, plane, ns, "b", "1")
			d.expect(t, append(append([]string{"+early 1", "+a 1"}, c.want...), "+b 1")...)
			if broken.lists.Load() != 1 || broken.asked.Load() != c.asked {
				t.Errorf("%d lists, and %d requests for one object, want 1 and %d", broken.lists.Load(), broken.asked.Load(), c.asked)
			}
		})
	}
}

// The next watch begins where the witness was written: what came after it may be of another history. A claim that was
// deleted then and is there again, with its UID, is one.
func TestSieveBeginsWithItsWitness(t *testing.T) {
	ns, d := namespace(t), &diary{}
	newClaim(t, plane, ns, "early", "1")
	client, _ := newClient(t, Options{})
	from := client.source(client.core, "persistentvolumeclaims", newClaimList)
	from.namespace = ns
	broken := &decorated{source: from, mode: longer}
	s := running(t, NewSieve(broken, in(ns), d.told))
	last := newClaim(t, plane, ns, "a", "1")
	d.expect(t, "+early 1", "+a 1")
	deleteClaim(t, plane, ns, "early")
	eventually(t, "the watch after the break", func() bool { return broken.watches.Load() == 2 })
	if version, _ := broken.from.Load(int32(2)); version != broken.wrote.Load() {
		t.Errorf("it began at %v, and the last write was at %v", version, broken.wrote.Load())
	}
	if kept, _ := s.Get(ns + "/a"); kept == nil || broken.lists.Load() != 1 {
		t.Errorf("%d lists", broken.lists.Load())
	}
	w := witness{last: markOf(last), gone: []mark{markOf(last)}}
	other := NewSieve(broken, in(ns), nil)
	other.witness, other.version = w, last.ResourceVersion
	if goOn, err := other.upToDate(t.Context()); goOn || err != nil {
		t.Errorf("what was deleted is there, and it goes on: %v, %v", goOn, err)
	}
}

// A daemon was stopped while the server's data was restored to the day before, and the server has come further since than
// the daemon knew: only the witness tells that what it knows is another history.
func TestServerRestoredAndOvertaken(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	private, err := cluster.Start(ctx, cluster.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = private.Kill() })
	again := func(meanwhile func()) {
		t.Helper()
		if err := private.Kill(); err != nil {
			t.Fatal(err)
		}
		meanwhile()
		if err := private.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	h := &histories{t: t, in: private}
	h.make("early")
	again(func() { earlierDay(t, dir) })

	c, _ := newClient(t, Options{Kubeconfig: private.Kubeconfig(), Namespace: "default", Provisioner: "p"})
	claims, volumes, leases := newStopper[*corev1.PersistentVolumeClaim](), newStopper[*corev1.PersistentVolume](), newStopper[*coordinationv1.Lease]()
	s := running(t, c.Claims(in("default"), claims.told))
	v := running(t, c.Volumes("node-a", volumes.told))
	l := running(t, c.Leases([]string{"early", "lost", "stop", "unseen"}, leases.told))
	h.make("lost")
	h.make("stop") // the three stand still in the middle of a change, as in a process that is stopped
	<-claims.stopped
	<-volumes.stopped
	<-leases.stopped
	again(func() { restore(t, dir) })
	h.make("unseen")
	busyDay(t, private)
	close(claims.goOn)
	close(volumes.goOn)
	close(leases.goOn)
	for what, keys := range map[string]func() string{
		"claims":  func() string { return has(s, "default/early", "default/lost", "default/stop", "default/unseen") },
		"volumes": func() string { return has(v, "early", "lost", "stop", "unseen") },
		"leases": func() string {
			return has(l, "default/early.p", "default/lost.p", "default/stop.p", "default/unseen.p")
		},
	} {
		eventually(t, "the "+what+" of the restored server", func() bool { return keys() == "yes no no yes" })
	}
}

func has[T Object](s *Sieve[T], keys ...string) (words string) {
	for i, key := range keys {
		if i > 0 {
			words += " "
		}
		if _, kept := s.Get(key); kept {
			words += "yes"
		} else {
			words += "no"
		}
	}
	return words
}

// stopper stands still when it is told of an object whose name begins with "stop".
type stopper[T Object] struct{ stopped, goOn chan struct{} }

func newStopper[T Object]() *stopper[T] {
	return &stopper[T]{stopped: make(chan struct{}), goOn: make(chan struct{})}
}

func (s *stopper[T]) told(old, now T) {
	var none T
	if old == none && (now.GetName() == "stop" || now.GetName() == "stop.p") {
		close(s.stopped)
		<-s.goOn
	}
}

// histories makes a claim, a volume and a lease of a name.
type histories struct {
	t  *testing.T
	in *cluster.Cluster
}

func (h *histories) make(name string) {
	h.t.Helper()
	newClaim(h.t, h.in, "default", name, "1")
	pv := volume(name, name)
	pv.Labels = map[string]string{plan.NodeLabel: "node-a"}
	pv.Annotations = map[string]string{plan.ProvisionedBy: "p"}
	if _, err := h.in.Client().CoreV1().PersistentVolumes().Create(h.t.Context(), pv, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: plan.LeaseName("p", name), Labels: map[string]string{plan.PoolLabel: name}}}
	if _, err := h.in.Client().CoordinationV1().Leases("default").Create(context.WithoutCancel(h.t.Context()), lease, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}
