// Package away tells the claims of volumes whose node is gone or silent what can be done, and
// volumes that wait there for their removal. One daemon of the cluster does so at a time: the one
// that reviewed what the nodes publish (package storagecapacity). As long as all nodes are Ready
// that costs two lists each few minutes, of which the second is empty.
//
// It decides nothing about a volume, and changes no object. Of the daemon of a Node that is Ready
// it knows nothing.
package away

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/controllers/report"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
)

const (
	// most is how many events one look writes; the next look goes on.
	most = 200
	// mostNodes is of how many nodes it is asked which volumes are none of theirs: their names are
	// in the request's URL, of which proxies take some kilobytes. In a larger cluster only those
	// are looked for that are not Ready.
	mostNodes = 200
	// within is how long a look may take.
	within = time.Minute
)

// API is the part of Kubernetes that is used.
type API interface {
	EachNode(ctx context.Context, visit func(*corev1.Node)) error
	// EachVolumeOf reads the volumes that have a node's label with one of these values, or with
	// none of them.
	EachVolumeOf(ctx context.Context, nodes []string, not bool,
		visit func(*corev1.PersistentVolume)) error
	EventLastWritten(ctx context.Context, ref corev1.ObjectReference, eventType, reason,
		message string) (at time.Time, text string, err error)
	Event(ref corev1.ObjectReference, eventType, reason, message string)
}

// Options are a Watch's. All fields are needed.
type Options struct {
	plan.Self
	API   API
	Count func(volumes int) // how many volumes are on nodes that are gone or silent
	Done  func(err error)   // how each look ended
}

// Watch remembers what was told. Look is called by one goroutine at a time.
type Watch struct {
	Options
	told map[string]time.Time // by the object's UID
}

// New returns a Watch. Nothing happens before Look.
func New(o Options) *Watch { return &Watch{Options: o, told: map[string]time.Time{}} }

// Look is called after each review: mine says that it was this daemon's. Else another one counts
// and tells.
func (w *Watch) Look(ctx context.Context, mine bool) {
	if !mine {
		w.Count(0)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	n, err := w.look(ctx)
	if err == nil {
		w.Count(n)
	}
	if w.Done(err); len(w.told) > 4*most {
		clear(w.told) // the events themselves say when they were written
	}
}

func (w *Watch) look(ctx context.Context) (n int, err error) {
	var ready []string
	silent := map[string]*corev1.Node{}
	err = w.API.EachNode(ctx, func(node *corev1.Node) {
		label := plan.NodeLabelValue(node.Name)
		if is, _ := plan.NodeReady(node); is {
			ready = append(ready, label)
		} else {
			silent[label] = node.DeepCopy()
		}
	})
	if err != nil {
		return 0, err
	}
	of, not := ready, true
	if len(ready) > mostNodes {
		of, not = slices.Sorted(maps.Keys(silent)), false
		of = of[:min(len(of), mostNodes)]
	}
	if len(of) == 0 {
		return 0, nil // none is Ready: the API server itself is new, or nodes are not known
	}
	var told []reminder
	err = w.API.EachVolumeOf(ctx, of, not, func(v *corev1.PersistentVolume) {
		f := Facts{Self: w.Self, Volume: v, Node: silent[v.Labels[plan.NodeLabel]], Now: time.Now()}
		if verdict := For(f); verdict.Action == plan.Remind {
			n++
			told = append(told, reminder{about(v), verdict})
		}
	})
	slices.SortFunc(told, func(a, b reminder) int { return cmp.Compare(a.ref.UID, b.ref.UID) })
	written := 0
	for _, r := range told {
		if err != nil || written == most {
			break
		}
		var was bool
		if was, err = w.tell(ctx, r); was {
			written++
		}
	}
	return n, err
}

// reminder is what is told of an object.
type reminder struct {
	ref corev1.ObjectReference
	plan.Verdict
}

// about is the claim of a volume, or the volume if that has none any more.
func about(v *corev1.PersistentVolume) corev1.ObjectReference {
	if ref := v.Spec.ClaimRef; ref != nil && v.Status.Phase == corev1.VolumeBound {
		return report.RecordedClaim(ref.Namespace, ref.Name, string(ref.UID))
	}
	return report.Volume(v)
}

// tell tells an object, unless this daemon or another one did so lately. was reports whether that
// took a request.
func (w *Watch) tell(ctx context.Context, r reminder) (was bool, err error) {
	uid := string(r.ref.UID)
	if time.Since(w.told[uid]) < plan.RemindEvery {
		return false, nil
	}
	at, _, err := w.API.EventLastWritten(ctx, r.ref, corev1.EventTypeWarning, r.Reason, r.Message)
	if err != nil {
		return true, err
	}
	if w.told[uid] = at; time.Since(at) >= plan.RemindEvery {
		w.API.Event(r.ref, corev1.EventTypeWarning, r.Reason, r.Message)
		w.told[uid] = time.Now()
	}
	return true, nil
}
