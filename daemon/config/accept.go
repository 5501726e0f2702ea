package config

import (
	"slices"
	"strings"
)

// Acceptable are the reasons of warnings that an operator may have accepted: of what the pool is
// meant to be.
var Acceptable = []string{"ImmutableUnknown", "LaxMount", "LookFailed", "LookNotPermitted", "NotImmutable", "ModeTooOpen", "PlainDirectory", "WrongLabel"}

// plainDirectory is the warning that require_mount = false brings.
const plainDirectory = "PlainDirectory"

// setAccept takes an array of reasons. An empty one is none.
func setAccept(p *Pool, v any) error {
	all, err := texts(v)
	if err != nil {
		return err
	}
	for _, reason := range all {
		if err := oneOf(reason, Acceptable...); err != nil {
			return err
		}
	}
	slices.Sort(all)
	p.Accept = strings.Join(slices.Compact(all), ",")
	return nil
}

// Accepts reports whether the operator knows of a warning with this reason and does not want to be
// told again.
func (p Pool) Accepts(reason string) bool {
	return reason != "" && slices.Contains(strings.Split(p.Accept, ","), reason)
}
