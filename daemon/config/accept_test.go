package config

import (
	"strings"
	"testing"
)

// A warning that was accepted is not given; any other is, and only warnings can be accepted.
func TestAccept(t *testing.T) {
	plain := minimal + "require_mount = false\n"
	if c := load(t, plain); len(c.Warnings) != 1 {
		t.Errorf("warnings %q", c.Warnings)
	}
	c := load(t, plain+`accept = ["PlainDirectory", "LaxMount", "PlainDirectory"]`)
	if p := c.Pools[0]; len(c.Warnings) != 0 || p.Accept != "LaxMount,PlainDirectory" || !p.Accepts("LaxMount") || p.Accepts("WrongLabel") || p.Accepts("") {
		t.Errorf("warnings %q, %q", c.Warnings, p.Accept)
	}
	if c := load(t, plain+`accept = ["LaxMount"]`); len(c.Warnings) != 1 {
		t.Errorf("another is accepted: warnings %q", c.Warnings)
	}
	for value, want := range map[string]string{
		`["NotMounted"]`: `"NotMounted" is not one of ImmutableUnknown, LaxMount, `, `"LaxMount"`: "want an array of strings", `[5]`: "want an array of strings",
	} {
		_, err := Load(write(t, plain+"accept = "+value))
		if err == nil || !strings.Contains(err.Error(), "pool.p.accept: "+want) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
