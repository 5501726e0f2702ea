package record

import (
	"errors"
	"fmt"
	"strings"
)

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
