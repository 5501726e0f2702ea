package goldenfile

import (
	"os"
	"path/filepath"
	"testing"
)

// recorder is a test that fails without ending.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestCompare(t *testing.T) {
	file := filepath.Join(t.TempDir(), "golden.txt")
	if err := os.WriteFile(file, []byte("as it was\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for got, fails := range map[string]bool{"as it was\n": false, "as it was": true, "another\n": true} {
		r := &recorder{TB: t}
		if Compare(r, file, got); r.failed != fails {
			t.Errorf("%q: failed %t, want %t", got, r.failed, fails)
		}
	}
	defer func(was bool) { *update = was }(*update)
	*update = true
	if Compare(t, file, "another\n"); t.Failed() {
		t.Error("the file was not written")
	}
}
