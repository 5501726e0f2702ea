package model

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/presence"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/crash/killer"
)

// doors hold requests and system calls of a real daemon until they are let through. Each has a
// name.
type doors struct {
	mu      sync.Mutex
	wide    bool // everything goes through
	waiting []*waiter
	allowed map[string]int // so many of this name go through
}

// waiter is one that waits. through is closed when it may go on, served when the server has done
// it, and told when the daemon may have the response.
type waiter struct {
	name                  string
	how                   passage
	through, served, told chan struct{}
}

// passage is what becomes of a request that is let through, as in faults.
type passage struct {
	fault fault
	done  bool
	late  bool // it is served later
}

// arrive returns what a request or call has to wait for, nil for nothing.
func (d *doors) arrive(name string) *waiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wide {
		return nil
	}
	if d.allowed[name] > 0 {
		d.allowed[name]--
		return nil
	}
	w := &waiter{name: name, through: make(chan struct{}), served: make(chan struct{}), told: make(chan struct{})}
	d.waiting = append(d.waiting, w)
	return w
}

// leave removes one that waits no longer.
func (d *doors) leave(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(w)
}

func (d *doors) remove(w *waiter) {
	for i, other := range d.waiting {
		if other == w {
			d.waiting = append(d.waiting[:i:i], d.waiting[i+1:]...)
			return
		}
	}
}

// find returns the first that waits with such a name, nil if none does.
func (d *doors) find(is func(name string) bool) *waiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.waiting {
		if is(w.name) {
			return w
		}
	}
	return nil
}

// let lets one through.
func (d *doors) let(w *waiter, how passage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(w)
	w.how = how
	close(w.through)
}

// allow lets the next one of a name through.
func (d *doors) allow(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.allowed == nil {
		d.allowed = map[string]int{}
	}
	d.allowed[name]++
}

// disallow takes back what was allowed.
func (d *doors) disallow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.allowed = nil
}

// open lets everything through from now on.
func (d *doors) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wide = true
	for _, w := range d.waiting {
		close(w.through)
		close(w.told)
	}
	d.waiting = nil
}

// names are those of all that wait.
func (d *doors) names() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.waiting {
		all = append(all, w.name)
	}
	return all
}

// front stands between the daemon and the API server. It holds the requests that are steps in the
// model, under the model's names, and has the watches break.
type front struct {
	server http.Handler
	doors  *doors
	named  func(*http.Request) string // a step's name, "" for a request that is none
	node   string                     // the daemon's, which finds itself alone in the cluster
	each   bool                       // what follows a request that was refused is a step, too

	mu     sync.Mutex
	broken bool
	cut    context.CancelFunc // of the watches that there are
	whole  context.Context
	late   func() // serves the request that was given up
}

// breaks ends the watches, and lets none begin; or lets them begin again.
func (f *front) breaks(now bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = now
	if f.cut != nil {
		f.cut()
	}
	f.whole, f.cut = context.WithCancel(context.Background())
}

func (f *front) watches() (broken bool, whole context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken, f.whole
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("watch") {
		f.watch(w, r)
		return
	}
	name := f.named(r)
	if name == "" {
		f.alone(r)
		f.server.ServeHTTP(w, r)
		return
	}
	waits := f.doors.arrive(name)
	if waits == nil {
		f.pass(w, r, name, nil)
		return
	}
	select {
	case <-waits.through:
	case <-r.Context().Done():
		f.doors.leave(waits)
		return
	}
	f.serve(w, r, waits)
}

// follows lets through what the product's client asks at once when a request was refused: how the
// object is now, and the request once more. A tombstone it removes and makes.
func (f *front) follows(name string) {
	if name == takesLease || strings.Contains(name, " the content of ") {
		return
	}
	words := strings.Fields(name)
	of := words[len(words)-1]
	if name == (op{kind: writeTomb}).verb()+" "+of {
		f.doors.allow(op{kind: readTomb}.verb() + " " + of)
		f.doors.allow(name)
	}
	f.doors.allow(op{kind: getVolume}.verb() + " " + of)
	f.doors.allow(name)
}

// alone has a request that counts the nodes count this one: a daemon among others leaves to them
// for a moment what each can do, and no time passes in the model.
func (f *front) alone(r *http.Request) {
	if q := r.URL.Query(); r.URL.Path == "/api/v1/nodes" && q.Get("limit") == "1" {
		q.Set("fieldSelector", "metadata.name="+f.node)
		r.URL.RawQuery = q.Encode()
	}
}

// serve has the server serve a request that waited, or not, and lets the daemon have the response
// later, or not.
func (f *front) serve(w http.ResponseWriter, r *http.Request, waits *waiter) {
	if waits.how.fault == fine {
		f.pass(w, r, waits.name, waits)
		return
	}
	defer close(waits.served)
	switch how := waits.how; {
	case how.fault == refused:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`))
	case how.late:
		again := r.Clone(context.WithoutCancel(r.Context()))
		again.Body = io.NopCloser(bytes.NewReader(body(r)))
		f.late = func() { f.server.ServeHTTP(httptest.NewRecorder(), again) }
		panic(http.ErrAbortHandler)
	case how.done:
		f.server.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	default:
		panic(http.ErrAbortHandler)
	}
}

func (f *front) watch(w http.ResponseWriter, r *http.Request) {
	broken, whole := f.watches()
	if broken {
		panic(http.ErrAbortHandler)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(whole, cancel)()
	f.server.ServeHTTP(w, r.WithContext(ctx))
}

// pass has the server serve a request, and passes the response on when the one that waits may be
// told. What the product's client asks at once if the server refuses to write is no step of its
// own.
func (f *front) pass(w http.ResponseWriter, r *http.Request, name string, waits *waiter) {
	response := httptest.NewRecorder()
	f.server.ServeHTTP(response, r)
	refused := !f.each && r.Method != http.MethodGet && response.Code >= http.StatusBadRequest
	if refused {
		f.follows(name)
	}
	if waits != nil {
		close(waits.served)
		if !refused {
			<-waits.told
		}
	}
	maps.Copy(w.Header(), response.Header())
	w.WriteHeader(response.Code)
	_, _ = w.Write(response.Body.Bytes())
}

const (
	volumesPath = "/api/v1/persistentvolumes"
	leasesPath  = "/apis/coordination.k8s.io/v1/namespaces/" + ownNamespace + "/leases"
	// ownNamespace is the daemons'.
	ownNamespace = "hostpath-provisioner"
)

// named is a request's name in the model, with the real name of its volume.
func (on *machine) named(r *http.Request) string {
	name, one := strings.CutPrefix(r.URL.Path, volumesPath+"/")
	does := map[string]kind{http.MethodGet: getVolume, http.MethodPatch: releaseVolume, http.MethodDelete: deleteVolume}
	switch {
	case strings.HasPrefix(r.URL.Path, leasesPath):
		return on.namedLease(r)
	case r.URL.Path == volumesPath && r.Method == http.MethodPost:
		return op{kind: createVolume}.verb() + " " + string(killer.VolumeName.Find(body(r)))
	case r.URL.Path == volumesPath && !r.URL.Query().Has("labelSelector"):
		return op{kind: eachVolume}.verb()
	case one && r.Method == http.MethodPatch && bytes.Contains(body(r), []byte(`"finalizers":`)):
		return op{kind: holdVolume}.verb() + " " + name
	case one && r.Method == http.MethodPatch && r.Header.Get("Content-Type") == string(types.MergePatchType):
		return op{kind: writeCapacity}.verb() + " " + name
	case one && does[r.Method] != ended:
		return op{kind: does[r.Method]}.verb() + " " + name
	}
	return on.namedClaim(r)
}

// namedClaim is the name of a request about a claim.
func (on *machine) namedClaim(r *http.Request) string {
	claim, ofClaim := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+on.Namespace+"/persistentvolumeclaims/")
	status, ofStatus := strings.CutSuffix(claim, "/status")
	switch {
	case ofClaim && ofStatus && r.Method == http.MethodPatch:
		return op{kind: writeStatus}.verb() + " " + on.volumeOf(status)
	case ofClaim && r.Method == http.MethodGet:
		return op{kind: getClaim}.verb() + " " + claim
	}
	return on.namedSnapshot(r)
}

// takesLease is the name of a request by which a daemon takes the lease of a shared pool, or gives
// it up.
const takesLease = "takes the lease"

// namedLease is the name of a request about a lease or a tombstone, which is one, too. That a
// daemon renews its term is no step, nor is what it does about the lease of its node.
func (on *machine) namedLease(r *http.Request) string {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, leasesPath), "/")
	switch {
	case strings.HasPrefix(name, presence.Name("")):
		return ""
	case r.Method == http.MethodGet && killer.VolumeName.MatchString(name):
		return op{kind: readTomb}.verb() + " " + name
	case r.Method == http.MethodGet && name != "":
		if on.looking.Load() {
			return ""
		}
		return op{kind: readLease}.verb()
	case r.Method == http.MethodDelete && killer.VolumeName.MatchString(name):
		return op{kind: writeTomb}.verb() + " " + name
	case r.Method != http.MethodPost && r.Method != http.MethodPut:
		return ""
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body(r), nil, nil)
	l, is := object.(*coordinationv1.Lease)
	switch {
	case err != nil || !is || strings.HasPrefix(l.Name, presence.Name("")):
		return ""
	case killer.VolumeName.MatchString(l.Name):
		return op{kind: writeTomb}.verb() + " " + l.Name
	case on.mute.Load() || !on.renews(l):
		return takesLease
	}
	return ""
}

// body is a request's body, which can be read again.
func body(r *http.Request) []byte {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	return text
}
