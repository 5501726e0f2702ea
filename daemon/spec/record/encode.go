package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// fields are the names of all fields of a record.
var fields = fieldsOf(reflect.TypeFor[Record]())

func fieldsOf(t reflect.Type) map[string]bool {
	all := map[string]bool{}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			all[name] = true
		}
	}
	return all
}

// Encode returns the text of a record in the present version, one field a line, for people to read.
func (r Record) Encode() ([]byte, error) {
	r.Version = Version
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if r.unknown != "" {
		text = append(text[:len(text)-1], ","+r.unknown[1:]...)
	}
	var lines bytes.Buffer
	if err := json.Indent(&lines, text, "", "  "); err != nil {
		return nil, err
	}
	lines.WriteByte('\n')
	if lines.Len() > MaxSize {
		return nil, fmt.Errorf("a record of %d bytes is larger than one that is read, %d", lines.Len(), MaxSize)
	}
	return lines.Bytes(), nil
}

// Decode reads the record of one PV ("" for any). It trusts nothing: the file may be torn, edited
// or newer. The version comes first, because the other fields of a newer record may mean other
// things. Each error is ErrDamaged.
func Decode(text []byte, pv string) (Record, error) {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case v.Version > Version:
		return Record{}, fmt.Errorf("%w: version %d is %w than %d", ErrDamaged, v.Version, ErrNewer, Version)
	case v.Version < oldest:
		return Record{}, fmt.Errorf("%w: version %d", ErrDamaged, v.Version)
	}
	r, err := decode(text)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return r, r.check(pv)
}

// decode takes the fields that it does not know out of the text, and reads the others.
func decode(text []byte) (r Record, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return r, err
	}
	unknown := map[string]json.RawMessage{}
	for name, value := range all {
		switch {
		case fields[name]:
		case likeKnown(name):
			return r, fmt.Errorf("unknown field %q", name)
		default:
			unknown[name] = value
			delete(all, name)
		}
	}
	if len(unknown) > 0 {
		kept, err := json.Marshal(unknown)
		if err != nil {
			return r, err
		}
		r.unknown = string(kept)
	}
	known, err := json.Marshal(all)
	if err != nil {
		return r, err
	}
	decoder := json.NewDecoder(bytes.NewReader(known))
	decoder.DisallowUnknownFields() // an unknown field within a known one would be lost
	err = decoder.Decode(&r)
	return r, err
}

// likeKnown reports whether package json would take the name for one of ours: it does not
// distinguish case.
func likeKnown(name string) bool {
	for field := range fields {
		if strings.EqualFold(field, name) {
			return true
		}
	}
	return false
}

func (r Record) check(pv string) error {
	if pv != "" && r.PV != pv {
		return fmt.Errorf("%w: it is of volume %q", ErrDamaged, r.PV)
	}
	if r.Promised < 0 {
		return fmt.Errorf("%w: %d bytes are promised", ErrDamaged, r.Promised)
	}
	if err := errors.Join(CheckPV(r.PV), CheckDirectory(r.Directory)); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

const (
	// OwnDir is the directory below a pool that the daemon keeps for itself.
	OwnDir = ".hostpath-provisioner"
	// NameMax is the length of a name in bytes, limits.h NAME_MAX.
	NameMax = 255
	// longestSuffix is what is added to a PV's name while its record is written in a shared pool.
	longestSuffix = ".json.12345678.new"
)

// ErrName is of a name that is not one path element, or that the daemon keeps for itself.
var ErrName = errors.New("not usable as a name")

// CheckPV refuses, with ErrName, PV names that are not one visible path element with room for our
// suffixes.
func CheckPV(pv string) error {
	if strings.HasPrefix(pv, ".") {
		return fmt.Errorf("volume name %q: %w: it begins with a dot", pv, ErrName)
	}
	return checkElement("volume name", pv, NameMax-len(longestSuffix))
}

// CheckDirectory refuses, with ErrName, names that are not one path element, and our own.
func CheckDirectory(name string) error {
	if strings.HasPrefix(name, OwnDir) {
		return fmt.Errorf("directory %q: %w: it is the daemon's own", name, ErrName)
	}
	return checkElement("directory", name, NameMax)
}

func checkElement(what, name string, limit int) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("%s %q: %w", what, name, ErrName)
	case strings.ContainsAny(name, "/\x00"):
		return fmt.Errorf("%s %q: %w: it is not one path element", what, name, ErrName)
	case len(name) > limit:
		return fmt.Errorf("%s %q: %w: %d bytes, at most %d", what, name, ErrName, len(name), limit)
	default:
		return nil
	}
}

// Place is where the directory of a recorded volume is.
type Place string

// The places. A directory is in exactly one of them; renames between them are atomic.
const (
	InPool    Place = "pool"
	InStaging Place = "staging"
	InTrash   Place = "trash"    // whole: it can be put back
	Emptying  Place = "emptying" // in the trash, and its files are going
	InArchive Place = "archive"
	Nowhere   Place = "nowhere"
)

// Describe returns the place as it reads in a sentence about the directory.
func (p Place) Describe() string {
	switch p {
	case Emptying:
		return "in the trash, and its files are going"
	case Nowhere:
		return "gone"
	default:
		return "in the " + string(p)
	}
}
