package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/words"
)

// A claim of a class with WaitForFirstConsumer that fits on no node is refused by kube-scheduler,
// which says so on the pod alone (pkg/scheduler/framework/plugins/volumebinding). No node is chosen
// for the claim, so that no daemon is asked for it. One of the daemons explains it on the claim:
// what was published says that no node has the room.

// UnplacedFacts is everything that the explanation of a claim without a node depends on.
type UnplacedFacts struct {
	Self
	Claim   *corev1.PersistentVolumeClaim
	Class   *storagev1.StorageClass // nil: not known, or not ours
	Here    uint64                  // what one more volume of the class can get on this node, in bytes
	Nodes   int                     // that publish something
	Age     time.Duration           // since this daemon first saw that the claim has no node and does not fit here
	Missing time.Duration           // since this daemon first saw that it fits on no node
	Fitted  bool                    // this daemon saw before that it may fit on one
	Refusal *Refusal                // why this node makes no volumes of the class, nil if it does
	Offers  *Offers                 // nil: the API server was not asked

	// Unpublished is why the API server refuses what this node publishes for the class, "" if it
	// does not.
	Unpublished string
}

// Offers is what the nodes publish for one class.
type Offers struct {
	Silent  int // nodes that publish nothing: the scheduler may choose them whatever a claim requests
	Nodes   int // that publish something
	Largest uint64
	On      string   // a node that has the largest
	None    []string // the nodes that can give nothing, with the reason of a closed pool: "node-a (NotMounted)"
}

// Add takes note of what one node publishes: closed is the reason why its pool takes no volumes, ""
// if it does.
func (o *Offers) Add(node, closed string, bytes uint64) {
	o.Nodes++
	if bytes > o.Largest || bytes == o.Largest && bytes > 0 && node < o.On {
		o.Largest, o.On = bytes, node
	}
	if bytes == 0 && closed != "" {
		node += " (" + closed + ")"
	}
	if bytes == 0 {
		o.None = append(o.None, node)
	}
}

const (
	// chosenAfter is how long a claim may be without a node before it is looked at: the scheduler
	// chooses within a second or so.
	chosenAfter = 1500 * time.Millisecond
	// settleAfter is how long a claim that did fit has to fit on no node before it is told so: a
	// pool may be mounted again.
	settleAfter = 5 * time.Second
	// silentNodesAfter is the same where nodes publish nothing, which have no daemon perhaps: the
	// scheduler would have chosen one of them by then if the pod could run there.
	silentNodesAfter = 30 * time.Second
	// turnSpan is the mean time between two nodes' looks.
	turnSpan = 500 * time.Millisecond
	// OffersAgain is how often the first of the nodes compares again.
	OffersAgain = time.Minute
	// turnsSlower is how many nodes further in the order the time between two looks is twice as
	// long.
	turnsSlower = 4
)

type unplacedRule func(UnplacedFacts) (Verdict, bool)

// unplacedRules is the specification: the first rule that applies decides.
var unplacedRules = []unplacedRule{unplacedNot, fitsHere, turnToCome, classMistaken, unpublished,
	offersUnknown, fitsElsewhere, mayChange}

// ForUnplaced decides whether a claim without a node is told that it fits on none (Remind). Inquire
// asks for Offers.
func ForUnplaced(f UnplacedFacts) Verdict {
	if v, applies := First(unplacedRules, f); applies {
		return v
	}
	return Verdict{Action: Remind, Reason: ReasonNoNodeFits, Message: f.fitsNowhere(),
		After: f.Again(OffersAgain)}
}

// OneEvent reports whether an object has one event of a reason, with the latest message: what is
// told depends on so many nodes that another daemon would tell it in other words.
func OneEvent(reason string) bool { return reason == ReasonNoNodeFits }

// Unplaced reports whether a claim waits for the scheduler to choose a node, by itself and its
// class, which is nil if it is not known. Classes of aliases are
// compared with nothing, but for those of a CSI driver in whose place the daemon is.
func (s Self) Unplaced(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	return NodeOpen(c) && s.Compares(class)
}

// Compares reports whether the scheduler chooses the nodes of a class's claims by what is
// published; class may be nil.
func (s Self) Compares(class *storagev1.StorageClass) bool {
	return WaitsForConsumer(class) && slices.Contains(s.Drivers(), class.Provisioner)
}

// NodeOpen reports whether a claim has neither a volume nor a node.
func NodeOpen(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.VolumeName == "" && c.DeletionTimestamp == nil && Chosen(c) == ""
}

// Unasked reports whether a claim has neither a volume nor a node, and no provisioner was asked for
// it yet: before the scheduler has chosen a node there is nothing to do for it. A copy has its
// source's node, whatever the scheduler does.
func Unasked(c *corev1.PersistentVolumeClaim) bool {
	return NodeOpen(c) && askedProvisioner(c) == "" && !IsCopy(c)
}

func unplacedNot(f UnplacedFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, !f.Unplaced(f.Claim, f.Class)
}

func fitsHere(f UnplacedFacts) (Verdict, bool) {
	return Verdict{Action: Ignore}, f.Unpublished == "" && fits(requested(f.Claim), f.Here)
}

// turnToCome: the order of the nodes is the same for all claims of a class, so that one of them
// compares for all.
func turnToCome(f UnplacedFacts) (Verdict, bool) {
	wait := chosenAfter + time.Duration(f.turn()*float64(turnSpan)) - f.Age
	return Verdict{Action: Wait, After: wait}, wait > 0
}

// classMistaken: no node makes a volume of the class, so that what the nodes publish does not
// matter. A pool that this node lacks another one may have.
func classMistaken(f UnplacedFacts) (Verdict, bool) {
	if f.Refusal == nil || f.Refusal.Help != ByRequest && f.Nodes > 1 {
		return Verdict{}, false
	}
	return Verdict{Action: Remind, Reason: f.Refusal.Reason, Message: f.Refusal.Message,
		After: f.Again(OffersAgain)}, true
}

// unpublished: the scheduler takes a node that publishes nothing for a class for one without room.
func unpublished(f UnplacedFacts) (Verdict, bool) {
	if f.Unpublished == "" {
		return Verdict{}, false
	}
	return Verdict{Action: Remind, Reason: ReasonAPIRefused, After: f.Again(OffersAgain),
		Message: fmt.Sprintf("the scheduler finds no room for class %s: the API server refuses "+
			"what the nodes publish for it: %s", words.Name(f.Class.Name), f.Unpublished)}, true
}

func offersUnknown(f UnplacedFacts) (Verdict, bool) {
	return Verdict{Action: Inquire}, f.Offers == nil
}

func fitsElsewhere(f UnplacedFacts) (Verdict, bool) {
	return Verdict{Action: Wait, After: f.Again(OffersAgain)}, f.FitsSomewhere()
}

// FitsSomewhere reports whether the claim may fit on a node, as far as that is known: where nothing
// is published nothing is compared.
func (f UnplacedFacts) FitsSomewhere() bool {
	o := f.Offers
	return o == nil || o.Nodes == 0 || fits(requested(f.Claim), o.Largest)
}

func mayChange(f UnplacedFacts) (Verdict, bool) {
	wait := -f.Missing
	switch {
	case f.Offers != nil && f.Offers.Silent > 0:
		wait += silentNodesAfter
	case f.Fitted:
		wait += settleAfter
	}
	return Verdict{Action: Wait, After: wait}, wait > 0
}

// turn is how many nodes look at claims of the class before this one, on average.
func (f UnplacedFacts) turn() float64 {
	if f.Nodes < 2 || f.Class == nil {
		return 0
	}
	return hashFraction(string(f.Class.UID), f.Node) * float64(f.Nodes)
}

// Again is when this node looks again at what the first one looks at after the duration d: later
// ones more seldom, so that the requests of all nodes together hardly grow with their number.
func (f UnplacedFacts) Again(d time.Duration) time.Duration {
	return d + time.Duration(f.turn()/turnsSlower*float64(d))
}

// fitsNowhere has the same words on every node.
func (f UnplacedFacts) fitsNowhere() string {
	o, size, class := f.Offers, requested(f.Claim), words.Name(f.Class.Name)
	of, most := "1 node that publishes its room", "none can give a volume of class "+class
	if o.Nodes > 1 {
		of = fmt.Sprintf("%d nodes that publish their room", o.Nodes)
	}
	if o.Largest > 0 {
		most = fmt.Sprintf("the most that one can give to a volume of class %s is %s, on %s", class, words.Size(o.Largest), words.Name(o.On))
	}
	return fmt.Sprintf(
		"no node is known to have room for the claim: it requests %s, and of %s %s; %s%s%s",
		words.Name(size.String()), of, most, o.silent(), o.nothing(), o.advice())
}

// silent is the part of the message about nodes that publish nothing, "" if there are none.
func (o *Offers) silent() string {
	if o.Silent == 0 {
		return ""
	}
	return fmt.Sprintf("other nodes publish nothing (%d), and the scheduler may choose one of them if the pod can run there; ", o.Silent)
}

// noneNamed is how many of the nodes that can give nothing are named.
const noneNamed = 3

// nothing is the part of the message about nodes that can give nothing, "" if there are none.
func (o *Offers) nothing() string {
	if len(o.None) == 0 {
		return ""
	}
	none := slices.Sorted(slices.Values(o.None))
	text := "nothing can be had on " + strings.Join(none[:min(len(none), noneNamed)], ", ")
	if more := len(none) - noneNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + "; "
}

// advice is what helps against the reasons that there are: a class that names what no node has,
// pools that are closed, and too little room.
func (o *Offers) advice() string {
	var class, closed bool
	room := o.Largest > 0
	for _, node := range o.None {
		_, reason, named := strings.Cut(strings.TrimSuffix(node, ")"), " (")
		of := slices.Contains([]string{ReasonUnknownPool, ReasonUnknownParameter,
			ReasonBadParameter}, reason)
		class, closed, room = class || of, closed || named && !of, room || !named
	}
	var all []string
	if closed {
		all = append(all, "open the closed pools")
	}
	if class {
		all = append(all, "correct the class")
	}
	if room {
		all = append(all, "add storage", "remove volumes", "request less")
	}
	if len(all) > 1 {
		all[len(all)-1] = "or " + all[len(all)-1]
	}
	return strings.Join(all, ", ")
}
