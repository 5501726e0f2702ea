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
