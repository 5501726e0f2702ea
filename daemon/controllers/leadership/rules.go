package leadership

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// Action is what a daemon does about a lease.
type Action string

// Actions.
const (
	StandBy Action = "stand by"
	Lead    Action = "lead"   // take the lease, to work in the pool
	Report  Action = "report" // take it, to tell claims why no daemon can work in the pool
	Renew   Action = "renew"
	Resign  Action = "resign" // give it up, so that another daemon takes it at once
)

// Facts is everything that a decision about a lease depends on.
type Facts struct {
	Lease     *Lease        // nil: there is none
	Unchanged time.Duration // since the lease was last seen to change
	Me        string        // this daemon's identity
	Node      string
	Term      *Term  // the term that this process holds, nil if none
	Usable    bool   // the pool's gate lets this daemon work
	Marker    string // of the storage that is here
	Worked    string // the marker of the storage in which this process was Leader last
	Proof     Proof  // looked for only where Vacant
}

// Proof is what the disk tells about whether the storage here is the one that has the pool's
// volumes.
type Proof string

// Proofs. The zero value is that there are no volumes to look for.
const (
	ProofHere      Proof = "here"      // a volume of the pool is recorded here
	ProofElsewhere Proof = "elsewhere" // the pool has volumes, and none is recorded here
)

type rule func(Facts) (action Action, after time.Duration, applies bool)

// rules is the specification: the first rule that applies decides. The first five are of a daemon
// that holds the lease, the others of one that does not.
var rules = []rule{
	reporterCanLead, leaderCannotWork, leaseNeedsRepair, renewedLately, holdsLease,
	leaseIsFree, leaseIsFreeLater, reporterRenews, leaderMayComeYet,
}

// Decide returns what to do about a lease, and after which time to decide again if nothing changes.
func Decide(f Facts) (Action, time.Duration) {
	for _, rule := range rules {
		if action, after, applies := rule(f); applies {
			return action, after
		}
	}
	return Report, Renewal // no daemon took the lease to work
}

func reporterCanLead(f Facts) (Action, time.Duration, bool) {
	return Lead, Renewal, f.held() && f.Lease.Reporter && f.canWork()
}

func leaderCannotWork(f Facts) (Action, time.Duration, bool) {
	return Resign, noLeader + f.stagger(), f.held() && !f.Lease.Reporter && !f.canWork()
}

func leaseNeedsRepair(f Facts) (Action, time.Duration, bool) {
	return Renew, Renewal, f.held() && f.Repair() != ""
}

func renewedLately(f Facts) (Action, time.Duration, bool) {
	return StandBy, Renewal - f.Unchanged, f.held() && f.Unchanged < Renewal
}

func holdsLease(f Facts) (Action, time.Duration, bool) { return Renew, Renewal, f.held() }

func leaseIsFree(f Facts) (Action, time.Duration, bool) {
	return Lead, Renewal, f.canWork() && f.free() <= 0
}

// leaseIsFreeLater waits also where the storage is another one by now: the disk is asked for a
// proof when the time ends.
func leaseIsFreeLater(f Facts) (Action, time.Duration, bool) {
	return StandBy, f.free(), f.Usable && f.free() > 0
}

func reporterRenews(f Facts) (Action, time.Duration, bool) {
	limit := Duration + f.stagger()
	return StandBy, limit - f.Unchanged, f.Lease != nil && f.Lease.Reporter && f.Lease.Holder != "" && f.Unchanged < limit
}

func leaderMayComeYet(f Facts) (Action, time.Duration, bool) {
	return StandBy, f.free() + noLeader, f.free()+noLeader > 0
}

// canWork reports whether this daemon may be Leader, if the lease lets it.
func (f Facts) canWork() bool { return f.Usable && f.StorageMismatch() == "" }

// held reports whether this process holds the lease.
func (f Facts) held() bool {
	return f.Term != nil && f.Lease != nil && f.Lease.Holder == f.Me && f.Lease.Term == *f.Term
}

// leads reports whether this process holds the lease to work, which it only began in the storage
// Worked.
func (f Facts) leads() bool { return f.held() && !f.Lease.Reporter }

// Vacant reports whether this daemon could take the lease now: the disk is then asked for a Proof.
func (f Facts) Vacant() bool { return f.Usable && !f.leads() && f.unheld() <= 0 }

// free is how long until this daemon may take the lease to work. A storage that has none of the
// pool's volumes comes after one that has, whatever is in the lease: the marker in it may be that
// of the wrong one.
func (f Facts) free() time.Duration {
	if f.Proof == ProofElsewhere {
		return f.unheld() + Duration
	}
	return f.unheld()
}

// unheld is how long until the lease has no holder: none if there is none, or the same host was it
// before it started anew, or the holder is a Reporter. Daemons that wait for the same lease try one
// after the other.
func (f Facts) unheld() time.Duration {
	switch {
	case f.Lease == nil || f.Lease.Holder == "":
		return f.stagger() - f.Unchanged
	case f.Lease.Holder == f.Me:
		return -f.Unchanged
	case f.Lease.Reporter && f.Usable:
		return f.stagger() - f.Unchanged
	default:
		return Duration + f.stagger() - f.Unchanged
	}
}

func (f Facts) stagger() time.Duration {
	h := fnv.New32a()
	h.Write([]byte(f.Node))
	return time.Duration(h.Sum32()%400) * time.Millisecond
}

// StorageMismatch is why this daemon may not work although its pool is fine: another filesystem is
// here than the one that was worked in before. Volumes of the one would be looked for on the other.
//
// Any marker can be in the lease, of whatever program may write leases. So the lease does not
// outrank what was read from the disk: the holder knows in which storage it took the lease, and
// where there is no holder the storage counts that has the pool's volumes.
func (f Facts) StorageMismatch() string {
	if !f.markerDiffers() || f.proven() {
		return ""
	}
	return fmt.Sprintf("the storage here has the marker %s, and the other nodes work in %s (annotation of lease %s)", f.Marker, quoted(f.Lease.Marker), f.Lease.Name)
}

func (f Facts) markerDiffers() bool {
	return f.Lease != nil && f.Lease.Marker != "" && f.Marker != "" && f.Lease.Marker != f.Marker
}

func (f Facts) proven() bool {
	switch {
	case f.leads():
		return f.Worked == f.Marker
	case f.unheld() > 0:
		return false // the holder works, and has looked at its own disk
	case f.Proof == "":
		return f.Worked == f.Marker
	default:
		return f.Proof == ProofHere
	}
}

// Repair is what is wrong in the lease and is corrected when this daemon writes it, "" if nothing
// is.
func (f Facts) Repair() string {
	if f.Lease == nil {
		return ""
	}
	var wrong []string
	if f.Usable && f.markerDiffers() && f.proven() {
		wrong = append(wrong, fmt.Sprintf("its marker is %s, and the storage that has the pool's volumes has %s", quoted(f.Lease.Marker), f.Marker))
	}
	if f.Lease.Damage != "" {
		wrong = append(wrong, "it has "+f.Lease.Damage)
	}
	return strings.Join(wrong, "; ")
}
