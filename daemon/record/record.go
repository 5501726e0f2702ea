// Package record is the file that proves that a directory is ours: what it says, how it is encoded, and what a
// reader refuses.
//
// It will not read or write a file (package volume does), and it will not decide anything about a volume
// (package plan does). It imports no other package of this project.
package record

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

// MaxSize bounds what is read of a record, in bytes: its longest valid fields take less than 4 KiB,
// but for an object that was replaced.
const MaxSize = 64 << 10

// Errors of Decode, wrapped.
var (
	// ErrDamaged: there is a record, and it cannot be read. Nothing is done with such a volume.
	ErrDamaged = errors.New("the record cannot be read")
	// ErrNewer accompanies ErrDamaged for a record that a newer version of this program wrote.
	ErrNewer = errors.New("written by a newer version")
)

// Record is what a pool says of one of its volumes. Times are UTC.
type Record struct {
	Version     int       `json:"version"`
	PV          string    `json:"pv"`
	Namespace   string    `json:"namespace"`
	Claim       string    `json:"claim"`
	ClaimUID    string    `json:"claimUID"`
	Class       string    `json:"class,omitempty"`
	Provisioner string    `json:"provisioner,omitempty"`
	Node        string    `json:"node,omitempty"`  // whose daemon made the volume
	Scope       string    `json:"scope,omitempty"` // of the pool when the volume was made
	Source      string    `json:"source,omitempty"`
	Reclaim     string    `json:"reclaim,omitempty"`
	OnDelete    string    `json:"onDelete,omitempty"`  // as the class said when the volume was made
	Directory   string    `json:"directory"`           // one path element below the pool
	Requested   int64     `json:"requested,omitempty"` // bytes
	Created     time.Time `json:"created"`
	Retained    bool      `json:"retained,omitempty"` // the object was let go and the data kept
	// Unpublished: the daemon that made the volume was to make its object, too, and did not see that since. Only
	// of scope every-node, where an empty directory without an object may still be in a pod.
	Unpublished bool `json:"unpublished,omitempty"`
	// Replaced is the volume object, in JSON, in whose place an object of ours was made, or is about to be made.
	Replaced string `json:"replaced,omitempty"`

	// Place is where the directory was found. It is not in the file.
	Place Place `json:"-"`
	// Archived: the record was found in the archive, too. It is not in the file.
	Archived bool `json:"-"`
}

// HasObject reports whether a volume object is to be expected for a record.
func (r Record) HasObject() bool { return r.Place == InPool && !r.Retained && !r.Unpublished }

// MayHaveObject reports whether a volume object is possible: a volume that is whole in the trash has its object
// until that is let go, and one that was made to be published may have it by now.
func (r Record) MayHaveObject() bool { return !r.Retained && (r.Place == InPool || r.Place == InTrash) }

// Whole reports whether the directory is out of the pool and can be put back as it was.
func (r Record) Whole() bool { return r.Place == InTrash || r.Place == InArchive }

// Encode returns the text of a record in the present version, one field a line, for people to read.
func (r Record) Encode() ([]byte, error) {
	r.Version = Version
	text, err := json.MarshalIndent(r, "", "  ")
	if len(text) >= MaxSize {
		return nil, fmt.Errorf("a record of %d bytes is larger than one that is read, %d", len(text)+1, MaxSize)
	}
	return append(text, '\n'), err
}

// Decode reads the record of one PV ("" for any). It trusts nothing: the file may be torn, edited or newer. The
// version comes first, because the other fields of a newer record may mean other things. Each error is ErrDamaged.
func Decode(text []byte, pv string) (Record, error) {
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
	if err := errors.Join(CheckPV(r.PV), CheckDirectory(r.Directory)); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}
