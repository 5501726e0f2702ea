package kube

import (
	"errors"
	"slices"
	"testing"
)

// A failure that several resources share is reported once, and its end when the last one has
// recovered.
func TestHealthReportsOnce(t *testing.T) {
	var told healthLog
	h := newHealth(told.add)
	away := errors.New("refused")
	h.failed("claims", away)
	h.failed("volumes", away)
	h.failed("claims", away)
	h.recovered("claims")
	h.recovered("classes")
	h.failed("claims", away) // volumes are still away: no new failure
	h.recovered("volumes")
	h.recovered("claims")
	h.recovered("claims")
	want := []string{"claims: refused", "well"}
	if got := told.read(); !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}
