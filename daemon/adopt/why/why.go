// Package why finds out what a pod, a claim, a volume or a snapshot waits for: from the API alone,
// with the rights of who asks.
//
// It will not change anything, ask a node, or guess: what it may not read it names.
package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/storagecapacity"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/snapshotapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// API is what is read. An object that does not exist is nil without an error.
type API interface {
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	GetClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	GetClass(ctx context.Context, name string) (*storagev1.StorageClass, error)
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	EachNode(ctx context.Context, visit func(*corev1.Node)) error
	GetSnapshot(ctx context.Context, namespace, name string) (*snapshotapi.Snapshot, error)
	GetContent(ctx context.Context, name string) (*snapshotapi.Content, error)
	EachPod(ctx context.Context, namespace, fields string, visit func(*corev1.Pod)) error
	EachEvent(ctx context.Context, namespace, fields string, visit func(*corev1.Event)) error
	EachRoom(ctx context.Context, drivers []string, visit func(storagecapacity.Object)) error
}

// Page is what is known of one object.
type Page struct {
	Object string   `json:"object"` // its kind and name
	State  string   `json:"state"`
	Waits  string   `json:"waits,omitempty"`  // what it waits for, "" for nothing
	Help   string   `json:"help,omitempty"`   // what helps, "" where waiting does
	Rooms  []Room   `json:"rooms,omitempty"`  // what each node could give to a claim that waits
	Events []Event  `json:"events,omitempty"` // the last ones, the newest first
	Unseen []string `json:"unseen,omitempty"` // what this user may not read
	Parts  []Page   `json:"parts,omitempty"`  // a pod's claims, the volume of a claim

	on string // the node that a claim's or volume's data is on, or is to be; "" for none
}

// Room is the largest volume that a node could give.
type Room struct {
	Node   string `json:"node"`
	Closed string `json:"closed,omitempty"` // the reason why its pool gives nothing, "" for none
	Bytes  int64  `json:"bytes"`
	Fits   bool   `json:"fits"`
}

// Event is one of the API's.
type Event struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
}

// Options of Ask.
type Options struct {
	plan.Self // whose classes and volumes are ours
	API
}

// mostEvents are printed of one object.
const mostEvents = 6

// asker collects what may not be read.
type asker struct {
	Options
	unseen []string
}

// NotFoundError is about an object that does not exist.
type NotFoundError struct{ Object string }

func (e NotFoundError) Error() string { return e.Object + " does not exist" }

// Kinds are what can be asked about, by kubectl's names.
var Kinds = map[string]string{
	"pod": "pod", "pods": "pod", "po": "pod",
	"pvc": "pvc", "persistentvolumeclaim": "pvc", "persistentvolumeclaims": "pvc", "claim": "pvc",
	"pv": "pv", "persistentvolume": "pv", "persistentvolumes": "pv", "volume": "pv",
	"volumesnapshot": "vs", "volumesnapshots": "vs", "vs": "vs", "snapshot": "vs",
	"volumesnapshot." + snapshotapi.GroupVersion.Group: "vs", // as kubectl get -o name has it
}

// Ask returns the page of an object of one of the Kinds' values. The error is a NotFoundError, or
// of the request for the object itself.
func Ask(ctx context.Context, o Options, kind, namespace, name string) (Page, error) {
	a := &asker{Options: o}
	var page Page
	var err error
	switch kind {
	case "pod":
		page, err = a.pod(ctx, namespace, name)
	case "pvc":
		page, err = a.claim(ctx, namespace, name, nil)
	case "pv":
		page, err = a.volume(ctx, name)
	default:
		page, err = a.snapshot(ctx, namespace, name)
	}
	page.Unseen = a.unseen
	return page, err
}

// seen reports whether a request had a response, and notes what may not be read.
func (a *asker) seen(what string, err error) bool {
	if err == nil {
		return true
	}
	note := fmt.Sprintf("%s: %s", what, words.Line(err.Error(), 200))
	if apierrors.IsForbidden(err) {
		note = what + ": this user may not read them"
	}
	if !slices.Contains(a.unseen, note) {
		a.unseen = append(a.unseen, note)
	}
	return false
}

// events are the last of an object. Those about objects without a namespace are in default.
func (a *asker) events(ctx context.Context, of metav1.Object) (all []Event) {
	namespace := cmp.Or(of.GetNamespace(), metav1.NamespaceDefault)
	about := "involvedObject.uid=" + string(of.GetUID())
	err := a.EachEvent(ctx, namespace, about, func(e *corev1.Event) {
		at := e.LastTimestamp.Time
		if e.Series != nil {
			at = e.Series.LastObservedTime.Time
		}
		if at.IsZero() {
			at = e.EventTime.Time
		}
		all = append(all, Event{at.UTC(), e.Type, e.Reason, e.Message, max(e.Count, 1)})
	})
	a.seen("events", err)
	slices.SortStableFunc(all, func(x, y Event) int { return y.At.Compare(x.At) })
	return all[:min(len(all), mostEvents)]
}

// node is one that something is on, as far as it may be read.
type node struct {
	name    string
	unknown bool // it may not be read
	gone    bool
	ready   bool
}

func (a *asker) node(ctx context.Context, name string) node {
	n := node{name: name}
	if name == "" {
		return n
	}
	is, err := a.GetNode(ctx, name)
	if n.unknown = !a.seen("nodes", err); n.unknown {
		return n
	}
	n.gone = is == nil
	if is != nil {
		n.ready, _ = plan.NodeReady(is)
	}
	return n
}

// nodeOf is the node that a label is of. The label of a longer name has only its beginning.
func (a *asker) nodeOf(ctx context.Context, label string) node {
	n := a.node(ctx, label)
	if !n.gone {
		return n
	}
	a.seen("nodes", a.EachNode(ctx, func(is *corev1.Node) {
		if plan.NodeLabelValue(is.Name) == label {
			n = node{name: is.Name}
			n.ready, _ = plan.NodeReady(is)
		}
	}))
	return n
}

// String is the daemon of the node, and what is wrong with the node.
func (n node) String() string { return n.with("the daemon") }

// with is what works on the node, and what is wrong with the node.
func (n node) with(what string) string {
	switch {
	case n.gone:
		return fmt.Sprintf("node %s, which does not exist", words.Name(n.name))
	case n.unknown || n.ready:
		return fmt.Sprintf("%s of node %s", what, words.Name(n.name))
	}
	return fmt.Sprintf("%s of node %s, which is not Ready", what, words.Name(n.name))
}

// lost is what helps where a node does not come back.
func (n node) lost() string {
	return fmt.Sprintf("wait for node %[1]s; or, on the node that has its disk now: "+
		"hostpath-provisioner import POOL --from-node %[1]s; or, if disk and data are lost: "+
		"kubectl hostpath forget-node %[1]s --dry-run", words.Name(n.name))
}

// help is what helps against a node's silence.
func (n node) help() string {
	switch {
	case n.gone || !n.ready && !n.unknown:
		return n.lost()
	}
	return fmt.Sprintf("on node %s: hostpath-provisioner status", words.Name(n.name))
}
