package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// TestRecorders compares the event queue of this package with client-go's recorder (tools/record)
// in the situations in which they differ, by a clock that does not wait (testing/synctest). It is
// the measurement behind the decision to have a queue of our own: when client-go's recorder loses
// no Warning any more, the test fails, and the decision is due again. go test -run TestRecorders -v
// ./daemon/kube prints the numbers.
func TestRecorders(t *testing.T) {
	for name, situation := range recorderCases {
		t.Run(name, func(t *testing.T) {
			ours, theirs := measureRecorder(t, startQueue, situation), measureRecorder(t, startClientGo, situation)
			t.Logf("%-10s %s", "own queue", ours)
			t.Logf("%-10s %s", "client-go", theirs)
			if ours.warnings < situation.warnings {
				t.Errorf("the own queue wrote %d of %d Warnings", ours.warnings, situation.warnings)
			}
			if situation.theyLose && theirs.warnings == situation.warnings {
				t.Error("client-go's recorder lost no Warning: decide again whether it can replace the queue of this package")
			}
			if ours.objects > situation.objects {
				t.Errorf("%d Event objects, want %d at most", ours.objects, situation.objects)
			}
		})
	}
}

// recorderCase is a situation. After it, the server has to have so many occurrences of Warnings in
// so many objects.
type recorderCase struct {
	run               func(r *recorderRun)
	warnings, objects int
	theyLose          bool // client-go's recorder loses Warnings in it
}

var recorderCases = map[string]recorderCase{
	"10,000 events in 10 minutes without the server": {run: func(r *recorderRun) {
		r.server.fail(func() (*http.Response, error) { return nil, errors.New("connection refused") })
		for i := range 10_000 {
			eventType := corev1.EventTypeNormal
			if i%10 == 9 {
				eventType = corev1.EventTypeWarning
			}
			r.event(i, eventType)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(500 * time.Second)
		r.measureMemory()
		r.server.fail(nil)
		time.Sleep(2 * time.Minute)
	}, warnings: 1000, objects: 10_000, theyLose: true},

	"100 Warnings, 5 seconds of 403 while a server starts": {run: refused(5*time.Second, http.StatusForbidden, metav1.StatusReasonForbidden, nil), warnings: 100, objects: 100, theyLose: true},

	"100 Warnings, 2 minutes of 429": {run: refused(2*time.Minute, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, http.Header{"Retry-After": {"1"}}), warnings: 100, objects: 100, theyLose: true},

	"100 Warnings, each repeated every 10 seconds for an hour": {run: func(r *recorderRun) {
		for range 360 {
			for i := range 100 {
				r.event(i, corev1.EventTypeWarning)
			}
			time.Sleep(10 * time.Second)
		}
		time.Sleep(2 * time.Minute)
	}, warnings: 36_000, objects: 100, theyLose: true},

	"100 Warnings, repeated by 10 processes": {run: func(r *recorderRun) {
		for range 10 {
			for i := range 100 {
				r.event(i, corev1.EventTypeWarning)
			}
			time.Sleep(2 * time.Minute)
			r.restart()
		}
	}, warnings: 1000, objects: 100},
}

// recorderResult is what the server has in the end, and what that cost.
type recorderResult struct {
	objects, requests int
	normal, warnings  int // occurrences, by the counts of the objects
	heap              int64
}

// refused writes 100 Warnings to a server that refuses each request for so long.
func refused(pause time.Duration, code int, reason metav1.StatusReason, header http.Header) func(*recorderRun) {
	return func(r *recorderRun) {
		r.server.fail(func() (*http.Response, error) { return statusResponse(code, reason, header), nil })
		for i := range 100 {
			r.event(i, corev1.EventTypeWarning)
		}
		time.Sleep(pause)
		r.server.fail(nil)
		time.Sleep(2 * time.Minute)
	}
}

func (m recorderResult) String() string {
	return fmt.Sprintf("%6d Warnings, %5d Normal, %5d objects, %6d requests, %5.1f MB heap", m.warnings, m.normal, m.objects, m.requests, float64(m.heap)/1e6)
}

// recorderRun is one recorder in one situation.
type recorderRun struct {
	t      *testing.T
	server *eventServer
	start  startRecorder
	record func(ref *corev1.ObjectReference, eventType, reason, message string)
	stop   func()
	before uint64
	heap   int64
}

type startRecorder func(t *testing.T, s *eventServer) (record func(ref *corev1.ObjectReference, eventType, reason, message string), stop func())

func measureRecorder(t *testing.T, start startRecorder, c recorderCase) (result recorderResult) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorderRun{t: t, server: newEventServer(t), start: start, before: heapInUse()}
		r.record, r.stop = start(t, r.server)
		c.run(r)
		r.stop()
		result = r.server.result()
		result.heap = r.heap
	})
	return result
}

// event records an event of the i-th claim.
func (r *recorderRun) event(i int, eventType string) {
	name := fmt.Sprintf("data-%d", i)
	ref := &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: name, UID: types.UID(name)}
	r.record(ref, eventType, "PoolClosed", "pool fast: /srv/fast is not a mount point")
}

func (r *recorderRun) restart() {
	r.stop()
	r.record, r.stop = r.start(r.t, r.server)
}

// measureMemory notes what the recorder holds.
func (r *recorderRun) measureMemory() { r.heap = int64(heapInUse()) - int64(r.before) }

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func startQueue(t *testing.T, s *eventServer) (func(ref *corev1.ObjectReference, eventType, reason, message string), func()) {
	c, err := New(Options{Kubeconfig: plane.Kubeconfig(), wrap: s.inPlaceOf})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { c.RunEvents(ctx); close(ended) }()
	record := func(ref *corev1.ObjectReference, eventType, reason, message string) {
		c.Event(*ref, eventType, reason, message)
	}
	return record, func() { cancel(); <-ended }
}

func startClientGo(t *testing.T, s *eventServer) (func(ref *corev1.ObjectReference, eventType, reason, message string), func()) {
	c, err := New(Options{Kubeconfig: plane.Kubeconfig(), wrap: s.inPlaceOf})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(eventSink{c})
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	recorder := broadcaster.NewRecorder(scheme, corev1.EventSource{Component: component, Host: "node-a"}).WithLogger(klog.Logger{})
	return func(ref *corev1.ObjectReference, eventType, reason, message string) {
			recorder.Event(ref, eventType, reason, message)
		}, func() {
			cancel()
			synctest.Wait()
		}
}

// eventSink is a record.EventSink, as the typed clientset has one.
type eventSink struct{ c *Client }

func (s eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	made := &corev1.Event{}
	err := s.c.groups[core].Post().Namespace(e.Namespace).Resource("events").Body(e).Do(context.Background()).Into(made)
	return made, err
}

func (s eventSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return nil, errors.New("not used by the recorder")
}

func (s eventSink) Patch(e *corev1.Event, patch []byte) (*corev1.Event, error) {
	now := &corev1.Event{}
	err := s.c.groups[core].Patch(types.StrategicMergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).Body(patch).Do(context.Background()).Into(now)
	return now, err
}

// eventServer is an API server for Events in memory. Each request takes a millisecond.
type eventServer struct {
	decoder  apiruntime.Decoder
	mu       sync.Mutex
	objects  map[string]*corev1.Event
	requests int
	failure  func() (*http.Response, error)
}

func newEventServer(t *testing.T) *eventServer {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	return &eventServer{decoder: serializer.NewCodecFactory(scheme).UniversalDeserializer(), objects: map[string]*corev1.Event{}}
}

func (s *eventServer) inPlaceOf(http.RoundTripper) http.RoundTripper { return s }

// fail makes requests fail, until it is called with nil.
func (s *eventServer) fail(failure func() (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = failure
}

func (s *eventServer) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.failure != nil {
		return s.failure()
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	name := path.Base(r.URL.Path)
	switch r.Method {
	case http.MethodPost:
		e := &corev1.Event{}
		if _, _, err := s.decoder.Decode(body, nil, e); err != nil {
			return nil, err
		}
		if s.objects[e.Name] != nil {
			return statusResponse(http.StatusConflict, metav1.StatusReasonAlreadyExists, nil), nil
		}
		e.TypeMeta, e.UID = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, types.UID(e.Name)
		s.objects[e.Name] = e
		return jsonResponse(http.StatusCreated, e, nil), nil
	case http.MethodPatch:
		if err := json.Unmarshal(body, s.objects[name]); err != nil {
			return nil, err
		}
	}
	return jsonResponse(http.StatusOK, s.objects[name], nil), nil
}

func (s *eventServer) result() recorderResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := recorderResult{objects: len(s.objects), requests: s.requests}
	for _, e := range s.objects {
		if e.Type == corev1.EventTypeWarning {
			m.warnings += int(e.Count)
		} else {
			m.normal += int(e.Count)
		}
	}
	return m
}

func statusResponse(code int, reason metav1.StatusReason, header http.Header) *http.Response {
	status := apierrors.NewGenericServerResponse(code, "", corev1.Resource("events"), "", "", 0, false).ErrStatus
	status.APIVersion, status.Kind, status.Reason = "v1", "Status", reason
	return jsonResponse(code, &status, header)
}

func jsonResponse(code int, object any, header http.Header) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(text))}
}
