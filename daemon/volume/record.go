package volume

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/record"
)

// conflict is what an older record of a volume has that the record of one to be made has not, nil if they agree.
func conflict(r, old record.Record) error {
	if old.Directory == r.Directory && old.ClaimUID == r.ClaimUID {
		return nil
	}
	return fmt.Errorf("%w: directory %q for claim %s/%s with UID %s", ErrConflict, old.Directory, old.Namespace, old.Claim, old.ClaimUID)
}

// wrongPlace is the error of a call that does not work on a directory at p.
func wrongPlace(p record.Place) error { return fmt.Errorf("%w: it is %s", ErrPlace, p.Describe()) }
