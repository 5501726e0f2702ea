package daemon

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// What audits find is logged when it changes: a cluster without a claim is audited every ten
// minutes.
func TestAuditsAreToldOnce(t *testing.T) {
	var log strings.Builder
	g := &generation{d: &daemon{Options: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}}
	tell := g.tellAudits()
	for _, c := range []struct {
		whole    bool
		labelled int
		err      error
		want     string // of the line, "" for none
	}{
		{true, 0, nil, ""}, {false, 0, nil, "level=WARN"}, {false, 0, nil, ""}, {false, 0, errors.New("down"), "down"}, {false, 0, errors.New("down"), ""},
		{true, 2, nil, "level=INFO msg=\"2 claims"}, {true, 0, nil, ""}, {false, 0, nil, "level=WARN"},
	} {
		log.Reset()
		tell(c.whole, c.labelled, c.err)
		if got := log.String(); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%+v: logged %q", c, got)
		}
	}
}
