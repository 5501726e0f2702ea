package kube

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/cluster"
)

// in keeps the claims of one namespace whose mark is not "foreign".
func in(namespace string) func(*corev1.PersistentVolumeClaim) bool {
	return func(c *corev1.PersistentVolumeClaim) bool {
		return c.Namespace == namespace && c.Annotations[markKey] != "foreign"
	}
}

func TestInformerFollows(t *testing.T) {
	ns, d := namespace(t), &changeLog{}
	newClaim(t, plane, ns, "early", "1")
	newClaim(t, plane, ns, "other", "foreign")
	c, _ := newClient(t, Options{})
	s := running(t, c.Claims(in(ns), d.told))
	d.expect(t, "+early 1") // before Synced

	newClaim(t, plane, ns, "late", "1")
	d.expect(t, "+early 1", "+late 1")
	setMark(t, ns, "early", "2")
	d.expect(t, "+early 1", "+late 1", "~early 2")
	setMark(t, ns, "early", "foreign")
	d.expect(t, "+early 1", "+late 1", "~early 2", "-early 2")
	setMark(t, ns, "other", "1")
	deleteClaim(t, plane, ns, "late")
	deleteClaim(t, plane, ns, "early") // it does not pass the filter: onChange is not called
	newClaim(t, plane, ns, "last", "1")
	d.expect(t, "+early 1", "+late 1", "~early 2", "-early 2", "+other 1", "-late 1", "+last 1")

	if got := names(s); got != "last other" {
		t.Errorf("kept: %q, want last and other", got)
	}
	kept, ok := s.Get(ns + "/other")
	if !ok || kept.UID == "" || kept.ManagedFields != nil {
		t.Errorf("kept %+v, want it without managedFields", kept)
	}
	if _, ok := s.Get(ns + "/early"); ok {
		t.Error("an object that does not pass the filter is kept")
	}
	if age := time.Since(s.LastContact()); age > 30*time.Second {
		t.Errorf("last contact %s ago", age)
	}
}

func TestInformerReadsPages(t *testing.T) {
	ns, d := namespace(t), &changeLog{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		newClaim(t, plane, ns, name, "1")
	}
	c, w := newClient(t, Options{})
	s := c.Claims(in(ns), d.told)
	s.timings.pageSize = 2
	running(t, s)
	d.expect(t, "+a 1", "+b 1", "+c 1", "+d 1", "+e 1")
	if n := w.count("limit continue"); n < 2 {
		t.Errorf("requests: %q, want pages", w.requests())
	}
}

// What was deleted, or deleted and created again, while no event arrived is passed to onChange
// after the next list.
func TestInformerRemovesUnlisted(t *testing.T) {
	ns, d := namespace(t), &changeLog{}
	newClaim(t, plane, ns, "stays", "1")
	newClaim(t, plane, ns, "goes", "1")
	newClaim(t, plane, ns, "returns", "1")
	c, _ := newClient(t, Options{})
	deaf := &faultySource{source: claimKind.source(c, selection{}), mode: swallow}
	s := NewInformer(deaf, in(ns), d.told)
	s.noWatchList = true // whose end would be awaited for timings.response
	running(t, s)
	d.expect(t, "+goes 1", "+returns 1", "+stays 1")
	deleteClaim(t, plane, ns, "goes")
	deleteClaim(t, plane, ns, "returns")
	newClaim(t, plane, ns, "returns", "2")
	d.expect(t, "+goes 1", "+returns 1", "+stays 1") // it is deaf indeed
	s.Relist()
	d.expect(t, "+goes 1", "+returns 1", "+stays 1", "-returns 1", "+returns 2", "-goes 1")
}

// A list removes what it lacks at its end, and a watch-list at once, in the order of the keys: what
// passes is the first of both.
func TestRelistFiltersAgain(t *testing.T) {
	ns, d := namespace(t), &changeLog{}
	newClaim(t, plane, ns, "a", "2")
	newClaim(t, plane, ns, "b", "1")
	wanted := make(chan string, 1)
	wanted <- "1"
	keep := func(c *corev1.PersistentVolumeClaim) bool {
		w := <-wanted
		wanted <- w
		return c.Namespace == ns && c.Annotations[markKey] == w
	}
	c, _ := newClient(t, Options{})
	s := running(t, c.Claims(keep, d.told))
	d.expect(t, "+b 1")
	<-wanted
	s.Relist()
	if s.Whole() {
		t.Error("the list that was requested was not read yet")
	}
	wanted <- "2"
	d.expect(t, "+b 1", "+a 2", "-b 1")
	eventually(t, "the list was read", s.Whole)
}

// A watch that ends as soon as it begins is retried with growing delays.
func TestInformerBacksOff(t *testing.T) {
	t.Parallel()
	ns, d := namespace(t), &changeLog{}
	c, w := newClient(t, Options{})
	w.interceptWatches(func(r *http.Request) (*http.Response, error) {
		header := http.Header{"Content-Type": {"application/json"}}
		return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	})
	began := time.Now()
	running(t, c.Claims(in(ns), d.told))
	eventually(t, "four watches", func() bool { return w.count("watch") >= 4 })
	if took := time.Since(began); took < 1700*time.Millisecond { // half of 0.5 + 1 + 2 s
		t.Errorf("four watches in %s", took)
	}
	w.intercept(nil)
	newClaim(t, plane, ns, "a", "1")
	d.expect(t, "+a 1")
}

// A response that breaks off in the middle of an event is an error like others.
func TestInformerSurvivesHalfAResponse(t *testing.T) {
	t.Parallel()
	ns, d := namespace(t), &changeLog{}
	c, w := newClient(t, Options{})
	halves := 0
	w.intercept(func(r *http.Request) (*http.Response, error) {
		if halves++; !isWatch(r) || halves > 4 {
			return nil, nil
		}
		response, err := (*w.next.Load()).RoundTrip(r)
		if err == nil {
			response.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(response.Body, 300), response.Body}
		}
		return response, err
	})
	running(t, c.Claims(in(ns), d.told))
	newClaim(t, plane, ns, "a", "1")
	newClaim(t, plane, ns, "b", "1")
	setMark(t, ns, "a", "2")
	eventually(t, "the last state", func() bool {
		lines := strings.Join(d.read(), ",")
		return strings.Contains(lines, "a 2") && strings.Contains(lines, "+b 1")
	})
}

// Events that come twice, and again much later, change nothing.
func TestInformerIgnoresDuplicates(t *testing.T) {
	ns, d := namespace(t), &changeLog{}
	c, _ := newClient(t, Options{})
	twice := &faultySource{source: claimKind.source(c, selection{}), mode: repeat}
	running(t, NewInformer(twice, in(ns), d.told))
	newClaim(t, plane, ns, "a", "1")
	setMark(t, ns, "a", "2")
	deleteClaim(t, plane, ns, "a")
	newClaim(t, plane, ns, "b", "1")
	d.expect(t, "+a 1", "~a 2", "-a 2", "+b 1")
}

// recovers watches a namespace from a faulty source, and expects that a new claim is seen all the
// same.
func recovers(t *testing.T, how mode, set func(*Informer[*corev1.PersistentVolumeClaim])) (from *faultySource, ns string, d *changeLog) {
	t.Helper()
	ns, d = namespace(t), &changeLog{}
	c, _ := newClient(t, Options{})
	from = &faultySource{source: claimKind.source(c, selection{}), mode: how}
	s := NewInformer(from, in(ns), d.told)
	set(s)
	running(t, s)
	newClaim(t, plane, ns, "a", "1")
	d.expect(t, "+a 1")
	return from, ns, d
}

// A watch that sends no events, and does not end, is given up after its time.
func TestInformerNoticesSilence(t *testing.T) {
	recovers(t, swallow, func(s *Informer[*corev1.PersistentVolumeClaim]) {
		s.timings.watch, s.timings.response = time.Second, 100*time.Millisecond
	})
}

// A watch that sent one bookmark and not the next is given up long before its time.
func TestInformerMissesBookmarks(t *testing.T) {
	recovers(t, fade, func(s *Informer[*corev1.PersistentVolumeClaim]) {
		s.timings.bookmark, s.noWatchList = 500*time.Millisecond, true
	})
}

// A server whose data was restored from a backup accepts a watch from a version that it has not
// reached, and sends nothing. Here the server is real, and the version is not.
func TestInformerNoticesFutureVersion(t *testing.T) {
	ahead, _, _ := recovers(t, future, func(s *Informer[*corev1.PersistentVolumeClaim]) {
		s.timings.watch, s.timings.settle = time.Second, 500*time.Millisecond
		s.noWatchList = true // a server without them refuses it first, which is a watch, too
	})
	eventually(t, "the watch from the future, and the one after the list", func() bool { return ahead.watches.Load() == 2 })
}

// The same when a watch breaks and the next one begins before the absence of the server was
// noticed.
func TestInformerNoticesFutureVersionAfterBreak(t *testing.T) {
	back, ns, d := recovers(t, relapse, func(s *Informer[*corev1.PersistentVolumeClaim]) {
		s.timings.verify, s.noWatchList = 2*time.Second, true
	})
	eventually(t, "the watch after the break, and the one after the list", func() bool { return back.watches.Load() == 3 })
	newClaim(t, plane, ns, "b", "1")
	d.expect(t, "+a 1", "+b 1")
}

// A watch without a response is given up after timings.response.
func TestInformerGivesUpWithoutResponse(t *testing.T) {
	t.Parallel()
	ns, d := namespace(t), &changeLog{}
	c, w := newClient(t, Options{})
	w.interceptWatches(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	s := c.Claims(in(ns), d.told)
	s.timings.response = 50 * time.Millisecond
	running(t, s)
	newClaim(t, plane, ns, "a", "1")
	d.expect(t, "+a 1") // by the list that follows
	if s.LastContact().IsZero() || w.count("limit") < 2 {
		t.Errorf("%q, want lists where watches have no response", w.requests())
	}
}

func TestOwnThingsOnly(t *testing.T) {
	ctx := t.Context()
	c, w := newClient(t, Options{Self: plan.Self{Provisioner: "example.test/ours", Node: "own-node"}})
	for _, name := range []string{"own-node", "own-node-2"} {
		if err := plane.AddNode(ctx, name, nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, provisioner := range map[string]string{"ours": "example.test/ours", "theirs": "example.test/theirs"} {
		class := cluster.StorageClass(name, provisioner, storagev1.VolumeBindingImmediate)
		if _, err := plane.Client().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, v := range map[string]struct{ node, provisioner string }{
		"pv-own":     {"own-node", "example.test/ours"},
		"pv-other":   {"own-node-2", "example.test/ours"},
		"pv-another": {"own-node", "example.test/theirs"}, // a second daemon on this node
	} {
		pv := volume(name, "0")
		pv.Labels = map[string]string{plan.NodeLabel: v.node}
		pv.Annotations = map[string]string{plan.ProvisionedBy: v.provisioner}
		if _, err := plane.Client().CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	nodes, classes, volumes := running(t, c.OwnNode(nil)), running(t, c.Classes(nil)), running(t, c.Volumes("own-node", nil).WatchList())
	if got := nodes.List(); len(got) != 1 || got[0].Name != "own-node" {
		t.Errorf("nodes: %v", got)
	}
	if got := classes.List(); len(got) != 1 || got[0].Name != "ours" {
		t.Errorf("classes: %v", got)
	}
	if got := volumes.List(); len(got) != 1 || got[0].Name != "pv-own" {
		t.Errorf("volumes: %v", got)
	}
	watches, lists := 3, 0
	if !plane.WatchLists(t) { // one that is refused, a list, and a watch
		watches, lists = 6, 3
	}
	if n := w.count("watch"); n != watches || len(w.requests()) != watches+lists {
		t.Errorf("%q, want %d watches and %d lists", w.requests(), watches, lists)
	}
	total, err := c.NodeCount(ctx)
	all, listErr := plane.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || listErr != nil || total != len(all.Items) || total < 2 {
		t.Errorf("%d nodes (%v), want %d (%v)", total, err, len(all.Items), listErr)
	}
}
