package presence

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// State is what a daemon tells of itself in the node's lease, for people. A reader takes it for the
// word of whoever has the node's identity.
type State struct {
	Time    time.Time `json:"time"` // when it was written, by the node's clock
	Version string    `json:"version"`
	// Reason and Message are what is wrong besides the pools, "" for nothing.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Pools   []Pool `json:"pools"`
	More    int    `json:"more,omitempty"` // pools that there was no room for
}

// Pool is one pool of a State. Sizes are in bytes, nil where they are not known.
type Pool struct {
	Name    string    `json:"name"`
	State   string    `json:"state"` // PoolOpen, PoolFull, PoolCordoned or PoolClosed
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
	Volumes int       `json:"volumes"`
	// Lost is of how many volumes the data is missing or the record damaged.
	Lost int     `json:"lost,omitempty"`
	Size uint64  `json:"size,omitempty"`
	Used *uint64 `json:"used,omitempty"`
	// UsedEstimate: not all directories were read for Used.
	UsedEstimate bool    `json:"usedEstimate,omitempty"`
	Promised     *uint64 `json:"promised,omitempty"`
	Free         *uint64 `json:"free,omitempty"`
}

// Values of Pool.State.
const (
	PoolOpen     = "open"
	PoolFull     = "full"
	PoolCordoned = "cordoned" // by a person: no new volumes
	PoolClosed   = "closed"
)

// Bounds.
const (
	StateMax   = 4096 // bytes of one daemon's state; the policies refuse more
	mostStates = 8    // of one node; the policies refuse more
	messageMax = 200
	// Silent is how long after its Time a state counts as its daemon's last word.
	Silent = 3 * Every
	// over is after what time the state of a daemon that is not there any more makes room.
	over = 7 * 24 * time.Hour
)

// StateKey is the annotation of the daemons of one provisioner.
func StateKey(provisioner string) string {
	name := strings.ReplaceAll(provisioner, "/", ".")
	return StatePrefix + name[max(0, len(name)-maxOfName):]
}

// StatePrefix begins the annotations of a lease that are states; a name of at most 63 characters
// follows.
const (
	StatePrefix = "state.hostpath-provisioner/"
	maxOfName   = 63
)

// Encode returns the state in at most StateMax bytes, without messages and the last of the pools
// where it has to, and what of it is news: what a person is to know before long.
func (s State) Encode() (text, news string) {
	news = s.news()
	s.Reason, s.Message = words.Name(s.Reason), words.Line(s.Message, messageMax)
	s.Pools = slices.Clone(s.Pools)
	for i := range s.Pools {
		s.Pools[i].Message = words.Line(s.Pools[i].Message, messageMax)
	}
	for {
		encoded, err := json.Marshal(s)
		if err == nil && len(encoded) <= StateMax {
			return string(encoded), news
		}
		if !s.shorten() {
			return "", ""
		}
	}
}

// shorten leaves a message out, or else a pool. It reports whether there was one.
func (s *State) shorten() bool {
	for i := range slices.Backward(s.Pools) {
		if s.Pools[i].Message != "" {
			s.Pools[i].Message = ""
			return true
		}
	}
	if len(s.Pools) == 0 {
		return false
	}
	s.Pools, s.More = s.Pools[:len(s.Pools)-1], s.More+1
	return true
}

// news leaves out what changes all the time: sizes, counts, and the words of a message.
func (s State) news() string {
	var all []string
	for _, p := range s.Pools {
		lost := ""
		if p.Lost > 0 {
			lost = "lost"
		}
		all = append(all, p.Name, p.State, p.Reason, lost)
	}
	return strings.Join(append(all, s.Version, s.Reason), "\n")
}

// DecodeState reads a state, of which nothing is trusted: its texts are bounded, on one line, and
// fit for a terminal. It reports whether it is one.
func DecodeState(text string) (s State, ok bool) {
	if len(text) > StateMax || json.Unmarshal([]byte(text), &s) != nil || s.Time.IsZero() {
		return State{}, false
	}
	for _, word := range []*string{&s.Version, &s.Reason} {
		*word = words.Line(*word, 63)
	}
	if s.Message = words.Line(s.Message, messageMax); s.Reason != "" && !isReason(s.Reason) {
		s.Reason = unreadable
	}
	for i := range s.Pools {
		p := &s.Pools[i]
		p.Name, p.Reason = words.Line(p.Name, 63), words.Line(p.Reason, 63)
		p.Message = words.Line(p.Message, messageMax)
		if !slices.Contains([]string{PoolOpen, PoolFull, PoolCordoned}, p.State) {
			p.State = PoolClosed
		}
		p.Volumes, p.Lost = counted(p.Volumes), counted(p.Lost)
	}
	s.More = counted(s.More)
	return s, true
}

// unreadable is the reason of a state that no daemon of this version tells.
const unreadable = "unreadable"

// Unreadable is the state of a daemon that has a lease and tells what DecodeState does not take.
func Unreadable(l *coordinationv1.Lease) State {
	s := State{Time: l.CreationTimestamp.Time, Reason: unreadable,
		Message: "what its daemon tells is of another version, or damaged"}
	if l.Spec.RenewTime != nil {
		s.Time = l.Spec.RenewTime.Time
	}
	return s
}

// counted is a number of which many have a sum.
func counted(n int) int { return min(max(n, 0), math.MaxInt32) }

// isReason reports whether a text is a reason as Kubernetes has them: in capitals and letters.
func isReason(text string) bool {
	return text[0] >= 'A' && text[0] <= 'Z' && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// forgotten reports whether a state is of a daemon that has not been there for long, or none at all.
func forgotten(text string) bool {
	s, ok := DecodeState(text)
	return !ok || time.Since(s.Time) > over
}
