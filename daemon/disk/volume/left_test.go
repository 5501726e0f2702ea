package volume

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The names of what could not be removed are its owner's: of each path both ends are told, on one
// line.
func TestLeftPathsAreBounded(t *testing.T) {
	path := func() string { return "first\n" + strings.Repeat("\x1b[31m/deep", 10_000) + "/last\xff" }
	for name, err := range map[string]func(Rest) error{
		"purge":   func(r Rest) error { return Purged{Rest: r}.err() },
		"relabel": func(r Rest) error { return Relabelled{Visited{Rest: r}}.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			var rest Rest
			for range 2 * leftMax {
				rest.add(path, mountPoint(unix.EBUSY))
			}
			bounded(t, err(rest).Error())
		})
	}
}

func bounded(t *testing.T, message string) {
	t.Helper()
	if len(message) > (leftMax+1)*(pathMax+60) || strings.ContainsAny(message, "\n\x1b\xff") {
		t.Errorf("%d bytes: %.300q", len(message), message)
	}
	for _, words := range []string{`"first\n`, `/last\xff": something is mounted on it`, "and 5 more"} {
		if !strings.Contains(message, words) {
			t.Errorf("without %q: %.300q", words, message)
		}
	}
}
