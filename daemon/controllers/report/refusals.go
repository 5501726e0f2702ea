package report

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

const (
	// refusedTries within refusedSoon, or refusedLong, is how long an error is taken for one that
	// passes: a server that starts, or whose etcd elects a leader, returns errors for some seconds.
	refusedTries = 3
	refusedSoon  = 5 * time.Second
	refusedLong  = 30 * time.Second
)

// Refusals reports requests that the API server refuses again and again, each with the server's
// words: to the log, to the objects that wait for it, and to the status. It does not matter which
// error that is. A server that is away, or refuses the credential, is none of this: package kube
// reports it. All fields are needed.
type Refusals struct {
	Log    *slog.Logger
	Events Events
	// Reachable reports whether the API server responds to others: then no response is the
	// request's own trouble.
	Reachable func() bool
	// Allow reports whether a warning about an object of a namespace may be written now.
	Allow func(namespace string) bool

	mu      sync.Mutex
	refused map[string]*Refusal
	said    Dedup
}

// About is what requests are about.
type About struct {
	What string                   // in the log and the status; it tells one from others
	Refs []corev1.ObjectReference // are told by an event
	// Optional: nothing waits for it.
	Optional bool
}

// Refusal is what the API server has refused since a time, each time.
type Refusal struct {
	What    string    `json:"object"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	// Optional: nothing waits for it.
	Optional bool `json:"optional,omitempty"`
	tries    int
	told     bool
}

// Note notes how a piece of work ended that sends requests about something. An error that is not a
// request's is as good as none.
func (r *Refusals) Note(about About, err error) {
	if errors.Is(err, context.Canceled) {
		return // the daemon ends, or something else is to be done
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, known := time.Now(), r.refused[about.What]
	if !OfRequest(err) {
		r.taken(known)
		return
	}
	if known == nil {
		if r.refused == nil {
			r.refused = map[string]*Refusal{}
		}
		known = &Refusal{What: about.What, Since: now, Optional: about.Optional}
		r.refused[about.What] = known
	}
	known.tries++
	known.Message = words.Line(err.Error(), words.MessageMax)
	if known.told = known.told || r.lasts(known, err, now); known.told {
		r.tell(about, known.Message)
	}
}

// taken ends what was refused, if something was.
func (r *Refusals) taken(known *Refusal) {
	if known == nil {
		return
	}
	delete(r.refused, known.What)
	if r.said.Resolve(known.What) {
		r.Log.Info("the API server takes again what it refused", "reason", plan.ReasonAPIAvailable, "object", known.What)
	}
}

// Forget forgets what was refused, which is given up.
func (r *Refusals) Forget(about About) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.refused, about.What)
	r.said.Forget(about.What)
}

// lasts reports whether an error is not one that passes.
func (r *Refusals) lasts(known *Refusal, err error, now time.Time) bool {
	lasted := now.Sub(known.Since)
	switch {
	case Permanent(err):
		return true
	case !errors.As(err, new(apierrors.APIStatus)):
		return known.tries > 1 && lasted >= refusedLong && r.Reachable()
	case apierrors.IsUnauthorized(err): // package kube reports the credential
		return false
	case apierrors.IsConflict(err): // it is decided anew
		return lasted >= refusedLong
	}
	return lasted >= refusedLong || known.tries >= refusedTries && lasted >= refusedSoon
}

func (r *Refusals) tell(about About, message string) {
	if !r.said.New(about.What, message) {
		return
	}
	if len(about.Refs) > 0 && about.Refs[0].Namespace != "" && !r.Allow(about.Refs[0].Namespace) {
		r.said.Retract(about.What)
		return
	}
	r.Log.Warn(message, "reason", plan.ReasonAPIRefused, "object", about.What)
	for _, ref := range about.Refs {
		r.Events.Event(ref, corev1.EventTypeWarning, plan.ReasonAPIRefused, message)
	}
}

// Lasting returns how many things are refused for long, and the first of them: those that something
// waits for, the oldest first.
func (r *Refusals) Lasting(most int) (count int, first []Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.refused {
		if one.told {
			first = append(first, *one)
		}
	}
	slices.SortFunc(first, func(a, b Refusal) int {
		if a.Optional != b.Optional {
			return map[bool]int{true: 1, false: -1}[a.Optional]
		}
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.What, b.What))
	})
	return len(first), first[:min(most, len(first))]
}

// Permanent reports whether an error of the API server will not pass by itself: the request is
// forbidden or invalid.
func Permanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// OfRequest reports whether an error is that of a request: a response of the API server, or of
// something before it, or none. nil is not.
func OfRequest(err error) bool {
	return errors.As(err, new(apierrors.APIStatus)) || errors.As(err, new(*url.Error))
}

// AboutObjects is about an object, and others that wait for it.
func AboutObjects(refs ...corev1.ObjectReference) About {
	return About{What: nameOf(refs[0]), Refs: refs}
}

// AboutEvents is about the events of an object.
func AboutEvents(ref corev1.ObjectReference) About {
	return About{What: "events of " + nameOf(ref), Optional: true}
}

func nameOf(ref corev1.ObjectReference) string {
	kind := map[string]string{"PersistentVolumeClaim": "claim", "PersistentVolume": "volume"}[ref.Kind]
	if kind = cmp.Or(kind, ref.Kind); ref.Namespace == "" {
		return kind + " " + ref.Name
	}
	return kind + " " + ref.Namespace + "/" + ref.Name
}
