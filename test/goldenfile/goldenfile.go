// Package goldenfile compares what a test got with what a file has. It writes the file anew for go
// test -update.
package goldenfile

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Updating reports whether the files are written anew.
func Updating() bool { return *update }

// Compare fails the test if the file has another text.
func Compare(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (rewrite it with -update): got\n%s\nwant\n%s", file, got, want)
	}
}
