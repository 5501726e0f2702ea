package words

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// Nothing that is logged is longer than a page or has a second line, however it came into the
// record.
func TestHandler(t *testing.T) {
	var out bytes.Buffer
	long := strings.Repeat("x", 256<<10) + "\n"
	log := slog.New(Handler(slog.NewTextHandler(&out, nil)))
	log.Info("short", "claim", "default/data", "n", 7)
	if got := out.String(); !strings.Contains(got, `msg=short claim=default/data n=7`) {
		t.Errorf("%s", got)
	}
	for _, l := range []*slog.Logger{log, log.With("long", long), log.WithGroup("g")} {
		out.Reset()
		l.Warn(long, "string", long, "error", errors.New(long), slog.Group("in", "deep", long))
		if n := out.Len(); n > logMax+5*MessageMax || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("a record of %d bytes", n)
		}
	}
}
