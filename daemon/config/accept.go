package config

import (
	"fmt"
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
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("want an array of strings, got %s", typeName(v))
	}
	var all []string
	for _, one := range list {
		reason, ok := one.(string)
		if !ok {
			return fmt.Errorf("want an array of strings, got one with %s", typeName(one))
		}
		if err := oneOf(reason, Acceptable...); err != nil {
			return err
		}
		all = append(all, reason)
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
