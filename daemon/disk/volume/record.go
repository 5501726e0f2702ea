package volume

import (
	"fmt"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/spec/record"
)

// readRecord reads the record of a volume. What it cannot decode is ErrDamaged.
func readRecord(dir int, name, pv string) (record.Record, error) {
	text, err := readFile(dir, name, record.MaxSize)
	if err != nil {
		return record.Record{}, err
	}
	return decodeVolume(text, pv)
}

// decodeVolume refuses what is recorded as another thing than a volume, an inline volume or a
// snapshot: nothing of this package is right for it.
func decodeVolume(text []byte, pv string) (record.Record, error) {
	r, err := record.Decode(text, pv)
	if err == nil && r.Kind != record.Volume && r.Kind != record.Snapshot && r.Kind != record.Inline {
		return record.Record{}, fmt.Errorf("%w: it is of a %q, and %w", record.ErrDamaged, r.Kind, record.ErrNewer)
	}
	return r, err
}

// conflict is what an older record of a volume has that the record of one to be made has not, nil
// if they agree.
func conflict(r, old record.Record) error {
	if old.Directory == r.Directory && old.ClaimUID == r.ClaimUID && old.Kind == r.Kind {
		return nil
	}
	return fmt.Errorf("%w: directory %q for claim %s/%s with UID %s", ErrConflict, old.Directory, old.Namespace, old.Claim, old.ClaimUID)
}

// wrongPlace is the error of a call that does not work on a directory at p.
func wrongPlace(p record.Place) error { return fmt.Errorf("%w: it is %s", ErrPlace, p.Describe()) }
