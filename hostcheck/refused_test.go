package hostcheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// A file server that squashes root may still let a directory be opened that it showed before, and
// refuse the marker in it: that is a permission which root has not, and not a filesystem that is
// sick.
func TestRefusedMarker(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, MarkerPath)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o000); err != nil {
		t.Fatal(err)
	}
	for name, expensive := range map[string]bool{"from the cache": false, "from the server": true} {
		t.Run(name, func(t *testing.T) {
			var f Facts
			hosttest.Without(t, func() {
				fd, err := mounts.Open(dir, unix.O_PATH)
				l := gatherer{expect: Expect{Path: dir, MountPoint: dir}}
				l.gatherPool(&f, fd, err, func(string, Facts) {}, expensive)
			}, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH)
			if !f.Refused || !strings.HasSuffix(f.Failed, "/pool.json: permission denied") {
				t.Errorf("refused: %v, %q", f.Refused, f.Failed)
			}
		})
	}
}
