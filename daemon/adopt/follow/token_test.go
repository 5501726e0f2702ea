package follow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"
)

// A stream's name is a label's value, and says when it began; but not after a restart, or after the
// clock was set back by more than it can have been steered.
func TestSinceOf(t *testing.T) {
	now := time.Now()
	began := unix.Timespec{Sec: now.Unix() - 3600, Nsec: 7}
	name, err := NewStream(began)
	if bad := validation.IsValidLabelValue(name); err != nil || len(bad) > 0 {
		t.Fatalf("%v, %q: %q", err, name, bad)
	}
	if since, err := SinceOf(name); err != nil || since != began {
		t.Errorf("%q began at %v, %v", name, since, err)
	}
	boot, ahead, err := clockNow()
	if err != nil {
		t.Fatal(err)
	}
	at := func(boot string, ahead int64) string {
		return fmt.Sprintf(streamUID, began.Sec, began.Nsec, boot, ahead, "RANDOM")
	}
	for name, want := range map[string]string{
		at(boot, ahead+3000):     "",
		at(boot, ahead-3600_000): "",
		at(boot, ahead+6000):     "set back",
		at("00000000", ahead):    "restarted",
		"":                       "no stream's name",
		"yesterday":              "no stream's name",
		at(boot, ahead) + "-x":   "no stream's name",
		strings.TrimRight(at(boot, ahead), "RANDOM"):            "no stream's name",
		strings.Replace(at(boot, ahead), ".000000007", ".7", 1): "no stream's name",
		strings.Replace(at(boot, ahead), "-", "- ", 1):          "no stream's name",
	} {
		_, err := SinceOf(name)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
