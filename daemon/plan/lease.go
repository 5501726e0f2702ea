package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

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
	Version string // of the object, for a write that is refused if somebody else wrote meanwhile
}

// Term tells one holding of a lease from all others, also by the same daemon.
type Term struct {
	UID    string // of the Lease object: one that was deleted and made again counts from the start
	Number int32  // its leaseTransitions
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
	Quiet  time.Duration // since the lease was last seen to change
}

// ForLease decides, and answers after which time to decide again if nothing changes.
func ForLease(f LeaseFacts) (LeaseAction, time.Duration) {
	free, held := f.free(), f.Term != nil && f.Lease != nil && f.Lease.Holder == f.Me && f.Lease.Term == *f.Term
	able := f.Able && f.OtherStorage() == ""
	switch {
	case held && able && f.Lease.Speaks:
		return LeaseTake, LeaseRenewal
	case held && !able && !f.Lease.Speaks:
		return LeaseLeave, leaseSpeak + f.turn()
	case held && f.Quiet < LeaseRenewal:
		return LeaseStand, LeaseRenewal - f.Quiet
	case held:
		return LeaseRenew, LeaseRenewal
	case able && free <= 0:
		return LeaseTake, LeaseRenewal
	case able:
		return LeaseStand, free
	case f.Lease != nil && f.Lease.Speaks && f.Lease.Holder != "" && f.Quiet < LeaseDuration+f.turn():
		return LeaseStand, LeaseDuration + f.turn() - f.Quiet
	case free+leaseSpeak > 0:
		return LeaseStand, free + leaseSpeak
	default:
		return LeaseSpeak, LeaseRenewal
	}
}

// free is how long until this daemon may take the lease to work: at once if nobody holds it, or the
// same host did before it started anew, or its holder only speaks. Daemons that wait for the same
// lease try one after the other.
func (f LeaseFacts) free() time.Duration {
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

// OtherStorage says why this daemon may not work although its pool is fine: another filesystem is
// here than the one that was worked in before. Volumes of the one would be looked for on the other.
func (f LeaseFacts) OtherStorage() string {
	if f.Lease == nil || f.Lease.Marker == "" || f.Marker == "" || f.Lease.Marker == f.Marker {
		return ""
	}
	return fmt.Sprintf("the storage here has the marker %s, and the other nodes work in %s (annotation of lease %s)", f.Marker, f.Lease.Marker, f.Lease.Name)
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
