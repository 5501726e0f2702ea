package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/disk/usage"
	"github.com/hostpath-provisioner/hostpath-provisioner/daemon/rules/plan"
	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck"
)

// What a pool's volumes take is by their quotas, before what is in use on the pool's own
// filesystem, before what their directories took, if each was read.
func TestUsed(t *testing.T) {
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	r := hostcheck.Report{Size: 100, Available: 30, RootOnly: 5}
	read := usage.Pool{Used: 7, Estimate: true, Oldest: noon}
	for name, c := range map[string]struct {
		takes usage.Pool
		alone bool
		want  uint64
		known bool
		by    bool // their directories
	}{
		"quotas":             {usage.Pool{Range: 5, Used: 9}, true, 9, true, false},
		"its own filesystem": {read, true, 65, true, false},
		"directories":        {read, false, 7, true, true},
		"not each was read":  {usage.Pool{Used: 7}, false, 0, false, false},
		"quotas and directories": {
			usage.Pool{Range: 5, Used: 9, Oldest: noon}, false, 9, true, false},
	} {
		got := Used(c.takes, r, c.alone)
		if (got.Used != nil) != c.known || c.known && *got.Used != c.want ||
			got.Estimate != c.by || (got.Measured != nil) != c.by {
			t.Errorf("%s: %+v", name, got)
		}
		if c.by && !got.Measured.Equal(noon) {
			t.Errorf("%s: measured %s", name, got.Measured)
		}
	}
}

// A reload has nothing measured again, whatever else it changes of the pool; another directory is
// another pool.
func TestFiguresStay(t *testing.T) {
	d := &daemon{}
	p := poolOf("fast", plan.QuotaOff, 1, 2)
	changed, moved := p, p
	changed.ReservePercent, moved.Path = 50, "/srv/other"
	first := d.figuresOf(p)
	if first == nil || d.figuresOf(changed) != first || d.figuresOf(moved) == first {
		t.Error("the figures are of the wrong pool")
	}
}

// A file of figures that is not there, or is none, is an error.
func TestReadUsage(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadUsage(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a daemon: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, UsageFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadUsage(dir); err == nil {
		t.Error("half a file is read")
	}
}
