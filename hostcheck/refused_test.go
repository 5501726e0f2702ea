package hostcheck

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/hostcheck/mounts"
)

// A file server that squashes root may still let a directory be opened that it showed before, and refuse
// the marker in it: that is a permission which root has not, and not a filesystem that is sick.
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
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread() // for good: the thread ends with the goroutine, and what it may not do with it
				withoutOverride(t)
				fd, err := mounts.Open(dir, unix.O_PATH)
				l := gatherer{expect: Expect{Path: dir, MountPoint: dir}}
				l.gatherPool(&f, fd, err, func(string, Facts) {}, expensive)
			}()
			<-done
			if !f.Refused || !strings.HasSuffix(f.Failed, "/pool.json: permission denied") {
				t.Errorf("refused: %v, %q", f.Refused, f.Failed)
			}
		})
	}
}

// withoutOverride takes from this thread what lets root pass over permissions.
func withoutOverride(t *testing.T) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Error(err)
		return
	}
	for _, c := range []uint{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
		data[0].Effective &^= 1 << c
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Error(err)
	}
}
