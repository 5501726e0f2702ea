package weather

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/pool"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// A file that is there for a moment, in the bare directory under a mount, is seen; a quiet place
// has nothing to tell.
func TestPlacesAreWatchedUnderAMount(t *testing.T) {
	dir := hosttest.Dir(t)
	fd := hosttest.Need(unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))(t)
	bare := spot{"bare", fd}
	for _, d := range pool.Directories {
		hosttest.Check(t, os.MkdirAll(bare.path(hostcheck.PrivateDir, d), 0o700))
	}
	hosttest.Mkfs(t, "ext4", 16).Mount(t, dir)
	for _, write := range []bool{false, true} {
		w := watchPlaces(t, bare)
		var want []string
		if write {
			name := bare.path(hostcheck.PrivateDir, "volumes", "x")
			hosttest.Check(t, os.Mkdir(name, 0o700))
			hosttest.Check(t, os.Remove(name))
			want = []string{"created ours/volumes/x", "deleted ours/volumes/x"}
		}
		if got := w.close()["bare"]; !slices.Equal(got, want) {
			t.Errorf("seen %q, want %q", got, want)
		}
	}
}

// What is let pass, and what is not: each limit from both sides.
func TestGrown(t *testing.T) {
	first := sample{rss: 40000, heap: 3000, fds: 17, threads: 30, goroutines: 180}
	for name, c := range map[string]struct {
		change func(*sample)
		want   []string
	}{
		"nothing":                {func(s *sample) {}, nil},
		"less":                   {func(s *sample) { s.rss, s.heap, s.fds, s.goroutines = 20000, 1000, 9, 90 }, nil},
		"RSS by 4 MiB":           {func(s *sample) { s.rss += 4096 }, nil},
		"RSS by more":            {func(s *sample) { s.rss += 4097 }, []string{"KiB of RSS: 40000, and now 44097"}},
		"heap by 512 KiB":        {func(s *sample) { s.heap += 512 }, nil},
		"heap by more":           {func(s *sample) { s.heap += 513 }, []string{"KiB of heap: 3000, and now 3513"}},
		"a descriptor":           {func(s *sample) { s.fds++ }, []string{"descriptors: 17, and now 18"}},
		"goroutines by 5 %":      {func(s *sample) { s.goroutines += 9 }, nil},
		"goroutines by more":     {func(s *sample) { s.goroutines += 10 }, []string{"goroutines: 180, and now 190"}},
		"threads of the workers": {func(s *sample) { s.threads = threadsMax }, nil},
		"one thread more":        {func(s *sample) { s.threads = threadsMax + 1 }, []string{"threads: 77, at most 76 were wanted"}},
	} {
		last := first
		c.change(&last)
		if got := grown(first, last); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// server responds to a get with one claim, and to a watch with nothing. It counts what reaches it.
type server struct {
	*httptest.Server
	requests chan string
}

func newServer(t *testing.T) *server {
	s := &server{requests: make(chan string, 100)}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests <- r.Method + " " + r.URL.Path
		if r.URL.Query().Has("watch") {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.PersistentVolumeClaim{
			TypeMeta:   metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"},
		})
	}))
	t.Cleanup(s.Close)
	return s
}

// through is a real client of the server, behind a proxy with these rates of faults.
func (s *server) through(t *testing.T, rates faultRates) (kubernetes.Interface, *injector) {
	t.Helper()
	faults := newInjector(1)
	faults.set(rates)
	p := newProxy(t, &rest.Config{Host: s.URL}, faults)
	t.Cleanup(p.close)
	p.upstream.(*http.Transport).TLSClientConfig.RootCAs = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: p.address, TLSClientConfig: rest.TLSClientConfig{CAData: p.ca},
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	})
	hosttest.Check(t, err)
	return client, faults
}

func always(f fault) faultRates {
	odds := map[fault]int{f: 1000}
	return faultRates{odds: map[kind]map[fault]int{reading: odds, writing: odds, watching: odds}}
}

// Each fault comes to the client as what it is called.
func TestFaults(t *testing.T) {
	for f, is := range map[fault]func(error) bool{
		none: func(err error) bool { return err == nil }, delayed: func(err error) bool { return err == nil },
		twice: func(err error) bool { return err == nil }, conflict: apierrors.IsConflict, gone: apierrors.IsResourceExpired,
		tooMany: apierrors.IsTooManyRequests, internal: apierrors.IsInternalError, unavailable: apierrors.IsServiceUnavailable,
		cutBefore: isBroken, cutAfter: isBroken, half: isBroken,
	} {
		t.Run(string(f), func(t *testing.T) {
			s := newServer(t)
			client, faults := s.through(t, always(f))
			err := client.CoreV1().RESTClient().Get().Namespace("default").Resource("persistentvolumeclaims").Name("a").
				MaxRetries(0).Do(t.Context()).Error()
			if !is(err) {
				t.Errorf("the client sees %v", err)
			}
			switch n := len(s.requests); {
			case f == twice && n != 2, f == cutBefore && n != 0, f == cutAfter && n == 0, f == none && n != 1:
				t.Errorf("%d requests reached the server", n)
			}
			if counted := faults.reset(); f != none && counted.faults[f] == 0 || counted.requests[reading] == 0 {
				t.Errorf("counted: %+v", counted)
			}
		})
	}
}

func isBroken(err error) bool {
	_, isStatus := err.(apierrors.APIStatus)
	return err != nil && !isStatus
}

func watchClaims(t *testing.T, client kubernetes.Interface) watch.Interface {
	t.Helper()
	w, err := client.CoreV1().PersistentVolumeClaims("").Watch(t.Context(), metav1.ListOptions{})
	hosttest.Check(t, err)
	return w
}

// What the proxy puts into a watch is an error of that kind to a real client.
func TestErrorInAWatch(t *testing.T) {
	event := hosttest.Need(errorEvent(gone))(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		_, _ = w.Write(event)
	}))
	t.Cleanup(s.Close)
	direct, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}})
	hosttest.Check(t, err)
	w := watchClaims(t, direct)
	if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("the client sees %s %v", e.Type, e.Object)
	}
}

// A silenced watch stays open; one that begins later lives.
func TestSilence(t *testing.T) {
	s := newServer(t)
	client, faults := s.through(t, fair)
	w := watchClaims(t, client)
	faults.silence()
	for silent := faults.saw([]fault{silenced}); !silent(); time.Sleep(time.Millisecond) {
	}
	s.CloseClientConnections() // the server's end; the client must not see it
	select {
	case e, open := <-w.ResultChan():
		t.Errorf("the silenced watch delivered %v, open: %t", e, open)
	case <-time.After(200 * time.Millisecond):
	}
	if n := faults.reset().faults[silenced]; n != 1 {
		t.Errorf("%d watches were silenced, want 1", n)
	}
	w.Stop()
}

// Nothing passes a server that refuses everything, and its watches break.
func TestDark(t *testing.T) {
	s := newServer(t)
	client, faults := s.through(t, fair)
	w := watchClaims(t, client)
	<-s.requests
	faults.set(dark)
	if e, open := <-w.ResultChan(); open && e.Type != watch.Error {
		t.Errorf("the watch delivered %v", e)
	}
	for range 20 {
		err := client.CoreV1().RESTClient().Get().Namespace("default").Resource("persistentvolumeclaims").Name("a").MaxRetries(0).Do(t.Context()).Error()
		if err == nil {
			t.Error("a request passed")
		}
	}
	if n := len(s.requests); n != 0 {
		t.Errorf("%d requests reached the server", n)
	}
}
