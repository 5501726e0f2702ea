package hostcheck

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/goldenfile"
)

// TestRecordedHosts judges whole hosts: a report of trouble becomes a folder. The first ones were
// composed after the tables of such distributions, not taken from one machine.
func TestRecordedHosts(t *testing.T) {
	dirs, err := filepath.Glob("testdata/hosts/*")
	must(t, err)
	if len(dirs) < 8 {
		t.Fatalf("only %d recorded hosts", len(dirs))
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var e Expect
			var f Facts
			decode(t, filepath.Join(dir, "expect.json"), &e)
			decode(t, filepath.Join(dir, "facts.json"), &f)
			table, err := os.Open(filepath.Join(dir, "proc/self/mountinfo"))
			must(t, err)
			defer table.Close()
			f.Mounts, err = mounts.Parse(table)
			must(t, err)
			got, err := json.MarshalIndent(Check(e, f), "", "  ")
			must(t, err)
			goldenfile.Compare(t, filepath.Join(dir, "expected.json"), string(got)+"\n")
		})
	}
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
