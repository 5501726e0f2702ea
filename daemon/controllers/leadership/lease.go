package leadership

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Lease is the Lease object of a shared pool: which daemon works in it.
type Lease struct {
	Name     string
	Pool     string
	Holder   string // a daemon's identity; "" is none
	Reporter bool   // the holder cannot work in the pool either: it only tells claims why no daemon can
	Marker   string // of the storage that the Leader works in; "" before the first Leader
	Term     Term
	Version  string // of the object, for a write that is refused if the object changed meanwhile
	Damage   string // what no daemon writes into a lease and is in this one, "" if nothing
}

// Term tells one holding of a lease from all others, also by the same daemon.
type Term struct {
	UID    string // of the Lease object: one that was deleted and made again counts from the start
	Number int32  // its leaseTransitions
	Token  string // drawn anew for each holding: a restored server counts the same numbers again
}

// Next is the term after this one. A number that cannot grow begins again, or the API server would
// refuse it (apis/coordination/validation: not negative), and no daemon could write the lease any
// more.
func (t Term) Next(token string) Term {
	number := t.Number + 1
	if t.Number < 0 || t.Number == math.MaxInt32 {
		number = 1
	}
	return Term{UID: t.UID, Number: number, Token: token}
}

// The times of a lease. A holder trusts its own holding for less long than the others leave it
// alone, counted from before its request was sent, by BootTime.
const (
	Duration = 12 * time.Second // without a renewal, until another daemon takes the lease
	Trust    = 8 * time.Second  // after a renewal, that its holder works
	Renewal  = 3 * time.Second  // between renewals
	noLeader = 5 * time.Second  // without a holder, until a daemon that cannot work becomes Reporter
)

// Leases reads and writes Lease objects. Package kube has it.
type Leases interface {
	// ReadLease returns nil without an error for a lease that does not exist.
	ReadLease(ctx context.Context, name string) (*Lease, error)
	// WriteLease writes a lease that still is at l.Version, or creates it where that is "". It
	// returns the lease as it is now, nil without an error if it changed meanwhile.
	WriteLease(ctx context.Context, l Lease) (now *Lease, err error)
}

// Name is the name of a shared pool's lease: pool and provisioner, so that daemons with different
// provisioner names do not keep each other from work. A provisioner's name may have letters that an
// object's name may not; one that had to be changed is told apart by its hash.
func Name(provisioner, pool string) string {
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
