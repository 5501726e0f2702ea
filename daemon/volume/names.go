package volume

import (
	"fmt"
	"strings"
)

const (
	metaDir = ".hostpath-provisioner"

	stagingDir = "staging"
	trashDir   = "trash"
	volumesDir = "volumes"
	archiveDir = "archive"
	markerFile = "pool.json"

	recordSuffix = ".json"
	newSuffix    = ".json.new" // a record that is being written; ends in no record's suffix

	longestSuffix = ".json.12345678.new" // the same of one daemon among several, see Options.Maker

	emptyingSuffix = "~" // of a directory in the trash whose files are going; no PV's name has it

	nameMax = 255 // bytes, limits.h NAME_MAX
)

// checkPV refuses PV names that would not be one visible path element with room for our suffixes.
func checkPV(pv string) error {
	if strings.HasPrefix(pv, ".") {
		return fmt.Errorf("volume name %q: %w: it begins with a dot", pv, ErrName)
	}
	return checkElement("volume name", pv, nameMax-len(longestSuffix))
}

// checkDirectory refuses names that would not be one path element, and our own.
func checkDirectory(name string) error {
	if strings.HasPrefix(name, metaDir) {
		return fmt.Errorf("directory %q: %w: it is the daemon's own", name, ErrName)
	}
	return checkElement("directory", name, nameMax)
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
