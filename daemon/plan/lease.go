package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Lease says which daemon works in a shared pool, as the API has it.
type Lease struct {
	Name    string
	Pool    string
	Holder  string // a daemon's identity; "" is nobody
	Speaks  bool   // the holder cannot work in the pool either: it only tells claims why nobody does
	Marker  string // of the storage that was worked in; "" as long as nobody did
	Term    Term
	Version string // of the object, for a write that is refused if the object changed meanwhile
	Damage  string // what no daemon writes into a lease and is in this one, "" if nothing
}

// Term tells one holding of a lease from all others, also by the same daemon.
type Term struct {
	UID    string // of the Lease object: one that was deleted and made again counts from the start
	Number int32  // its leaseTransitions
	Token  string // drawn anew for each holding: a restored server counts the same numbers again
}

// Next is the term after this one. A number that cannot grow begins again, or the API server would refuse it
// (apis/coordination/validation: not negative), and nothing would be written any more.
func (t Term) Next(token string) Term {
	number := t.Number + 1
	if t.Number < 0 || t.Number == math.MaxInt32 {
		number = 1
	}
	return Term{UID: t.UID, Number: number, Token: token}
}

// The times of a lease. A holder trusts its own holding for less long than the others leave it alone,
// counted from before its request was sent, by clocks that go on while a machine sleeps.
const (
	LeaseDuration = 12 * time.Second // without a sign of life, until somebody else takes it
	LeaseTrust    = 8 * time.Second  // after a renewal, that its holder works
	LeaseRenewal  = 3 * time.Second  // between renewals
	leaseSpeak    = 5 * time.Second  // that nobody holds it before a daemon that cannot work speaks
)

// LeaseAction is what a daemon does about a lease.
type LeaseAction string

// Actions for a lease.
const (
	LeaseStand LeaseAction = "stand by"
	LeaseTake  LeaseAction = "take"  // to work in the pool
	LeaseSpeak LeaseAction = "speak" // take it to tell claims that no node can work in the pool
	LeaseRenew LeaseAction = "renew"
	LeaseLeave LeaseAction = "leave" // give it up, so that another daemon takes it at once
)

// LeaseFacts is everything that a decision about a lease depends on.
type LeaseFacts struct {
	Lease  *Lease // nil: there is none
	Me     string // this daemon's identity
	Node   string
	Term   *Term         // the term that this process holds, nil if none
	Able   bool          // the pool's gate lets this daemon work
	Marker string        // of the storage that is here
	Worked string        // the marker of the storage in which this process worked as the holder last
	Proof  Proof         // looked for only where Vacant
	Quiet  time.Duration // since the lease was last seen to change
}

// Proof is what the disk says about whether the storage here is the one that has the pool's volumes.
type Proof string

// Proofs. The zero value is that there are no volumes to look for.
const (
	ProofHere      Proof = "here"      // a volume of the pool is recorded here
	ProofElsewhere Proof = "elsewhere" // the pool has volumes, and none is recorded here
)

// ForLease decides, and answers after which time to decide again if nothing changes.
func ForLease(f LeaseFacts) (LeaseAction, time.Duration) {
	free, held := f.free(), f.held()
	able := f.Able && f.OtherStorage() == ""
	switch {
	case held && able && f.Lease.Speaks:
		return LeaseTake, LeaseRenewal
	case held && !able && !f.Lease.Speaks:
		return LeaseLeave, leaseSpeak + f.turn()
	case held && f.Repair() != "":
		return LeaseRenew, LeaseRenewal
	case held && f.Quiet < LeaseRenewal:
		return LeaseStand, LeaseRenewal - f.Quiet
	case held:
		return LeaseRenew, LeaseRenewal
	case able && free <= 0:
		return LeaseTake, LeaseRenewal
	case f.Able && free > 0: // the storage's proof is asked for when it ends
		return LeaseStand, free
	case f.Lease != nil && f.Lease.Speaks && f.Lease.Holder != "" && f.Quiet < LeaseDuration+f.turn():
		return LeaseStand, LeaseDuration + f.turn() - f.Quiet
	case free+leaseSpeak > 0:
		return LeaseStand, free + leaseSpeak
	default:
		return LeaseSpeak, LeaseRenewal
	}
}

// held reports whether this process holds the lease.
func (f LeaseFacts) held() bool {
	return f.Term != nil && f.Lease != nil && f.Lease.Holder == f.Me && f.Lease.Term == *f.Term
}

// works reports whether this process holds the lease to work, which it only began in the storage Worked.
func (f LeaseFacts) works() bool { return f.held() && !f.Lease.Speaks }

// Vacant reports whether this daemon could take the lease now: the disk is then asked for a Proof.
func (f LeaseFacts) Vacant() bool { return f.Able && !f.works() && f.unheld() <= 0 }

// free is how long until this daemon may take the lease to work. A storage that has none of the pool's
// volumes comes after one that has, whatever the lease says: somebody may have written the marker of the wrong one.
func (f LeaseFacts) free() time.Duration {
	if f.Proof == ProofElsewhere {
		return f.unheld() + LeaseDuration
	}
	return f.unheld()
}

// unheld is how long until the lease has no holder: none if there is none, or the same host was it before
// it started anew, or the holder only speaks. Daemons that wait for the same lease try one after the other.
func (f LeaseFacts) unheld() time.Duration {
	switch {
	case f.Lease == nil || f.Lease.Holder == "":
		return f.turn() - f.Quiet
	case f.Lease.Holder == f.Me:
		return -f.Quiet
	case f.Lease.Speaks && f.Able:
		return f.turn() - f.Quiet
	default:
		return LeaseDuration + f.turn() - f.Quiet
	}
}

func (f LeaseFacts) turn() time.Duration {
	h := fnv.New32a()
	h.Write([]byte(f.Node))
	return time.Duration(h.Sum32()%400) * time.Millisecond
}

// OtherStorage is why this daemon may not work although its pool is fine: another filesystem is here
// than the one that was worked in before. Volumes of the one would be looked for on the other.
//
// Whoever may write leases may write any marker. So the lease does not outrank what was read from the disk: the
// holder knows in which storage it took the lease, and where nothing is held the disk decides that has the pool's volumes.
func (f LeaseFacts) OtherStorage() string {
	if !f.markerDiffers() || f.proven() {
		return ""
	}
	return fmt.Sprintf("the storage here has the marker %s, and the other nodes work in %s (annotation of lease %s)", f.Marker, shown(f.Lease.Marker), f.Lease.Name)
}

func (f LeaseFacts) markerDiffers() bool {
	return f.Lease != nil && f.Lease.Marker != "" && f.Marker != "" && f.Lease.Marker != f.Marker
}

func (f LeaseFacts) proven() bool {
	switch {
	case f.works():
		return f.Worked == f.Marker
	case f.unheld() > 0:
		return false // the holder works, and has looked at its own disk
	case f.Proof == "":
		return f.Worked == f.Marker
	default:
		return f.Proof == ProofHere
	}
}

// Repair is what is wrong in the lease and is made right when this daemon writes it, "" if nothing is.
func (f LeaseFacts) Repair() string {
	if f.Lease == nil {
		return ""
	}
	var wrong []string
	if f.Able && f.markerDiffers() && f.proven() {
		wrong = append(wrong, fmt.Sprintf("its marker is %s, and the storage that has the pool's volumes has %s", shown(f.Lease.Marker), f.Marker))
	}
	if f.Lease.Damage != "" {
		wrong = append(wrong, "it has "+f.Lease.Damage)
	}
	return strings.Join(wrong, "; ")
}

// LeaseRepaired tells that a lease was made right.
func LeaseRepaired(lease, wrong string) string {
	return fmt.Sprintf("lease %s was changed by another program, and is corrected: %s", lease, wrong)
}

// LeaseLost tells a holder that its lease is held by another one before its time was over: now is what it is, nil if it is gone.
func LeaseLost(lease string, now *Lease) string {
	is := "it was deleted"
	switch {
	case now == nil:
	case now.Holder == "":
		is = "it has no holder"
	default:
		is = fmt.Sprintf("its holder is %s in term %d", shown(now.Holder), now.Term.Number)
	}
	return fmt.Sprintf("lease %s was overwritten while this node held it: %s; another program wrote it, or the cluster's data was restored; "+
		"this node stops work until it holds the lease again", lease, is)
}

// shown is text from the API as a message has it: short, and quoted where it is not plain.
func shown(text string) string {
	const most = 64
	plain := !strings.ContainsFunc(text, func(r rune) bool {
		return r > 'z' || !strings.ContainsRune("-_.", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if len(text) > most {
		text = text[:most] + "..."
	}
	if plain {
		return text
	}
	return strconv.Quote(text)
}

// LeaseName is the name of a shared pool's lease: pool and provisioner, so that daemons with different
// provisioner names do not keep each other from work. Provisioner names have letters that object
// names have not; one that had to be changed is told apart by its hash.
func LeaseName(provisioner, pool string) string {
	plain := strings.ReplaceAll(strings.ToLower(provisioner), "/", ".")
	name := pool + "." + plain
	if plain != provisioner || len(validation.IsDNS1123Subdomain(name)) > 0 {
		sum := sha256.Sum256([]byte(provisioner))
		plain = strings.Trim(strings.Map(func(r rune) rune {
			if r == '_' {
				return '-'
			}
			return r
		}, plain[:min(len(plain), 100)]), "-.")
		name = pool + "." + plain + "-" + hex.EncodeToString(sum[:4])
	}
	return name
}
