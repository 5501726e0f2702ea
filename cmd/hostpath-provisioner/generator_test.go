package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// generated is everything that the generator writes, by name.
func generated(t *testing.T, h *host) map[string]string {
	t.Helper()
	dir := h.path("normal")
	h.must(os.RemoveAll(dir))
	h.must(os.Mkdir(dir, 0o755))
	if got := h.call("generator", dir, h.path("early"), h.path("late")); got != "exit 0\n" {
		t.Fatal(got)
	}
	all := map[string]string{}
	files, err := filepath.Glob(dir + "/*/*")
	h.must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		h.must(err)
		all[strings.TrimPrefix(file, dir+"/")] = string(text)
	}
	return all
}

func TestGenerator(t *testing.T) {
	h := newHost(t, `
[pool.fast]
path = "/srv/fast/volumes"
mount_point = "/srv/fast"
device = "LABEL=fast"
[pool.here]
path = "/home/here"
require_mount = false
`)
	want := `# Of the pools in the configuration; made by hostpath-provisioner-generator.
[Unit]
After=srv-fast.mount

[Service]
# pool at /home/here: it is in a home directory
ProtectHome=no
`
	all := generated(t, h)
	if got := all["hostpath-provisioner-check.service.d/50-pools.conf"]; got != want {
		t.Errorf("check: got\n%s\nwant\n%s", got, want)
	}
	want += `# pool at /srv/fast/volumes: FS_IOC_SETFLAGS lets immutable files be removed with their volume
CapabilityBoundingSet=CAP_LINUX_IMMUTABLE
AmbientCapabilities=CAP_LINUX_IMMUTABLE
# sockets of those who run programs as root
InaccessiblePaths=`
	if got := all["hostpath-provisioner.service.d/50-pools.conf"]; !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := all["hostpath-provisioner-mountpoint.service.d/50-pools.conf"]; !strings.Contains(got, "\nProtectHome=no\n") || strings.Contains(got, "After=") {
		t.Errorf("what looks under mount points:\n%s", got)
	}
	if got, want := all["hostpath-provisioner-csi.socket.d/50-pools.conf"], `# Of the configuration; made by hostpath-provisioner-generator.
[Socket]
ListenStream=
ListenStream=/var/lib/kubelet/plugins/hostpath-provisioner/csi.sock
ListenStream=/var/lib/kubelet/plugins_registry/hostpath-provisioner-reg.sock
`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(all) != 4 {
		t.Errorf("%d files: %q", len(all), all)
	}
	for _, network := range []string{`device = "server:/export"`, `filesystem = "nfs4"`, `filesystem = "fuse.sshfs"`} {
		h.write("config.toml", "[pool.net]\npath = \"/srv/net\"\n"+network)
		if text := generated(t, h)["hostpath-provisioner.service.d/50-pools.conf"]; !strings.Contains(text, "\nUser=root\n") {
			t.Errorf("%s: no User=root in\n%s", network, text)
		}
	}
}

// What a pool's keys ask of the sandbox.
func TestGeneratorCapabilities(t *testing.T) {
	for keys, want := range map[string]string{
		"":                        "CAP_LINUX_IMMUTABLE",
		`mode = "2770"`:           "CAP_FSETID CAP_LINUX_IMMUTABLE",
		`immutable = "off"`:       "CAP_LINUX_IMMUTABLE",
		"require_mount = false":   "CAP_LINUX_IMMUTABLE",
		"on_delete = \"archive\"": "",
		"immutable = \"off\"\non_delete = \"archive\"": "",
	} {
		h := newHost(t, "[pool.p]\npath = \"/srv/p\"\n"+keys+"\n")
		var got []string
		for _, line := range strings.Split(generated(t, h)["hostpath-provisioner.service.d/50-pools.conf"], "\n") {
			if c, is := strings.CutPrefix(line, "CapabilityBoundingSet="); is {
				got = append(got, c)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
}

// The system call that sets limits is allowed in the units where a pool has limits, and nowhere
// else.
func TestGeneratorQuota(t *testing.T) {
	for keys, want := range map[string]bool{"": false, `quota = "off"`: false, `quota = "ceph"`: false, `quota = "project"`: true} {
		h := newHost(t, "[pool.p]\npath = \"/srv/p\"\n"+keys+"\n")
		for unit, text := range generated(t, h) {
			if got := strings.Contains(text, "\nSystemCallFilter=quotactl_fd\n"); got != (want && strings.Contains(unit, ".service.d/")) {
				t.Errorf("%s: %s: %t", keys, unit, got)
			}
		}
	}
}

// Whatever is wrong is said, and nothing is written: a boot goes on.
func TestGeneratorWithout(t *testing.T) {
	h := newHost(t, "pool = 5\n")
	h.must(os.Mkdir(h.path("normal"), 0o755))
	if got := h.call("generator", h.path("normal")); !strings.Contains(got, "want [pool.NAME]") || !strings.HasSuffix(got, "exit 2\n") {
		t.Error(got)
	}
	h.must(os.WriteFile(h.path("config.toml"), []byte("metrics = \"\"\n"), 0o600))
	if all := generated(t, h); len(all) != 0 {
		t.Errorf("without a pool: %q", all)
	}
	h.must(os.Remove(h.path("config.toml")))
	if all := generated(t, h); len(all) != 0 {
		t.Errorf("without a configuration: %q", all)
	}
}

// What cannot be kept for later is told, and keeps no unit from its settings.
func TestGeneratorWithoutPlaceToKeep(t *testing.T) {
	h := newHost(t, "[pool.here]\npath = \"/home/here\"\nrequire_mount = false\n")
	h.must(os.MkdirAll(h.path("run"), 0o755))
	h.must(os.WriteFile(h.path("run/hostpath-provisioner-generator"), nil, 0o600))
	h.must(os.Mkdir(h.path("normal"), 0o755))
	if got := h.call("generator", h.path("normal")); !strings.Contains(got, "not a directory") || !strings.HasSuffix(got, "exit 1\n") {
		t.Error(got)
	}
	for _, unit := range []string{"", "-check", "-mountpoint"} {
		text, err := os.ReadFile(h.path("normal", "hostpath-provisioner"+unit+".service.d", "50-pools.conf"))
		if err != nil || !strings.Contains(string(text), "ProtectHome=no") {
			t.Errorf("%q: %v\n%s", unit, err, text)
		}
	}
}

// A mistake in the configuration does not take away what the one before needed.
func TestGeneratorKeeps(t *testing.T) {
	h := newHost(t, "[pool.here]\npath = \"/home/here\"\nrequire_mount = false\n")
	before := generated(t, h)
	h.write("config.toml", "pool = 5\n")
	h.must(os.RemoveAll(h.path("normal")))
	h.must(os.Mkdir(h.path("normal"), 0o755))
	if got := h.call("generator", h.path("normal")); !strings.Contains(got, "want [pool.NAME]") || !strings.HasSuffix(got, "exit 2\n") {
		t.Error(got)
	}
	for name, text := range before {
		now, err := os.ReadFile(h.path("normal", name))
		if err != nil || string(now) != "# Of an earlier configuration: the present one has errors.\n"+text {
			t.Errorf("%s: %v\n%s", name, err, now)
		}
	}
}

// A pool that systemd does not know of yet is open to check, and not to the service: that is said,
// until the generator has run. Nothing is said where it is not installed.
func TestUnitOutdated(t *testing.T) {
	h := newHost(t, "node = 'node-a'\n[pool.here]\npath = 'BASE/pool'\nrequire_mount = false\naccept = ['PlainDirectory']\n")
	h.call("prepare", "here")
	says := func(want bool) {
		t.Helper()
		got := h.call("check")
		if strings.Contains(got, "pool here: warning UnitOutdated: hostpath-provisioner.service does not have CapabilityBoundingSet=CAP_LINUX_IMMUTABLE, which the pool needs") != want ||
			strings.Contains(got, "hint: run: systemctl daemon-reload; then: systemctl restart hostpath-provisioner") != want || !strings.HasSuffix(got, "exit 0\n") {
			t.Errorf("want it said: %t\n%s", want, got)
		}
	}
	says(false)
	for _, dir := range []string{"run/systemd/system", "run/systemd/generator", "usr/lib/systemd/system-generators/hostpath-provisioner-generator"} {
		h.must(os.MkdirAll(h.path(dir), 0o755))
	}
	says(true)
	h.call("generator", h.path("run/systemd/generator"))
	says(false)
}

// The service is in the place of another driver as well: its sockets are behind our own, in pairs
// (daemon/node/csi, OnSockets).
func TestGeneratorCSIDrivers(t *testing.T) {
	h := newHost(t, "")
	h.write("config.toml", "aliases = ['kubevirt.io.hostpath-provisioner']\ncsi_drivers = ['kubevirt.io.hostpath-provisioner']\n[pool.fast]\npath = \"/srv/fast\"\n")
	const want = "hostpath-provisioner-reg.sock\nListenStream=/var/lib/kubelet/plugins/kubevirt.io.hostpath-provisioner/csi.sock\nListenStream=/var/lib/kubelet/plugins_registry/kubevirt.io.hostpath-provisioner-reg.sock\n"
	if got := generated(t, h)["hostpath-provisioner-csi.socket.d/50-pools.conf"]; !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s\nwant at the end\n%s", got, want)
	}
}
