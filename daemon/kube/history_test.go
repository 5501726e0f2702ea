package kube

import (
	"context"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/leadership"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// A watch that broke goes on where it was, without a new list, whatever became of the claim that
// was written last.
func TestInformerKeepsItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, ns string)
		want      []string
	}{
		"nothing happens":      {func(*testing.T, string) {}, nil},
		"the claim changes":    {func(t *testing.T, ns string) { setMark(t, ns, "a", "2") }, []string{"~a 2"}},
		"the claim goes":       {func(t *testing.T, ns string) { deleteClaim(t, plane, ns, "a") }, []string{"-a 1"}},
		"another claim goes":   {func(t *testing.T, ns string) { deleteClaim(t, plane, ns, "early") }, []string{"-early 1"}},
		"the claim comes back": {func(t *testing.T, ns string) { deleteClaim(t, plane, ns, "a"); newClaim(t, plane, ns, "a", "3") }, []string{"-a 1", "+a 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			ns, d := namespace(t), &changeLog{}
			newClaim(t, plane, ns, "early", "1")
			client, w := newClient(t, Options{})
			from := claimKind.source(client, selection{})
			from.namespace = ns // no other test's claims
			broken := &faultySource{source: from, mode: brief, before: func() { c.meanwhile(t, ns) }}
			running(t, NewInformer(broken, in(ns), d.told))
			w.forget()
			newClaim(t, plane, ns, "a", "1")
			eventually(t, "the watch after the break", func() bool { return broken.watches.Load() == 2 })
			newClaim(t, plane, ns, "b", "1")
			d.expect(t, append(append([]string{"+early 1", "+a 1"}, c.want...), "+b 1")...)
			if asked := w.requests(); broken.lists.Load() != 1 || w.count("watch") != len(asked) {
				t.Errorf("%d lists, and %q, want watches alone", broken.lists.Load(), asked)
			}
		})
	}
}

// The next watch begins just before the last change that is known, a deletion here: what came after
// that may be of another history.
func TestInformerWatchesFromLastChange(t *testing.T) {
	ns, d := namespace(t), &changeLog{}
	newClaim(t, plane, ns, "early", "1")
	client, _ := newClient(t, Options{})
	from := claimKind.source(client, selection{})
	from.namespace = ns
	broken := &faultySource{source: from, mode: longer}
	s := running(t, NewInformer(broken, in(ns), d.told))
	newClaim(t, plane, ns, "a", "1")
	d.expect(t, "+early 1", "+a 1")
	deleteClaim(t, plane, ns, "early")
	eventually(t, "the watch after the break", func() bool { return broken.watches.Load() == 2 })
	last, _ := broken.last.Load().(string)
	if version, _ := broken.from.Load(int32(2)); last == "" || version != (change{version: last}).versionBefore() {
		t.Errorf("it began at %v, and the last change was at %v", version, last)
	}
	newClaim(t, plane, ns, "b", "1")
	d.expect(t, "+early 1", "+a 1", "-early 1", "+b 1")
	if kept, _ := s.Get(ns + "/a"); kept == nil || broken.lists.Load() != 1 {
		t.Errorf("%d lists", broken.lists.Load())
	}
}

// Whatever is not the last known change is another history, which is read anew.
func TestInformerVerifiesHistory(t *testing.T) {
	ns := namespace(t)
	made := newClaim(t, plane, ns, "a", "1")
	next := newClaim(t, plane, ns, "b", "1")
	at := func(o metav1.Object, uid string, version int) change {
		number, err := strconv.Atoi(o.GetResourceVersion())
		if err != nil {
			t.Fatal(err)
		}
		return change{types.UID(uid), strconv.Itoa(number + version)}
	}
	for name, c := range map[string]struct {
		of       change
		verified bool
	}{
		"the last change":         {at(next, string(next.UID), 0), true},
		"a change before it":      {at(made, string(made.UID), 0), true},
		"another object":          {at(next, string(made.UID), 0), false},
		"nothing at this version": {at(made, string(made.UID), -1), false},
		"no change that long":     {at(next, string(next.UID), 1_000_000), false},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := newClient(t, Options{})
			from := claimKind.source(client, selection{})
			from.namespace = ns
			s := NewInformer(from, in(ns), nil)
			s.lastChange, s.timings.verify = c.of, time.Second
			w, err := from.Watch(t.Context(), metav1.ListOptions{ResourceVersion: c.of.versionBefore(), AllowWatchBookmarks: true})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if verified, err := s.verifyHistory(ctx, w); verified != c.verified || err != nil || ctx.Err() != nil {
				t.Errorf("verified: %v, %v, %v; want %v", verified, err, ctx.Err(), c.verified)
			}
			if c.verified && s.version != c.of.version {
				t.Errorf("the watch continues at %s, want %s", s.version, c.of.version)
			}
		})
	}
}

// A daemon was stopped while the server's data was restored to the day before, and the server has
// come further since than the daemon knew: only the last known change shows that what it knows is
// another history.
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

	c, _ := newClient(t, Options{Kubeconfig: private.Kubeconfig(), Namespace: "default", Self: plan.Self{Provisioner: "p"}})
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

func has[T Object](s *Informer[T], keys ...string) (words string) {
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
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leadership.Name("p", name), Labels: map[string]string{plan.PoolLabel: name}}}
	if _, err := h.in.Client().CoordinationV1().Leases("default").Create(context.WithoutCancel(h.t.Context()), lease, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}
