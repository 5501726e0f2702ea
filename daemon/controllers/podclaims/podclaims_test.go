package podclaims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What waits in a namespace counts, and in others for as long as their claims come to this node.
func TestNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Waiting{}
		if !w.Need("a").Alone {
			t.Error("nothing waits")
		}
		w.Set("a", "1", Claim{"fast", 10, false}, true)
		if !w.Need("a").Alone {
			t.Error("one claim is alone")
		}
		w.Set("b", "2", Claim{"fast", 100, true}, false)
		w.Set("a", "3", Claim{"slow", 5, false}, false)
		w.Set("c", "4", Claim{"fast", 1000, false}, true)
		w.Set("c", "5", Claim{"fast", 1, false}, false)
		want := func(when string, refused bool, bytes map[string]uint64) {
			t.Helper()
			if n := w.Need("a"); n.Alone || n.Refused != refused || !maps.Equal(n.Bytes, bytes) {
				t.Errorf("%s: %+v", when, n)
			}
		}
		want("as it is", false, map[string]uint64{"fast": 1011, "slow": 5})
		time.Sleep(placing + 1)
		want("later", false, map[string]uint64{"fast": 10, "slow": 5})
		w.Set("a", "3", Claim{"", ^uint64(0), true}, false)
		want("refused", true, map[string]uint64{"fast": 10, "": most})
		w.Drop("a", "3")
		w.Drop("a", "1")
		w.Drop("a", "1")
		w.Drop("none", "1")
		if !w.Need("a").Alone || len(w.spaces) != 2 {
			t.Errorf("%d namespaces are left", len(w.spaces))
		}
	})
}

// server lists pods, of each namespace one that uses the claims x and y and its own name.
type server struct {
	asked []string
	err   error
	more  int // pods
}

func (s *server) FewPods(_ context.Context, namespace, fields string, visit func(*corev1.Pod)) error {
	s.asked = append(s.asked, namespace)
	if s.err != nil {
		return s.err
	}
	for i := range s.more + 1 {
		visit(pod(namespace, fmt.Sprint("p", i), "x", "y", "of-"+fmt.Sprint(i)))
	}
	gated, going := pod(namespace, "gated", "x"), pod(namespace, "going", "x")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
	going.DeletionTimestamp = &metav1.Time{}
	visit(gated)
	visit(going)
	if fields != "spec.nodeName=,status.phase=Pending" {
		return errors.New(fields)
	}
	return nil
}

func pod(namespace, name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return p
}

// finding runs a Finder. ask waits until the pods are known.
func finding(t *testing.T, s *server) (f *Finder, ask func(namespace, claim string) ([]Pod, error)) {
	f = NewFinder(s)
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	go f.Run(ctx)
	return f, func(namespace, claim string) ([]Pod, error) {
		t.Helper()
		after := time.Now()
		for time.Sleep(1); ; time.Sleep(time.Millisecond) {
			if pods, known, err := f.Using(namespace, claim, after); known || err != nil {
				return pods, err
			}
		}
	}
}

// The pods of a claim are those of a list that began after the claim had its node, and one list
// does for all that wait for it.
func TestUsing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{more: 2 * mostPods}
		f, ask := finding(t, s)
		pods, err := ask("a", "of-1")
		if err != nil || len(pods) != 1 || pods[0].Name != "p1" || len(pods[0].Claims) != 3 {
			t.Fatalf("%+v, %v", pods, err)
		}
		if shared, known, err := f.Using("a", "x", time.Now().Add(-time.Second)); !known || err != nil || len(shared) != mostPods {
			t.Errorf("known from the same list: %t, %v, %+v", known, err, shared)
		}
		if pods, err := ask("a", "none"); err != nil || len(pods) != 0 || len(s.asked) != 2 {
			t.Errorf("%+v, %v; asked %q", pods, err, s.asked)
		}
		before := time.Now().Add(-time.Second)
		time.Sleep(kept - time.Second)
		if _, known, _ := f.Using("a", "x", before); !known {
			t.Error("asked again at once")
		}
		time.Sleep(2 * time.Second)
		if _, known, _ := f.Using("a", "x", before); known {
			t.Error("the pods of before, of which some are gone, are used for ever")
		}
		for i := range 2 * mostLooks {
			if _, err := ask(fmt.Sprint("n", i), "x"); err != nil {
				t.Fatal(err)
			}
		}
		if len(f.looks) > mostLooks {
			t.Errorf("%d lists are kept", len(f.looks))
		}
		s.more = 100_000
		if _, err := ask("large", "x"); err != nil {
			t.Fatal(err)
		}
		if held := len(f.looks["large"].pods); held > mostNames {
			t.Errorf("of a very long list %d claims are held", held)
		}
	})
}

// Where nothing runs, what was asked for is listed when that is said, and nothing else. Each pod of
// the last list is there once.
func TestListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{more: 1}
		f := NewFinder(s)
		defer f.spaces.ShutDown()
		if f.Look(t.Context()) || len(f.Listed("a")) > 0 {
			t.Error("nothing was asked for")
		}
		after := time.Now()
		f.Using("a", "x", after)
		f.Using("b", "x", after)
		time.Sleep(1)
		if !f.Look(t.Context()) || f.Look(t.Context()) || len(s.asked) != 2 {
			t.Errorf("asked %q", s.asked)
		}
		pods := f.Listed("a")
		if len(pods) != 2 || pods[0].Name != "p0" || pods[1].Name != "p1" || len(pods[1].Claims) != 3 {
			t.Errorf("%+v", pods)
		}
		if _, known, _ := f.Using("a", "x", after); !known {
			t.Error("the list is not known")
		}
		f.Forget()
		if _, known, _ := f.Using("a", "x", after); known || len(f.Listed("a")) > 0 {
			t.Error("the list was not forgotten")
		}
	})
}

// An error is returned once and the list made again; where pods may not be listed there are none.
func TestUsingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{err: errors.New("etcd is away")}
		_, ask := finding(t, s)
		for range 2 {
			if _, err := ask("a", "x"); !errors.Is(err, s.err) {
				t.Errorf("got %v", err)
			}
		}
		s.err = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
		for range 3 {
			if pods, err := ask("a", "x"); pods != nil || err != nil {
				t.Errorf("forbidden: %v, %v", pods, err)
			}
		}
		if len(s.asked) != 3 {
			t.Errorf("asked %q", s.asked)
		}
	})
}
