package model

import (
	"cmp"
	"regexp"
)

// A clone is a claim with the second name, of the claim with the first one. Its copy is a part of
// the work on its claim: the model plays it to its end before the daemon does anything else.

var (
	originInRecord      = regexp.MustCompile(`"uid": ?"([^"]*)"`)
	unpublishedInRecord = regexp.MustCompile(`"unpublished": ?true`)
)

// origin is what a volume's record says of the claim that it was copied from, and whether its
// object was not to be made yet.
func (f files) origin(pv string) (uid string, half bool) {
	volumes, archive := own+"/volumes/"+pv, own+"/archive/"+pv
	text := cmp.Or(f[volumes+".json"], f[volumes+".json.new"], f[archive+".json"])
	found := originInRecord.FindStringSubmatch(text)
	if found == nil {
		return "", false
	}
	return found[1], unpublishedInRecord.MatchString(text)
}

// cloneable reports whether there is a claim that can be cloned.
func (s *state) cloneable() bool {
	c := s.api.claims[0]
	cell := cellOf(0, c)
	v := s.api.volumes[cell]
	return c.exists && c.bound && v.exists && v.ref && !s.consent[chosen][cell]
}
