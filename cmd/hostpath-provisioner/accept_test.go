package main

import (
	"strings"
	"testing"
)

// What the operator accepted is not told again by any command; without that it is, by each.
func TestAccepted(t *testing.T) {
	for accept, warned := range map[string]bool{"": true, "accept = ['PlainDirectory']\n": false} {
		h := newHost(t, "node = 'node-a'\n[pool.plain]\npath = 'BASE/plain'\nrequire_mount = false\n"+accept)
		for _, command := range []string{"prepare plain", "check", "check --config-only", "volumes"} {
			if got := h.call(strings.Fields(command)...); strings.Contains(got, "plain directory") != warned {
				t.Errorf("%q: %s\n%s", accept, command, got)
			}
		}
	}
}
