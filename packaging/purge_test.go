package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// The scriptlet runs as root in a directory that the daemon's user writes: it follows no link
// there. The links are in the places of both directories, and the files that they lead to have
// names that are removed.
func TestPurgeFollowsNoLink(t *testing.T) {
	script, err := filepath.Abs("scripts/postremove.sh")
	must(t, err)
	must(t, unix.Mount("lib", "/var/lib", "tmpfs", 0, "")) // in a namespace of this test's own
	t.Cleanup(func() { _ = unix.Unmount("/var/lib", unix.MNT_DETACH) })
	const lib, other = "/var/lib/hostpath-provisioner", "/var/lib/docker"
	for _, planted := range []string{"", "pools", "state"} {
		for _, file := range []string{
			other + "/daemon.json", other + "/lock", other + "/pools/x.json",
			lib + "/state/token", lib + "/state/lock", lib + "/state/pools/fast.json", lib + "/pools/old.json",
			lib + "/volumes/pools/pgdata.json", lib + "/state/node-lease",
			lib + "/state/claim-index", lib + "/state/volume-index", lib + "/state/cordoned-fast",
		} {
			must(t, os.MkdirAll(filepath.Dir(file), 0o755))
			must(t, os.WriteFile(file, nil, 0o600))
		}
		want := map[string]bool{lib + "/volumes/pools/pgdata.json": true, lib + "/state": false}
		for _, file := range []string{"daemon.json", "lock", "pools/x.json"} {
			want[filepath.Join(other, file)] = true
		}
		switch planted {
		case "pools":
			must(t, os.RemoveAll(lib+"/state/pools"))
			must(t, os.Symlink(other, lib+"/state/pools"))
			want[lib+"/state"] = true // with the link in it
		case "state":
			must(t, os.RemoveAll(lib+"/state"))
			must(t, os.Symlink(other, lib+"/state"))
			want[lib+"/state"] = true
		}
		if out, err := exec.Command("sh", script, "purge").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for file, stays := range want {
			if _, err := os.Lstat(file); (err == nil) != stays {
				t.Errorf("link in place of %q: %s stays: %v", planted, file, err)
			}
		}
		must(t, os.RemoveAll(lib))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
