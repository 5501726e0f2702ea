package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/test/hosttest"
)

// Unit names are those that systemd's own tool makes.
func TestEscapePath(t *testing.T) {
	for _, path := range []string{
		"/", "/srv/fast", "/data", "/mnt/disk-1", "/mnt/.hidden", "/.hidden/x", "/srv/with space", "/srv/a_b:c.d", "/srv/ümlaut", `/srv/back\slash`, "/srv/100%",
	} {
		out, err := exec.Command("systemd-escape", "--path", path).CombinedOutput()
		if err != nil {
			t.Fatalf("systemd-escape %q: %v\n%s", path, err, out)
		}
		if got, want := EscapePath(path), strings.TrimSpace(string(out)); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}

func TestGeneratedDropIn(t *testing.T) {
	plain := GeneratedDropIn(checkFile, []Pool{{MountPoint: "/mnt/disk-1", Path: "/mnt/disk-1/volumes"}, {Path: "/var/volumes"}, {MountPoint: "/srv/fast", Path: "/srv/fast"}})
	want := `# Of the pools in the configuration; made by hostpath-provisioner-generator.
[Unit]
After=mnt-disk\x2d1.mount
After=srv-fast.mount

[Service]
`
	if plain != want {
		t.Errorf("got\n%s\nwant\n%s", plain, want)
	}
	for setting, pool := range map[string]Pool{
		"User=root":      {Path: "/srv/nfs", Network: true},
		"ProtectHome=no": {Path: "/home"},
		"PrivateTmp=no":  {Path: "/var/tmp/pool"},
		"CapabilityBoundingSet=CAP_FSETID\nAmbientCapabilities=CAP_FSETID":                   {Path: "/srv/x", SetGroupID: true},
		"CapabilityBoundingSet=CAP_LINUX_IMMUTABLE\nAmbientCapabilities=CAP_LINUX_IMMUTABLE": {Path: "/srv/x", Purge: true},
	} {
		text := GeneratedDropIn(unitFile, []Pool{{Path: "/homes/x"}, {Path: "/tmpfs"}, pool})
		if strings.Count(text, "=") != 1+strings.Count(setting, "=") || !strings.Contains(text, "\n"+setting+"\n") {
			t.Errorf("want %s alone in\n%s", setting, text)
		}
	}
	// The check unit changes nothing; what looks under mount points is started by questions, as its
	// own user.
	needy := []Pool{{MountPoint: "/srv/x", Path: "/srv/x", SetGroupID: true, Purge: true, Network: true}, {Path: "/home/x"}, {Path: "/tmp/x"}}
	for unit, want := range map[string]string{checkFile: "After=srv-x.mount User=root ProtectHome=no PrivateTmp=no", lookFile: "ProtectHome=no PrivateTmp=no"} {
		var got []string
		for line := range strings.Lines(GeneratedDropIn(unit, needy)) {
			if strings.Contains(line, "=") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", unit, got, want)
		}
	}
}

// The sockets of container runtimes are hidden where no pool is.
func TestGeneratedHides(t *testing.T) {
	for path, seen := range map[string]string{"/srv/x": "", "/run/containerd/pool": "/run/containerd", "/run/k3s": "/run/k3s/containerd"} {
		text := GeneratedDropIn(unitFile, []Pool{{Path: path}})
		for _, one := range rulers {
			if hidden := strings.Contains(strings.ReplaceAll(text, "\n", " "), "-"+one+" "); hidden == (one == seen) {
				t.Errorf("a pool at %s: %s hidden: %t\n%s", path, one, hidden, text)
			}
		}
	}
}

// What is generated is a drop-in that systemd takes, whatever the pool's path.
func TestGeneratedVerifies(t *testing.T) {
	dir := hosttest.Dir(t)
	dropIn := filepath.Join(dir, unitFile+".d", "50-pools.conf")
	if err := os.Mkdir(filepath.Dir(dropIn), 0o755); err != nil {
		t.Fatal(err)
	}
	everything := GeneratedDropIn(unitFile, []Pool{{MountPoint: "/mnt/100% full-é", Path: "/mnt/100% full-é", SetGroupID: true, Purge: true}, {Path: "/home/x", Network: true}, {Path: "/tmp/x"}})
	if err := os.WriteFile(dropIn, []byte(everything), 0o644); err != nil {
		t.Fatal(err)
	}
	if said := verifyIn(t, dir, unitFile, unit(t)); said != "" {
		t.Errorf("%s\nof\n%s", said, everything)
	}
}
