package volume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version is the version of the records that this program writes; it reads all up to it.
const Version = 1

// recordMax bounds what is read of a record, in bytes: its longest valid fields take less than 4 KiB,
// but for an object that was replaced.
const recordMax = 64 << 10

// Record is the proof that a directory is ours: volumes/<pv>.json. Times are UTC.
type Record struct {
	Version     int       `json:"version"`
	PV          string    `json:"pv"`
	Namespace   string    `json:"namespace"`
	Claim       string    `json:"claim"`
	ClaimUID    string    `json:"claimUID"`
	Class       string    `json:"class,omitempty"`
	Provisioner string    `json:"provisioner,omitempty"`
	Node        string    `json:"node,omitempty"`
	Scope       string    `json:"scope,omitempty"`
	Source      string    `json:"source,omitempty"`
	Reclaim     string    `json:"reclaim,omitempty"`
	OnDelete    string    `json:"onDelete,omitempty"`
	Directory   string    `json:"directory"`           // one path element below the pool
	Requested   int64     `json:"requested,omitempty"` // bytes
	Created     time.Time `json:"created"`
	Retained    bool      `json:"retained,omitempty"` // the object was let go and the data kept
	// Unpublished: whoever made it was to make its object, too, and did not see that since (Published). Only
	// of scope every-node, where an empty directory without an object may still be in a pod.
	Unpublished bool `json:"unpublished,omitempty"`
	// Replaced is the volume object, in JSON, in whose place an object of ours was made, or is about to be made.
	Replaced string `json:"replaced,omitempty"`
}

// Place is where a recorded volume's directory is.
type Place string

// The places. A directory is in one of them; renames between them are atomic.
const (
	InPool    Place = "pool"
	InStaging Place = "staging"
	InTrash   Place = "trash"    // whole: PutBack brings it back
	Emptying  Place = "emptying" // in the trash, and its files are going
	InArchive Place = "archive"
	Nowhere   Place = "nowhere"
)

// conflicts says what an older record of the volume has that this one does not, nil if they agree.
func (r Record) conflicts(old Record) error {
	if old.Directory == r.Directory && old.ClaimUID == r.ClaimUID {
		return nil
	}
	return fmt.Errorf("%w: directory %q for claim %s/%s with UID %s", ErrConflict, old.Directory, old.Namespace, old.Claim, old.ClaimUID)
}

// wrong is the error of a call that does not work there.
func (p Place) wrong() error {
	switch p {
	case Emptying:
		return fmt.Errorf("%w: it is in the trash, and its files are going", ErrPlace)
	case Nowhere:
		return fmt.Errorf("%w: it is nowhere", ErrPlace)
	default:
		return fmt.Errorf("%w: it is in the %s", ErrPlace, p)
	}
}

// encode writes a record as people will read it: one field a line.
func (r Record) encode() ([]byte, error) {
	r.Version = Version
	text, err := json.MarshalIndent(r, "", "  ")
	if len(text) >= recordMax {
		return nil, fmt.Errorf("a record of %d bytes is larger than one that is read, %d", len(text)+1, recordMax)
	}
	return append(text, '\n'), err
}

// decodeRecord reads the record of one PV ("" for any) and believes nothing: the file may be torn,
// edited or newer. The version comes first, because the other fields of a newer record may mean other things.
func decodeRecord(text []byte, pv string) (Record, error) {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if v.Version > Version {
		return Record{}, fmt.Errorf("%w: version %d is %w than %d", ErrDamaged, v.Version, ErrNewer, Version)
	}
	var r Record
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a field that is ignored here is lost when the record is rewritten
	if err := decoder.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Record{}, fmt.Errorf("%w: text after its end", ErrDamaged)
	}
	return r, r.check(pv)
}

func (r Record) check(pv string) error {
	switch {
	case r.Version < 1:
		return fmt.Errorf("%w: version %d", ErrDamaged, r.Version)
	case pv != "" && r.PV != pv:
		return fmt.Errorf("%w: it is of volume %q", ErrDamaged, r.PV)
	}
	if err := errors.Join(checkPV(r.PV), checkDirectory(r.Directory)); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}
